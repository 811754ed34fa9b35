"""The shape of the code: packages in order (`lint-imports` checks that), short files, one name for one thing."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import architecture

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/weft"
MOST_LINES_OF_FILE, MOST_LINES_OF_FUNCTION = 400, 60
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")


def sources() -> list[Path]:
    return [file for folder in ("src", "tests", "benchmarks", "scripts") for file in (ROOT / folder).rglob("*.py")]


def definitions(tree: ast.Module) -> Iterator[str]:
    """Public names that a module defines: classes, functions and constants."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name) and name.id != "app")


def test_the_picture_shows_the_imports_of_today():
    drawn = architecture.draw(architecture.packages_in_reading_order(), architecture.find_imports())
    assert drawn == architecture.PICTURE.read_text("utf-8"), "run scripts/architecture.py"


def test_no_file_is_too_long():
    too_long = {
        str(file.relative_to(ROOT)): count
        for file in sources()
        if (count := len(file.read_text("utf-8").splitlines())) > MOST_LINES_OF_FILE
    }
    assert not too_long


def test_no_function_is_too_long():
    too_long = {
        f"{file.relative_to(PACKAGE)}: {node.name}": node.end_lineno - node.lineno + 1
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > MOST_LINES_OF_FUNCTION
    }
    assert not too_long


def test_a_public_name_is_defined_in_one_module_only():
    """Commands are named after the functions that they call, so the command line is left out."""
    modules = defaultdict(set)
    for file in PACKAGE.rglob("*.py"):
        if file.name != "cli.py":
            for name in definitions(ast.parse(file.read_text("utf-8"))):
                if not name.startswith("_"):
                    modules[name].add(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in modules.items() if len(files) > 1} == {}


def test_the_page_describes_every_package():
    packages = [name for name in architecture.packages_in_reading_order() if name != architecture.ROOT_MODULES]
    described = re.findall(r"^\*\*`(\w+)(?:/|\.py)`\*\*", PAGE, re.MULTILINE)
    assert described == packages


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`((?:\w+/)+\w+\.\w+)(?:: (\w+))?`", PAGE))))
def test_every_file_and_function_that_the_page_names_exists(named: tuple[str, str]):
    path, name = named
    file = PACKAGE / path if (PACKAGE / path).is_file() else ROOT / path
    assert file.is_file()
    if name:
        assert re.search(rf"\b(?:def|class) {name}\b|\b{name}\b", file.read_text("utf-8"))
