import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RecipeError
from weft.recipe.file import read_recipe
from weft.recipe.recipe import recipe_schema


@pytest.fixture
def recipe(tmp_path):
    def write(text: str):
        (tmp_path / "recipe.yml").write_text(text)
        return tmp_path / "recipe.yml"

    return write


GOOD = "name: shakespeare\nmodel: {family: gpt2, layers: 4, width: 128, heads: 4, dropout: 1e-1}\n"


def test_a_recipe_reads_as_written(recipe):
    read = read_recipe(recipe(GOOD))
    assert read.name == "shakespeare"
    assert read.model.settings() == {
        "family": "gpt2", "labels": 2, "layers": 4, "width": 128, "heads": 4, "dropout": 0.1,
    }  # fmt: skip


def test_overrides_set_single_keys(recipe):
    read = read_recipe(recipe(GOOD), ["model.layers=6", "name=other", "model.theta=1e4", "model.size=tiny"])
    assert (read.model.layers, read.name, read.model.theta, read.model.size) == (6, "other", 10000.0, "tiny")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nmae: x\nmodel: {family: bert}", "nmae is not a setting .did you mean name"),
        ("model: {famly: bert}", "model: give family or path .did you mean famly"),
        ("model: {family: bert, layers: six}", "model.layers cannot be 'six'"),
        ("model: {family: bert, layers: 4.5}", "model.layers cannot be 4.5"),
        ("model: {family: bert, layers: true}", "model.layers cannot be True"),
        ("model: {family: bert, layers: 0}", "model.layers cannot be 0"),
        ("model: {family: 3}", "model.family cannot be 3"),
        ("name: 3\nmodel: {family: bert}", "name cannot be 3"),
        ("model: [1]", "model cannot be"),
        ("- a", "mapping of sections"),
        ("", "mapping of sections"),
        ("model: {family: bert\n", "not YAML.*line"),
        ("name: a\nname: b\nmodel: {family: bert}", "key name occurs twice"),
        ("name: !!python/object/apply:os.system [ls]\nmodel: {family: bert}", "not YAML"),
        ("a: &a [*a]\n", "mapping of sections"),
        ("model: {1: 2}", "mapping of sections"),
        ("? [a]\n: b", "not YAML"),
        ("model: {family: bert, layers: 010}", "model.layers cannot be '010'"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(recipe, text, says):
    with pytest.raises(RecipeError, match=says) as caught:
        read_recipe(recipe(text))
    assert "recipe.yml: " in str(caught.value)


@pytest.mark.parametrize("override", ["layers", "=3", "model..x=3", ".=1", "name.x=3"])
def test_a_malformed_override_is_refused(recipe, override):
    with pytest.raises(RecipeError):
        read_recipe(recipe(GOOD), [override])


def test_yes_and_no_are_words_and_numbers_are_numbers(recipe):
    read = read_recipe(recipe("name: no\nmodel: {family: bert, dropout: 1e-3, tied: false, epsilon: 1.0e-5}"))
    assert read.name == "no"
    assert (read.model.dropout, read.model.tied, read.model.epsilon) == (0.001, False, 1e-5)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**9), 10**9))
def test_every_number_survives_an_override(number, whole):
    from weft.recipe.file import _parsed

    assert _parsed(f"a={number!r}") == ("a", number)
    assert _parsed(f"b={whole}") == ("b", whole)


def test_a_missing_or_huge_recipe_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="is not a file"):
        read_recipe(tmp_path / "none.yml")
    (tmp_path / "big.yml").write_text("#" * 1_000_001)
    with pytest.raises(RecipeError, match="larger than"):
        read_recipe(tmp_path / "big.yml")


def test_the_schema_documents_every_setting():
    made = recipe_schema()
    for name, section in {"Recipe": made, **made["$defs"]}.items():
        for key, field in section["properties"].items():
            assert field.get("description"), f"{name}.{key} has no description"
    assert made["additionalProperties"] is False
    json.dumps(made)
