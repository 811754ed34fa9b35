"""`weft pretrain`, `weft finetune` and `weft distil`, also `weft.pretrain(...)` and so on in Python."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import FolderError, InputError, RecipeError, as_items, as_path, refuse_address
from weft.folders import MANIFEST, known_facts
from weft.recipe.file import check_recipe, read_recipe
from weft.recipe.recipe import Recipe

RecipeSource = str | Path | Mapping[str, Any]
Overrides = Sequence[str] | Mapping[str, Any]


class RunResults(dict[str, Any]):
    """The results that the command prints as JSON."""

    @property
    def model(self) -> Path:
        """The folder of the trained model, for `weft.load`."""
        return Path(self["model"])


def pretrain_recipe(
    recipe: RecipeSource, overrides: Overrides = (), *, output: str | Path | None = None, resume: bool = False
) -> RunResults:
    """Train a language model: tokenizer, tokens, training.

        result = weft.pretrain("recipe.yml", {"model.layers": 6}, output="runs/small")
        model = weft.load(result.model)

    `recipe`: a .yml file, or a dictionary with the same sections. Paths in it are relative to the file, or to the
    current folder. `overrides`: changes to single keys. `output`: the run folder; default: runs/NAME. `resume`:
    continue from the newest checkpoint; then `recipe` may also be the run folder. Raises RecipeError before any work if
    a setting is wrong.
    """
    from weft.train.pretrain import pretrain

    return _run_together(pretrain, recipe, overrides, output, resume=resume)


def finetune_recipe(
    recipe: RecipeSource, overrides: Overrides = (), *, output: str | Path | None = None, resume: bool = False
) -> RunResults:
    """Train a model for a task and evaluate it; arguments as of `weft.pretrain`.

    The results have `figures` and `intervals` on the test data, `baseline`, `cost`, and `model`.
    """
    from weft.tasks.learning.finetune import finetune

    return _run_together(finetune, recipe, overrides, output, resume=resume)


def distil_recipe(
    recipe: RecipeSource, overrides: Overrides = (), *, output: str | Path | None = None, resume: bool = False
) -> RunResults:
    """Train a smaller model that learns from a trained one (`distil.teacher`); arguments as of `weft.pretrain`.

    The results of a task are those of `weft.finetune`. `yardsticks` has the teacher, the same student trained alone
    and the untrained student; `kept` is the share of the teacher's score.
    """
    from weft.compress.distil.run import distil_model
    from weft.train.process_group import is_launched

    if is_launched():
        raise InputError("weft distil works in one process. Start it without torchrun.")
    read, base, folder = _opened(recipe, overrides, output, resume=resume)
    return RunResults(distil_model(read, base, folder, resume=resume))


def _run_together(
    stage: Callable[..., dict[str, Any]],
    recipe: RecipeSource,
    overrides: Overrides,
    output: str | Path | None,
    *,
    resume: bool,
) -> RunResults:
    """Run a stage in the processes that torchrun has started, or in this one alone."""
    from weft.train.grid import arranged
    from weft.train.process_group import joined_processes, restarts

    with joined_processes() as processes:
        read, base, folder = _opened(recipe, overrides, output, resume=resume)
        resume = resume or (restarts() > 0 and processes.broadcast(bool(known_facts(folder))))
        section = read.processes
        processes = processes.on("auto" if section is None else section.device)
        if section is not None and (stage.__name__ == "pretrain" or processes.world > 1):
            if stage.__name__ != "pretrain" and (section.sharded or section.tensor > 1):
                raise RecipeError(
                    "processes.sharded and processes.tensor are for pretrain. Leave them out: finetune then keeps "
                    "whole weights."
                )
            processes = arranged(processes, section)
        if processes.zero is not None:
            from weft.train.deepspeed_engine import load_deepspeed

            load_deepspeed(processes.device)  # it may be missing
        return RunResults(stage(read, base, folder, resume=resume, processes=processes))


def open_recipe(recipe: RecipeSource, overrides: Overrides = ()) -> tuple[Recipe, Path]:
    """The recipe, and the folder that its paths are relative to."""
    if isinstance(overrides, str):
        raise InputError('overrides is a list of "key=value" or a dictionary, not one string.')
    changes = _plain(overrides) if isinstance(overrides, Mapping) else as_items(overrides, "overrides")
    if isinstance(recipe, Mapping):
        return check_recipe(_plain(recipe), changes), Path()
    if not isinstance(recipe, str | Path):
        raise InputError(f"A recipe is the path of a .yml file or a dictionary, not {type(recipe).__name__}.")
    path = Path(recipe)
    return read_recipe(path, changes), path.parent


def _opened(
    recipe: RecipeSource, overrides: Overrides, output: str | Path | None, *, resume: bool
) -> tuple[Recipe, Path, Path]:
    """The recipe, the folder that its paths are relative to, and the run folder."""
    if resume and isinstance(recipe, str | Path) and Path(recipe).is_dir():
        if overrides or output is not None:
            raise InputError(f"{recipe} is resumed as it was started: without changes, in its own folder.")
        return open_run(Path(recipe))
    read, base = open_recipe(recipe, overrides)
    return read, base, run_folder_of(read, output)


def open_run(folder: Path) -> tuple[Recipe, Path, Path]:
    """A run's own recipe, the folder that its paths are relative to, and the run folder."""
    facts = known_facts(folder)
    if facts.get("kind") != "run":
        raise FolderError(f"{folder} holds no run to resume.")
    asked, base = facts.get("asked"), facts.get("base")
    if not isinstance(asked, dict) or not isinstance(base, str):
        raise FolderError(
            f"{folder} does not tell where its recipe was: an earlier version of weft began it. Resume it with the "
            f"recipe: weft pretrain RECIPE -o {folder} --resume."
        )
    return _as_given(asked, str(folder / MANIFEST)), Path(base), folder


def _as_given(settings: dict[str, Any], where: str) -> Recipe:
    """The recipe of which these are the `given_settings`. Defaults among them were not set by the user: some may not
    be.
    """
    tree = check_recipe(settings, (), where).model_dump(exclude_defaults=True)
    if "build" in tree.get("corpus", {}):
        tree["corpus"]["build"] = settings["corpus"]["build"]  # there null is a setting
    return check_recipe(tree, (), where)


def run_folder_of(recipe: Recipe, output: str | Path | None) -> Path:
    return Path("runs") / recipe.name if output is None else refuse_address(as_path(output, "output"))


def _plain(value: Any) -> Any:
    """Paths as strings, tuples as lists: what YAML would hold."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
