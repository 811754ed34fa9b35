"""`weft chat`: a conversation with a model, in the terminal or line by line from standard input."""

import sys
from pathlib import Path
from typing import Any

from weft.api.model import load
from weft.commands.generate import seeded
from weft.commands.printing import as_json_line
from weft.commands.typed_line import read_line
from weft.errors import InputError
from weft.generate.chat_writer import ChatWriter, Message, written_by
from weft.progress import say
from weft.terminal import for_standard_output

_QUIT, _RESET = "/quit", "/reset"


def converse(folder: Path, system: str | None, settings: dict[str, Any], *, int8: bool, as_json: bool) -> None:
    """Answers are streamed; with `as_json` there is an object per answer. Empty lines are skipped.

    Ctrl-C stops an answer, whose beginning stays in the conversation.
    """
    if sys.stdin is None:
        raise InputError("Standard input is closed, so there are no messages to answer.")
    writer = load(folder).chat_writer(int8)
    if system is not None and writer.template is None:
        raise InputError(f"{folder} has no chat template, so it has no place for a system message: leave out --system.")
    chat = _Chat(writer, [] if system is None else [{"role": "system", "content": system}], settings)
    is_person = sys.stdin.isatty() and not as_json
    if is_person:
        say(f"Type a message. {_RESET} begins anew, {_QUIT} or Ctrl-D ends, Ctrl-C stops an answer.")
    while (line := _next_line(is_person)) not in (None, _QUIT):
        if line == _RESET:
            chat.reset()
        elif line:
            try:
                chat.answer(line, as_json=as_json)
            except (InputError, KeyboardInterrupt) as error:
                if not is_person:
                    raise
                print(flush=True) if isinstance(error, KeyboardInterrupt) else say(f"weft: {error}")


class _Chat:
    def __init__(self, writer: ChatWriter, beginning: list[Message], settings: dict[str, Any]) -> None:
        self.writer, self.beginning = writer, beginning
        self.settings = seeded(settings)
        self.messages = [*beginning]

    def reset(self) -> None:
        self.messages = [*self.beginning]

    def answer(self, text: str, *, as_json: bool) -> None:
        """Prints the answer. The message counts as said if there is an answer, be it a stopped one."""
        asked = [*self.messages, {"role": "user", "content": text}]
        job = self.writer.job(asked, **self.settings)
        written = ""
        try:
            for piece in self.writer.pieces(job):
                written += piece
                if not as_json:
                    print(for_standard_output(piece), end="", flush=True)
        finally:
            if written or job.found[0] is not None:
                self.messages = [*asked, {"role": "assistant", "content": written.strip()}]
        if not as_json:
            print(flush=True)
            return
        found = written_by(job)
        facts = {"prompt": text, "text": found.text, "finish": found.finish, "tokens": len(found.tokens)}
        print(as_json_line({**facts, "prompt_tokens": len(job.prompt_ids), "settings": self.settings}), flush=True)


def _next_line(is_person: bool) -> str | None:
    """Without spaces around it. None: the conversation is over."""
    while True:
        try:
            line = read_line(is_person)
        except KeyboardInterrupt:
            if not is_person:
                raise
            say(f"\n{_QUIT} or Ctrl-D ends.")
        else:
            return None if line is None else line.strip()
