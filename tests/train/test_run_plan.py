"""The rule for sizes: what it says in known cases, and that a plan keeps to it."""

import math
import shutil

import pytest
import torch

import weft
from weft.model.packed import pack
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainSection
from weft.train.plan import scaling
from weft.train.plan.run_plan import MASKED_STEPS, fewest_steps, minutes_for
from weft.train.plan.scaling import best_size, choose_size, expected_loss, ladder, weights_of
from weft.train.plan.trial import Cost, compile_stacks

FLOPS = 1e11  # per second


def cost_of(size):
    """As if a step cost exactly its arithmetic."""
    return Cost(step=6 * weights_of(size, 100) * 4096 / FLOPS, token=1e-6, precision="float32")


def chosen(seconds, unique=1e12, worth=1.0):
    sizes = ladder(ModelSection(family="qwen3"))
    size, _ = choose_size(sizes, 100, lambda: seconds, 4096, unique, cost_of, FLOPS, worth)
    return weights_of(size, 100)


def test_more_time_means_a_larger_model():
    sizes = [chosen(seconds) for seconds in (10, 100, 1_000, 10_000, 100_000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 20 * sizes[0]


@pytest.mark.parametrize("seconds", [100, 10_000, 1_000_000])
def test_the_choice_is_near_the_laws_optimum(seconds):
    """Hoffmann's closed form: N = G · (C / 6)^(β / (α + β))."""
    alpha, beta = scaling.ALPHA, scaling.BETA
    factor = (alpha * scaling.A / (beta * scaling.B)) ** (1 / (alpha + beta))
    best = factor * (seconds * FLOPS / 6) ** (beta / (alpha + beta))
    assert abs(math.log(chosen(seconds) / best)) < math.log(1.8)  # the ladder's steps are that far apart


def test_a_neighbour_that_costs_less_than_guessed_is_found():
    """Here a step takes the same time at any size: the largest model wins, one rung after the other."""
    sizes = ladder(ModelSection(family="qwen3"))[:6]
    measured = []

    def measure(size):
        measured.append(size)
        return Cost(step=0.1, token=1e-6, precision="float32")

    size, _ = choose_size(sizes, 100, lambda: 1000.0, 4096, 1e12, measure, FLOPS)
    assert size is sizes[-1]
    assert len(measured) == len(set(map(repr, measured)))


def test_a_size_that_leaves_too_few_steps_gives_way_to_a_smaller_one():
    sizes, seconds = ladder(ModelSection(family="modernbert")), 300.0
    free, _ = choose_size(sizes, 100, lambda: seconds, 4096, 1e12, cost_of, FLOPS)
    steps = seconds / cost_of(free).step
    bound, cost = choose_size(sizes, 100, lambda: seconds, 4096, 1e12, cost_of, FLOPS, fewest=int(2 * steps))
    assert weights_of(bound, 100) < weights_of(free, 100)
    assert seconds / cost.step >= int(2 * steps)
    least, _ = choose_size(sizes, 100, lambda: seconds, 4096, 1e12, cost_of, FLOPS, fewest=10**9)
    assert least is sizes[0]


@pytest.mark.parametrize(
    ("objective", "model", "floor"),
    [
        ("masked", {"family": "modernbert"}, True),
        ("masked+next-sentence", {"family": "bert"}, True),
        ("causal", {"family": "qwen3"}, False),
        ("masked", {"path": "a-model-that-has-learnt"}, False),
    ],
)
def test_only_fresh_masked_models_have_a_floor_of_steps(objective, model, floor):
    found = fewest_steps(PretrainSection(objective=objective), ModelSection(**model))
    assert found == (MASKED_STEPS if floor else 1)


def test_little_text_counts_for_less_each_time_it_is_seen():
    assert chosen(1e6, unique=1e6) < chosen(1e6, unique=1e12)  # weights that so little text cannot fill
    assert expected_loss(1e6, 1e9, 1e6) > expected_loss(1e6, 1e9, 1e9)
    assert expected_loss(1e6, 1e9, 1e6) <= expected_loss(1e6, 1e7, 1e6)


def test_characters_ask_for_a_smaller_model_than_words():
    """The same text in shorter tokens: the law's optimum moves to N · worth^(β / (α + β)), D / worth of that."""
    factor = 0.2 ** (scaling.BETA / (scaling.ALPHA + scaling.BETA))
    assert abs(math.log(chosen(10_000, worth=0.2) / chosen(10_000) / factor)) < math.log(1.8)
    assert chosen(10_000, worth=0.2) < chosen(10_000)
    assert scaling.worth_of(4300, 1000) == 1.0


def test_a_given_size_is_kept():
    given = ModelSection(family="gpt2", layers=4, width=128, heads=4)
    assert ladder(given) == [given]
    assert best_size(ladder(given), 100, 1e6) is given


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "bert", "modernbert", "t5", "transformer", "lstm", "roberta"])
def test_every_rung_of_every_ladder_can_be_built(family):
    weights = [weights_of(size, 100) for size in ladder(ModelSection(family=family))]
    assert weights == sorted(weights)


def test_tokens_choose_the_size_when_there_is_no_clock():
    sizes = ladder(ModelSection(family="llama"))
    small, large = best_size(sizes, 100, 2e6), best_size(sizes, 100, 2e9)
    assert weights_of(small, 100) < weights_of(large, 100)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
@pytest.mark.parametrize("family", ["qwen3", "bert"])
def test_compiled_equals_eager(family):
    made = [weft.create(family, vocabulary=50, layers=2, width=32, heads=2, seed=3).network for _ in range(2)]
    compile_stacks(made[1])
    batch = pack([list(range(16)), list(range(20, 36))])
    outs = [network.eval()(batch) for network in made]
    assert torch.allclose(*outs, atol=1e-5)
    for out in outs:
        out.square().mean().backward()
    for (name, one), two in zip(made[0].named_parameters(), made[1].parameters(), strict=True):
        if one.grad is not None:
            assert torch.allclose(one.grad, two.grad, atol=1e-5), name
    torch.compiler.reset()


def test_batches_grow_slowly_with_the_work():
    assert [scaling.batch_for(flops, 256) for flops in (1e12, 1e14, 1e18)] == sorted(
        scaling.batch_for(flops, 256) for flops in (1e12, 1e14, 1e18)
    )
    assert scaling.batch_for(1.0, 64) == 8 * 64


@pytest.mark.parametrize("budget", [10, 60, 120, 300])
@pytest.mark.parametrize("steps", [1, 400, 799])
def test_the_time_advised_for_more_steps_is_more_than_was_given(budget, steps):
    assert 60 * minutes_for(800, steps, budget) >= 800 * (budget / steps) > budget
