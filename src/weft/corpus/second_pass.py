"""The second pass over a piece: writes the documents that stay, one folder per split and source."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft.corpus.contamination import COMMON_NGRAMS_FILE, TextRange, pieces_without, ranges_by_row
from weft.corpus.deduplicate import COPIES_FILE, DIVIDED, EXACT, FATES_FILE, FIRST_SPLIT, NEAR
from weft.corpus.first_pass import DROPPED_FILE, EXAMPLE_CHARACTERS, MOST_EXAMPLES, TEXTS_FILE
from weft.corpus.split import SPLITS, Division, Shares, SplitName
from weft.corpus.tables import DROPPED_SCHEMA, LINEAGE_FIELDS, TEXT_SCHEMA, ParquetTable, rows_of_file
from weft.folders import disk_errors, private_folder, sha256_of, to_json, write_file
from weft.recipe.corpus import BuildSection, DecontaminateSection
from weft.words import TOKEN_BYTES, TOKEN_LETTERS, is_unspaced

_WRITTEN_FILE = "written.json"
_REASONS = {EXACT: "exact duplicate", NEAR: "near duplicate"}


@dataclass
class WriteFigures:
    """Counts of one piece, by split; those of all pieces are added up."""

    rows: int = 0  # documents; some are cut into parts
    documents: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)  # of all splits together
    lengths: Counter[str] = field(default_factory=Counter)  # by bit length of the number of characters
    contaminated: Counter[str] = field(default_factory=Counter)  # documents by action: cut, dropped or flagged
    examples: list[str] = field(default_factory=list)  # of contaminated documents that were dropped
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def write_piece(piece: dict[str, Any]) -> dict[str, Any]:
    """Runs on a worker. Returns the counts of the piece."""
    folder, out = Path(piece["folder"]), Path(piece["out"])
    if not _is_done(folder, out):
        with disk_errors(out), private_folder(folder.parent) as new:
            written = _write_into(new, folder, piece)
            for place in written.files:
                (out / place).parent.mkdir(parents=True, exist_ok=True)
                (new / place).replace(out / place)
            write_file(folder / _WRITTEN_FILE, to_json(vars(written)))
    return json.loads((folder / _WRITTEN_FILE).read_text("utf-8"))


def _is_done(folder: Path, out: Path) -> bool:
    """Whether all shards of the piece exist with the right hashes."""
    if not (folder / _WRITTEN_FILE).is_file():
        return False
    files = json.loads((folder / _WRITTEN_FILE).read_text("utf-8"))["files"]
    return all((out / name).is_file() and sha256_of(out / name) == facts["sha256"] for name, facts in files.items())


def _write_into(out: Path, folder: Path, piece: dict[str, Any]) -> WriteFigures:
    written = WriteFigures()
    name, shares = f"{piece['number']:05}.parquet", Shares(*piece["shares"])
    places: dict[str, Path] = {split: Path(split) / piece["source"] / name for split in SPLITS}
    places["dropped"] = Path("dropped") / name
    fates = np.load(folder / FATES_FILE, allow_pickle=False)
    copies = np.load(folder / COPIES_FILE, allow_pickle=False)
    asked = BuildSection(**piece["settings"]).decontaminate
    found = ranges_by_row(folder, np.load(folder.parent / COMMON_NGRAMS_FILE, allow_pickle=False)) if asked else {}
    with ExitStack() as stack:
        tables = {
            split: stack.enter_context(ParquetTable(out / place, DROPPED_SCHEMA if split == "dropped" else TEXT_SCHEMA))
            for split, place in places.items()
        }
        for row in rows_of_file(folder / DROPPED_FILE):
            tables["dropped"].add(row)
        rows = zip(rows_of_file(folder / TEXTS_FILE), fates.tolist(), copies, strict=True)
        for number, (row, fate, copy) in enumerate(rows):
            reason, detail = _REASONS.get(fate), copy.tobytes().hex()
            pieces = [(0, len(row["text"]))]
            if reason is None and number in found and asked is not None:
                row, pieces = _decontaminated(row, found[number], asked, written)
                reason, detail = (None, "") if pieces else ("contaminated", "")
            if reason is not None:
                facts = {"reason": reason, "detail": detail, "characters": len(row["text"])}
                tables["dropped"].add({**{key: row[key] for key, _ in LINEAGE_FIELDS}, **facts})
                continue
            _count(written, row)
            for split, text in _parts(row["text"], pieces, fate, shares):
                tables[split].add({**row, "text": text})
                _count_part(written, split, text)
    for place in places.values():
        if (out / place).is_file():
            facts = {"bytes": (out / place).stat().st_size, "sha256": sha256_of(out / place)}
            written.files[place.as_posix()] = facts
    return written


def _decontaminated(
    row: dict[str, Any], spans: list[TextRange], asked: DecontaminateSection, written: WriteFigures
) -> tuple[dict[str, Any], list[TextRange]]:
    """The row, and the ranges of its text that may stay."""
    whole = [(0, len(row["text"]))]
    if asked.action == "flag":
        written.contaminated["flagged"] += 1
        return {**row, "contaminated": True}, whole
    pieces = pieces_without(row["text"], spans, asked.window, asked.most_pieces) if asked.action == "cut" else []
    written.contaminated["cut" if pieces else "dropped"] += 1
    if not pieces and len(written.examples) < MOST_EXAMPLES:
        written.examples.append(row["text"][max(spans[0][0] - EXAMPLE_CHARACTERS // 4, 0) :][:EXAMPLE_CHARACTERS])
    return {**row, "changes": [*row["changes"], "decontaminated"]}, pieces


def _parts(text: str, pieces: list[TextRange], fate: int, shares: Shares) -> Iterator[tuple[SplitName, str]]:
    """The parts of a document and their splits. A divided document has a stretch for each split."""
    if fate != DIVIDED:
        yield from ((SPLITS[fate - FIRST_SPLIT], part) for begin, end in pieces if (part := text[begin:end].strip()))
        return
    division, start = Division(shares, None), 0
    for split in SPLITS:  # stretches follow each other in this order
        stop = start + len(division.part(split, text, 0.0))
        inside = ((max(begin, start), min(end, stop)) for begin, end in pieces)
        yield from ((split, part) for begin, end in inside if begin < end and (part := text[begin:end].strip()))
        start = stop


def _count(written: WriteFigures, row: dict[str, Any]) -> None:
    written.rows += 1
    written.languages[row["language"] or "unknown"] += 1
    written.lengths[str(len(row["text"]).bit_length())] += 1


def _count_part(written: WriteFigures, split: SplitName, text: str) -> None:
    size = len(text.encode())
    unspaced = is_unspaced(text[:1000])
    written.documents[split] += 1
    written.bytes[split] += size
    written.tokens[split] += round(len(text) / TOKEN_LETTERS if unspaced else size / TOKEN_BYTES)
