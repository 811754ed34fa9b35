"""Intent and slots of a command: "turn the bedroom lamp to 30 %" is set_brightness, with the slots room and value.

One model predicts both (Chen et al. 2019). Intents and slot tags share one output layer over tokens. Words are
classified into slot tags; the token that has read the whole command (the first, or a decoder's last) into intents. So
the saved model is a plain token classifier, which other programs open.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.interchange.folder import Description
from weft.metrics.baselines.classify import TextClassifier
from weft.metrics.baselines.tag import PerceptronTagger
from weft.metrics.bootstrap import mean_interval, sum_intervals
from weft.metrics.classes import confusion
from weft.metrics.entities import entities_in, entity_counts, entity_figures, entity_figures_from_counts, per_type
from weft.metrics.judged import Judged
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import ClassAnswers
from weft.objectives.objective import Batch
from weft.tasks.cutting import Cutter, with_cutter
from weft.tasks.example import Example, Input, UnseenLabel, Unusable
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import label_set, read_label, with_unseen
from weft.tasks.predicted_tags import PredictedTags, entities, text_of
from weft.tasks.raw_text import from_raw_text
from weft.tasks.score_tables import class_table, confusion_table, score_table
from weft.tasks.scored_task import ScoredTask, head_labels
from weft.tasks.tag import FOREIGN_CUTTER, INTENT_PREFIX, Tag, WordTargets
from weft.tasks.task import ExtraMetrics, Task


class IntentGold(NamedTuple):
    intent: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class IntentTargets:
    slots: WordTargets
    row: int  # of the token that predicts the intent
    intent: int | None  # gold


@dataclass(frozen=True)
class Intent(ScoredTask):
    name: ClassVar[str] = "intent"
    counted_as: ClassVar[str] = "commands"
    head: ClassVar[str] = "token"
    roles: ClassVar[tuple[str, ...]] = ("words", "tags", "intent")
    gold_roles: ClassVar[tuple[str, ...]] = ("tags", "intent")
    optional_roles: ClassVar[tuple[str, ...]] = Tag.optional_roles
    recipe_settings: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    baseline_packages: ClassVar[tuple[str, ...]] = ("sklearn",)
    metrics: ClassVar[tuple[str, ...]] = ("exact", "intent", "slot_f1")
    default_metric: ClassVar[str] = "exact"
    metric_titles: ClassVar[Mapping[str, str]] = {
        "exact": "exact match", "intent": "intent accuracy", "slot_f1": "slot F1",
        "slot_f1_raw": "slot F1 from raw text",
    }  # fmt: skip

    cutter: Cutter = field(default_factory=Cutter)  # cuts raw text into words, as in `Tag`

    @property
    def slots(self) -> Tag:
        """The part of the task that tags words."""
        return Tag(tuple(label for label in self.labels if not label.startswith(INTENT_PREFIX)), entities=True)

    @property
    def intents(self) -> tuple[str, ...]:
        return tuple(label.removeprefix(INTENT_PREFIX) for label in self.labels if label.startswith(INTENT_PREFIX))

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        labels = head_labels(network, description, cls.head)
        if labels is None or not any(label.startswith(INTENT_PREFIX) for label in labels):
            return None
        return cls(labels, cutter=FOREIGN_CUTTER)

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        words = Tag(cutter=self.cutter).example(values, with_gold=with_gold)
        if not with_gold:
            return words
        if values.get("intent") in (None, ""):
            raise Unusable("has no intent")
        return replace(words, gold=IntentGold(read_label(values.get("intent")), words.gold))

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        intents = label_set(Counter(example.gold.intent for example in train))
        if len(intents) < 2:
            raise InputError(
                f"All training examples have the intent {intents[0]!r}; at least two are needed. Is it the right "
                "column (finetune.data.intent)?"
            )
        tags = {tag for example in train for tag in example.gold.tags}
        if tags == {"O"}:
            raise InputError(
                "No word of the training data is in a slot. For intents without slots, use task: classify."
            )
        slots = Tag().with_labels_from([replace(example, gold=example.gold.tags) for example in train])
        if not slots.entities:
            raise InputError("The tags of task intent must be entity tags, such as B-room, I-room and O.")
        return replace(self, labels=(*slots.labels, *(INTENT_PREFIX + name for name in intents)))

    def fitted(self, train: Sequence[Example]) -> Self:
        return replace(self, cutter=self.slots.fitted(train).cutter)

    def normalized(self, examples: Sequence[Example]) -> list[Example]:
        tagged = self.slots.normalized([replace(one, gold=one.gold.tags) for one in examples])
        pairs = zip(examples, tagged, strict=True)
        return [replace(tags, gold=IntentGold(one.gold.intent, tags.gold)) for one, tags in pairs]

    def classes(self, example: Example) -> Sequence[str]:
        return (example.gold.intent,)

    def check(self, example: Example) -> None:
        if example.gold.intent not in self.intents:
            raise UnseenLabel(f"has the intent {example.gold.intent!r}, which is not in the training data")
        self.slots.check(replace(example, gold=example.gold.tags))

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        words = [replace(one, gold=None if one.gold is None else one.gold.tags) for one in examples]
        found = []
        for one in self.slots.inputs(words, spec):
            gold = examples[one.example].gold
            row = 0 if spec.looks_ahead else max(0, len(one.ids) - 1)
            intent = None if gold is None else self.intents.index(gold.intent)
            found.append(replace(one, targets=IntentTargets(one.targets, row, intent)))
        return found

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        count = len(self.slots.labels)
        slots = self.slots.batch([replace(one, targets=one.targets.slots) for one in inputs], packed)
        tags = slots.answers[Tag.name]
        assert isinstance(tags, ClassAnswers)
        starts = packed.starts[:-1].cpu()
        intent = ClassAnswers(
            self.head,
            torch.tensor([one.targets.intent for one in inputs]),
            starts + torch.tensor([one.targets.row for one in inputs]),
            among=(count, len(self.labels)),
        )
        answers = {"slots": replace(tags, among=(0, count)), "intent": intent}
        return Batch(packed, answers=answers, counts={"slots": len(tags.values), "intent": len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        count = len(self.slots.labels)
        logits = packed.split(network.head(self.head)(hidden, packed).float().cpu())
        tags = self.slots.read([rows[:, :count] for rows in logits], [one.targets.slots for one in inputs])
        intents = [rows[one.targets.row, count:].softmax(-1).numpy() for one, rows in zip(inputs, logits, strict=True)]
        return list(zip(intents, tags, strict=True))

    def join(self, example: Example, pieces: Sequence[tuple[Input, Any]]) -> tuple[np.ndarray, PredictedTags]:
        """The intent's probabilities are those of the first window."""
        return pieces[0][1][0], self.slots.joined([tags for _, (_, tags) in pieces])

    def figures(self, examples: Sequence[Example], answers: Sequence[Any]) -> dict[str, float]:
        right = self._right(examples, answers)
        slots = entity_figures([one.gold.tags for one in examples], [tags for _, tags in answers])
        return {"exact": float(right.all(-1).mean()), "intent": float(right[:, 0].mean()), "slot_f1": slots["f1"]}

    def _right(self, examples: Sequence[Example], answers: Sequence[Any]) -> np.ndarray:
        """(N, 2): whether the intent is right, and whether all slots are."""
        intents = self.intents
        pairs = zip(examples, answers, strict=True)
        return np.asarray(
            [
                (
                    intents[int(probabilities.argmax())] == one.gold.intent,
                    entities_in(tags) == entities_in(one.gold.tags),
                )
                for one, (probabilities, tags) in pairs
            ]
        )

    def judge(self, examples: Sequence[Example], answers: Sequence[Any]) -> Judged:
        right = self._right(examples, answers)
        exact = right.all(-1).astype(float)
        gold, predicted = [one.gold.tags for one in examples], [tags for _, tags in answers]
        slot_f1 = sum_intervals(entity_counts(gold, predicted)[1], entity_figures_from_counts)["f1"]
        intervals = {"exact": mean_interval(exact), "intent": mean_interval(right[:, 0]), "slot_f1": slot_f1}
        intents = with_unseen(self.intents, (one.gold.intent for one in examples))
        numbers = [intents.index(one.gold.intent) for one in examples]
        matrix = confusion(numbers, [int(probabilities.argmax()) for probabilities, _ in answers], len(intents))
        tables = [
            class_table(intents, matrix, "Intents"),
            *confusion_table(intents, matrix),
            score_table("Slots", list(per_type(gold, predicted).items())),
        ]
        sure = np.asarray([float(probabilities.max()) for probabilities, _ in answers])
        return Judged(self.figures(examples, answers), intervals, exact, (1 - exact) * sure, tables)

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[Any], spec: InputSpec
    ) -> ExtraMetrics:
        """Slot F1 from raw text, as in `Tag`."""
        found = from_raw_text(
            self.cutter,
            examples,
            [tags for _, tags in answers],
            [one.gold.tags for one in examples],
            lambda others: [tags for _, tags in self.answers(network, others, spec)[0]],
            entities=True,
        )
        if found is None:
            return ExtraMetrics()
        return ExtraMetrics({"slot_f1_raw": found.f1}, {"slot_f1_raw": found.interval}, {"from_raw_text": found.facts})

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[Any]]:
        numbers = [self.intents.index(one.gold.intent) for one in train]
        intents = TextClassifier.fit([text_of(one.given) for one in train], numbers, len(self.intents))
        slots = PerceptronTagger.fit([one.given for one in train], [one.gold.tags for one in train])
        words = [one.given for one in examples]
        probabilities = intents.probabilities([text_of(given) for given in words])
        tags = [tuple(row) for row in slots.predict(words)]
        return "TF-IDF + logistic regression, averaged perceptron", list(zip(probabilities, tags, strict=True))

    def shown(self, example: Example, answer: Any, *, details: bool = False) -> dict[str, Any]:
        probabilities, tags = answer
        best = int(probabilities.argmax())
        return {
            "intent": self.intents[best],
            "score": round(float(probabilities[best]), 6),
            "slots": entities(example, tags),
            "tags": list(tags),
        }

    def in_words(self, example: Example) -> str:
        return text_of(example.given)

    def gold_in_words(self, example: Example) -> str:
        return self._in_words(example, example.gold.intent, example.gold.tags)

    def answer_in_words(self, example: Example, answer: Any) -> str:
        return self._in_words(example, self.intents[int(answer[0].argmax())], answer[1])

    def _in_words(self, example: Example, intent: str, tags: Sequence[str]) -> str:
        slots = ", ".join(f"{one['kind']} = {one['text']}" for one in entities(example, tags))
        return f"{intent}({slots})"

    def settings(self) -> dict[str, Any]:
        return {"cutter": self.cutter.settings()}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, **with_cutter(settings))
