"""One training run with one seed: train, restore the best weights, and score them on the validation data."""

from collections import Counter
from pathlib import Path
from typing import Any

from torch import Tensor

from weft.model.network import Network, count_parameters
from weft.objectives.objective import Batch
from weft.recipe.finetune import FinetunePlan
from weft.tasks.labelled.data import some_of
from weft.tasks.learning.finetune_inputs import FinetuneInputs
from weft.tasks.learning.plan import spec_of
from weft.tasks.task import LOSS, Example, Input, InputSpec, ScoredTask, Task, TaskObjective, batch_of, groups, read_off
from weft.tokens.order import Order
from weft.train.build import Built
from weft.train.checkpoints import CHECKPOINTS, restore_weights
from weft.train.loop import Hooks, train
from weft.train.plan.machine import matmul_peak
from weft.train.processes import local_device
from weft.train.training_log import read_metrics
from weft.train.validation import validate


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
) -> dict[str, Any]:
    """Returns what the run did and how it scored; `built.network` then holds the best weights."""
    network, task = built.network, given.task
    held_out = some_of(given.splits.validation.examples, plan.validation_examples, plan.seed)
    questions = task.inputs(held_out, input_spec)

    def measure() -> dict[str, float]:
        return _validate(task, network, held_out, questions)

    spec = spec_of(plan, seed)
    best_by = f"validation_{task.deciding}" if isinstance(task, ScoredTask) and task.metric != LOSS else None
    hooks = Hooks(measure=measure, best_by=best_by, peak=matmul_peak(local_device(), spec.precision))
    order = Order((len(inputs),), (1.0,), seed)
    objective = TaskObjective(task, inputs, smoothing=plan.label_smoothing)
    state = train(network, [objective], order, spec, folder, resume=resume, hooks=hooks)
    if state.best is not None and state.best != state.step:
        restore_weights(folder / CHECKPOINTS / f"step-{state.best:06}", network)
    validation = _logged_validation(folder, state.best) or measure()
    network.eval()
    return {
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
    }


def count_trained(network: Network) -> int:
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def _validate(task: Task, network: Network, examples: list[Example], inputs: list[Input]) -> dict[str, float]:
    """The loss and, of a task that scores, its metrics; both from one pass through the network."""
    if not isinstance(task, ScoredTask):
        batches = (batch_of(task, [inputs[i] for i in part]) for part in groups(inputs))
        return {"validation_loss": validate(network, batches)["validation_loss"]}
    network.eval()
    sums, counts = Counter[str](), Counter[str]()

    def add_losses(batch: Batch, hidden: Tensor) -> None:
        counts.update(batch.counts)
        for kind, answers in batch.answers.items():
            sums[kind] += float(answers.loss(network, hidden, batch.packed, 0.0))  # type: ignore[assignment]

    found = read_off(task, network, examples, inputs, on_batch=add_losses)
    network.train()
    loss = sum(sums[kind] / max(counts[kind], 1) for kind in counts)
    figures = {f"validation_{name}": value for name, value in task.figures(examples, found).items()}
    return {"validation_loss": loss, **figures}


def _logged_validation(folder: Path, step: int | None) -> dict[str, float]:
    """The validation scores that metrics.jsonl has for a step; empty if there are none."""
    lines = [line for line in read_metrics(folder) if line["step"] == step and "validation_loss" in line]
    return {name: value for name, value in lines[-1].items() if name.startswith("validation_")} if lines else {}
