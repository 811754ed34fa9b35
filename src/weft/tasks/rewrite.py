"""A text in, another out: translation, summaries, replies.

An encoder–decoder reads the source and writes the target, −Σ log p(y_t | y_<t, source). A decoder alone reads the
source, framed (`generate.framing`), and goes on with the target; only the target is scored. Answers are written by beam
search, or sampled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F

from weft.errors import InputError
from weft.evaluate.baselines.reply import candidate_cosines, reply_losses
from weft.evaluate.baselines.rewrite import LeadSentences, NearestNeighbour
from weft.evaluate.bootstrap import mean_interval, sum_intervals
from weft.evaluate.classes import ratio
from weft.evaluate.judged import Judged
from weft.evaluate.rouge import rouge_of_each
from weft.evaluate.translations import translation_counts, translation_figures, translation_figures_from_counts
from weft.generate import prompts
from weft.generate.framing import Framing
from weft.generate.prepare import prepared
from weft.generate.writer import Writer
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.objectives.objective import Batch
from weft.tasks.candidates import bits_per_byte, bytes_of, hits, with_candidates
from weft.tasks.encode import encoded
from weft.tasks.labels import read_text
from weft.tasks.task import Example, ExtraMetrics, Input, InputSpec, Task, batch_of, count_cut, groups

HITS_AT_1 = "hits_at_1"
TARGET_SHARE = 0.5  # of what a decoder can read that a target may take, at most
USUAL_TOKENS = 64  # that an answer may have, if nothing is known
TOP_P = 0.9  # of what is drawn
ROOM_TO_SPARE = 1.3  # times the length that nearly no target of the training data is beyond


@dataclass(frozen=True)
class TextTargets:
    right: np.ndarray  # the target's tokens, and the end
    read: np.ndarray | None  # what the decoder reads beside a source
    prompt: int = 0  # tokens before the target, of a decoder alone


@dataclass(frozen=True)
class Rewrite(Task):
    roles: ClassVar[tuple[str, ...]] = ("source", "target")
    gold_roles: ClassVar[tuple[str, ...]] = ("target",)

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

    def measured(self, train: Sequence[Example], spec: InputSpec) -> Self:
        """With the length that answers may have, by the targets that were seen."""
        targets = encoded([one.gold for one in train], spec.tokenizer.engine.encode_batch_fast)
        usual = float(np.quantile([len(one) for one in targets], 0.99))
        most = int(spec.most_tokens * (1.0 if spec.has_source else TARGET_SHARE))
        return replace(self, most_new=min(max(8, int(usual * ROOM_TO_SPARE) + 2), most))

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        engine, most, ends = spec.tokenizer.engine, spec.most_tokens, spec.ends.end_ids
        if not ends:
            raise InputError("This model has no end token, so it cannot learn where an answer ends.")
        framing = self.framing
        sources = encoded([framing.source(one.given) for one in examples], engine.encode_batch_fast)
        targets = encoded([one.gold or "" for one in examples], engine.encode_batch_fast)
        before, between = framing.opening(engine), framing.between(engine, ends[0])
        found = []
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            asks = examples[number].gold is not None
            if spec.has_source:
                room = most - engine.num_special_tokens_to_add(is_pair=False)
                was_cut = len(source) > room or len(target) + 1 > most
                source.truncate(room)
                ids, right = engine.post_process(source).ids, [*target.ids[: most - 1], ends[0]]
                asked = TextTargets(
                    np.asarray(right, np.int32), np.asarray([spec.ends.start_id, *right[:-1]], np.int32)
                )
            else:
                room = int(most * TARGET_SHARE)
                around = len(before) + len(between)
                right = [*target.ids[: max(room, most - len(source) - around) - 1], ends[0]] if asks else []
                left = most - around - (len(right) or self.most_new)
                was_cut = len(source) > left or len(right) < len(target) + asks
                prompt = [*before, *framing.kept(source.ids, left, engine), *between]
                ids, asked = [*prompt, *right[:-1]], TextTargets(np.asarray(right, np.int32), None, len(prompt))
            found.append(Input(number, np.asarray(ids, np.int32), None, asked, was_cut))
        return found

    @property
    def framing(self) -> Framing:
        return Framing(self.prefix, self.separator, isinstance(self, Reply))

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        right = torch.from_numpy(np.concatenate([one.targets.right for one in inputs]).astype(np.int64))
        if inputs[0].targets.read is not None:
            decoder = pack([one.targets.read for one in inputs])
            return Batch(packed, right, decoder=decoder, counts={self.head: len(right)})
        starts = packed.starts.tolist()
        rows = [
            start + one.targets.prompt - 1 + np.arange(len(one.targets.right))
            for one, start in zip(inputs, starts, strict=False)
        ]
        return Batch(packed, right, torch.from_numpy(np.concatenate(rows)), counts={self.head: len(right)})

    def answers(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> tuple[list[str], int]:
        inputs = self.inputs([replace(one, gold=None) for one in examples], spec)
        writer = Writer(prepared(network), prompts.PromptReader(network.architecture, spec.tokenizer, spec.ends), {})
        settings: dict[str, Any] = {"beams": self.beams} if self.beams > 1 else {"strategy": "greedy"}
        if self.sample:
            settings = {"strategy": "sample", "top_p": TOP_P, "seed": 0}
        written = writer.generate([one.ids.tolist() for one in inputs], max_new_tokens=self.most_new, **settings)
        ends = set(spec.ends.end_ids)
        texts = (spec.tokenizer.decode([token for token in ids if token not in ends]) for ids in written)
        return [text.strip() for text in texts], count_cut(inputs)

    def losses(self, network: Network, examples: Sequence[Example], spec: InputSpec) -> np.ndarray:
        """(N, 3): −log p of each right text, its tokens and its bytes; of one that is cut, of what is left."""
        inputs, device = self.inputs(examples, spec), next(network.parameters()).device
        found = np.zeros((len(examples), 3))
        with torch.inference_mode():
            for part in groups(inputs):
                picked = [inputs[i] for i in part]
                batch = batch_of(self, picked).to(device)
                hidden = network(batch.packed, batch.decoder)
                logits = network.head(self.head)(hidden, batch.decoder or batch.packed, batch.rows)
                assert batch.targets is not None
                losses = F.cross_entropy(logits.float(), batch.targets, reduction="none")
                of_each = losses.split([len(one.targets.right) for one in picked])
                for one, rows in zip(picked, of_each, strict=True):
                    read = _bytes_read(examples[one.example].gold, one, spec)
                    found[one.example] = float(rows.double().sum()), len(rows), read
        return found

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[str], spec: InputSpec
    ) -> ExtraMetrics:
        """The perplexity of the right texts."""
        counts = self.losses(network, examples, spec)
        figures = {name: float(value) for name, value in perplexity(counts.sum(0)).items()}
        return ExtraMetrics(figures, sum_intervals(counts, perplexity))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        model = NearestNeighbour.fit([one.given for one in train], [one.gold for one in train])
        return "the target of the most similar source", model.predict([one.given for one in examples])

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


def _bytes_read(text: str, one: Input, spec: InputSpec) -> int:
    """Of the right text, that an input has."""
    if one.was_cut:
        places = spec.tokenizer.engine.encode(text, add_special_tokens=False).offsets
        kept = len(one.targets.right) - 1
        text = text if kept >= len(places) else text[: places[kept - 1][1]] if kept else ""
    return len(text.encode())


def _of_replies(nats: np.ndarray, sizes: np.ndarray, scores: Sequence[np.ndarray]) -> ExtraMetrics:
    counts, right = np.stack([nats, sizes], 1), hits(scores)
    figures = {name: float(value) for name, value in bits_per_byte(counts.sum(0)).items()}
    intervals = sum_intervals(counts, bits_per_byte)
    if len(right):
        figures, intervals = {HITS_AT_1: float(right.mean()), **figures}, {HITS_AT_1: mean_interval(right), **intervals}
    return ExtraMetrics(figures, intervals)


def perplexity(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Of shape (…), from sums of `losses`, of shape (…, 3)."""
    return {"perplexity": np.exp(np.minimum(ratio(counts[..., 0], counts[..., 1]), 700.0))}


@dataclass(frozen=True)
class Translate(Rewrite):
    name: ClassVar[str] = "translate"
    judged_with: ClassVar[tuple[str, ...]] = ("sacrebleu",)
    beside_with: ClassVar[tuple[str, ...]] = ("sklearn",)

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        counts = translation_counts(answers, [one.gold for one in examples])
        credit = translation_figures_from_counts(counts)["chrf"] / 100
        return Judged(
            translation_figures(counts), sum_intervals(counts, translation_figures_from_counts), credit, 1 - credit
        )


@dataclass(frozen=True)
class Summarize(Rewrite):
    name: ClassVar[str] = "summarize"

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        each = rouge_of_each(answers, [one.gold for one in examples])
        figures = {name: float(values.mean()) for name, values in each.items()}
        intervals = {name: mean_interval(values) for name, values in each.items()}
        return Judged(figures, intervals, each["rougeL"], 1 - each["rougeL"])

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        model = LeadSentences.fit([one.given for one in train], [one.gold for one in train])
        return model.name, model.predict([one.given for one in examples])


@dataclass(frozen=True)
class Reply(Translate):
    """Replies have no one right answer: the likelihood of the given one decides (`candidates`); what is alike in
    letters and words is measured beside it.
    """

    name: ClassVar[str] = "reply"

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[str], spec: InputSpec
    ) -> ExtraMetrics:
        losses = self.losses(network, examples, spec)
        ranked = with_candidates(examples)
        asked = [replace(one, gold=text) for one, texts in ranked for text in texts]
        likely = self.losses(network, asked, spec) if asked else np.zeros((0, 3))
        scores = -likely[:, 0] / likely[:, 1]
        rows = np.split(scores, np.cumsum([len(texts) for _, texts in ranked])[:-1]) if asked else []
        found = _of_replies(losses[:, 0], losses[:, 2], rows)
        return ExtraMetrics(
            {**found.figures, **{name: float(value) for name, value in perplexity(losses.sum(0)).items()}},
            {**found.intervals, **sum_intervals(losses, perplexity)},
        )

    def measure_baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> ExtraMetrics:
        """Bits by a conditional n-gram model, hits by the cosine of TF-IDF."""
        pairs = [(one.given, one.gold) for one in train]
        nats = reply_losses(pairs, [(one.given, one.gold) for one in examples])
        ranked = [(one.given, texts) for one, texts in with_candidates(examples)]
        return _of_replies(nats, bytes_of(examples), candidate_cosines(pairs, ranked))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        _, said = super().baseline(train, examples)
        return "TF-IDF (hits@1), 6-gram of bytes (bits per byte), the reply to the most similar prompt (the rest)", said

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        judged = super().judge(examples, answers)
        shared = rouge_of_each(answers, [one.gold for one in examples])["rougeL"]
        judged.figures.update(rougeL=float(shared.mean()), distinct=len(set(answers)) / len(answers))
        judged.intervals["rougeL"] = mean_interval(shared)
        return judged
