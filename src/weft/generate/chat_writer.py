"""Answers in a conversation: messages are framed by the model's chat template, or as the model was tuned to reply.

A template renders all messages as one text. A model tuned to reply that has no template reads the last message after
earlier turns, each with its answer (`framing.py`); it has no place for a system message. When a conversation no longer
fits, its oldest turns are left out; a system message at its beginning stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from weft.errors import InputError, check_encodable
from weft.generate.chat_template import ChatTemplate
from weft.generate.framing import Framing, Turn
from weft.generate.job import Generation, Job
from weft.generate.writer import Writer
from weft.progress import say
from weft.tokenizer.tokenizer import Tokenizer

DEFAULT_CHAT_TOKENS = 512  # new tokens of an answer, or what fits
Message = Mapping[str, Any]  # {"role": "user", "content": "Hello."}
Messages = Sequence[Message]
ChatFrame = Literal["template", "reply"]
_SYSTEM = ("system", "developer")  # roles


def chat_frame(template: ChatTemplate | None, framing: Framing | None) -> ChatFrame | None:
    """What frames a conversation: the model's chat template, or the way it was tuned to reply. None: neither."""
    if template is not None:
        return "template"
    return "reply" if framing is not None and framing.is_reply else None


class ChatWriter:
    def __init__(self, writer: Writer, template: ChatTemplate | None, model: str) -> None:
        """`model`: its name in messages. Raises InputError for a model that does not converse."""
        self.writer, self.template = writer, template
        if chat_frame(template, writer.reader.framing) is None:
            raise InputError(
                f"{model} has no chat template and was not tuned to reply, so it does not converse. To continue a "
                f"text instead: weft generate {model} TEXT."
            )
        self._has_told = False

    def answer(self, messages: Messages, **given: Any) -> Generation:
        job = self.job(messages, **given)
        for _ in self.pieces(job):
            pass
        return written_by(job)

    def pieces(self, job: Job) -> Iterator[str]:
        """The text of an answer while it is generated."""
        return self.writer.pieces(job, as_text=True)

    def job(self, messages: Messages, **given: Any) -> Job:
        """The answer to these messages, for the engine. `given`: settings, as of `Writer.job`."""
        _check(messages)
        if given.get("n") not in (None, 1):
            raise InputError("A conversation has one answer to each message; n goes with generate.")
        return self._by_reply(messages, given) if self.template is None else self._by_template(messages, given)

    def _by_template(self, messages: Messages, given: dict[str, Any]) -> Job:
        assert self.template is not None
        limit, wanted = self._limit(given), given.get("max_new_tokens")
        ids = rendered_ids(self.template, self.writer.reader.tokenizer, messages)
        if limit is not None:
            room = limit + 1 - (wanted or min(DEFAULT_CHAT_TOKENS, limit // 2))  # the last token is not read
            while len(ids) > room:
                shorter = without_oldest_turn(messages)
                if shorter is None:
                    raise InputError(
                        f"The last message has {len(ids):,} tokens with its frame; {max(room, 0):,} fit beside an "
                        f"answer, as the model reads {limit:,} in all. Shorten it, or ask for fewer new tokens "
                        "(max_new_tokens)."
                    )
                self._tell_once(limit)
                messages = shorter
                ids = rendered_ids(self.template, self.writer.reader.tokenizer, messages)
        fits = DEFAULT_CHAT_TOKENS if limit is None else min(DEFAULT_CHAT_TOKENS, limit + 1 - len(ids))
        return self.writer.job(ids, **{**given, "max_new_tokens": wanted or _at_least(fits, given)})

    def _by_reply(self, messages: Messages, given: dict[str, Any]) -> Job:
        if any(one["role"] in _SYSTEM for one in messages):
            raise InputError(
                "This model has no chat template; it was tuned to reply, with no place for a system message. Leave the "
                "system message out."
            )
        reader, limit = self.writer.reader, self._limit(given)
        prompt, history = turns_of(messages)
        new = DEFAULT_CHAT_TOKENS if limit is None else min(DEFAULT_CHAT_TOKENS, limit // 2)
        new = given.get("max_new_tokens") or _at_least(new, given)
        job = self.writer.job(prompt, history=history, **{**given, "max_new_tokens": new})
        if history and (reader.has_source or len(job.prompt) < len(self._whole(prompt, history))):
            self._tell_once(reader.limit)
        return job

    def _whole(self, prompt: str, history: Sequence[Turn]) -> list[int]:
        """The conversation without a limit."""
        reader = self.writer.reader
        framing, engine = reader.framing, reader.tokenizer.engine
        assert framing is not None
        ids = engine.encode(framing.source(prompt), add_special_tokens=False).ids
        room = sum(map(len, (prompt, *(text for turn in history for text in turn)))) * 8 + 10_000
        return framing.conversation(ids, history, room, engine, reader.start_end.end_ids[0])

    def _limit(self, given: Mapping[str, Any]) -> int | None:
        return None if given.get("slide") else self.writer.reader.limit

    def _tell_once(self, limit: int | None) -> None:
        if self._has_told:
            return
        self._has_told = True
        if self.writer.reader.has_source:
            say("This model reads the last message only, not the turns before it.")
        else:
            reads = "" if limit is None else f", which reads {limit:,} tokens"
            say(f"The conversation no longer fits into the model{reads}. Its oldest turns are left out from now on.")


def rendered_ids(template: ChatTemplate, tokenizer: Tokenizer, messages: Messages, **variables: Any) -> list[int]:
    text = template.render(messages, **variables)
    return tokenizer.engine.encode(text, add_special_tokens=False).ids  # the template has the special tokens


def without_oldest_turn(messages: Messages) -> list[Message] | None:
    """Without the first message of the user and what answered it. None if only one turn is left."""
    head = next((place for place, one in enumerate(messages) if one["role"] not in _SYSTEM), len(messages))
    turns = [place for place, one in enumerate(messages) if place > head and one["role"] == "user"]
    return [*messages[:head], *messages[turns[0] :]] if turns else None


def turns_of(messages: Messages) -> tuple[str, list[Turn]]:
    """The last prompt and the turns before it, for a model that was tuned to reply. System messages are left out.
    Messages of one side in a row are joined.
    """
    said: list[tuple[str, str]] = []
    for one in messages:
        role, text = one["role"], one["content"]
        if role not in ("user", "assistant"):
            continue
        if said and said[-1][0] == role:
            said[-1] = (role, f"{said[-1][1]}\n{text}")
        else:
            said.append((role, text))
    if not said or said[-1][0] != "user":
        raise InputError("messages: the last message is the user's, which the model replies to.")
    if said[0][0] == "assistant":
        said = said[1:]
    texts = [text for _, text in said]
    return texts[-1], list(zip(texts[:-1:2], texts[1:-1:2], strict=True))


def written_by(job: Job) -> Generation:
    """The single answer of a job that has finished."""
    (found,) = job.found
    assert found is not None
    return found


def _check(messages: Any) -> None:
    form = '{"role": "user", "content": "Hello."}'
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise InputError(f"messages: a conversation is a list of messages such as {form}.")
    for number, one in enumerate(messages):
        parts = (one.get("role"), one.get("content")) if isinstance(one, Mapping) else (None, None)
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"messages.{number}: a message has a role and a content, both texts, such as {form}.")
        check_encodable(str(parts[1]), f"messages.{number}.content")


def _at_least(new: int, given: Mapping[str, Any]) -> int:
    return max(1, new, given.get("min_new_tokens") or 0)
