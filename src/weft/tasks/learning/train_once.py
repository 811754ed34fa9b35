"""One training run with one seed: train, restore the best weights, score and calibrate them on the validation data."""

from pathlib import Path
from typing import Any

from weft.model.network import Network, count_parameters
from weft.objectives.objective import Objective
from weft.recipe.finetune import FinetunePlan
from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.labelled.data import some_of
from weft.tasks.learning.finetune_inputs import FinetuneInputs
from weft.tasks.learning.plan import train_spec
from weft.tasks.task import Task, TaskObjective
from weft.tokens.order import Order
from weft.train.build import Built
from weft.train.checkpoints import CHECKPOINTS, restore_weights
from weft.train.loop import Hooks, train
from weft.train.plan.machine import matmul_peak
from weft.train.training_log import read_metrics


def train_once(
    given: FinetuneInputs,
    built: Built,
    input_spec: InputSpec,
    inputs: list[Input],
    plan: FinetunePlan,
    seed: int,
    folder: Path,
    *,
    resume: bool,
    objective: Objective | None = None,
) -> tuple[Task, dict[str, Any]]:
    """Returns the task with its thresholds, to be saved with the model, and what the run did and how it scored.
    `built.network` then holds the best weights. `objective`: default: the task's own loss.
    """
    network, task = built.network, given.task
    held_out = some_of(given.splits.validation.examples, plan.validation_examples, plan.seed)
    questions = task.inputs(held_out, input_spec)

    def measure() -> dict[str, float]:
        return task.validation(network, held_out, questions)

    spec = train_spec(plan, seed)
    best_by = f"validation_{task.selection_metric}" if task.selection_metric else None
    hooks = Hooks(measure=measure, best_by=best_by, peak=matmul_peak(given.processes.device, spec.precision))
    order = Order((len(inputs),), (1.0,), seed)
    learned = TaskObjective(task, inputs, smoothing=plan.label_smoothing) if objective is None else objective
    state = train(network, [learned], order, spec, folder, resume=resume, hooks=hooks, processes=given.processes)
    if state.best is not None and state.best != state.step:
        restore_weights(folder / CHECKPOINTS / f"step-{state.best:06}", network)
    validation = _logged_validation(folder, state.best) or measure()
    network.eval()
    calibrated = task.calibrate(network, held_out, questions)
    results = {
        "task": task.name,
        "seed": seed,
        "steps": state.step,
        "best_step": state.best,
        "tokens": state.tokens,
        "parameters": count_parameters(network),
        "parameters_tuned": count_trained(network),
        "training_seconds": round(read_metrics(folder)[-1]["seconds"], 1),  # including those before a break
        "score": validation[best_by] if best_by else -validation["validation_loss"],
        "validation": validation,
        **({"calibrated": calibrated} if calibrated else {}),
    }
    return task.with_thresholds_from(network, held_out, questions), results


def count_trained(network: Network) -> int:
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def _logged_validation(folder: Path, step: int | None) -> dict[str, float]:
    """The validation scores that metrics.jsonl has for a step; empty if there are none."""
    lines = [line for line in read_metrics(folder) if line["step"] == step and "validation_loss" in line]
    return {name: value for name, value in lines[-1].items() if name.startswith("validation_")} if lines else {}
