"""`weft run`: all stages of a recipe, like `make`.

A finished stage is skipped, a stopped one is resumed. A stage whose settings or input files have changed runs again;
its old folder is renamed, not deleted. Fine-tuning after pre-training runs in the folder `finetune` of the first run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.progress import say
from weft.recipe.recipe import Recipe
from weft.train.run_folder import MODEL, fingerprint, finished, locked_run, read_run

Stage = Callable[..., dict[str, Any]]


def run_recipe(recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    if recipe.pretrain is None and recipe.finetune is None:
        if recipe.corpus is None or recipe.corpus.build is None:
            raise RecipeError("The recipe has no stage to run: no pretrain, no finetune, no corpus.build.")
        from weft.corpus.build import build_corpus

        return build_corpus(recipe.corpus, base, folder / "corpus", name=recipe.name)
    from weft.train.pretrain import pretrain
    from weft.train.pretrain_goal import check_pretrain

    second = recipe
    if recipe.finetune is not None:
        from weft.tasks.learning.check import check_finetune
        from weft.tasks.learning.finetune import after_pretraining, finetune

        second = recipe if recipe.pretrain is None else after_pretraining(recipe, folder / MODEL)
        check_finetune(second, base)  # before hours go into pre-training
    if recipe.pretrain is not None:
        first = recipe.model_copy(update={"finetune": None})
        check_pretrain(first, base)  # before an old run is renamed for one that cannot start
        results = _stage("pretrain", pretrain, first, base, folder)
        if recipe.finetune is None:
            return results
    return _stage("finetune", finetune, second, base, folder if recipe.pretrain is None else folder / "finetune")


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
