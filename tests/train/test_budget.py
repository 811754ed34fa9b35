import pytest

from weft.errors import RecipeError
from weft.train.budget import Budget, read_budget, steps_of


@pytest.mark.parametrize(
    ("text", "amount", "kind"),
    [
        ("20m", 1200, "seconds"),
        ("90s", 90, "seconds"),
        ("1.5h", 5400, "seconds"),
        ("2 d", 172_800, "seconds"),
        ("2000 steps", 2000, "steps"),
        ("1 step", 1, "steps"),
        ("2k steps", 2000, "steps"),
        ("50M tokens", 50e6, "tokens"),
        ("1.5B tokens", 1.5e9, "tokens"),
        ("3 epochs", 3, "epochs"),
        ("0.5epochs", 0.5, "epochs"),
    ],
)
def test_a_budget_is_said_as_people_say_it(text, amount, kind):
    assert read_budget(text) == Budget(amount, kind)


@pytest.mark.parametrize(
    "text",
    [
        "banana",
        "",
        "20",
        "m",
        "-3 steps",
        "3 weeks",
        "0m",
        "0 steps",
        "1e3 steps",
        "20m 30s",
        "50M",
        "9" * 400 + " steps",
    ],
)
def test_anything_else_is_refused_with_examples(text):
    with pytest.raises(RecipeError, match=r"pretrain\.budget cannot be .* Examples: 20m"):
        read_budget(text)


def test_steps_cover_the_budget():
    sizes = {"batch_tokens": 1000, "samples": 10, "epoch_samples": 95}
    assert steps_of(read_budget("7 steps"), **sizes) == 7
    assert steps_of(read_budget("2500 tokens"), **sizes) == 3
    assert steps_of(read_budget("2 epochs"), **sizes) == 19
    assert steps_of(read_budget("0.001 epochs"), **sizes) == 1
    with pytest.raises(RecipeError, match="steps; the limit is 1,000,000,000"):
        steps_of(read_budget("900000000000b steps"), **sizes)
