"""`weft run`: all stages of a recipe, like `make`.

    pretrain → finetune → distil → prune → quantize → card

A finished stage is skipped, a stopped one is resumed. A stage whose settings or input files have changed runs again;
its old folder is renamed, not deleted. The first stage that trains runs in the run folder, every later one in a folder
of its name below, and starts from the model before. The card compares all models from the first that was made smaller.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.commands.compress_stages import card_of_chain, compression_in, prune_stage, quantize_stage, stage_recipe
from weft.errors import InputError, RecipeError
from weft.progress import say
from weft.recipe.recipe import Recipe
from weft.train.process_group import is_launched
from weft.train.run_folder import MODEL, fingerprint, finished, locked_run, read_run

Stage = Callable[..., dict[str, Any]]
_COMPRESSED = {"distil": None, "prune": None, "quantize": None, "compare": None}


def run_recipe(recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    if is_launched():
        raise InputError("weft run works in one process. Start its stages weft pretrain and weft finetune by torchrun.")
    compression = compression_in(recipe)
    if recipe.pretrain is None and recipe.finetune is None and not compression:
        if recipe.corpus is None or recipe.corpus.build is None:
            stages = "no pretrain, no finetune, no distil, prune or quantize, no corpus.build"
            raise RecipeError(f"The recipe has no stage to run: {stages}.")
        from weft.corpus.build import build_corpus

        return build_corpus(recipe.corpus, base, folder / "corpus", name=recipe.name)
    from weft.commands.compress_check import check_compression

    check_compression(recipe, base, folder)  # before hours go into training
    results = _train(recipe.model_copy(update=_COMPRESSED), base, folder)
    return _compress(recipe, base, folder, results) if compression else results


def _train(recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    """Pre-training and fine-tuning; empty if the recipe has neither."""
    second = recipe
    if recipe.finetune is not None:
        from weft.tasks.learning.check import check_finetune
        from weft.tasks.learning.finetune import after_pretraining, finetune

        second = recipe if recipe.pretrain is None else after_pretraining(recipe, folder / MODEL)
        check_finetune(second, base)  # before hours go into pre-training
    results: dict[str, Any] = {}
    if recipe.pretrain is not None:
        from weft.train.pretrain import pretrain
        from weft.train.pretrain_goal import check_pretrain

        first = recipe.model_copy(update={"finetune": None})
        check_pretrain(first, base)  # before an old run is renamed for one that cannot start
        results = _stage("pretrain", pretrain, first, base, folder)
    if recipe.finetune is not None:
        place = folder if recipe.pretrain is None else folder / "finetune"
        results = _stage("finetune", finetune, second, base, place)
    return results


def _compress(recipe: Recipe, base: Path, folder: Path, trained: dict[str, Any]) -> dict[str, Any]:
    from weft.compress.distil.run import distil_model

    stages: dict[str, Stage] = {"distil": distil_model, "prune": prune_stage, "quantize": quantize_stage}
    made = [Path(trained["model"])] if trained else []
    for name in compression_in(recipe):
        own = stage_recipe(recipe, name, made[-1] if made else None)
        if not made:  # the model that the recipe names
            given = own.distil.teacher if own.distil is not None else (own.prune or own.quantize).model  # type: ignore[union-attr]
            made.append(base / str(given))
        # `weft distil` with the same recipe runs in the run folder, too.
        is_first = name == "distil" and not trained
        results = _stage(name, stages[name], own, base, folder if is_first else folder / name)
        made.append(Path(results["model"]))
    facts = {"model": str(made[-1]), "models": [str(model) for model in made]}
    return {**card_of_chain(recipe, base, folder, made), **facts}


def _stage(name: str, do: Stage, recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    known = read_run(folder)
    if known and (known.get("asked") != recipe.given_settings() or known.get("inputs") != fingerprint(recipe, base)):
        aside = next(
            new for n in range(1, 10**6) if not (new := folder.with_name(f"{folder.name}.before-{n}")).exists()
        )
        with locked_run(folder):  # raises if another process is using it
            pass
        folder.rename(aside)
        say(f"{name}: out of date; the old run is now {aside}.")
        known = {}
    if results := finished(folder):
        say(f"{name}: up to date.")
        return results
    return do(recipe, base, folder, resume=bool(known))
