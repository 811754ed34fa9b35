"""`weft generate`: prompts from the command line, a file, or a conversation; answers on standard output."""

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.errors import InputError
from weft.generate.framing import Framing, Turn
from weft.progress import say
from weft.terminal import for_standard_output

MOST_TURNS = 100  # of a conversation that may be read again
MOST_BYTES, MOST_LINE = 1_000_000_000, 10_000_000  # of a file of prompts; characters of a line that comes in


def write_answers(
    folder: Path, prompts: Sequence[str], file: Path | None, *, stream: bool, int8: bool, settings: dict[str, Any]
) -> dict[str, Any]:
    """Prints what is asked to be streamed; gives everything as facts."""
    listed = _prompts(prompts, file)
    if stream and len(listed) != 1:
        raise InputError("--stream takes one prompt; without a prompt, every line that you type is answered so.")
    model = _load(folder)
    if stream:
        for piece in model.stream(listed[0], int8=int8, **settings):
            print(for_standard_output(piece), end="", flush=True)
        print()
        return {}
    settings = _seeded(settings)
    answers = model.generate(listed, details=True, int8=int8, progress=file is not None, **settings)
    facts = [
        {"prompt": prompt, "answers": [_facts(answer) for answer in (row if isinstance(row, list) else [row])]}
        for prompt, row in zip(listed, answers, strict=True)
    ]
    return {"model": str(folder), "settings": settings, "generations": facts}


def choose_answers(folder: Path, prompts: Sequence[str], file: Path | None, options: Sequence[str]) -> dict[str, Any]:
    listed = _prompts(prompts, file)
    model = _load(folder)
    chosen = [{"prompt": prompt, "options": _options(model, prompt, options)} for prompt in listed]
    return {"model": str(folder), "choices": chosen}


def converse(folder: Path, *, int8: bool, settings: dict[str, Any]) -> None:
    """Every line that comes in is a prompt; the reply is written as it comes. A decoder that was tuned to reply also
    reads what was said before. Ctrl-C ends a reply, at the prompt the conversation.
    """
    if sys.stdin is None:
        raise InputError("There is no prompt, and standard input is closed.")
    _check_streams(settings)
    model = _load(folder)
    is_person = sys.stdin.isatty()
    if is_person:
        import readline  # noqa: F401 (arrow keys and a history, for input())

        say("Type a prompt; Ctrl-C stops a reply, Ctrl-D ends.")
    framing = Framing.of(model.facts.get("task"))
    history: list[Turn] = []
    while (prompt := _ask(is_person)) is not None:
        written: list[str] = []
        try:
            for piece in model.stream(prompt, int8=int8, history=history, **settings):
                print(for_standard_output(piece), end="", flush=True)
                written.append(piece)
            print(flush=True)
            if framing is not None and framing.is_reply:
                history = [*history, (prompt, "".join(written).strip())][-MOST_TURNS:]
        except InputError as error:
            if not is_person:
                raise
            say(f"weft: {error}")
        except KeyboardInterrupt:
            if not is_person:
                raise
            print(flush=True)


def _prompts(prompts: Sequence[str], file: Path | None) -> list[str]:
    if file is not None and prompts:
        raise InputError("Give prompts or --file, not both.")
    return list(prompts) if file is None else read_prompts(file)


def read_prompts(file: Path) -> list[str]:
    """A prompt in every line."""
    if not file.exists() or file.is_dir():
        raise InputError(f"{file} is not a file.")
    with file.open("rb") as stream:  # it may be a pipe, which has no size
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{file} is larger than {MOST_BYTES:,} bytes; cut it into pieces.")
    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}).") from None
    if lines == [""]:
        raise InputError(f"{file} is empty; it should hold a prompt in every line.")
    return [line.removesuffix("\r") for line in lines]


def as_lines(results: dict[str, Any], *, one_line_each: bool) -> str:
    """What to print: the texts, a blank line between them; from a file, each answer in a line of its own."""
    if "choices" in results:
        return "\n".join(row["options"][0]["option"] for row in results["choices"])
    texts = [answer["text"] for row in results["generations"] for answer in row["answers"]]
    if one_line_each:
        return "\n".join(text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for text in texts)
    return "\n\n".join(texts)


def _ask(is_person: bool) -> str | None:
    try:
        if is_person:
            return input("> ")
        line = sys.stdin.readline(MOST_LINE)
        if len(line) == MOST_LINE:
            raise InputError(f"A line has more than {MOST_LINE:,} characters, which no prompt has.")
        return line.rstrip("\r\n") if line else None
    except EOFError:
        return None
    except UnicodeDecodeError:
        raise InputError("Standard input is not UTF-8.") from None


def _load(folder: Path) -> Any:
    from weft.api.model import load

    model = load(folder)
    if model.writes_text:
        return model
    raise InputError(f"{folder} has no tokenizer, so it takes token ids only; from Python, model.generate does.")


def _check_streams(settings: dict[str, Any]) -> None:
    """Before anybody has typed anything."""
    from weft.generate.settings import settings_of

    if settings_of(settings).strategy == "beam":
        raise InputError("Beam search knows its text only at the end, so it does not go with a conversation.")


def _seeded(settings: dict[str, Any]) -> dict[str, Any]:
    """With the seed that a repetition needs."""
    from weft.generate.settings import settings_of

    is_drawn = settings_of(settings).strategy == "sample" and "seed" not in settings
    return {**settings, "seed": secrets.randbits(31)} if is_drawn else settings


def _facts(answer: Any) -> dict[str, Any]:
    return {
        "text": answer.text,
        "finish": answer.finish,
        "tokens": len(answer.tokens),
        "score": round(answer.score, 6),
        "log_probs": [round(number, 6) for number in answer.log_probs],
    }


def _options(model: Any, prompt: str, options: Sequence[str]) -> list[dict[str, Any]]:
    found = model.choose(prompt, list(options), details=True)
    return [
        {"option": one.option, "probability": round(one.probability, 6), "log_prob": round(one.log_prob, 6)}
        for one in found
    ]
