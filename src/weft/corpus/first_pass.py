"""The first pass over a piece: reads, cleans and filters its documents, and notes what deduplication needs.

The result is a folder. `texts.parquet` holds the documents that passed; `keys.bin` (hash of the text and its length),
`bands.bin` and `signatures.bin` (see `near_duplicates`) have one row for each of them. `dropped.parquet` holds the
reasons for the others, `hits.npy` the matches with test sets, and `figures.json` the counts.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.corpus.clean import Cleaning, clean
from weft.corpus.contamination import HIT_DTYPE, HITS_FILE, LeakIndex
from weft.corpus.language import language_of
from weft.corpus.masking import mask
from weft.corpus.near_duplicates import band_keys, sign
from weft.corpus.quality import Thresholds, Units, broken_rule, units_of
from weft.corpus.quarantine import Mark
from weft.corpus.tables import DROPPED_SCHEMA, TEXT_SCHEMA, ParquetTable
from weft.errors import InputError
from weft.folders import disk_errors, private_folder, rename_unless_there, to_json, write_file
from weft.recipe.corpus import BuildSection, FilterSection
from weft.sources.documents import Document, scan, scan_range
from weft.sources.files import unknown_ending
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin
from weft.words import folded

FIGURES_FILE, KEYS_FILE, BANDS_FILE, SIGNATURES_FILE = "figures.json", "keys.bin", "bands.bin", "signatures.bin"
MOST_EXAMPLES, EXAMPLE_CHARACTERS = 3, 280  # per reason and piece
PART_OF_LONGER = "part of a longer text"  # an entry of `changes`
TEXTS_FILE, DROPPED_FILE = "texts.parquet", "dropped.parquet"


@dataclass
class FilterFigures:
    """Counts of one piece; those of all pieces are added up."""

    documents: int = 0
    bytes: int = 0  # of the text read
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)  # documents per kind of change
    languages: Counter[str] = field(default_factory=Counter)  # of the documents read
    lengths: Counter[str] = field(
        default_factory=Counter
    )  # by bit length of the number of characters, of the documents read
    examples: dict[str, list[str]] = field(default_factory=dict)
    passed_over: Counter[str] = field(default_factory=Counter)  # skipped files in archives, by their unknown extension

    def drop(self, reason: str, example: str) -> None:
        self.reasons[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < MOST_EXAMPLES:
            shown.append(example[:EXAMPLE_CHARACTERS])


def filter_piece(piece: dict[str, Any]) -> dict[str, Any]:
    """Runs on a worker; `piece` comes from `passes`. The folder appears in one step, because a worker that outlived a
    killed build may write the same piece.
    """
    folder = Path(piece["folder"])
    if not folder.is_dir():
        with disk_errors(folder), private_folder(folder.parent) as new, Mark(piece) as mark:
            figures = _filter_into(new, piece, BuildSection(**piece["settings"]), mark)
            write_file(new / FIGURES_FILE, to_json(vars(figures)))
            rename_unless_there(new, folder)
    return json.loads((folder / FIGURES_FILE).read_text("utf-8"))


def _thresholds_given(section: FilterSection) -> dict[str, Any]:
    """The thresholds set in the recipe: lists as tuples, null as the value that switches the rule off."""
    off: dict[str, Any] = {
        "least_words": 0,
        "most_words": 2**62,
        "stop_words": 0,
        "common_rows": (),
        "repeated_rows": (),
    }
    given: dict[str, Any] = {}
    for name in section.model_fields_set:
        value = getattr(section, name)
        if name in ("common_rows", "repeated_rows") and value is not None:
            value = tuple((int(length), share) for length, share in value)
        given[name] = off.get(name) if value is None else tuple(value) if isinstance(value, list) else value
    return given


def _filter_into(folder: Path, piece: dict[str, Any], settings: BuildSection, mark: Mark) -> FilterFigures:
    figures, notes = FilterFigures(), _Notes(folder, settings.deduplicate.near)
    judge = _Judge(settings, figures)
    asked, hits = settings.decontaminate, [np.zeros(0, HIT_DTYPE)]
    wanted = LeakIndex.load(folder.parent, asked.words) if asked else None
    with (
        ParquetTable(folder / TEXTS_FILE, TEXT_SCHEMA) as texts,
        ParquetTable(folder / DROPPED_FILE, DROPPED_SCHEMA) as dropped,
    ):
        for shown, found in _scan(piece, mark):
            mark.beat()
            lineage: dict[str, Any] = {"source": piece["source"], "file": shown}
            if isinstance(found, BadRecord) and found.kind == "unknown ending":
                figures.passed_over[unknown_ending(found.member)] += 1
                continue
            if isinstance(found, BadRecord):
                figures.documents += 1
                detail = valid_unicode(" ".join(f"{found.place_in_file} {found.reason}".split()))
                figures.drop(found.kind, f"{shown}{', ' if found.place_in_file else ' '}{detail}.")
                nowhere = {"member": "", "number": -1, "characters": 0}
                dropped.add({**lineage, **nowhere, "reason": found.kind, "detail": detail})
                continue
            lineage |= {"member": valid_unicode(found.member), "number": found.number}
            broken, facts = judge(found)
            if broken is not None:
                dropped.add({**lineage, "reason": broken, "detail": "", "characters": len(found.text)})
                continue
            texts.add({"id": notes.add(facts["text"]), **lineage, **facts})
            if wanted is not None:
                hits.append(wanted.hits(facts["text"], figures.kept))
            figures.kept += 1
    notes.close()
    if wanted is not None:
        np.save(folder / HITS_FILE, np.concatenate(hits), allow_pickle=False)
    return figures


def _scan(piece: dict[str, Any], mark: Mark | None = None) -> Iterator[tuple[str, Document | BadRecord]]:
    reading, aside = Reading(**piece["read"]), piece.get("aside", {})
    for number, part in enumerate(piece["parts"]):
        if str(number) in aside:
            place = "" if part["end"] is None else f"bytes {part['begin']:,} to {part['end']:,},"
            yield (
                part["shown"],
                BadRecord(aside[str(number)], Origin(Path(part["file"])), kind="put aside", within=place),
            )
            continue
        if mark is not None:
            mark.at(number)
        file = Path(part["file"])
        if part["end"] is None:
            found = scan(file, reading)
        else:
            found = scan_range(file, part["begin"], part["end"], replace(reading, first_number=part["first_number"]))
        try:
            for item in found:
                yield part["shown"], item
        except OSError as error:
            raise InputError(f"{part['shown']} cannot be read: {error.strerror or error}.") from None


def valid_unicode(text: str | None) -> str | None:
    """Replaces lone surrogates, which file names and pages may contain but UTF-8 cannot encode."""
    return None if text is None else text.encode("utf-8", "replace").decode()


class _Judge:
    """Cleans a document and decides whether it is kept. Returns (reason for dropping it, its row)."""

    def __init__(self, settings: BuildSection, figures: FilterFigures) -> None:
        self.settings, self.figures = settings, figures
        self.given = _thresholds_given(settings.filter) if settings.filter else {}
        self.cleaning = Cleaning(settings.clean.repair, settings.clean.form, settings.clean.mask)
        self.limits: dict[tuple[str | None, Units], Thresholds] = {}

    def __call__(self, document: Document) -> tuple[str | None, dict[str, Any]]:
        figures = self.figures
        figures.documents += 1
        figures.bytes += len(document.text.encode())
        text, done = (cleaned := clean(document.text, self.cleaning)).text, cleaned.done
        done = (*done, PART_OF_LONGER) if document.is_part else done
        figures.changes.update(done)
        language = language_of(text) if text else None
        figures.languages[language or "unknown"] += 1
        figures.lengths[str(len(text).bit_length())] += 1
        reason = self._reason(text, language)
        if reason is not None:
            figures.drop(reason, text)
            return reason, {}
        page = document.facts
        return None, {
            "text": text,
            "language": language,
            "address": valid_unicode(document.address),
            "title": self._masked(valid_unicode(page.title)) if page else None,
            "author": self._masked(valid_unicode(page.author)) if page else None,
            "date": page.date if page else None,
            "changes": list(done),
            "contaminated": False,  # set in the second pass: see `write`
        }

    def _masked(self, fact: str | None) -> str | None:
        return mask(fact) if fact and self.cleaning.mask else fact

    def _reason(self, text: str, language: str | None) -> str | None:
        if not text:
            return "empty"
        if self.settings.languages is not None and language not in self.settings.languages:
            return "language"
        if self.settings.filter and (reason := broken_rule(text, language, self._limits(language, units_of(text)))):
            return reason
        return None

    def _limits(self, language: str | None, units: Units) -> Thresholds:
        if (language, units) not in self.limits:
            self.limits[language, units] = replace(Thresholds.of(language, units), **self.given)
        return self.limits[language, units]


class _Notes:
    """Writes what deduplication needs, one row per document."""

    def __init__(self, folder: Path, near: bool) -> None:
        self.near = near
        self.keys, self.bands, self.signatures = (
            (folder / name).open("wb") for name in (KEYS_FILE, BANDS_FILE, SIGNATURES_FILE)
        )

    def add(self, text: str) -> str:
        plain = folded(text)
        key = hashlib.blake2b(plain.encode(), digest_size=16).digest()
        self.keys.write(key + len(text).to_bytes(8, "little"))
        if self.near:
            signature = sign([plain])
            self.signatures.write(signature.tobytes())
            self.bands.write(band_keys(signature).tobytes())
        return key.hex()

    def close(self) -> None:
        for file in (self.keys, self.bands, self.signatures):
            file.close()
