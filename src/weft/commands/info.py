"""`weft info`: what a folder or recipe holds, as one dictionary.

A model is checked as when it is loaded, but of its weights only the headers are read (and a tied matrix that is stored
twice).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import FolderError, InputError, RecipeError
from weft.folders import MANIFEST, known_facts, read_json
from weft.sources.files import is_corpus

if TYPE_CHECKING:
    from weft.recipe.finetune import FinetuneSection


def describe(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    if path.suffix in (".yml", ".yaml"):
        return _describe_recipe(path, overrides)
    if overrides:
        raise InputError("key=value settings go with a recipe, not with a folder.")
    if path.is_file():
        raise FolderError(f"{path} is a file; give a model folder or a recipe (.yml).")
    if known_facts(path).get("kind") == "run":
        return _describe_run(path)
    if is_corpus(path):
        from weft.corpus.build import corpus_summary

        return corpus_summary(path)
    if (path / "tokenizer.json").is_file() and not (path / "config.json").is_file():
        return _describe_tokenizer(path)
    return _describe_model(path)


def describe_machine() -> dict[str, Any]:
    """Versions, devices, and which of weft's C kernels are in use."""
    import torch

    from weft.devices import all_devices
    from weft.generate.layer_kernel import missing_generation_kernels
    from weft.inference.forward_trials import missing_forward_kernels
    from weft.model.kernel_report import missing_kernels
    from weft.version import VERSION

    missing = {**missing_kernels(), **missing_forward_kernels(), **missing_generation_kernels()}
    return {
        "weft": VERSION,
        "torch": torch.__version__,
        "devices": all_devices(),
        "threads": torch.get_num_threads(),
        "kernels": {name: "in use" if why is None else f"not used: {why}" for name, why in missing.items()},
    }


def _describe_run(folder: Path) -> dict[str, Any]:
    """The progress of a run, or its results."""
    from weft.train.training_log import read_metrics

    facts, metrics = read_json(folder / MANIFEST), read_metrics(folder)
    last = {key: value for key, value in (metrics[-1] if metrics else {}).items() if key != "sample"}
    asked = facts["asked"]
    stage = next((name for name in ("pretrain", "finetune", "distil") if name in asked), None)
    again = "weft run starts it again" if stage is None else f"weft {stage} --resume continues it"
    state = "finished" if "results" in facts else f"not finished; {again}"
    return {
        "run": str(folder),
        "name": asked.get("name"),
        "state": state,
        "last": last,
        **facts.get("results", {}),
    }


def _describe_tokenizer(folder: Path) -> dict[str, Any]:
    from weft.tokenizer.build import TOKENIZER_REPORT
    from weft.tokenizer.read import load_tokenizer

    tokenizer = load_tokenizer(folder)
    facts = {"tokenizer": str(folder), "vocabulary": tokenizer.vocabulary, "special": tokenizer.special}
    return {**facts, **(read_json(folder / TOKENIZER_REPORT) if (folder / TOKENIZER_REPORT).is_file() else {})}


def _describe_model(folder: Path) -> dict[str, Any]:
    from weft.interchange.folder import read_outline
    from weft.tokenizer.read import read_tokenizer

    network, description = read_outline(folder)
    tokenizer = read_tokenizer(folder)
    facts = _describe_network(network, description.head)
    facts |= _describe_quantized(network)
    facts |= {"format": description.config["model_type"], "notes": list(description.notes)}
    facts |= _describe_training(folder)
    if description.labels and facts["head"] in ("sequence", "token"):
        facts["labels"] = list(description.labels)
    facts["tokenizer"] = (
        None if tokenizer is None else {"vocabulary": tokenizer.vocabulary, "special": tokenizer.special}
    )
    facts["files"] = {
        str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()
    }
    return {"folder": str(folder), **facts}


def _describe_quantized(network: Any) -> dict[str, Any]:
    """The matrices by their bits, and the memory that they take."""
    from weft.model.quantized import quantized_modules, weight_bytes

    found = {id(layer.values): layer.quantized.bits for layer in quantized_modules(network).values()}
    if not found:
        return {}
    counts = {f"{bits} bits": list(found.values()).count(bits) for bits in sorted(set(found.values()), reverse=True)}
    return {
        "quantized": {name: f"{count} matrices" for name, count in counts.items()},
        "memory": {"run": weight_bytes(network)},
    }


def _describe_training(folder: Path) -> dict[str, Any]:
    """Task, score, compression and card, as far as the model's weft.json or its run's says."""
    from weft.compress.lineage import compression_steps, title_of

    known = known_facts(folder)
    task, results = known.get("task"), known.get("results")
    found: dict[str, Any] = {"task": task.get("name")} if isinstance(task, dict) else {}
    run = known_facts(folder.parent)
    judged = run.get("results") if run.get("kind") == "run" and folder.name == "model" else None
    steps = compression_steps(known)
    is_cut = bool(steps) and steps[-1]["method"] != "distil"  # its results are those of the model before
    if score := _score(judged) or _score(results):
        found["score before" if is_cut else "score"] = score
    if steps:
        found["compressed"] = " → ".join(map(title_of, steps))
    card = known.get("card")
    if isinstance(card, dict) and isinstance(card.get("verdict"), str):
        found["card"] = card["verdict"]
    return found


def _score(results: Any) -> str | None:
    """In one line. weft.json may be anybody's, so what it lacks is no error."""
    from weft.metrics.rounding import rounded
    from weft.tasks.judging.verdict import verdict_line

    try:
        if "figures" in results:
            return verdict_line(results)
        validation = results["validation"]
        if "perplexity" in validation:
            return f"validation perplexity {rounded('perplexity', validation['perplexity'])}"
        figures = {name.removeprefix("validation_"): value for name, value in validation.items()}
        name = next((name for name, value in figures.items() if value == results.get("score")), "loss")
        return f"validation {name} {rounded(name, figures[name])}"
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return None


def _describe_recipe(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    from weft.interchange.folder import OWN_FORMAT, Description, save_format
    from weft.model.families import design
    from weft.model.network import outline
    from weft.recipe.file import read_recipe

    recipe = read_recipe(path, overrides)
    if recipe.model is None and recipe.pretrain is None and recipe.finetune is not None:
        return {"recipe": recipe.name, **_describe_task(recipe.finetune)}
    if recipe.model is None:
        return {"recipe": recipe.name, "notes": ["No model is named: weft pretrain chooses one for the budget."]}
    if recipe.model.path is not None:
        return {"recipe": recipe.name, **_describe_model(path.parent / recipe.model.path)}
    try:
        family, architecture = design(**recipe.model.settings())
    except RecipeError as error:
        raise RecipeError(f"{path}: model: {error}") from None
    network, head = outline(architecture), recipe.model.head or family.default_head
    facts = _describe_network(network, head)
    saved_as = save_format(network, Description(family, head))
    notes = [OWN_FORMAT] if saved_as == "weft" else []
    return {"recipe": recipe.name, **facts, "format": saved_as, "notes": notes}


def _describe_task(section: "FinetuneSection") -> dict[str, Any]:
    data = {split: getattr(section.data, split) for split in ("train", "validation", "test")}
    model = section.model if isinstance(section.model, str | None) else section.model.settings()
    return {"task": section.task, "model": model, "data": data, "budget": section.budget, "tune": section.tune}


def _one_or_all(values: list[int]) -> int | list[int]:
    """The common value of all layers, or a value per layer where they differ."""
    return values if len(set(values)) > 1 else values[0]


def _describe_network(network: Any, head: str) -> dict[str, Any]:
    from weft.model.network import count_parameters
    from weft.model.positions import longest

    architecture = network.architecture
    parameters = count_parameters(network)
    stacks = {"encoder": architecture.encoder, "decoder": architecture.decoder}
    shape = {
        side: {
            "layers": stack.layers,
            "heads": _one_or_all([block.attention.heads for block in stack.blocks]),
            "key_value_heads": _one_or_all([block.attention.key_value_heads for block in stack.blocks]),
            "head_width": _one_or_all([block.attention.head_width for block in stack.blocks]),
            "inner": _one_or_all([block.feedforward.inner for block in stack.blocks]),
        }
        for side, stack in stacks.items()
        if stack is not None
    }
    if architecture.recurrent is not None:
        shape["recurrent"] = {"layers": architecture.recurrent.layers}
    positions = architecture.embedding.positions
    return {
        "family": architecture.family,
        "head": head,
        "parameters": parameters,
        "width": architecture.width,
        "vocabulary": architecture.vocabulary,
        "positions": None if positions is None else positions.kind,
        "longest": longest(positions),
        **shape,
        # In fp32: the weights; and with AdamW the gradients and two moments as well, activations not counted.
        "memory": {"run": 4 * parameters, "train": 16 * parameters},
    }


def family_sizes() -> dict[str, dict[str, int]]:
    """The published sizes of each family, with their parameter counts."""
    from weft.model.families import FAMILIES
    from weft.model.network import count_parameters, outline

    return {
        name: {size: count_parameters(outline(family.sized(size).architecture())) for size in family.sizes}
        for name, family in FAMILIES.items()
    }
