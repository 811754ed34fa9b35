"""Trains a tokenizer on text and writes its folder, with a report of how well it fits the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from weft.errors import InputError, suggest
from weft.folders import MANIFEST, manifest, replace_folder, to_json
from weft.progress import say
from weft.sources.documents import Readings, read_documents
from weft.sources.files import list_files
from weft.sources.reading import Reading
from weft.sources.standard_input import standard_input_as_file
from weft.tokenizer.read import TOKENIZER_FILES
from weft.tokenizer.report import report_on_tokenizer
from weft.tokenizer.train import TokenizerKind, train_tokenizer
from weft.version import VERSION

TOKENIZER_REPORT = "report.json"


def build_tokenizer(
    sources: Sequence[Path], folder: Path, kind: str, readings: Reading | Readings | None = None, **options: Any
) -> dict[str, Any]:
    """Trains, measures and writes a tokenizer. Returns the report."""
    if kind not in get_args(TokenizerKind):
        known = get_args(TokenizerKind)
        raise InputError(f"There is no tokenizer kind {kind!r}{suggest(kind, known)}. Kinds: {', '.join(known)}.")
    format = readings.format if isinstance(readings, Reading) else None
    with standard_input_as_file(sources, format) as files:
        if readings is None or isinstance(readings, Reading):
            list_files(files, format).say_passed_over()
        say(f"Training a {kind} tokenizer ...")
        tokenizer = train_tokenizer(files, kind, readings=readings, **options)  # type: ignore[arg-type]
        say("Measuring the tokenizer ...")
        texts = (document.text for document in read_documents(files, readings))
        report = report_on_tokenizer(tokenizer, texts).as_dict()
    with replace_folder(folder, mark="tokenizer.json", ours=(*TOKENIZER_FILES, TOKENIZER_REPORT, MANIFEST)) as new:
        for name, data in tokenizer.files.items():
            (new / name).write_bytes(data)
        (new / TOKENIZER_REPORT).write_bytes(to_json(report))
        facts = {"weft": VERSION, "kind": "tokenizer", "sources": [str(source) for source in sources]}
        (new / MANIFEST).write_bytes(to_json(manifest(new, **facts, settings={"kind": kind, **options})))
    return {"tokenizer": str(folder), "kind": kind, **report}
