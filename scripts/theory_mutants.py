"""Does each formula's test fail when the production line is wrong? Changes the lines that the theory guide shows, one
small mistake at a time, and runs the entry's property test on each.

    python scripts/theory_mutants.py [ENTRY…] [--all]     default: every entry; --all prints the caught ones, too

Mistakes: signs flipped, factors and terms dropped, operands swapped, numbers and indices shifted, comparisons and
conditions turned round, calls left out or exchanged (sin and cos, max and min), statements left out. A changed function
replaces the code of the real one inside this process, so every caller gets it, and a mutant takes milliseconds. Tests
compute in double precision, which the C kernels do not take (`weft.compiled.are_plain`); they are switched off as well,
so no kernel can hide a wrong line.

A mutant that computes the same is listed in its entry as `equivalent`, with the reason. An entry there that is caught,
or that is no longer made, is an error.
"""

import ast
import importlib
import importlib.util
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import weft  # isort: skip  # before torch
import pytest
from hypothesis import Phase, settings

import weft.compiled
from mutations import mutations_of
from weft.theory.chapters import read_chapter, written_chapters
from weft.theory.entry import GuideEntry
from weft.theory.excerpt import definition_in, excerpt

TESTS = Path(__file__).parents[1] / "tests/theory"
SECONDS = 20  # for one mutant; one that runs on is caught
settings.register_profile(
    "mutants", deadline=None, max_examples=30, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)


@dataclass(frozen=True)
class Mutant:
    change: str  # "before → after", unique in its entry: the second of a kind ends in #2
    functions: tuple[tuple[FunctionType, CodeType], ...]  # with the code they get


def main() -> int:
    warnings.simplefilter("ignore")
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    wrong: list[str] = []
    for slug in written_chapters():
        entries = [entry for entry in read_chapter(slug).entries if not wanted or entry.id in wanted]
        if entries:
            tests = load_tests(slug)
            for entry in entries:
                wrong += judge(entry, getattr(tests, f"test_{entry.id.replace('-', '_')}"), "--all" in sys.argv)
    print("\n".join(wrong) or "every mutant is caught")
    return int(bool(wrong))


def load_tests(slug: str) -> ModuleType:
    sys.path.append(str(TESTS.parent))  # what tests share
    file = TESTS / f"test_{slug.replace('-', '_')}_formulas.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with without_shrinking():  # settings that a test has of its own are completed here
        spec.loader.exec_module(module)
    return module


def judge(entry: GuideEntry, test: Callable[[], None], show_all: bool) -> list[str]:
    """What is wrong with the entry: mutants that its test does not notice, and outdated exceptions."""
    with kernels_off(), without_shrinking():
        test()  # the code as it is
        fates = {mutant.change: is_caught(mutant, test) for mutant in mutants_of(entry)}
    missed = [change for change, caught in fates.items() if not caught]
    print(
        f"{entry.id}: {len(fates)} mutants, {len(fates) - len(missed)} caught, {len(entry.equivalent)} equivalent",
        flush=True,
    )
    if show_all:
        print("\n".join(f"    {'caught' if caught else 'MISSED'} {change}" for change, caught in fates.items()))
    wrong = [f"{entry.id}: not noticed: {change!r}" for change in missed if change not in entry.equivalent]
    wrong += [
        f"{entry.id}: listed as equivalent, but caught or not made: {change!r}"
        for change in entry.equivalent
        if change not in missed
    ]
    return wrong + ([] if fates else [f"{entry.id}: has no mutants"])


def is_caught(mutant: Mutant, test: Callable[[], None]) -> bool:
    before = [(function, function.__code__) for function, _ in mutant.functions]
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)  # again and again: hypothesis repeats a failing example
    try:
        for function, code in mutant.functions:
            function.__code__ = code
        test()
    except (Exception, pytest.fail.Exception):  # a wrong result or an error: either way somebody notices
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for function, code in before:
            function.__code__ = code
    return False


def _out_of_time(*_: Any) -> None:
    raise TimeoutError


def mutants_of(entry: GuideEntry) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    for part in entry.production:
        module_name, _, name = part.where.partition(":")
        module = importlib.import_module(module_name)
        shown = excerpt(part)
        source = shown.file.read_text("utf-8")
        for change, tree in mutations_of(source, range(shown.first, shown.last + 1)):
            seen[change] += 1
            times = f" #{seen[change]}" if seen[change] > 1 else ""
            yield Mutant(change + times, tuple(_codes(tree, module, name)))


def _codes(tree: ast.Module, module: ModuleType, name: str) -> Iterator[tuple[FunctionType, CodeType]]:
    """The functions below `name`, with the code that the changed source gives them."""
    node = definition_in(tree, name)
    compiled = compile(tree, "mutant", "exec")
    codes = {code.co_qualname: code for code in _all_codes(compiled)}
    prefix, owner = "", module
    *outer, last = name.split(".")
    for step in outer:
        owner, prefix = getattr(owner, step), f"{prefix}{step}."
    if isinstance(node, ast.ClassDef):
        owner, prefix = getattr(owner, last), f"{prefix}{last}."
        names = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
    else:
        names = [last]
    for one in names:
        function = _plain(vars(owner)[one])
        yield function, codes[prefix + one]


def _plain(found: Any) -> FunctionType:
    """Without staticmethod, property and decorators."""
    found = getattr(found, "__func__", None) or getattr(found, "fget", None) or found
    function = unwrap(found)
    assert isinstance(function, FunctionType), found
    return function


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_codes(constant)


@contextmanager
def kernels_off() -> Iterator[None]:
    before = weft.compiled.are_plain.__code__
    weft.compiled.are_plain.__code__ = (lambda *tensors: False).__code__
    try:
        yield
    finally:
        weft.compiled.are_plain.__code__ = before


@contextmanager
def without_shrinking() -> Iterator[None]:
    """One failing example is enough; the smallest one would take seconds."""
    before = settings.get_current_profile_name()
    settings.load_profile("mutants")
    try:
        yield
    finally:
        settings.load_profile(before)


if __name__ == "__main__":
    sys.exit(main())
