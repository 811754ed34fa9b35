"""Extractive summaries: an encoder picks the sentences that sum a text up (Nallapati et al. 2017; Liu & Lapata 2019).

    p_i = softmax(W h_i + b)[chosen],   h_i: the state of sentence i's last token
    summary: the k most probable sentences in their order, k = argmax 2 Σ p_i / (k + Σ_all p_i)

The text is read as a whole, sentence after sentence, each with a separator behind it. Gold summaries are free texts;
the sentences to be chosen are those that a greedy search adds to have the most words and bigrams in common with it.
The number k is the one with about the largest expected F1. Sentences are lines in a dialogue.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from weft.interchange.folder import Description
from weft.metrics.baselines.frozen import row_cosines
from weft.metrics.baselines.rewrite import LeadSentences, sentences_of
from weft.metrics.judged import Judged
from weft.metrics.rouge import ROUGE_TITLES, best_units, judge_summaries, rouge_of_each
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import ClassAnswers
from weft.objectives.objective import Batch
from weft.tasks.encode import encoded
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import read_text
from weft.tasks.scored_task import Embed, VectorTask
from weft.tasks.tag import SENTENCE_PREFIX
from weft.tasks.task import Task

LABELS = (f"{SENTENCE_PREFIX}other", f"{SENTENCE_PREFIX}summary")
_MOST_GOLD = 10  # sentences that training takes for a summary


@dataclass(frozen=True)
class SentenceTargets:
    numbers: np.ndarray  # of the sentences in this input
    rows: np.ndarray  # the last token of each
    chosen: np.ndarray | None  # 1 for sentences of the summary


@dataclass(frozen=True)
class Extract(VectorTask):
    name: ClassVar[str] = "extract"
    head: ClassVar[str] = "token"
    reads_whole_texts: ClassVar[bool] = True
    roles: ClassVar[tuple[str, ...]] = ("source", "target")
    gold_roles: ClassVar[tuple[str, ...]] = ("target",)
    recipe_settings: ClassVar[tuple[str, ...]] = ("label_smoothing",)
    metrics: ClassVar[tuple[str, ...]] = tuple(ROUGE_TITLES)
    default_metric: ClassVar[str] = "rougeL"
    metric_titles: ClassVar[Mapping[str, str]] = ROUGE_TITLES

    labels: tuple[str, ...] = LABELS

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        return cls() if description.labels == LABELS and cls.head in network.heads else None

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        target = read_text(values.get("target"), "target") if with_gold else None
        return Example(read_text(values.get("source"), "source"), target)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        return replace(self, labels=LABELS)

    # The network.

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        """Windows of whole sentences; one sentence alone may be cut."""
        units = [sentences_of(one.given) for one in examples]
        engine = spec.tokenizer.engine
        ids = encoded([text for one in units for text in _as_within(one)], engine.encode_batch_fast)
        before, behind = _ends(spec)
        found: list[Input] = []
        for number, (example, texts) in enumerate(zip(examples, units, strict=True)):
            gold = None if example.gold is None else np.zeros(len(texts), np.int64)
            if gold is not None:
                gold[best_units(texts, example.gold, _MOST_GOLD)] = 1
            encodings = [next(ids).ids for _ in texts]
            found += _windows(number, encodings, gold, before, behind, spec.most_tokens)
        return found

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        values = torch.from_numpy(np.concatenate([one.targets.chosen for one in inputs]))
        targets = ClassAnswers(self.head, values, _rows_in(packed, inputs))
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(values)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        rows = _rows_in(packed, inputs).to(hidden.device)
        scores = network.head(self.head)(hidden, packed, rows).float().softmax(-1)[:, 1].cpu().numpy()
        return np.split(scores, np.cumsum([len(one.targets.rows) for one in inputs])[:-1])

    def join(self, example: Example, pieces: Sequence[tuple[Input, np.ndarray]]) -> np.ndarray:
        """The probability of each sentence."""
        return np.concatenate([scores for _, scores in pieces])

    # Judging.

    def summary(self, example: Example, scores: np.ndarray) -> str:
        texts = sentences_of(example.given)
        return "".join(texts[number] for number in chosen_sentences(scores)).strip()

    def figures(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> dict[str, float]:
        each = rouge_of_each(self._summaries(examples, answers), [one.gold for one in examples])
        return {name: float(values.mean()) for name, values in each.items()}

    def judge(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> Judged:
        return judge_summaries(self._summaries(examples, answers), [one.gold for one in examples])

    def _summaries(self, examples: Sequence[Example], answers: Sequence[np.ndarray]) -> list[str]:
        return [self.summary(example, scores) for example, scores in zip(examples, answers, strict=True)]

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[np.ndarray]]:
        model = LeadSentences.fit([one.given for one in train], [one.gold for one in train])
        return model.name, [_first(len(sentences_of(one.given)), model.count) for one in examples]

    def untuned(
        self, train: Sequence[Example], examples: Sequence[Example], embed: Embed
    ) -> tuple[str, list[np.ndarray], int]:
        """As many sentences as gold summaries are worth, those nearest to the mean (Radev et al. 2000)."""
        sizes = [len(best_units(sentences_of(one.given), one.gold, _MOST_GOLD)) for one in train]
        count, answers = max(1, round(float(np.mean(sizes)))), []
        for one in examples:
            vectors = embed(sentences_of(one.given))
            near = row_cosines(vectors, np.broadcast_to(vectors.mean(0), vectors.shape))
            answers.append(np.isin(np.arange(len(near)), np.argsort(-near, kind="stable")[:count]).astype(float))
        return f"the {count} sentences nearest to the mean of the untuned vectors", answers, len(train)

    # Output.

    def shown(self, example: Example, answer: np.ndarray, *, details: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {"text": self.summary(example, answer)}
        if details:
            sentences = zip(sentences_of(example.given), answer.tolist(), strict=True)
            found["sentences"] = [{"text": text.strip(), "score": round(score, 6)} for text, score in sentences]
        return found

    def in_words(self, example: Example) -> str:
        return example.given

    def gold_in_words(self, example: Example) -> str:
        return example.gold

    def answer_in_words(self, example: Example, answer: np.ndarray) -> str:
        return self.summary(example, answer)


def chosen_sentences(scores: np.ndarray) -> list[int]:
    """In the order of the text: as many of the most probable ones as give the largest expected F1."""
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(scores[order])
    f1 = 2 * found / (np.arange(1, len(scores) + 1) + found[-1])
    return sorted(order[: 1 + int(f1.argmax())].tolist())


def _as_within(units: Sequence[str]) -> list[str]:
    """Without the white space around them, but with the space before, which byte-level tokenizers read with a word."""
    before = ["", *(unit[-1:] for unit in units[:-1])]
    return [f"{' ' * space.isspace()}{unit.strip()}" for space, unit in zip(before, units, strict=True)]


def _ends(spec: InputSpec) -> tuple[list[int], list[int]]:
    """The tokenizer's special tokens before a text and behind it."""
    engine = spec.tokenizer.engine
    whole = engine.encode("a")
    inside = [number for number, is_special in enumerate(whole.special_tokens_mask) if not is_special]
    if not inside:
        return [], []
    return whole.ids[: inside[0]], whole.ids[inside[-1] + 1 :]


def _windows(
    number: int,
    encodings: Sequence[Sequence[int]],
    gold: np.ndarray | None,
    before: Sequence[int],
    behind: Sequence[int],
    most: int,
) -> Iterator[Input]:
    room = max(1, most - len(before) - len(behind))
    was_cut = len(before) + sum(max(1, len(ids)) + len(behind) for ids in encodings) > most
    ids, rows, numbers = list(before), list[int](), list[int]()
    for unit, own in enumerate(encodings):
        behind_this = [*(own[:room] or [0]), *behind]  # a line of control characters has no tokens
        if rows and len(ids) + len(behind_this) > most:
            yield _input(number, ids, rows, numbers, gold, was_cut=was_cut)
            ids, rows, numbers = list(before), [], []
        ids += behind_this
        rows.append(len(ids) - 1)
        numbers.append(unit)
    yield _input(number, ids, rows, numbers, gold, was_cut=was_cut)


def _input(
    number: int, ids: list[int], rows: list[int], numbers: list[int], gold: np.ndarray | None, *, was_cut: bool
) -> Input:
    targets = SentenceTargets(np.asarray(numbers), np.asarray(rows), None if gold is None else gold[numbers])
    return Input(number, np.asarray(ids, np.int32), None, targets, was_cut)


def _rows_in(packed: Packed, inputs: Sequence[Input]) -> Tensor:
    starts = packed.starts[:-1].tolist()
    rows = [start + one.targets.rows for start, one in zip(starts, inputs, strict=True)]
    return torch.from_numpy(np.concatenate(rows))


def _first(sentences: int, count: int) -> np.ndarray:
    return (np.arange(sentences) < count).astype(float)
