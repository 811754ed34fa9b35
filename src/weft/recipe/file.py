"""Reads a recipe from YAML and `key=value` overrides, and explains what is wrong with it in one sentence.

An unknown key, a wrong type or an impossible combination is an error before any work starts. The message has the key's
path and the nearest valid name. `key=value` on the command line sets single keys (`model.layers=6`). YAML is read as
YAML 1.2: only true and false are booleans, and 1e-3 is a number. A key may occur only once.
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from weft.errors import RecipeError, suggest
from weft.recipe.recipe import Recipe
from weft.recipe.section import SectionKind

MOST_RECIPE_BYTES = 1_000_000
# The name of a type in pydantic's error paths. No setting has such a name.
_VALUE_KIND = re.compile(r"str|int|list\[.*\]|\w+Section|function-after\[.*\]")


def read_recipe(path: Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Recipe:
    """`overrides`: "model.layers=6", or {"model.layers": 6}."""
    return check_recipe(_read_tree(path), overrides, str(path))


def check_recipe(
    tree: Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = (), where: str = "recipe"
) -> Recipe:
    """A recipe of plain values. `where` begins an error message."""
    if not isinstance(tree, Mapping) or not _has_named_keys(tree):
        raise RecipeError(f"{where}: a recipe is a mapping of sections, such as model:.")
    changed = deepcopy(dict(tree))
    for key, value in overrides.items() if isinstance(overrides, Mapping) else map(_parsed, overrides):
        _set(changed, key, value)
    recipe = check_section(Recipe, changed, where)
    if recipe.name in (".", "..") or any(character in "/\\\0" for character in recipe.name):
        raise RecipeError(f"{where}: name cannot be {recipe.name!r}: it is used as a folder name.")
    return recipe


def _read_tree(path: Path) -> Any:
    if not path.is_file():
        raise RecipeError(f"{path} is not a file.")
    if path.stat().st_size > MOST_RECIPE_BYTES:
        raise RecipeError(f"{path} is larger than {MOST_RECIPE_BYTES:,} bytes, the limit for a recipe.")
    try:
        return yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise RecipeError(f"{path}: not YAML: {_where(error)}.") from None


def check_section(kind: type[SectionKind], tree: dict[str, Any], where: str) -> SectionKind:
    """Returns the section with these values. Raises RecipeError with the first thing that is wrong."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        # A misspelt key comes first: a missing key is often its effect. Where a string or a section is allowed, the
        # complaint that a section is not a string comes last.
        first = min(error.errors(), key=lambda item: (item["type"] != "extra_forbidden", _is_not_a_string(item)))
        raise RecipeError(f"{where}: {_sentence(first, kind)}") from None


def _has_named_keys(tree: Any, depth: int = 20) -> bool:
    if isinstance(tree, dict):
        return depth > 0 and all(isinstance(key, str) and _has_named_keys(tree[key], depth - 1) for key in tree)
    return not isinstance(tree, list) or (depth > 0 and all(_has_named_keys(item, depth - 1) for item in tree))


def _parsed(override: str) -> tuple[str, Any]:
    key, equals, value = str(override).partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"{override!r} is not a setting; write key=value, for example model.layers=6.")
    try:
        return key, yaml.load(value, Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError, TypeError):
        return key, value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    if not isinstance(key, str) or not all(key.split(".")):
        raise RecipeError(f"{key!r} is not the name of a setting, such as model.layers.")
    *sections, last = key.split(".")
    for section in sections:
        tree[section] = {} if tree.get(section) is None else tree[section]
        tree = tree[section]
        if not isinstance(tree, dict):
            raise RecipeError(f"{key!r}: {section} is a value, not a section.")
    tree[last] = value


def _is_not_a_string(error: Any) -> bool:
    return error["type"] == "string_type" and isinstance(error["input"], dict | list)


def _sentence(error: Any, kind: type[BaseModel]) -> str:
    # For a union, pydantic puts the type into the path: finetune.model.ModelSection.layers.
    *above, last = (part for part in error["loc"] if isinstance(part, int) or not _VALUE_KIND.fullmatch(part))
    path = ".".join(str(part) for part in (*above, last))
    match error["type"]:
        case "extra_forbidden":
            return f"{path} is not a setting{suggest(str(last), _names(kind, above))}."
        case "model_type":
            return f"{path} cannot be {error['input']!r}: it is a section of settings."
        case "missing":
            return f"{path} is missing{suggest(str(last), error['input'])}."
        case "value_error":
            said, hint = str(error["ctx"]["error"]), ""
            if said.startswith("give "):
                unknown = [key for key in error["input"] if key not in _names(kind, [*above, last])]
                hint = suggest(said.split()[1], unknown)
            return f"{path}: {said}{hint}."
    return f"{path} cannot be {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}."


def _names(section: Any, path: list[Any]) -> list[str]:
    """The settings of the section at this path."""
    for part in path:
        if isinstance(part, int):  # an index into a list of sections
            continue
        section = _section_in(section.model_fields[part].annotation)
    return list(section.model_fields)


def _section_in(annotation: Any) -> Any:
    """Finds Section in str | Section | None or list[Section] | None."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((found for kind in get_args(annotation) if (found := _section_in(kind))), None)


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n")[0]
    return f"{problem}, line {mark.line + 1}" if mark else problem


class _Loader(yaml.SafeLoader):
    """Resolves scalars as YAML 1.2 does and refuses duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = key.value
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name} occurs twice", key.start_mark)
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
