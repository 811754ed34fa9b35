"""Writes docs/recipe.md: every key of a recipe with its type, default and meaning, from the schema.

python scripts/recipe_reference.py            write the page
python scripts/recipe_reference.py --check    exit with 1 if the page is out of date
"""

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from weft.recipe.recipe import Recipe

PAGE = Path(__file__).parents[1] / "docs/recipe.md"
NAMES = {str: "string", int: "integer", float: "number", bool: "true or false"}
INTRODUCTION = """\
# Recipe reference

A recipe is a YAML file with one section per stage. This page lists every key. It is generated from the schema by
`python scripts/recipe_reference.py`: do not edit it.

```yaml
name: my-model
corpus: {sources: [{path: my-texts}]}
tokenizer: {kind: bpe, vocab_size: 8000}
model: {family: qwen3}
pretrain: {budget: 20m}
```

* Paths are relative to the recipe's folder.
* `key=value` on the command line changes one key: `weft pretrain recipe.yml model.layers=6 pretrain.budget=5m`.
* An unknown key or a wrong type is an error before any work starts.
* weft chooses settings without a default as needed. It prints them and writes them to `recipe.yml` in the run folder.
* `weft schema > recipe.schema.json` writes the keys as a JSON Schema, for completion in your editor.
"""


def main() -> int:
    page = reference()
    if "--check" in sys.argv:
        return int(PAGE.read_text("utf-8") != page)
    PAGE.write_text(page, "utf-8")
    return 0


def reference() -> str:
    sections = dict(sections_in(Recipe, ""))
    toc = [f"* [`{path}`](#{anchor(path)})" for path in sections if path]
    parts = [INTRODUCTION, "\n".join(toc) + "\n"]
    for path, section in sections.items():
        parts.append("\n".join(about(path, section, sections)) + "\n")
    return "\n".join(parts)


def sections_in(section: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The section and those below it, each class once."""
    seen: set[type[BaseModel]] = set()

    def walk(section: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
        if section in seen:
            return
        seen.add(section)
        yield path, section
        for name, field in section.model_fields.items():
            for below in sections_of(field.annotation):
                yield from walk(below, f"{path}.{name}".lstrip("."))

    return walk(section, path)


def sections_of(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in sections_of(part)]


def about(path: str, section: type[BaseModel], sections: dict[str, type[BaseModel]]) -> Iterator[str]:
    yield f"## `{path}`\n" if path else "## Top level\n"
    if path and section.__doc__ and "__doc__" in vars(section):
        yield " ".join(section.__doc__.split()) + "\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in section.model_fields.items():
        kind = type_of(field, sections)
        yield f"| `{name}` | {kind} | {default_of(field)} | {cell(field.description or '')} |"


def type_of(field: FieldInfo, sections: dict[str, type[BaseModel]]) -> str:
    return in_words(field.annotation, sections) + limits(field)


def in_words(annotation: Any, sections: dict[str, type[BaseModel]]) -> str:
    if annotation in NAMES:
        return NAMES[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(part, sections) for part in parts if part is not type(None))
    if origin is Annotated:
        return in_words(parts[0], sections)
    if origin is list:
        head, _, rest = in_words(parts[0], sections).partition(" ")
        plural = head.replace("section", "sections", 1) if head.startswith("[") else f"{head}s"
        return f"list of {plural} {rest}".rstrip()
    [path] = [path for path, section in sections.items() if section is annotation]
    return f"[section](#{anchor(path)})"


def limits(field: FieldInfo) -> str:
    said = []
    for limit in field.metadata:
        match limit:
            case annotated_types.Ge(ge=number):
                said.append(f"≥ {number:,.12g}")
            case annotated_types.Gt(gt=number):
                said.append(f"> {number:,.12g}")
            case annotated_types.Le(le=number):
                said.append(f"≤ {number:,.12g}")
            case annotated_types.Lt(lt=number):
                said.append(f"< {number:,.12g}")
    return f", {', '.join(said)}" if said else ""


def default_of(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return ""
    if isinstance(field.default, BaseModel):
        return "see below"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default}`" if field.default != "" else "empty"


def cell(text: str) -> str:
    text = text.replace("|", "\\|").replace("<", "&lt;")
    is_value = text.partition(" ")[0].endswith(":")  # best: …
    return text if is_value else text[:1].upper() + text[1:]


def anchor(path: str) -> str:
    """As GitHub makes it: dots vanish."""
    return path.replace(".", "")


if __name__ == "__main__":
    sys.exit(main())
