"""`weft generate`: prompts from the command line, a file or a conversation; answers on standard output."""

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from weft.api.model import Model, load
from weft.commands.printing import as_json_line
from weft.errors import InputError
from weft.generate.framing import Framing, Turn
from weft.generate.settings import settings_of
from weft.progress import say
from weft.sources.standard_input import is_standard_input, open_standard_input, texts_or_file
from weft.terminal import for_standard_output

_MOST_TURNS = 100  # of a conversation
_MOST_FILE_BYTES = 1_000_000_000  # of a file of prompts
_MOST_LINE = 10_000_000  # characters of a line from standard input


def generate_and_print(
    folder: Path,
    prompts: Sequence[str],
    file: Path | None,
    settings: dict[str, Any],
    *,
    choices: Sequence[str],
    stream: bool,
    int8: bool,
    as_json: bool,
) -> None:
    """Without a prompt or a file: a conversation on standard input."""
    prompts, file = texts_or_file(prompts, file)
    if stream and as_json:
        raise InputError("--stream prints text as it comes, --json one object at the end: give one of them.")
    if not prompts and file is None:
        if as_json or choices:
            raise InputError("--json and --choose need a prompt, or --file.")
        _converse(folder, int8=int8, settings=settings)
        return
    if choices and (settings or stream or int8):
        raise InputError("--choose scores given answers; it takes none of the options for generating.")
    listed = _prompts(prompts, file)
    if stream:
        _stream(folder, listed, int8=int8, settings=settings)
        return
    if choices:
        results = _choose(folder, listed, choices)
    else:
        results = _generate(folder, listed, settings, int8=int8, progress=file is not None)
    print(as_json_line(results) if as_json else for_standard_output(_lines(results, one_each=file is not None)))


def _generate(
    folder: Path, prompts: list[str], settings: dict[str, Any], *, int8: bool, progress: bool
) -> dict[str, Any]:
    model = _load(folder)
    settings = _seeded(settings)
    answers = model.generate(prompts, details=True, int8=int8, progress=progress, **settings)
    facts = [
        {"prompt": prompt, "answers": [_facts(answer) for answer in (row if isinstance(row, list) else [row])]}
        for prompt, row in zip(prompts, answers, strict=True)
    ]
    return {"model": str(folder), "settings": settings, "generations": facts}


def _stream(folder: Path, prompts: list[str], *, int8: bool, settings: dict[str, Any]) -> None:
    if len(prompts) != 1:
        raise InputError("--stream takes one prompt. Without a prompt, replies to the lines you type are streamed.")
    for piece in _load(folder).stream(prompts[0], int8=int8, **settings):
        print(for_standard_output(piece), end="", flush=True)
    print()


def _choose(folder: Path, prompts: list[str], choices: Sequence[str]) -> dict[str, Any]:
    model = _load(folder)
    chosen = [{"prompt": prompt, "options": _options(model, prompt, choices)} for prompt in prompts]
    return {"model": str(folder), "choices": chosen}


def _converse(folder: Path, *, int8: bool, settings: dict[str, Any]) -> None:
    """Each line of standard input is a prompt; replies are streamed. A decoder tuned to reply also reads earlier turns.

    Ctrl-C stops a reply; at the prompt it ends the conversation.
    """
    if sys.stdin is None:
        raise InputError("There is no prompt, and standard input is closed.")
    if settings_of(settings).strategy == "beam":
        raise InputError("Beam search has its text only at the end, so it cannot be used in a conversation.")
    model = _load(folder)
    is_person = sys.stdin.isatty()
    if is_person:
        import readline  # noqa: F401 (gives input() arrow keys and a history)

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
                history = [*history, (prompt, "".join(written).strip())][-_MOST_TURNS:]
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
    """One prompt per line. `-` is standard input."""
    if is_standard_input(file):
        return _lines_of(open_standard_input(), "Standard input")
    if not file.exists() or file.is_dir():
        raise InputError(f"{file} is not a file.")
    with file.open("rb") as stream:  # may be a pipe, which has no size
        return _lines_of(stream, str(file))


def _lines_of(stream: IO[bytes], name: str) -> list[str]:
    data = stream.read(_MOST_FILE_BYTES + 1)
    if len(data) > _MOST_FILE_BYTES:
        raise InputError(f"{name} is larger than {_MOST_FILE_BYTES:,} bytes; split it into smaller files.")
    try:
        lines = data.decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 (byte {error.start}).") from None
    if lines == [""]:
        raise InputError(f"{name} is empty; it should hold a prompt in every line.")
    return [line.removesuffix("\r") for line in lines]


def _lines(results: dict[str, Any], *, one_each: bool) -> str:
    """The texts, separated by blank lines; or each on one line (`one_each`), with line breaks escaped."""
    if "choices" in results:
        return "\n".join(row["options"][0]["option"] for row in results["choices"])
    texts = [answer["text"] for row in results["generations"] for answer in row["answers"]]
    if one_each:
        return "\n".join(text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") for text in texts)
    return "\n\n".join(texts)


def _ask(is_person: bool) -> str | None:
    try:
        if is_person:
            return input("> ")
        line = sys.stdin.readline(_MOST_LINE)
        if len(line) == _MOST_LINE:
            raise InputError(f"A line has more than {_MOST_LINE:,} characters, too many for a prompt.")
        return line.rstrip("\r\n") if line else None
    except EOFError:
        return None
    except UnicodeDecodeError:
        raise InputError("Standard input is not UTF-8.") from None


def _load(folder: Path) -> Model:
    model = load(folder)
    if model.writes_text:
        return model
    raise InputError(f"{folder} has no tokenizer, so it takes token ids only. Use model.generate in Python.")


def _seeded(settings: dict[str, Any]) -> dict[str, Any]:
    """With a seed if tokens are sampled, so that the output can be repeated."""
    is_sampled = settings_of(settings).strategy == "sample" and "seed" not in settings
    return {**settings, "seed": secrets.randbits(31)} if is_sampled else settings


def _facts(answer: Any) -> dict[str, Any]:
    return {
        "text": answer.text,
        "finish": answer.finish,
        "tokens": len(answer.tokens),
        "score": round(answer.score, 6),
        "log_probs": [round(number, 6) for number in answer.log_probs],
    }


def _options(model: Model, prompt: str, options: Sequence[str]) -> list[dict[str, Any]]:
    found = model.choose(prompt, list(options), details=True)
    return [
        {"option": one.option, "probability": round(one.probability, 6), "log_prob": round(one.log_prob, 6)}
        for one in found
    ]
