"""Replies in a conversation, judged by how likely the model finds the gold reply (`candidates`).

The data are pairs of texts (`Reply`), or whole conversations (`Converse`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from weft.errors import InputError, RecipeError
from weft.generate.chat_template import ChatTemplate, default_template, with_default_template
from weft.generate.chat_writer import rendered_ids, without_oldest_turn
from weft.generate.framing import BY_TEMPLATE
from weft.metrics.baselines.reply import candidate_cosines, reply_losses
from weft.metrics.bootstrap import mean_interval, sum_intervals
from weft.metrics.judged import Judged
from weft.metrics.rouge import rouge_of_each
from weft.model.families import Family
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.objective import Batch
from weft.progress import say
from weft.recipe.finetune import FinetuneSection
from weft.tasks.candidates import bits_per_byte, bytes_of, hits, with_candidates
from weft.tasks.example import Example, Input, Unusable
from weft.tasks.input_spec import InputSpec
from weft.tasks.rewrite import ROUGE_TITLES, TARGET_SHARE, Translate, perplexity
from weft.tasks.task import ExtraMetrics, Task
from weft.tasks.turns import (
    Said,
    TurnTargets,
    as_messages,
    check_has_answers,
    cut_to_last,
    end_of_answer,
    input_with_answers,
    mark_answers,
    read_messages,
    without_first_answers,
)

HITS_AT_1 = "hits_at_1"


@dataclass(frozen=True)
class Reply(Translate):
    """Many replies are good, so the main metrics are the likelihood of the gold reply (`candidates`)."""

    name: ClassVar[str] = "reply"
    is_reply: ClassVar[bool] = True
    form_roles: ClassVar[tuple[str, ...]] = ("messages",)
    metric_titles: ClassVar[Mapping[str, str]] = {
        **Translate.metric_titles,
        **ROUGE_TITLES,
        HITS_AT_1: "hits@1",
        "bits_per_byte": "bits per byte of the gold reply",
        "distinct": "distinct texts",
    }

    @classmethod
    def form_with(cls, role: str) -> type[Task]:
        return Converse

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], labels: tuple[str, ...]) -> Task:
        kind = Converse if facts.get("form") == BY_TEMPLATE else cls
        return super().from_facts(facts, labels) if kind is cls else kind.from_facts(facts, labels)

    def main_metric(self, figures: Mapping[str, float]) -> str:
        return HITS_AT_1 if HITS_AT_1 in figures else super().main_metric(figures)

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[str], spec: InputSpec
    ) -> ExtraMetrics:
        losses = self.losses(network, examples, spec)
        ranked = with_candidates(examples)
        candidates = [replace(one, gold=text) for one, texts in ranked for text in texts]
        likely = self.losses(network, candidates, spec) if candidates else np.zeros((0, 3))
        scores = -likely[:, 0] / likely[:, 1]
        rows = np.split(scores, np.cumsum([len(texts) for _, texts in ranked])[:-1]) if candidates else []
        found = _reply_metrics(losses[:, 0], losses[:, 2], rows)
        return ExtraMetrics(
            {**found.figures, **{name: float(value) for name, value in perplexity(losses.sum(0)).items()}},
            {**found.intervals, **sum_intervals(losses, perplexity)},
        )

    def measure_baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> ExtraMetrics:
        """Bits per byte from a conditional n-gram model, hits@1 from the cosine of TF-IDF vectors."""
        pairs = [(self.in_words(one), one.gold) for one in train]
        nats = reply_losses(pairs, [(self.in_words(one), one.gold) for one in examples])
        ranked = [(self.in_words(one), texts) for one, texts in with_candidates(examples)]
        return _reply_metrics(nats, bytes_of(examples), candidate_cosines(pairs, ranked))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        _, predicted = super().baseline(train, examples)
        return (
            "TF-IDF (hits@1), byte 6-grams (bits per byte), the reply to the most similar prompt (other metrics)",
            predicted,
        )

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        judged = super().judge(examples, answers)
        shared = rouge_of_each(answers, [one.gold for one in examples])["rougeL"]
        judged.figures.update(rougeL=float(shared.mean()), distinct=len(set(answers)) / len(answers))
        judged.intervals["rougeL"] = mean_interval(shared)
        return judged


def _reply_metrics(nats: np.ndarray, sizes: np.ndarray, scores: Sequence[np.ndarray]) -> ExtraMetrics:
    counts, right = np.stack([nats, sizes], 1), hits(scores)
    figures = {name: float(value) for name, value in bits_per_byte(counts.sum(0)).items()}
    intervals = sum_intervals(counts, bits_per_byte)
    if len(right):
        figures, intervals = {HITS_AT_1: float(right.mean()), **figures}, {HITS_AT_1: mean_interval(right), **intervals}
    return ExtraMetrics(figures, intervals)


@dataclass(frozen=True)
class Converse(Reply):
    """Replies learned from conversations: lists of messages, framed by the model's chat template.

    The loss is on every answer of the assistant. The last one is the gold reply that metrics are about; what comes
    before it is given (`Said` each).
    """

    roles: ClassVar[tuple[str, ...]] = ("messages",)
    gold_roles: ClassVar[tuple[str, ...]] = ()
    form_roles: ClassVar[tuple[str, ...]] = ()

    end_ids: tuple[int, ...] = ()  # end tokens, if the template ends answers with one that the model does not end with

    @classmethod
    def from_section(cls, section: FinetuneSection, label: Any) -> Task:
        for name, given in (("prefix", section.prefix), ("data.separator", section.data.separator)):
            if given:
                raise RecipeError(f"finetune.{name} has no effect on conversations: the chat template frames them.")
        return cls(beams=section.beams, sample=section.sample)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "form": BY_TEMPLATE}

    def settings(self) -> dict[str, Any]:
        names = ("head", "beams", "sample", "most_new")
        return {**{name: getattr(self, name) for name in names}, "end_ids": list(self.end_ids)}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        return replace(self, **{**settings, "end_ids": tuple(settings.get("end_ids", ()))})

    def head_in(self, family: type[Family] | Family) -> str:
        head = super().head_in(family)
        if head != "causal":
            raise RecipeError(
                f"A {family.name} is an encoder–decoder: conversations (finetune.data.messages) need a decoder, gpt2, "
                "llama or qwen3. Give source and target columns instead."
            )
        return head

    def example(self, values: Mapping[str, Any], *, with_gold: bool) -> Example:
        """Messages after the last answer are not learned from. In prediction the last message is the user's: an answer
        that follows it is left out, to be written again.
        """
        found = read_messages(values.get("messages"))
        messages = without_first_answers(found)
        last = next((one for one in reversed(messages) if one.role != "system"), None)
        if last is None:
            raise Unusable("has no message of the user")
        repairs = ("begins with an answer, which is left out",) if len(messages) < len(found) else ()
        if not with_gold:
            while messages[-1].role != "user":
                messages.pop()
            return Example(tuple(messages), None, repairs=repairs)
        while messages and messages[-1].role != "assistant":
            messages.pop()
        if not messages:
            raise Unusable("has no answer of the assistant")
        return Example(tuple(messages[:-1]), messages[-1].content, repairs=repairs)

    def complete_spec(self, spec: InputSpec) -> InputSpec:
        """With a chat template, which is saved with the model."""
        if spec.tokenizer.chat_template is not None or not spec.ends.end_ids:
            return spec
        return replace(spec, tokenizer=with_default_template(spec.tokenizer, spec.ends.end_ids[0]))

    def for_model(self, head: str, spec: InputSpec, train: Sequence[Example], section: FinetuneSection) -> Self:
        template, ends = self._template(spec), spec.ends.end_ids
        if ends and template.source == default_template(spec.tokenizer, ends[0]):
            say("The tokenizer has no chat template; the model gets weft's own (chat_template.jinja).")
        end = end_of_answer(template, spec.tokenizer.engine)
        if end is None:
            say("The chat template writes no special token after an answer, so the model does not learn where it ends.")
        fitted = super().for_model(head, spec, train, section)
        return fitted if end is None or end in ends else replace(fitted, end_ids=(*ends, end))

    def generation_config(self, before: Mapping[str, Any]) -> dict[str, Any]:
        found = super().generation_config(before)
        return {**found, "eos_token_id": list(self.end_ids)} if self.end_ids else found

    def inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        return self._inputs(examples, spec, last_only=False)

    def judged_inputs(self, examples: Sequence[Example], spec: InputSpec) -> list[Input]:
        return self._inputs(examples, spec, last_only=True)

    def _inputs(self, examples: Sequence[Example], spec: InputSpec, *, last_only: bool) -> list[Input]:
        template, engine = self._template(spec), spec.tokenizer.engine
        whole = [(*one.given, Said("assistant", one.gold)) for one in examples if one.gold is not None]
        marked = mark_answers(template, engine, whole, last_only=last_only)
        found = []
        for number, example in enumerate(examples):
            if example.gold is None:
                found.append(self._prompt(number, example, template, spec))
                continue
            texts, was_cut = next(marked), False
            messages: Any = as_messages([*example.given, Said("assistant", example.gold)])
            while max(len(one.ids) for one in texts) - 1 > spec.most_tokens:  # the last token is not read
                was_cut, messages = True, without_oldest_turn(messages)
                if messages is None:
                    texts = [cut_to_last(one, spec.most_tokens, TARGET_SHARE) for one in texts]
                    break
                said = [Said(**one) for one in messages]
                (texts,) = mark_answers(template, engine, [said], last_only=last_only)
            check_has_answers(texts)
            found += [input_with_answers(number, one, was_cut=was_cut) for one in texts]
        return found

    def _prompt(self, number: int, example: Example, template: ChatTemplate, spec: InputSpec) -> Input:
        room = max(1, spec.most_tokens - self.most_new)
        messages: Any = as_messages(example.given)
        ids, was_cut = rendered_ids(template, spec.tokenizer, messages), False
        while len(ids) > room and (messages := without_oldest_turn(messages)) is not None:
            ids, was_cut = rendered_ids(template, spec.tokenizer, messages), True
        return Input(
            number,
            np.asarray(ids[-room:], np.int32),
            None,
            TurnTargets(np.zeros(0, np.int32), None),
            was_cut or len(ids) > room,
        )

    def _template(self, spec: InputSpec) -> ChatTemplate:
        template = ChatTemplate.of(spec.tokenizer)
        if template is None:
            raise InputError("This model has no chat template and no end token, so it cannot learn conversations.")
        return template

    def batch(self, inputs: Sequence[Input], packed: Packed) -> Batch:
        right = torch.from_numpy(np.concatenate([one.targets.ids for one in inputs]).astype(np.int64))
        rows = [start + one.targets.rows for one, start in zip(inputs, packed.starts.tolist(), strict=False)]
        return Batch(packed, right, torch.from_numpy(np.concatenate(rows)), counts={self.head: len(right)})

    def in_words(self, example: Example) -> str:
        return "\n".join(f"{one.role}: {one.content}" for one in example.given)
