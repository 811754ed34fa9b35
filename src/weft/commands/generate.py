"""`weft generate`: prompts from the command line, a file or a conversation; answers on standard output."""

import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from weft.api.model import Model, load
from weft.commands.printing import as_json_line
from weft.commands.typed_line import read_line
from weft.errors import InputError
from weft.generate.framing import Framing, Turn
from weft.generate.settings import settings_of
from weft.generate.writer import Writer
from weft.progress import say
from weft.sources.standard_input import is_standard_input, open_standard_input, texts_or_file
from weft.terminal import for_standard_output

_MOST_TURNS = 100  # of a conversation
_MOST_FILE_BYTES = 1_000_000_000  # of a file of prompts
_MOST_SCHEMA_BYTES = 1_000_000


def generate_and_print(
    folder: Path,
    prompts: Sequence[str],
    file: Path | None,
    settings: dict[str, Any],
    *,
    choices: Sequence[str],
    stream: bool,
    int8: bool,
    draft: Path | None,
    as_json: bool,
) -> None:
    """Without a prompt or a file: a conversation on standard input."""
    prompts, file = texts_or_file(prompts, file)
    settings = _with_schema(settings)
    if stream and as_json:
        raise InputError("--stream prints text as it comes, --json one object at the end: give one of them.")
    if not prompts and file is None:
        if as_json or choices:
            raise InputError("--json and --choose need a prompt, or --file.")
        _converse(folder, draft, settings, int8=int8)
        return
    if choices and (settings or stream or int8):
        raise InputError("--choose scores given answers; it takes none of the options for generating.")
    listed = _prompts(prompts, file)
    if stream:
        _stream(_Writing.load(folder, draft, int8=int8), listed, settings)
        return
    if choices:
        results = _choose(folder, listed, choices)
    else:
        writing = _Writing.load(folder, draft, int8=int8)
        results = {"model": str(folder), **_generate(writing, listed, settings, progress=file is not None)}
    print(as_json_line(results) if as_json else for_standard_output(_lines(results, one_each=file is not None)))


class _Writing(NamedTuple):
    """A model with the way it generates."""

    model: Model
    writer: Writer

    @classmethod
    def load(cls, folder: Path, draft: Path | None, *, int8: bool) -> "_Writing":
        model = _load(folder)
        return cls(model, model.writer(int8, None if draft is None else load(draft)))


def _generate(writing: _Writing, prompts: list[str], settings: dict[str, Any], *, progress: bool) -> dict[str, Any]:
    settings = seeded(settings)
    answers = writing.writer.generate(prompts, details=True, progress=progress, **settings)
    facts = [
        {"prompt": prompt, "answers": [_facts(answer) for answer in (row if isinstance(row, list) else [row])]}
        for prompt, row in zip(prompts, answers, strict=True)
    ]
    return {"settings": settings, "generations": facts}


def _stream(writing: _Writing, prompts: list[str], settings: dict[str, Any]) -> None:
    if len(prompts) != 1:
        raise InputError("--stream takes one prompt. Without a prompt, replies to the lines you type are streamed.")
    for piece in writing.writer.stream(prompts[0], **settings):
        print(for_standard_output(piece), end="", flush=True)
    print()


def _choose(folder: Path, prompts: list[str], choices: Sequence[str]) -> dict[str, Any]:
    model = _load(folder)
    chosen = [{"prompt": prompt, "options": _options(model, prompt, choices)} for prompt in prompts]
    return {"model": str(folder), "choices": chosen}


def _converse(folder: Path, draft: Path | None, settings: dict[str, Any], *, int8: bool) -> None:
    """Each line of standard input is a prompt; replies are streamed. A decoder tuned to reply also reads earlier turns.

    Ctrl-C stops a reply; at the prompt it ends the conversation.
    """
    if sys.stdin is None:
        raise InputError("There is no prompt, and standard input is closed.")
    if settings_of(settings).strategy == "beam":
        raise InputError("Beam search has its text only at the end, so it cannot be used in a conversation.")
    model, writer = _Writing.load(folder, draft, int8=int8)
    is_person = sys.stdin.isatty()
    if is_person:
        say("Type a prompt; Ctrl-C stops a reply, Ctrl-D ends.")
    framing = Framing.of(model.facts.get("task"))
    history: list[Turn] = []
    while (prompt := read_line(is_person)) is not None:
        written: list[str] = []
        try:
            for piece in writer.stream(prompt, history=history, **settings):
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


def _with_schema(settings: dict[str, Any]) -> dict[str, Any]:
    """A schema that is the name of a file is read from it."""
    given = settings.get("json_schema")
    if given is None or given.lstrip().startswith("{"):
        return settings
    file = Path(given)
    if not file.is_file():
        raise InputError(
            f'--json-schema is a file, or a schema such as {{"type": "object"}}; there is no file {given}.'
        )
    if file.stat().st_size > _MOST_SCHEMA_BYTES:
        raise InputError(f"{file} is larger than {_MOST_SCHEMA_BYTES:,} bytes, the limit for a schema.")
    try:
        return {**settings, "json_schema": file.read_text("utf-8")}
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}).") from None


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


def _load(folder: Path) -> Model:
    model = load(folder)
    if model.writes_text:
        return model
    raise InputError(f"{folder} has no tokenizer, so it takes token ids only. Use model.generate in Python.")


def seeded(settings: dict[str, Any]) -> dict[str, Any]:
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
