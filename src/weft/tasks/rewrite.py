"""A text in, another out: translation, summaries, replies.

An encoder–decoder reads the source and writes the target, −Σ log p(y_t | y_<t, source). A decoder alone reads the
source as its tokenizer begins a text (Llama's with <s>) and the mark of its end, and goes on with the target (as
DialoGPT does; Zhang et al. 2020); only the target is scored. Answers are written by beam search, or sampled.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, ClassVar, Self

import numpy as np
import tokenizers
import torch

from weft.errors import InputError
from weft.evaluate.baselines.rewrite import LeadSentences, NearestNeighbour
from weft.evaluate.bootstrap import mean_interval, sum_intervals
from weft.evaluate.judged import Judged
from weft.evaluate.rouge import rouge, rouge_figures
from weft.evaluate.translations import counted_figures, translation_counts, translation_figures
from weft.generate import prompts
from weft.generate.prepare import prepare
from weft.generate.writer import Writer
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.objectives.objective import Batch
from weft.tasks.labels import read_text
from weft.tasks.task import Example, Input, Reader, Task, count_cut

TARGET_SHARE = 0.5  # of what a decoder can read that a target may take, at most
USUAL_TOKENS = 64  # that an answer may have, if nothing is known
TOP_P = 0.9  # of what is drawn
ROOM_TO_SPARE = 1.3  # times the length that nearly no target of the training data is beyond


@dataclass(frozen=True)
class Asked:
    right: np.ndarray  # the target's tokens, and the end
    read: np.ndarray | None  # what the decoder reads beside a source
    prompt: int = 0  # tokens before the target, of a decoder alone


@dataclass(frozen=True)
class Rewrite(Task):
    roles: ClassVar[tuple[str, ...]] = ("source", "target")
    golds: ClassVar[tuple[str, ...]] = ("target",)

    head: str = "seq2seq"  # type: ignore[misc]
    prefix: str = ""  # before each source, as T5 is used to
    separator: str | None = None  # between source and target of a decoder; its end token, if none is said
    beams: int = 4
    sample: bool = False
    most_new: int = USUAL_TOKENS  # tokens of an answer

    @property
    def outputs(self) -> int:
        return 0

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        target = read_text(values.get("target"), "target") if with_gold else None
        return Example(read_text(values.get("source"), "source"), target)

    def way_of_writing(self) -> dict[str, Any]:
        """As `transformers` says it."""
        drawn = {"do_sample": True, "num_beams": 1, "top_p": TOP_P, "top_k": 0}
        searched = {"do_sample": False, "num_beams": self.beams}
        return {**(drawn if self.sample else searched), "max_new_tokens": self.most_new}

    def measured(self, train: Sequence[Example], reader: Reader) -> Self:
        """With the length that answers may have, by the targets that were seen."""
        encodings = reader.tokenizer.engine.encode_batch_fast([one.gold for one in train], add_special_tokens=False)
        usual = float(np.quantile([len(one) for one in encodings], 0.99))
        most = int(reader.most_tokens * (1.0 if reader.has_source else TARGET_SHARE))
        return replace(self, most_new=min(max(8, int(usual * ROOM_TO_SPARE) + 2), most))

    def inputs(self, examples: Sequence[Example], reader: Reader) -> list[Input]:
        engine, most, ends = reader.tokenizer.engine, reader.most_tokens, reader.ends.ends
        if not ends:
            raise InputError("This model has no end token, so it cannot learn where an answer ends.")
        sources = engine.encode_batch_fast([self.prefix + one.given for one in examples], add_special_tokens=False)
        golds = [one.gold or "" for one in examples]
        targets = engine.encode_batch_fast(golds, add_special_tokens=False)
        between = [ends[0]] if self.separator is None else engine.encode(self.separator, add_special_tokens=False).ids
        before = _opening(engine)
        found = []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            asks = examples[number].gold is not None
            if reader.has_source:
                room = most - engine.num_special_tokens_to_add(is_pair=False)
                was_cut = len(source) > room or len(target) + 1 > most
                source.truncate(room)
                ids, right = engine.post_process(source).ids, [*target.ids[: most - 1], ends[0]]
                asked = Asked(np.asarray(right, np.int32), np.asarray([reader.ends.start, *right[:-1]], np.int32))
            else:
                room = int(most * TARGET_SHARE)
                framing = len(before) + len(between)
                right = [*target.ids[: max(room, most - len(source) - framing) - 1], ends[0]] if asks else []
                left = most - framing - (len(right) or self.most_new)
                was_cut = len(source) > left or len(right) < len(target) + asks
                # Of a conversation that is too long the beginning goes: what was said last is answered.
                prompt = [*before, *source.ids[-max(left, 1) :], *between]
                ids, asked = [*prompt, *right[:-1]], Asked(np.asarray(right, np.int32), None, len(prompt))
            found.append(Input(number, np.asarray(ids, np.int32), None, asked, was_cut))
        return found

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        right = torch.from_numpy(np.concatenate([one.asked.right for one in inputs]).astype(np.int64))
        if inputs[0].asked.read is not None:
            decoder = pack([one.asked.read for one in inputs])
            return Batch(packed, right, decoder=decoder, counts={self.head: len(right)})
        starts = packed.starts.tolist()
        rows = [
            start + one.asked.prompt - 1 + np.arange(len(one.asked.right))
            for one, start in zip(inputs, starts, strict=False)
        ]
        return Batch(packed, right, torch.from_numpy(np.concatenate(rows)), counts={self.head: len(right)})

    def answers(self, network: Network, examples: Sequence[Example], reader: Reader) -> tuple[list[str], int]:
        inputs = self.inputs([replace(one, gold=None) for one in examples], reader)
        ready = prepare(network)
        writer = Writer(ready, prompts.Reader(network.architecture, reader.tokenizer, reader.ends), {})
        settings: dict[str, Any] = {"beams": self.beams} if self.beams > 1 else {"strategy": "greedy"}
        if self.sample:
            settings = {"strategy": "sample", "top_p": TOP_P, "seed": 0}
        written = writer.generate([one.ids.tolist() for one in inputs], max_new_tokens=self.most_new, **settings)
        ends = set(reader.ends.ends)
        texts = (reader.tokenizer.decode([token for token in ids if token not in ends]) for ids in written)
        return [text.strip() for text in texts], count_cut(inputs)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        model = NearestNeighbour.fit([one.given for one in train], [one.gold for one in train])
        return "the target of the most similar source", model.predict([one.given for one in examples])

    @abstractmethod
    def figures(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]: ...

    def shown(self, example: Example, answer: str, *, details: bool = False) -> dict[str, Any]:
        return {"text": answer}

    def in_words(self, example: Example) -> str:
        return example.given

    def gold_in_words(self, example: Example) -> str:
        return example.gold

    def answer_in_words(self, example: Example, answer: str) -> str:
        return answer

    def settings(self) -> dict[str, Any]:
        names = ("head", "prefix", "separator", "beams", "sample", "most_new")
        return {name: getattr(self, name) for name in names}


def _opening(engine: tokenizers.Tokenizer) -> list[int]:
    """The special tokens that come before a text."""
    framed = engine.encode("a")
    marks = takewhile(lambda pair: pair[1], zip(framed.ids, framed.special_tokens_mask, strict=True))
    return [token for token, _ in marks]


@dataclass(frozen=True)
class Translate(Rewrite):
    name: ClassVar[str] = "translate"

    def figures(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        return translation_figures(answers, [one.gold for one in examples])

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        golds = [one.gold for one in examples]
        intervals = sum_intervals(translation_counts(answers, golds), counted_figures)
        credit = np.asarray([rouge(said, gold)["rougeL"] for said, gold in zip(answers, golds, strict=True)])
        return Judged(self.figures(examples, answers), intervals, credit, 1 - credit)


@dataclass(frozen=True)
class Summarize(Rewrite):
    name: ClassVar[str] = "summarize"

    def figures(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        return rouge_figures(answers, [one.gold for one in examples])

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        each = [rouge(said, one.gold) for said, one in zip(answers, examples, strict=True)]
        intervals = {name: mean_interval([one[name] for one in each]) for name in each[0]}
        credit = np.asarray([one["rougeL"] for one in each])
        return Judged(self.figures(examples, answers), intervals, credit, 1 - credit)

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        model = LeadSentences.fit([one.given for one in train], [one.gold for one in train])
        return f"the first {model.count} sentences", model.predict([one.given for one in examples])


@dataclass(frozen=True)
class Reply(Translate):
    """Replies have no one right answer; what is alike in letters and words is still measured, beside perplexity."""

    name: ClassVar[str] = "reply"

    def figures(self, examples: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
        golds = [one.gold for one in examples]
        kinds = {"distinct": len(set(answers)) / max(len(answers), 1)}
        return {**translation_figures(answers, golds), "rougeL": rouge_figures(answers, golds)["rougeL"], **kinds}
