"""`weft run`: the whole recipe, stages like `make`. What is done and still true is skipped, what was stopped goes on,
what is out of date (another recipe, other bytes in its inputs) is done anew; its old folder is moved aside, not lost.
"""

from pathlib import Path
from typing import Any

from weft.errors import FolderError, RecipeError
from weft.folders import changed_files
from weft.progress import say
from weft.recipe import Recipe


def run(recipe: Recipe, base: Path, folder: Path) -> dict[str, Any]:
    if recipe.pretrain is None:
        if recipe.corpus is None or recipe.corpus.build is None:
            raise RecipeError("The recipe has no stage to run. Give it a pretrain section, or corpus.build.")
        from weft.corpus.build import build_corpus

        return build_corpus(recipe.corpus, base, folder / "corpus", name=recipe.name)
    from weft.train.pretrain import check, pretrain
    from weft.train.run_folder import MODEL, fingerprint, read_run

    check(recipe, base)  # before an old run is moved out of the way for one that cannot be
    known = read_run(folder)
    asked = recipe.asked()
    if known and (known.get("asked") != asked or known.get("inputs") != fingerprint(recipe, base)):
        aside = next(
            new for n in range(1, 10**6) if not (new := folder.with_name(f"{folder.name}.before-{n}")).exists()
        )
        folder.rename(aside)
        say(f"pretrain: out of date; the old run is now {aside}.")
        known = {}
    if "results" in known and _is_whole(folder / MODEL):
        say("pretrain: up to date.")
        return known["results"]
    return pretrain(recipe, base, folder, resume=bool(known))


def _is_whole(model: Path) -> bool:
    try:
        return not changed_files(model)
    except FolderError:
        return False
