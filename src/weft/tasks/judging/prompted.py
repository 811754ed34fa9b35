"""A language model at a task with labels, without training: it chooses a label after a prompt (Brown et al. 2020).

    Text: a lovely film
    Label: positive

    Text: a dull film
    Label:

The answer is the label with the highest log-probability per token. The labelled examples ("shots") are the same for all
texts: so an answer does not depend on the rest of the file, anybody can use the prompt that was evaluated, and a
decoder reads it once. They are drawn with a seed, about equally many of each label, and none is among the judged texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from weft.errors import InputError
from weft.generate.framing import Framing
from weft.generate.prepare import prepared
from weft.generate.prompts import PromptReader
from weft.generate.scorer import Scorer
from weft.generate.settings import DEFAULT_NEW_TOKENS
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec
from weft.tasks.judging.predict import given_roles
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

_ANSWER = "Label:"
_BETWEEN = "\n\n"  # examples
_MOST_TOKENS = 2048  # of a prompt, for models without a limit
_LEAST_ROOM = 8  # tokens of a text
_LANGUAGE_HEADS = {"causal", "seq2seq"}


@dataclass(frozen=True)
class PromptFormat:
    """How examples are written. `words`: each label as it is written, in the order of the task's labels."""

    roles: tuple[str, ...]  # of the texts of an example
    labels: tuple[str, ...]
    words: tuple[str, ...]

    def question(self, texts: Sequence[str]) -> str:
        lines = (f"{role.capitalize()}: {text}" for role, text in zip(self.roles, texts, strict=True))
        return "\n".join([*lines, _ANSWER])

    def shots(self, shots: Sequence[tuple[Sequence[str], str]]) -> str:
        """`shots`: the texts and the label of each."""
        words = dict(zip(self.labels, self.words, strict=True))
        return "".join(f"{self.question(texts)} {words[label]}{_BETWEEN}" for texts, label in shots)


class AskedModel(LoadedModel):
    """A model that answers a task's questions without a head for it."""

    def __init__(self, model: LoadedModel, task: Task, words: Sequence[str] = ()) -> None:
        """`words`: the labels as they are written; default: as they are."""
        given = model.network, model.description, model.own_tokenizer, model.pooling, model.facts, model.folder
        super().__init__(*given, task.name)
        self._asked, self._spec = task, model.input_spec
        self.words = tuple(words or task.labels)

    @cached_property
    def required_task(self) -> Task:
        return self._asked

    @property
    def called(self) -> str:
        return f"This {self.family}" if self.folder is None else str(self.folder)


class PromptedModel(AskedModel):
    """It answers as a model with a head for the task would, with a share of probability for each label."""

    def __init__(
        self, model: LoadedModel, task: Task, words: Sequence[str] = (), shots: Sequence[Example] = ()
    ) -> None:
        """Raises InputError if the model does not write."""
        super().__init__(model, task, words)
        self._shots, self._format = list(shots), PromptFormat(tuple(given_roles(task)), task.labels, self.words)
        if not _LANGUAGE_HEADS & set(self.network.heads):
            raise InputError(f"{self.called} has no head of a language model, so it cannot be asked with --shots.")

    @cached_property
    def input_spec(self) -> InputSpec:
        return replace(self._spec, most_tokens=self._limit)

    @cached_property
    def _reader(self) -> PromptReader:
        framing = Framing.of(self.facts.get("task"))
        return PromptReader(self.network.architecture, self.tokenizer, self._spec.ends, framing)

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(prepared(self.network), self._reader)

    @cached_property
    def _limit(self) -> int:
        """The most tokens of a prompt with its answer."""
        framing, most = self._reader.framing, self._reader.limit or _MOST_TOKENS
        if framing is None:
            return most
        most = min(most, framing.most_tokens or most)
        return most if self._reader.has_source else max(most - DEFAULT_NEW_TOKENS, most // 2)

    @cached_property
    def options(self) -> list[str]:
        """The labels as they follow a prompt: of a decoder, in the same text."""
        is_apart = self._reader.has_source or self._reader.framing is not None
        return [word if is_apart else f" {word}" for word in self._format.words]

    @cached_property
    def prefix(self) -> str:
        """The labelled examples, which come before each text."""
        shots = [(given_lines(one.given), one.gold) for one in self._shots]
        frame = self._format.shots([([""] * len(texts), label) for texts, label in shots])
        share = (self._limit - self._around(frame)) // (len(shots) + 1)
        if share < _LEAST_ROOM * len(self._format.roles):
            raise InputError(
                f"A prompt with {len(shots)} examples does not fit into the {self._limit:,} tokens that {self.called} "
                "reads: use fewer (--shots)."
            )
        return self._format.shots([(self._cut(texts, share)[0], label) for texts, label in shots])

    @property
    def shown_prompt(self) -> str:
        """The prompt, with the names of the texts in their places."""
        return self.prefix + self._format.question([f"<{role}>" for role in self._format.roles])

    def prompt(self, example: Example) -> tuple[str, bool]:
        """And whether the end of its texts was cut."""
        texts = given_lines(example.given)
        room, was_cut = self._limit - self._around(self.prefix), False
        while True:
            kept, is_shorter = self._cut(texts, room)
            was_cut |= is_shorter
            prompt = self.prefix + self._format.question(kept)
            over = self._count(prompt) + self._longest_option - self._limit
            if over <= 0 or room <= 1:  # texts may be cut into other tokens together than apart
                return prompt, was_cut
            room = max(1, min(room, self._count(" ".join(kept))) - over)

    def answers_and_cut(self, examples: Sequence[Example]) -> tuple[list[Any], int]:
        prompts = [self.prompt(example) for example in examples]
        found = self._scorer.choose_each([text for text, _ in prompts], self.options, "tokens")
        shares = [np.asarray([one.probability for one in row]) for row in found]
        return shares, sum(was_cut for _, was_cut in prompts)

    def _around(self, shots: str) -> int:
        """Tokens of a prompt with these shots and no text, with its longest answer."""
        return self._count(shots + self._format.question([""] * len(self._format.roles))) + self._longest_option

    @cached_property
    def _longest_option(self) -> int:
        return max(self._count(option) for option in self.options) + 1  # an end token

    def _count(self, text: str) -> int:
        return len(self.tokenizer.engine.encode(text).ids)

    def _cut(self, texts: Sequence[str], room: int) -> tuple[list[str], bool]:
        """Texts of at most `room` tokens together. A short one leaves its room to the others."""
        encoded, kept = self.tokenizer.engine.encode_batch(list(texts), add_special_tokens=False), list(texts)
        by_length = sorted(range(len(texts)), key=lambda place: len(encoded[place].ids))
        for number, place in enumerate(by_length):
            most = max(1, room // (len(texts) - number))
            if len(encoded[place].ids) > most:
                kept[place] = texts[place][: encoded[place].offsets[most - 1][1]].rstrip()
            room -= min(len(encoded[place].ids), most)
        return kept, kept != list(texts)


def given_lines(given: Any) -> list[str]:
    """The texts of an example, each on one line."""
    return [" ".join(text.split()) for text in ([given] if isinstance(given, str) else given)]


def draw_shots(
    task: Task, train: Sequence[Example], judged: Sequence[Example], count: int, seed: int = 0
) -> list[Example]:
    """Examples for a prompt: in each round one of every label that has any left, the labels in random order. Raises
    InputError if there are too few whose texts are not judged.
    """
    generator = np.random.default_rng(seed)
    is_judged = {task.in_words(one).casefold() for one in judged}
    by_text = {task.in_words(one).casefold(): one for one in train}
    left = [one for text, one in by_text.items() if text not in is_judged]
    if len(left) < count:
        raise InputError(
            f"--shots {count} needs as many training examples that are not in the data to evaluate; there are "
            f"{len(left):,}."
        )
    of_label: dict[str, list[Example]] = {}
    for place in generator.permutation(len(left)):
        of_label.setdefault(left[place].gold, []).append(left[place])
    found: list[Example] = []
    while len(found) < count:
        found += _round([of_label[label] for label in sorted(of_label)], generator)
    return found[:count]


def _round(groups: Sequence[list[Example]], generator: np.random.Generator) -> Iterator[Example]:
    for place in generator.permutation(len(groups)):
        if groups[place]:
            yield groups[place].pop()
