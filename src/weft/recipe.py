"""The recipe: one YAML file with a section per stage, strictly typed.

An unknown key, a wrong type or an impossible combination is an error before any work starts, with the key's path and
the nearest valid name. `key=value` on the command line sets single keys (`model.layers=6`). `schema()` is the JSON
Schema for editors. YAML is read in its sane half: only true/false are booleans, 1e-3 is a number, a key may stand
once.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from weft.errors import RecipeError, suggest

MOST_BYTES = 1_000_000


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ModelSection(BaseModel):
    """What to build. Other keys are the family's own settings (`theta`, `window`, `dropout` …)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    family: str = Field(
        description="bert, roberta, distilbert, gpt2, t5, transformer, llama, qwen3, modernbert or lstm"
    )
    size: str | None = Field(None, description="a published size of the family: base, mini, gpt3-175b …")
    head: str | None = Field(
        None, description="masked, causal, seq2seq, sequence, token, span …; the family's own if left out"
    )
    labels: int = Field(2, ge=1, description="how many labels a sequence or token head has")
    vocabulary: int | None = Field(None, ge=1, description="tokens in the vocabulary")
    layers: int | None = Field(None, ge=1, description="blocks on top of each other")
    width: int | None = Field(None, ge=1, description="numbers per token")
    heads: int | None = Field(None, ge=1, description="attention heads")
    positions: str | int | None = Field(
        None, description="learned, sinusoidal, rotary or relative; or how many there are"
    )

    def settings(self) -> dict[str, Any]:
        """What was said, for `families.design`."""
        return {key: value for key, value in self.model_dump().items() if value is not None}


class Recipe(Section):
    name: str = Field("weft", description="what the run is called")
    model: ModelSection


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    if not path.is_file():
        raise RecipeError(f"{path} is not a file.")
    if path.stat().st_size > MOST_BYTES:
        raise RecipeError(f"{path} is larger than {MOST_BYTES:,} bytes, which no recipe is.")
    try:
        tree = yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise RecipeError(f"{path}: this is not YAML: {_where(error)}.") from None
    if not isinstance(tree, dict) or not _has_named_keys(tree):
        raise RecipeError(f"{path}: a recipe is a mapping of sections, such as model:.")
    for override in overrides:
        _set(tree, override)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        # A slip in a name is the cause, what it leaves missing only the effect.
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        raise RecipeError(f"{path}: {_sentence(first)}") from None


def schema() -> dict[str, Any]:
    return Recipe.model_json_schema()


def _has_named_keys(tree: Any, depth: int = 20) -> bool:
    if isinstance(tree, dict):
        return depth > 0 and all(isinstance(key, str) and _has_named_keys(tree[key], depth - 1) for key in tree)
    return not isinstance(tree, list) or (depth > 0 and all(_has_named_keys(item, depth - 1) for item in tree))


def _set(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"{override!r} is not a setting; write key=value, for example model.layers=6.")
    try:
        parsed = yaml.load(value, Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, TypeError):
        parsed = value
    *sections, last = key.split(".")
    for section in sections:
        tree[section] = {} if tree.get(section) is None else tree[section]
        tree = tree[section]
        if not isinstance(tree, dict):
            raise RecipeError(f"{override!r}: {section} is a value, not a section.")
    tree[last] = parsed


def _sentence(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"])
    *above, last = error["loc"]
    match error["type"]:
        case "extra_forbidden":
            return f"{path} is not a setting{suggest(str(last), _names(above))}."
        case "missing":
            return f"{path} is missing{suggest(str(last), error['input'])}."
    return f"{path} cannot be {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}."


def _names(path: list[Any]) -> list[str]:
    """The settings of the section at this path."""
    section: Any = Recipe
    for part in path:
        section = section.model_fields[part].annotation
    return list(section.model_fields)


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n")[0]
    return f"{problem}, line {mark.line + 1}" if mark else problem


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars, and a key at most once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = key.value
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name} stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":int", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)
