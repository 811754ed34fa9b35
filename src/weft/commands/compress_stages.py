"""The stages of `weft run` that make a trained model smaller, and the card over all of its models at the end."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.errors import InputError
from weft.folders import MANIFEST, known_facts, sha256_of, to_json, write_file
from weft.progress import say
from weft.recipe.compress import CompareSection
from weft.recipe.finetune import DataSection, Paths
from weft.recipe.recipe import Recipe
from weft.recipe.section import Section
from weft.sources.files import is_corpus
from weft.train.run_folder import CORPUS, MODEL, claim, finish

COMPRESSION = ("distil", "prune", "quantize")  # in this order
_OTHERS = ("corpus", "tokenizer", "model", "pretrain", "finetune", *COMPRESSION, "compare")
_CARD = "card"


def compression_in(recipe: Recipe) -> list[str]:
    return [name for name in COMPRESSION if getattr(recipe, name) is not None]


def listed(paths: Paths | None) -> list[str]:
    return [] if paths is None else [paths] if isinstance(paths, str) else list(paths)


def stage_recipe(recipe: Recipe, name: str, model: Path | None) -> Recipe:
    """The part of the recipe that a stage needs, with its model and data filled in. `model`: the one made before."""
    section, before = getattr(recipe, name), None if model is None else str(model.resolve())
    nothing: dict[str, Any] = dict.fromkeys(_OTHERS)
    if name == "distil":
        data = section.data or (recipe.finetune.data if recipe.finetune is not None else None)
        section = section.model_copy(update={"teacher": section.teacher or before, "data": data})
        kept = {} if data is not None else {"corpus": recipe.corpus, "tokenizer": recipe.tokenizer}
        return recipe.model_copy(update={**nothing, **kept, name: section})
    known = _training_data(recipe)
    data = section.data or (known if name == "quantize" or isinstance(known, str) else None)
    section = section.model_copy(update={"model": section.model or before, "data": data})
    return recipe.model_copy(update={**nothing, name: section})


def _labelled(recipe: Recipe) -> DataSection | None:
    if recipe.finetune is not None:
        return recipe.finetune.data
    return None if recipe.distil is None else recipe.distil.data


def _training_data(recipe: Recipe) -> str | list[str] | None:
    if (data := _labelled(recipe)) is not None:
        return data.train
    sources = [] if recipe.corpus is None else [source.path for source in recipe.corpus.sources or ()]
    local = [path for path in sources if "://" not in path]
    return None if not local else local[0] if len(local) == 1 else local


def prune_stage(recipe: Recipe, base: Path, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """A stopped stage starts again; its model is written in one step at the end."""
    from weft.commands.prune import prune_model

    section = recipe.prune
    assert section is not None and section.model is not None
    bounds: dict[str, Any] = section.bounds()
    if section.vocabulary is not None:
        bounds["vocabulary"] = str(base / section.vocabulary)
    with claim(folder, recipe, base, resume=resume), _errors_of("prune", section):
        results = prune_model(
            base / section.model,
            folder / MODEL,
            data=None if section.data is None else base / section.data,
            minutes=section.minutes,
            measure=section.measure,
            keep_tokens=section.keep_tokens,
            **bounds,
        )
        finish(folder, results)
    return results


def quantize_stage(recipe: Recipe, base: Path, folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """As `prune_stage`."""
    from weft.commands.quantize import quantize_model

    section = recipe.quantize
    assert section is not None and section.model is not None
    with claim(folder, recipe, base, resume=resume), _errors_of("quantize", section):
        results = quantize_model(
            base / section.model,
            folder / MODEL,
            bits=section.bits,
            data=[base / path for path in listed(section.data)],
            allowed_loss=section.allowed_loss,
            tune=section.tune,
            group=section.group,
            unpacked=section.unpacked,
            seed=section.seed,
        )
        finish(folder, results)
    return results


@contextmanager
def _errors_of(stage: str, section: Section) -> Iterator[None]:
    """Errors of a command name its options; a recipe has keys: --keep-tokens is prune.keep_tokens."""
    keys = type(section).model_fields

    def key_of(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return f"{stage}.{name}" if name in keys else option[0]

    try:
        yield
    except InputError as error:
        said = re.sub(r"--([a-z]+(?:-[a-z]+)*)", key_of, str(error))
        if said == str(error):
            raise
        raise type(error)(said) from error


def card_of_chain(recipe: Recipe, base: Path, folder: Path, models: Sequence[Path]) -> dict[str, Any]:
    """The card, in the run's folder; nothing without test data. It is made again if a model or the data changed."""
    data = _test_data(recipe, base, folder)
    if not data:
        say("There is no test data (finetune.data.test, distil.data.test or compare.data), so there is no card.")
        return {}
    section, place = recipe.compare or CompareSection(), folder / _CARD
    inputs = _hash_of(models, data, section)
    known = known_facts(place)
    if known.get("inputs") == inputs and (place / "card.html").is_file():
        say("card: up to date.")
        return {"verdict": known["verdict"], "card": str(place / "card.html")}
    from weft.compress.card.compare import compare_models

    card = compare_models(models, data, limit=section.limit, rounds=section.rounds)
    page = card.write(place)
    card.keep(models[-1])
    write_file(place / MANIFEST, to_json({"kind": _CARD, "inputs": inputs, "verdict": card.verdict}))
    return {"verdict": card.verdict, "card": str(page)}


def _test_data(recipe: Recipe, base: Path, folder: Path) -> list[Path]:
    if recipe.compare is not None and recipe.compare.data is not None:
        return [base / path for path in listed(recipe.compare.data)]
    if (data := _labelled(recipe)) is not None:
        return [base / path for path in listed(data.test)]
    return [folder / CORPUS] if is_corpus(folder / CORPUS) else []


def _hash_of(models: Sequence[Path], data: Sequence[Path], section: CompareSection) -> str:
    """Of what the card shows: the models' weights and tokenizers, the data, the settings."""
    digest = hashlib.sha256(repr(section).encode())
    for model in models:
        digest.update(f"{model.resolve()}\0{known_facts(model).get('files')}\0".encode())
    for path in data:
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            digest.update(f"{file.name}\0{sha256_of(file) if file.is_file() else ''}\0".encode())
    return digest.hexdigest()
