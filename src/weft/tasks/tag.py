"""Sequence tagging: a tag per word, such as parts of speech or named entities (B-PER I-PER O).

The prediction for a word is read at its first token (Devlin et al. 2019, section 5.3), and metrics count words. A long
sentence is read in windows, cut between words. Entity tags may come in any of the usual schemes; they are repaired
where they are malformed, and learned as IOB2. With a CRF, the tags of a sentence are predicted jointly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError
from weft.interchange.folder import Description
from weft.metrics.baselines.tag import PerceptronTagger
from weft.metrics.bootstrap import sum_intervals
from weft.metrics.classes import class_figures, confusion
from weft.metrics.entities import (
    UNNAMED,
    are_bare,
    entities_in,
    entity_counts,
    entity_figures,
    entity_figures_from_counts,
    guess_scheme,
    is_entity_tag,
    per_type,
    repaired_tags,
    tag_accuracy,
    with_kind,
)
from weft.metrics.judged import DetailTable, Judged
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import Answers, ClassAnswers
from weft.objectives.objective import Batch
from weft.progress import say
from weft.recipe.finetune import FinetuneSection
from weft.tasks.crf import CRF_FILE, Crf, Tagging, crf_bytes, crf_of, with_crf
from weft.tasks.cutting import Cutter, choose_cutter, with_cutter
from weft.tasks.encode import encoded
from weft.tasks.example import Example, Input, UnseenLabel, Unusable
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import balance, label_set, with_unseen
from weft.tasks.predicted_tags import PredictedTags, as_written, entities, text_of
from weft.tasks.raw_text import APART, aligned, cut_of, from_raw_text
from weft.tasks.score_tables import class_table, confusion_table, score_table
from weft.tasks.scored_task import ScoredTask, head_labels
from weft.tasks.task import ExtraMetrics, Task
from weft.tasks.words import read_tagged, read_words

_OUTSIDE = "O"
INTENT_PREFIX = "intent:"  # of the labels that are intents, in a model of task intent
SENTENCE_PREFIX = "sentence:"  # of the labels of task extract
FOREIGN_CUTTER = Cutter("treebank")  # for models of unknown origin: the words of most tagging data are cut so
ILL_FORMED = "has a malformed tag sequence (repaired)"
WindowTags = tuple[np.ndarray, np.ndarray]  # of each word: the number of its tag, a probability (`PredictedTags`)


@dataclass(frozen=True)
class WordTargets:
    words: range  # words of the example in this window
    rows: np.ndarray  # the first token of each word that has tokens
    known: np.ndarray  # the numbers of these words in the window
    tags: np.ndarray | None  # their gold tags


@dataclass(frozen=True)
class Tag(ScoredTask):
    name: ClassVar[str] = "tag"
    counted_as: ClassVar[str] = "sentences"
    head: ClassVar[str] = "token"
    roles: ClassVar[tuple[str, ...]] = ("words", "tags")
    gold_roles: ClassVar[tuple[str, ...]] = ("tags",)
    optional_roles: ClassVar[tuple[str, ...]] = ("text",)  # the raw text that the words were cut from
    recipe_settings: ClassVar[tuple[str, ...]] = ("crf", "balanced", "label_smoothing")
    exclusive_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {"crf": ("balanced", "label_smoothing")}
    metrics: ClassVar[tuple[str, ...]] = ("f1", "precision", "recall", "f1_macro", "accuracy")
    balanced_metric: ClassVar[str] = "f1_macro"
    metric_titles: ClassVar[Mapping[str, str]] = {"f1": "F1", "f1_macro": "macro F1", "f1_raw": "F1 from raw text"}
    side_files: ClassVar[tuple[str, ...]] = (CRF_FILE,)

    entities: bool = False  # the tags mark entities (B-PER I-PER O), which the metrics count
    crf: bool = False
    cutter: Cutter = field(default_factory=Cutter)  # cuts raw text into words like those of the training data
    balanced: bool = False
    weights: tuple[float, ...] | None = None  # of the tags, if balanced

    @classmethod
    def from_section(cls, section: FinetuneSection, label: Any) -> Task:
        return cls(metric=cls.metric_of(section), balanced=section.balanced, crf=section.crf)

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        labels = head_labels(network, description, cls.head)
        if labels is None or any(label.startswith((INTENT_PREFIX, SENTENCE_PREFIX)) for label in labels):
            return None
        entities = "O" in labels and any(label.startswith("B-") for label in labels)
        return cls(labels, entities=entities, cutter=FOREIGN_CUTTER)

    @property
    def default_metric(self) -> str:  # type: ignore[override]
        return "f1" if self.entities else "accuracy"

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return self.metrics if self.entities else ("accuracy", "f1_macro")

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        words, text = values.get("words"), values.get("text")
        if with_gold:
            found, tags, repairs = read_tagged(words, values.get("tags"), self.cutter)
        else:
            found, tags, repairs = read_words(words, self.cutter), None, ()
        if isinstance(words, str):
            text = words
        elif not isinstance(text, str) or not text.strip():
            text = ""
        elif aligned(found, text) is None:
            text, repairs = "", (*repairs, APART)
        return Example(found, tags, text=text, repairs=repairs)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        if are_bare(example.gold for example in train):
            say(f"The tags have no kind (B, I, O): all entities get the kind {UNNAMED}.")
            train = [replace(example, gold=tuple(with_kind(example.gold))) for example in train]
        scheme = guess_scheme(example.gold for example in train)
        known = train if scheme == "plain" else [example for example in train if all(map(is_entity_tag, example.gold))]
        if scheme == "plain":
            counts = Counter(tag for example in train for tag in example.gold)
            labels = label_set(counts)
        else:
            counts = Counter(tag for example in known for tag in repaired_tags(example.gold, scheme)[0])
            kinds = sorted({tag[2:] for tag in counts if tag != _OUTSIDE})
            labels = (_OUTSIDE, *(f"{part}-{kind}" for kind in kinds for part in "BI"))
        if len(labels) < 2:
            raise InputError(
                f"All words of the training data have the tag {labels[0]!r}; at least two are needed. Is it the right "
                "column (finetune.data.tags)?"
            )
        weights = tuple(balance(counts, labels)) if self.balanced else None
        return replace(self, labels=labels, entities=scheme != "plain", weights=weights)

    def fitted(self, train: Sequence[Example]) -> Self:
        cutter = choose_cutter([cut for example in train if (cut := cut_of(example)) is not None])
        if cutter.rebuilt is not None:
            say(
                f"Raw text will be split into words by {cutter.in_words()}, which gives exactly the words of the data "
                f"in {cutter.rebuilt:.1%} of the held-out sentences."
            )
        return replace(self, cutter=cutter)

    def normalized(self, examples: Sequence[Example]) -> list[Example]:
        if not self.entities:
            return list(examples)
        if f"B-{UNNAMED}" in self.labels:
            examples = [replace(example, gold=tuple(with_kind(example.gold))) for example in examples]
        well_formed = [
            all(map(is_entity_tag, example.gold)) for example in examples
        ]  # others are for `check` to refuse
        scheme = guess_scheme(example.gold for example, is_good in zip(examples, well_formed, strict=True) if is_good)
        found = []
        for example, is_good in zip(examples, well_formed, strict=True):
            tags, wrong = repaired_tags(example.gold, scheme) if is_good else (example.gold, 0)
            found.append(replace(example, gold=tuple(tags), repairs=example.repairs + (ILL_FORMED,) * wrong))
        return found

    def classes(self, example: Example) -> Sequence[str]:
        return [span.kind for span in entities_in(example.gold)] if self.entities else example.gold

    def check(self, example: Example) -> None:
        if self.entities and (odd := [tag for tag in example.gold if not is_entity_tag(tag)]):
            raise Unusable(f"has the tag {odd[0]!r}, which is neither O nor an entity tag such as B-PER or I-PER")
        if unknown := [tag for tag in example.gold if tag not in self.labels]:
            raise UnseenLabel(f"has the tag {unknown[0]!r}, which is not in the training data")

    def prepare(self, network: Network, train: Sequence[Example]) -> None:
        if self.crf:
            network.add_module("crf", Crf(self.labels))

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        engine = spec.tokenizer.engine
        room = max(1, spec.most_tokens - engine.num_special_tokens_to_add(is_pair=False))
        written = [as_written(one.given, spec.tokenizer) for one in examples]
        encodings = encoded(written, partial(engine.encode_batch, is_pretokenized=True))
        found = []
        for number, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            words = np.asarray([word for word in encoding.word_ids if word is not None], np.int64)
            pieces = np.bincount(words, minlength=len(example.given))
            windows = _windows(np.minimum(pieces, room), room)
            for window in windows:
                whole = (
                    encoding
                    if len(windows) == 1
                    else engine.encode(
                        written[number][window.start : window.stop], is_pretokenized=True, add_special_tokens=False
                    )
                )
                whole.truncate(room)
                framed = engine.post_process(whole)
                targets = self._targets(example, window, framed.word_ids)
                ids = np.asarray(framed.ids, np.int32)
                found.append(Input(number, ids, None, targets, was_cut=len(windows) > 1))
        return found

    def _targets(self, example: Example, window: range, word_ids: Sequence[int | None]) -> WordTargets:
        first: dict[int, int] = {}
        for row, word in enumerate(word_ids):
            if word is not None:
                first.setdefault(word, row)
        known = np.asarray(sorted(first), np.int64)
        tags = None
        if example.gold is not None:
            right = [example.gold[window.start + word] for word in known]
            if self.crf and self.entities:  # a window may begin inside an entity, and the CRF forbids a leading I-
                right, _ = repaired_tags(right, "iob2")
            tags = np.asarray([self.labels.index(tag) for tag in right], np.int64)
        return WordTargets(window, np.asarray([first[word] for word in known], np.int64), known, tags)

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        pairs = [one for one in zip(inputs, packed.starts.tolist(), strict=False) if len(one[0].targets.rows)]
        values = torch.from_numpy(np.concatenate([one.targets.tags for one, _ in pairs] or [np.zeros(0, np.int64)]))
        rows = torch.from_numpy(
            np.concatenate([one.targets.rows + start for one, start in pairs] or [np.zeros(0, np.int64)])
        )
        targets: Answers
        if self.crf:
            lengths = tuple(len(one.targets.rows) for one, _ in pairs)
            targets = Tagging(self.head, values, rows, lengths, torch.tensor(lengths, dtype=torch.long))
        else:
            weights = None if self.weights is None else torch.tensor(self.weights)
            targets = ClassAnswers(self.head, values, rows, weights)
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(values)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[WindowTags]:
        logits = packed.split(network.head(self.head)(hidden, packed).float().cpu())
        return self.read(logits, [one.targets for one in inputs], crf_of(network) if self.crf else None)

    def read(
        self, logits: Sequence[Tensor], targets: Sequence[WordTargets], crf: Crf | None = None
    ) -> list[WindowTags]:
        """The best tags of each window, from the logits of its tokens."""
        picked = [rows[torch.from_numpy(one.rows)] for rows, one in zip(logits, targets, strict=True)]
        sentences = [rows for rows in picked if len(rows)]
        decoded = iter(crf.decode(sentences) if crf is not None else _most_probable(sentences))
        nothing = np.zeros(0, np.int64), np.zeros(0)
        return [
            self._spread(one, *(next(decoded) if len(rows) else nothing))
            for one, rows in zip(targets, picked, strict=True)
        ]

    def _spread(self, targets: WordTargets, decoded: np.ndarray, certain: np.ndarray) -> WindowTags:
        """A word without tokens (a control character) gets O, or the tag of the entity that it is in."""
        tags, probabilities = np.full(len(targets.words), self._nothing), np.ones(len(targets.words))
        tags[targets.known], probabilities[targets.known] = decoded, certain
        if self.entities:
            for word in sorted(set(range(len(tags) - 1)) - set(targets.known.tolist()), reverse=True):
                if self.labels[tags[word + 1]].startswith("I-"):
                    tags[word] = tags[word + 1]
        return tags, probabilities

    @property
    def _nothing(self) -> int:
        return self.labels.index(_OUTSIDE) if _OUTSIDE in self.labels else 0

    def join(self, example: Example, pieces: Sequence[tuple[Input, WindowTags]]) -> PredictedTags:
        return self.joined([piece for _, piece in pieces])

    def joined(self, windows: Sequence[WindowTags]) -> PredictedTags:
        tags, probabilities = (np.concatenate(parts).tolist() for parts in zip(*windows, strict=True))
        return PredictedTags((self.labels[number] for number in tags), probabilities)

    def figures(self, examples: Sequence[Example], answers: Sequence[Sequence[str]]) -> dict[str, float]:
        gold = [example.gold for example in examples]
        figures = {"accuracy": tag_accuracy(gold, answers)}
        if self.entities:
            return {**entity_figures(gold, answers), **figures}
        return {**figures, "f1_macro": float(class_figures(self._tables(gold, answers)[0])["f1"])}

    def _tables(self, gold: Sequence[Any], answers: Sequence[Any]) -> tuple[np.ndarray, list[DetailTable]]:
        """For tags that are not entities: the confusion matrix, and the tables of the report."""
        labels = with_unseen(self.labels, (tag for tags in gold for tag in tags))
        numbers = {label: number for number, label in enumerate(labels)}
        expected, predicted = ([numbers[tag] for tags in side for tag in tags] for side in (gold, answers))
        matrix = confusion(expected, predicted, len(labels))
        return matrix, [class_table(labels, matrix, "Tags"), *confusion_table(labels, matrix)]

    def judge(self, examples: Sequence[Example], answers: Sequence[Sequence[str]]) -> Judged:
        gold = [example.gold for example in examples]
        right = np.asarray(
            [
                [sum(a == b for a, b in zip(*pair, strict=True)), len(pair[0])]
                for pair in zip(gold, answers, strict=True)
            ]
        )
        intervals = sum_intervals(right, lambda sums: {"accuracy": sums[:, 0] / np.maximum(sums[:, 1], 1)})
        if self.entities:
            _, counts = entity_counts(gold, answers)
            intervals |= sum_intervals(counts, entity_figures_from_counts)
            tables = [score_table("Entities", list(per_type(gold, answers).items()))]
        else:
            tables = self._tables(gold, answers)[1]
        credit = right[:, 0] / np.maximum(right[:, 1], 1)
        return Judged(
            self.figures(examples, answers), intervals, credit, right[:, 1] - right[:, 0].astype(float), tables
        )

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[Sequence[str]], spec: InputSpec
    ) -> ExtraMetrics:
        """F1 from raw text, which is how the model is used."""
        found = from_raw_text(
            self.cutter,
            examples,
            answers,
            [one.gold for one in examples],
            lambda others: self.answers(network, others, spec)[0],
            entities=self.entities,
        )
        if found is None:
            return ExtraMetrics()
        return ExtraMetrics({"f1_raw": found.f1}, {"f1_raw": found.interval}, {"from_raw_text": found.facts})

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[tuple[str, ...]]]:
        model = PerceptronTagger.fit([one.given for one in train], [one.gold for one in train])
        return "averaged perceptron", [tuple(tags) for tags in model.predict([one.given for one in examples])]

    def shown(self, example: Example, answer: Sequence[str], *, details: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"words": list(example.given), "tags": list(answer)}
        if self.entities:
            found["entities"] = entities(example, answer)
        return found

    def in_words(self, example: Example) -> str:
        return text_of(example.given)

    def gold_in_words(self, example: Example) -> str:
        return self._in_words(example, example.gold)

    def answer_in_words(self, example: Example, answer: Sequence[str]) -> str:
        return self._in_words(example, answer)

    def _in_words(self, example: Example, tags: Sequence[str]) -> str:
        if self.entities:
            return ", ".join(f"{one['text']} ({one['kind']})" for one in entities(example, tags)) or "none"
        return " ".join(f"{word}/{tag}" for word, tag in zip(example.given, tags, strict=True))

    def files(self, network: Network) -> dict[str, bytes]:
        return {CRF_FILE: crf_bytes(network)} if self.crf else {}

    def with_files(self, network: Network, folder: Path | None) -> Network:
        return with_crf(network, folder, self.labels) if self.crf else network

    def settings(self) -> dict[str, Any]:
        return {"entities": self.entities, "crf": self.crf, "cutter": self.cutter.settings()}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, **with_cutter(settings))


def _most_probable(sentences: Sequence[Tensor]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each word by itself, all in one softmax."""
    if not sentences:
        return []
    logits = torch.cat(list(sentences))
    tags = logits.argmax(-1)
    probabilities = logits.softmax(-1).gather(-1, tags[:, None])[:, 0]
    ends = np.cumsum([len(rows) for rows in sentences])[:-1]
    parts = (np.split(part.cpu().numpy(), ends) for part in (tags, probabilities))
    return list(zip(*parts, strict=True))


def _windows(pieces: np.ndarray, room: int) -> list[range]:
    """Ranges of words whose tokens fit into an input."""
    found, start, size = [], 0, 0
    for word, count in enumerate(pieces.tolist()):
        if size and size + count > room:
            found.append(range(start, word))
            start, size = word, 0
        size += count
    return [*found, range(start, len(pieces))]
