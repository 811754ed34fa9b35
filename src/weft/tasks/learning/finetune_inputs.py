"""What a fine-tuning run needs besides the weights: the recipe's section, the task, the data and the tokenizer."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.errors import RecipeError
from weft.interchange.pooling import Pooling, read_pooling
from weft.model.network import Architecture
from weft.model.positions import longest
from weft.recipe.finetune import FinetuneSection
from weft.recipe.model import ModelSection
from weft.tasks.batches import count_cut
from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec, input_spec_for
from weft.tasks.judging.evaluation import say_cut
from weft.tasks.learning.build import from_family, from_folder
from weft.tasks.learning.lora import Adapted, adapt, freeze_backbone
from weft.tasks.learning.splits import Splits
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer
from weft.train.build import Built
from weft.train.processes import Processes

FRESH_LENGTH = 256  # tokens that a fresh model reads, unless the recipe sets sequence_length


@dataclass(frozen=True)
class FinetuneInputs:
    section: FinetuneSection
    base: Path  # what the recipe's paths are relative to
    task: Task
    splits: Splits
    tokenizer: Tokenizer
    processes: Processes = field(default_factory=Processes)

    def build(self, seed: int) -> tuple[Built, InputSpec]:
        """The network with the task's head and everything frozen that does not train."""
        section = self.section
        if isinstance(section.model, ModelSection):
            length = section.sequence_length or FRESH_LENGTH
            built = from_family(section.model, self.task, self.tokenizer, length, section.dropout, seed)
        else:
            assert section.model is not None
            built = from_folder(self.base / section.model, self.task, section.dropout, seed)
        input_spec = input_spec_for(built.saved, built.description, self.tokenizer, section.sequence_length)
        input_spec = self.task.complete_spec(input_spec)
        self.task.prepare(built.network, self.splits.train.examples)
        if section.tune == "lora":
            adapt(built.network, section.lora_rank, seed)
            if not any(isinstance(module, Adapted) for module in built.network.modules()):
                raise RecipeError(f"finetune.tune: lora finds no linear layers to adapt in a {built.saved.family}.")
        elif section.tune == "head":
            freeze_backbone(built.network)
        if not any(parameter.requires_grad for parameter in built.network.parameters()):
            raise RecipeError(
                f"finetune.tune: {section.tune} leaves nothing to train: this head shares its weights with the "
                "embeddings. Choose all or lora."
            )
        built.network.to(self.processes.device)
        return built, input_spec

    def fitted_to(self, built: Built, input_spec: InputSpec) -> "FinetuneInputs":
        """With the task's settings that depend on the model and its tokenizer."""
        train, model = self.splits.train.examples, self.section.model
        task = self.task.with_pooling(read_pooling(self.base / model) if isinstance(model, str) else Pooling())
        return replace(self, task=task.for_model(built.description.head, input_spec, train, self.section))

    def training_inputs(self, saved: Architecture, input_spec: InputSpec) -> list[Input]:
        """What the network reads. Raises InputError if it does not fit, or if the model cannot do the task."""
        examples = self.splits.train.examples
        inputs = self.task.inputs(examples, input_spec)
        self._check_room(saved, input_spec, inputs)
        self.task.check_model(input_spec, examples[0])
        say_cut(count_cut(inputs), len(examples), self.task.most_tokens(input_spec))
        return inputs

    def _check_room(self, saved: Architecture, input_spec: InputSpec, inputs: list[Input]) -> None:
        limit = longest(saved.embedding.positions)
        if limit is None:
            return
        if (most := max(max(one.parts, default=len(one.ids)) for one in inputs)) > limit:
            raise RecipeError(
                f"An input has {most:,} tokens even when it is cut, and the model reads {limit:,}: "
                "finetune.data.separator is too long, or finetune.sequence_length too short."
            )
