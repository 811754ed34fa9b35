"""Conversations as token ids in which the assistant's answers are marked.

The model's chat template writes the conversation. An answer is what it adds when the answer is among the messages, too,
to what it writes before (with add_generation_prompt): the text with what ends it, without the marker of its role. Token
ids are those of the whole text; an answer begins and ends where the ids of the shorter texts end.

Some templates write earlier turns differently from the last one (they drop what was thought, for example). Then each
answer has a text of its own, that which the model reads when it gives this answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile, zip_longest
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from weft.errors import InputError
from weft.generate.chat_template import ChatTemplate
from weft.tasks.example import Input, Unusable
from weft.tasks.labels import refuse_surrogates
from weft.tasks.rewrite import TextTargets

_ROLES = ("system", "user", "assistant")
_SHAREGPT = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
_ENCODED_AT_ONCE = 1000  # texts


class Said(NamedTuple):
    role: str
    content: str


@dataclass(frozen=True)
class MarkedText:
    ids: list[int]
    answers: list[range]  # places of the tokens of each answer


def read_messages(value: Any) -> list[Said]:
    """`value`: a list of {"role", "content"}, or of {"from", "value"} as in ShareGPT; or a text, the user's message.

    Empty system messages are left out. Raises Unusable.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, Sequence) or not value:
        raise Unusable("has no list of messages")
    found = [_read_message(one) for one in value]
    return [one for one in found if one.content.strip() or one.role != "system"]


def _read_message(one: Any) -> Said:
    if not isinstance(one, Mapping):
        raise Unusable('has a message that is not {"role": …, "content": …}')
    role = one.get("role") if "role" in one else one.get("from")
    content = one.get("content") if "content" in one else one.get("value")
    role = _SHAREGPT.get(role, role) if isinstance(role, str) else role
    if role not in _ROLES:
        raise Unusable(f"has a message with the role {str(role)[:40]!r}; known are {', '.join(_ROLES)}")
    if not isinstance(content, str) or (not content.strip() and role != "system"):
        raise Unusable(f"has a message of the {role} without text")
    refuse_surrogates(content)
    return Said(role, content)


def without_first_answers(messages: Sequence[Said]) -> list[Said]:
    """Without answers before the user's first message, which many templates refuse."""
    head = list(takewhile(lambda one: one.role != "user", messages))
    return [*(one for one in head if one.role == "system"), *messages[len(head) :]]


def as_messages(messages: Sequence[Said]) -> list[dict[str, str]]:
    return [one._asdict() for one in messages]


def mark_answers(
    template: ChatTemplate,
    engine: tokenizers.Tokenizer,
    conversations: Sequence[Sequence[Said]],
    *,
    last_only: bool = False,
) -> Iterator[list[MarkedText]]:
    """Of each conversation the texts to learn from: usually a single one with all answers. Each conversation ends with
    an answer. `last_only`: only the last answer is marked.
    """
    drawn = (_texts_of(template, messages, last_only) for messages in conversations)
    waiting: list[list[_Text]] = []
    size = 0
    for texts in drawn:
        waiting.append(texts)
        size += sum(1 + 2 * len(one.turns) for one in texts)
        if size >= _ENCODED_AT_ONCE:
            yield from _encode(waiting, engine)
            waiting, size = [], 0
    yield from _encode(waiting, engine)


class _Text(NamedTuple):
    whole: str
    turns: list[tuple[str, str]]  # the text before each answer, and up to its end


def _texts_of(template: ChatTemplate, messages: Sequence[Said], last_only: bool) -> list[_Text]:
    given = as_messages(messages)
    answers = [place for place, one in enumerate(messages) if one.role == "assistant"]
    turns = []
    for place in answers[-1:] if last_only else answers:
        end = template.render(given[: place + 1], add_generation_prompt=False)
        begin = template.render(given[:place])
        if not end.startswith(begin):  # some templates begin an answer in another way when they are asked to continue
            if not end.startswith(template.render(given[:place], add_generation_prompt=False)):
                raise InputError(
                    "The model's chat template rewrites the messages before an answer when the answer follows, so it "
                    "is not known where the answer begins. Give the model another template (chat_template.jinja)."
                )
            begin = begin[: _shared(begin, end)]
        turns.append((begin, end))
    whole = turns[-1][1]
    if all(whole.startswith(end) for _, end in turns):
        return [_Text(whole, turns)]
    return [_Text(end, [(begin, end)]) for begin, end in turns]


def _encode(waiting: Sequence[Sequence[_Text]], engine: tokenizers.Tokenizer) -> Iterator[list[MarkedText]]:
    flat = [text for texts in waiting for one in texts for text in (one.whole, *chain(*one.turns))]
    ids = (one.ids for one in engine.encode_batch_fast(flat, add_special_tokens=False))
    for texts in waiting:
        found = []
        for one in texts:
            whole = next(ids)
            # A token that lies across a border belongs to what follows.
            places = [(_shared(next(ids), whole), _shared(next(ids), whole)) for _ in one.turns]
            found.append(MarkedText(whole, [range(*pair) for pair in places]))
        yield found


def _shared(begin: Sequence[Any], whole: Sequence[Any]) -> int:
    """How many characters or tokens at the beginning are the same."""
    if begin == whole[: len(begin)]:
        return len(begin)
    return next(place for place, pair in enumerate(zip_longest(begin, whole)) if pair[0] != pair[1])


def end_of_answer(template: ChatTemplate, engine: tokenizers.Tokenizer) -> int | None:
    """The first special token that the template writes after an answer's text."""
    messages = [Said("user", "a"), Said("assistant", "a")]
    special = {number for number, token in engine.get_added_tokens_decoder().items() if token.special}
    ((text,),) = mark_answers(template, engine, [messages])
    return next((text.ids[place] for place in text.answers[0] if text.ids[place] in special), None)


def check_has_answers(texts: Sequence[MarkedText]) -> None:
    if not any(len(places) for text in texts for places in text.answers):
        raise InputError("The model's chat template writes nothing for the messages of the assistant.")


@dataclass(frozen=True)
class TurnTargets(TextTargets):
    """The tokens of all answers in a conversation."""

    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # the place before each, which predicts it


def input_with_answers(number: int, text: MarkedText, *, was_cut: bool) -> Input:
    """`number`: of the example."""
    ids = np.asarray(text.ids, np.int32)
    # Nothing predicts the first token.
    places = np.concatenate([np.arange(max(one.start, 1), one.stop) for one in text.answers])
    return Input(number, ids[: places[-1]], None, TurnTargets(ids[places], None, rows=places - 1), was_cut)


def cut_to_last(text: MarkedText, most: int, share: float) -> MarkedText:
    """The last answer alone, without its end if it takes more than its share, after the end of its prompt."""
    place = text.answers[-1]
    kept = min(len(place), max(int(most * share), most - place.start))
    prompt = text.ids[max(0, place.start - (most - kept)) : place.start]
    answer = text.ids[place.start : place.start + kept]
    return MarkedText([*prompt, *answer], [range(len(prompt), len(prompt) + len(answer))])
