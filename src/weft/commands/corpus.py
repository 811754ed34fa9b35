"""`weft corpus`: turns command-line options into the `corpus:` section of a recipe."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.corpus.build import build_corpus, corpus_summary
from weft.corpus.report_page import write_corpus_page
from weft.errors import InputError, RecipeError
from weft.progress import say
from weft.recipe.corpus import CorpusSection, ReadSection
from weft.recipe.file import check_section, read_recipe
from weft.sources.reading import Reading


def build_from_recipe(
    recipe: Path, overrides: Sequence[str], options: dict[str, Any], output: Path | None, workers: int | None
) -> dict[str, Any]:
    if options:
        raise InputError(
            f"--{next(iter(options)).replace('_', '-')} goes with sources; with a recipe, set it in the recipe."
        )
    read = read_recipe(recipe, overrides)
    if read.corpus is None or read.corpus.sources is None:
        raise RecipeError(f"{recipe}: corpus.sources is missing; list what to read, such as [{{path: my.txt}}].")
    folder = output or Path("runs") / read.name / "corpus"
    return build_corpus(read.corpus, recipe.parent, folder, name=read.name, workers=workers)


def build_from_sources(
    sources: Sequence[str], options: dict[str, Any], output: Path | None, workers: int | None
) -> dict[str, Any]:
    if output is None:
        raise InputError("The output folder is missing: weft corpus SOURCE... -o DIR.")
    read = {key: options[key] for key in ("text", "format") if key in options}
    tree: dict[str, Any] = {"sources": [{"path": source, **read} for source in sources], "build": {}}
    if "documents" in options:
        tree["documents"] = options["documents"]
    if "validation" in options:
        tree["splits"] = {"validation": options["validation"]}
    if "languages" in options:
        tree["build"]["languages"] = [
            language.strip().lower() for language in options["languages"].split(",") if language.strip()
        ]
    if "mask" in options:
        tree["build"]["clean"] = {"mask": True}
    if "no_filter" in options:
        tree["build"]["filter"] = None
    section = check_section(CorpusSection, tree, "corpus")
    return build_corpus(section, Path(), output, name=output.name, workers=workers)


def reading_in(format: str | None) -> Reading | None:
    """The reading of `--format`; None without it."""
    if format is None:
        return None
    return Reading(format=check_section(ReadSection, {"format": format}, "--format").format)


def report_on_corpus(arguments: Sequence[str], earlier: Path | None, *, examples: bool) -> dict[str, Any]:
    """Writes the report page again, with the drift against an earlier corpus if one is given."""
    if len(arguments) != 1:
        raise InputError("Give one corpus: weft corpus report DIR [--against EARLIER].")
    folder = Path(arguments[0])
    found = write_corpus_page(folder, earlier, examples=examples)
    for drift in found:
        if drift.drifts:
            say(f"Drift: {drift.what}, {drift.before:.3g} before, {drift.now:.3g} now.")
    compared = {"drifts": any(drift.drifts for drift in found), "differences": [drift.as_dict() for drift in found]}
    return {**corpus_summary(folder), **(compared if earlier is not None else {})}
