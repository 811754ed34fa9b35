"""Extractive question answering: find the answer to a question in a context (SQuAD; Rajpurkar et al. 2016, 2018).

    p(begin = i) = softmax over the tokens of z_begin,   p(end = j) likewise;   answer = argmax z_begin[i] + z_end[j]

with i ≤ j and a limited length. A long context is read in overlapping windows; the answer is the best span of all
windows. If the data has questions without an answer, the first token stands for "no answer".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from weft.errors import InputError
from weft.interchange.folder import Description
from weft.metrics.answers import answer_figures, exact, overlap
from weft.metrics.baselines.answer import AnswerOverlap
from weft.metrics.bootstrap import clustered_mean_interval
from weft.metrics.judged import Judged
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import SpanAnswers
from weft.objectives.objective import Batch
from weft.tasks.encode import encoded
from weft.tasks.example import Example, Input, Unusable
from weft.tasks.input_spec import InputSpec
from weft.tasks.labels import read_text
from weft.tasks.scored_task import ScoredTask, head_labels
from weft.tasks.task import Task
from weft.words import places_of_words

LONGEST_ANSWER = 30  # tokens
SPANS_PER_WINDOW = 20  # best spans that are kept
QUESTION_SHARE = 0.25  # of an input, at most
OVERLAP_SHARE = 0.35  # of a window that the next one repeats
WRONG_START = "has an answer_start that does not match the answer (the nearest match is used)"
INSIDE_A_WORD = "has an answer that occurs only inside a word of the context (that place is used)"


class Gold(NamedTuple):
    text: str
    start: int  # character in the context


class AnswerSpan(NamedTuple):
    text: str
    start: int  # character in the context; −1: no answer
    end: int
    score: float  # z_begin + z_end


@dataclass(frozen=True)
class SpanTargets:
    offsets: np.ndarray  # (T, 2) characters of each token in the context; (−1, −1) for other tokens
    span: tuple[int, int]  # the first and last gold token; (0, 0): not in this window


@dataclass(frozen=True)
class Answer(ScoredTask):
    name: ClassVar[str] = "answer"
    counted_as: ClassVar[str] = "questions"
    head: ClassVar[str] = "span"
    roles: ClassVar[tuple[str, ...]] = ("question", "context", "answers")
    gold_roles: ClassVar[tuple[str, ...]] = ("answers",)
    group_column: ClassVar[str] = "title"
    metrics: ClassVar[tuple[str, ...]] = ("f1", "exact")
    default_metric: ClassVar[str] = "f1"
    metric_titles: ClassVar[Mapping[str, str]] = {"f1": "F1", "exact": "exact match"}
    contained_texts_leak: ClassVar[bool] = False

    with_none: bool = False  # some questions have no answer

    @classmethod
    def from_head(cls, network: Network, description: Description) -> Task | None:
        return None if head_labels(network, description, cls.head) is None else cls()

    @property
    def outputs(self) -> int:
        return 2

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        context = values.get("context")
        read_text(context, "context")  # a check only: answer_start counts the leading blanks, which this strips
        given = (read_text(values.get("question"), "question"), str(context))
        if not with_gold:
            return Example(given, None)
        golds, repairs = _golds(values.get("answers"), given[1])
        return Example(given, golds, repairs=repairs)

    def with_labels_from(self, train: Sequence[Example]) -> Self:
        return replace(self, with_none=any(not example.gold for example in train))

    def check_model(self, spec: InputSpec, example: Example) -> None:
        if self.with_none and not spec.looks_ahead:
            raise InputError(
                "Some questions have no answer. Only an encoder (bert, roberta, modernbert …) can learn that: the "
                "first token stands for it, and a decoder's first token has not read the question."
            )

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        engine = spec.tokenizer.engine
        room = spec.most_tokens - engine.num_special_tokens_to_add(is_pair=True)
        questions, contexts = (encoded([one.given[side] for one in examples], engine.encode_batch) for side in (0, 1))
        found = []
        for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
            question.truncate(max(1, int(room * QUESTION_SHARE)))
            left = max(2, room - len(question))
            context.truncate(left, stride=int(left * OVERLAP_SHARE))
            windows = [context, *context.overflowing]
            for window in windows:
                whole = engine.post_process(question, window)
                segments = np.asarray(whole.type_ids, np.int32) if spec.segments > 1 else None
                offsets = np.asarray(
                    [
                        place if side == 1 else (-1, -1)
                        for place, side in zip(whole.offsets, whole.sequence_ids, strict=True)
                    ],
                    np.int32,
                ).reshape(-1, 2)
                targets = SpanTargets(offsets, _span(offsets, examples[number].gold))
                found.append(
                    Input(number, np.asarray(whole.ids, np.int32), segments, targets, was_cut=len(windows) > 1)
                )
        return found

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        targets = SpanAnswers(self.head, torch.tensor([one.targets.span for one in inputs]))
        return Batch(packed, answers={self.name: targets}, counts={self.name: len(inputs)})

    def pieces(self, network: Network, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return [rows.cpu().numpy() for rows in packed.split(network.head(self.head)(hidden, packed).float())]

    def join(self, example: Example, pieces: Sequence[tuple[Input, np.ndarray]]) -> list[AnswerSpan]:
        """The best answers first, without duplicates."""
        context = example.given[1]
        found = [candidate for one, logits in pieces for candidate in _candidates(one.targets.offsets, logits, context)]
        if self.with_none:
            found.append(AnswerSpan("", -1, -1, min(float(logits[0].sum()) for _, logits in pieces)))
        best: dict[str, AnswerSpan] = {}
        for candidate in sorted(found, key=lambda one: (-one.score, one.start)):
            best.setdefault(candidate.text, candidate)
        return list(best.values())[:SPANS_PER_WINDOW] or [AnswerSpan("", -1, -1, 0.0)]

    def figures(self, examples: Sequence[Example], answers: Sequence[list[AnswerSpan]]) -> dict[str, float]:
        return answer_figures([answer[0].text for answer in answers], [_texts(example) for example in examples])

    def judge(self, examples: Sequence[Example], answers: Sequence[list[AnswerSpan]]) -> Judged:
        predicted = [(answer[0].text, _texts(example)) for answer, example in zip(answers, examples, strict=True)]
        f1 = np.asarray([overlap(text, golds) for text, golds in predicted])
        right = np.asarray([exact(text, golds) for text, golds in predicted])
        contexts = [example.given[1] for example in examples]
        intervals = {name: clustered_mean_interval(each, contexts) for name, each in (("f1", f1), ("exact", right))}
        sure = np.asarray([_probabilities(answer)[0] for answer in answers])
        return Judged(self.figures(examples, answers), intervals, f1, (1 - f1) * sure)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[list[AnswerSpan]]]:
        questions, contexts = (list(side) for side in zip(*(one.given for one in examples), strict=True))
        predicted = AnswerOverlap().predict(contexts, questions)
        return "word overlap with the question", [[AnswerSpan(text, -1, -1, 0.0)] for text in predicted]

    def shown(self, example: Example, answer: list[AnswerSpan], *, details: bool = False) -> dict[str, Any]:
        probabilities = _probabilities(answer)
        found = [
            {"answer": one.text, "score": round(share, 6), "start": one.start, "end": one.end}
            for one, share in zip(answer, probabilities, strict=True)
        ]
        return {**found[0], "others": found[1:5]} if details else found[0]

    def compared_texts(self, example: Example) -> tuple[str, ...]:
        return (example.given[1],)

    def in_words(self, example: Example) -> str:
        question, context = example.given
        return f"{question}\n{context}"

    def gold_in_words(self, example: Example) -> str:
        return " / ".join(dict.fromkeys(_texts(example))) or "no answer"

    def answer_in_words(self, example: Example, answer: list[AnswerSpan]) -> str:
        return f"{self.decision(example, answer)} ({_probabilities(answer)[0]:.0%})"

    def decision(self, example: Example, answer: list[AnswerSpan]) -> str:
        return answer[0].text or "no answer"

    def settings(self) -> dict[str, Any]:
        return {"with_none": self.with_none}


def _golds(value: Any, context: str) -> tuple[tuple[Gold, ...], tuple[str, ...]]:
    """The answers, and what was repaired. `value`: SQuAD's list, a mapping with two lists, a text or several."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, str):
            texts, starts = [texts], [-1 if starts is None else starts]
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise Unusable("has answers with unequal numbers of text and answer_start")
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(value, list | tuple):
        raise Unusable("has no answers")
    found, repairs = [], list[str]()
    for answer in value:
        parts = answer if isinstance(answer, Mapping) else {"text": answer}
        text, start = parts.get("text"), parts.get("answer_start", -1)
        if not isinstance(text, str) or not isinstance(start, int) or not text.strip():
            raise Unusable("has an answer without text and answer_start")
        was_off = start >= 0 and context[start : start + len(text)] != text
        repairs += [WRONG_START] * was_off
        if was_off or start < 0:
            start, is_inside = _nearest(context, text.strip(), start)
            text = text.strip()
            repairs += [INSIDE_A_WORD] * is_inside
        if start < 0:
            raise Unusable(f"has the answer {text[:40]!r}, which is not in its context")
        found.append(Gold(text.strip(), start + len(text) - len(text.lstrip())))
    return tuple(found), tuple(repairs)


def _nearest(context: str, text: str, start: int) -> tuple[int, bool]:
    """The occurrence of the text nearest to `start`, −1 if there is none; and whether it is inside a word.

    An occurrence as whole words is preferred: "art" does not mean the one in "party".
    """
    places = [match.start() for match in re.finditer(f"(?={re.escape(text)})", context)]
    inner = {place for first, behind in places_of_words(context) for place in range(first + 1, behind)}
    whole = [place for place in places if not {place, place + len(text)} & inner]
    return min(whole or places, key=lambda place: abs(place - start), default=-1), bool(places and not whole)


def _span(offsets: np.ndarray, golds: Sequence[Gold] | None) -> tuple[int, int]:
    """The first and last token of the first answer. (0, 0) if a part of it is outside this window."""
    if not golds:
        return 0, 0
    start, end = golds[0].start, golds[0].start + len(golds[0].text)
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start) & (offsets[:, 1] > offsets[:, 0]))
    if len(inside) == 0 or offsets[inside[0], 0] > start or offsets[inside[-1], 1] < end:
        return 0, 0
    return int(inside[0]), int(inside[-1])


def _candidates(offsets: np.ndarray, logits: np.ndarray, context: str) -> list[AnswerSpan]:
    """The best spans of a window, without blank ones."""
    inside = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if len(inside) == 0:
        return []
    begins, ends = logits[inside].T
    ends = np.pad(ends, (0, LONGEST_ANSWER - 1), constant_values=-np.inf)
    scores = (begins[:, None] + sliding_window_view(ends, LONGEST_ANSWER)).ravel()  # by begin and length
    found = []
    for place in np.argpartition(-scores, SPANS_PER_WINDOW)[:SPANS_PER_WINDOW].tolist():
        begin, further = divmod(place, LONGEST_ANSWER)
        if begin + further < len(inside):
            start, stop = int(offsets[inside[begin], 0]), int(offsets[inside[begin + further], 1])
            text = context[start:stop]
            start += len(text) - len(text.lstrip())
            if text := text.strip():
                found.append(AnswerSpan(text, start, start + len(text), float(scores[place])))
    return found


def _texts(example: Example) -> list[str]:
    return [gold.text for gold in example.gold]


def _probabilities(answer: Sequence[AnswerSpan]) -> list[float]:
    """Probabilities of the answers: a softmax over the spans that were kept."""
    scores = np.asarray([one.score for one in answer])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()).tolist()
