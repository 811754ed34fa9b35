"""Search by meaning: passages of texts, a vector for each, and those whose vectors are nearest to a query's.

A text is cut into passages of one or a few paragraphs, no longer than the model reads. All passages are compared with
the query, so nothing is missed; a million of them take a fraction of a second. An index on disk holds passages.jsonl
and vectors.safetensors, and in weft.json which model and files it was made of.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from weft.api.model import Model
from weft.errors import FolderError, InputError
from weft.folders import MANIFEST, disk_errors, known_facts, manifest, replace_folder, to_json
from weft.metrics.retrieval import unit_vectors
from weft.progress import Gauge
from weft.sources.documents import Document
from weft.sources.formats.cut_long import cut_text
from weft.words import TOKEN_BYTES, TOKEN_LETTERS, may_be_unspaced

_SHORT = 200  # characters: a shorter paragraph is joined with the next one
_LONGEST_TOKENS = 256  # of a passage, if the model reads more: long texts have vectors that say little
_AT_ONCE = 1024  # passages
_VECTORS, _PASSAGES, _KIND = "vectors.safetensors", "passages.jsonl", "search index"
_PARAGRAPH = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Passage:
    text: str
    place: str = ""  # where it was read


@dataclass(frozen=True)
class SearchHit:
    score: float  # cosine
    passage: Passage


def passages_of(documents: Iterable[Document], most_tokens: int) -> Iterator[Passage]:
    """`most_tokens`: that the model reads."""
    for document in documents:
        whole = Path(document.file.name, document.member) if document.member else document.file.name
        for number, text in enumerate(cut_passages(document.text, min(most_tokens, _LONGEST_TOKENS)), 1):
            yield Passage(text, f"{whole}, text {document.number + 1:,}, passage {number:,}")


def cut_passages(text: str, most_tokens: int) -> Iterator[str]:
    """Paragraphs; short ones are joined, long ones cut."""
    letters = TOKEN_LETTERS if may_be_unspaced(text) else TOKEN_BYTES
    most, held = max(1, int(0.8 * letters * most_tokens)), ""
    for paragraph in (part.strip() for part in _PARAGRAPH.split(text)):
        joined = f"{held}\n\n{paragraph}".strip()
        if held and len(joined) > most:
            yield from _cut(held, most)
            joined = paragraph
        held = joined
        if len(held) >= _SHORT:
            yield from _cut(held, most)
            held = ""
    yield from _cut(held, most)


def _cut(text: str, most: int) -> Iterator[str]:
    for part in cut_text(text, most):
        if part.strip():
            yield part.strip()


class SearchIndex:
    """`SearchIndex.build(weft.load("model"), ["a text", "another"]).search("a question")`"""

    def __init__(self, model: Model, passages: Sequence[Passage], vectors: np.ndarray) -> None:
        """`vectors`: of length 1."""
        self.model, self.passages, self.vectors = model, passages, vectors

    @classmethod
    def build(cls, model: Model, passages: Iterable[Passage | str]) -> Self:
        if isinstance(passages, str) or not isinstance(passages, Iterable):
            raise InputError(f"A search index takes a list of texts, not {type(passages).__name__}.")
        rest = (one if isinstance(one, Passage) else Passage(one) for one in passages)
        kept, rows = list[Passage](), [np.zeros((0, model.network.width), np.float32)]
        with Gauge("Reading", unit="passages") as gauge:
            while some := list(islice(rest, _AT_ONCE)):
                rows.append(unit_vectors(model.embed([one.text for one in some])))
                kept += some
                gauge.add(len(some))
        return cls(model, kept, np.concatenate(rows))

    def search(self, query: str, top: int = 10) -> list[SearchHit]:
        """The nearest passages, the best first."""
        if not isinstance(query, str):
            raise InputError(f"search takes a query, a text, not {type(query).__name__}.")
        if not self.passages:
            return []
        cosines = torch.from_numpy(self.vectors) @ torch.from_numpy(unit_vectors(self.model.embed([query]))[0])
        found = cosines.topk(min(top, len(self.passages)))
        return [
            SearchHit(float(score), self.passages[place])
            for score, place in zip(found.values.tolist(), found.indices.tolist(), strict=True)
        ]

    def save(self, folder: Path, made_of: Any = None) -> None:
        """`made_of`: what `open` must be given again."""
        with replace_folder(folder, mark=MANIFEST, ours=(_VECTORS, _PASSAGES, MANIFEST)) as new:
            save_file({"vectors": self.vectors}, new / _VECTORS)
            with (new / _PASSAGES).open("w", encoding="utf-8") as file:
                for one in self.passages:
                    file.write(json.dumps({"text": one.text, "place": one.place}, ensure_ascii=False) + "\n")
            facts = {"kind": _KIND, "passages": len(self.passages), "model": model_hash(self.model), "made_of": made_of}
            (new / MANIFEST).write_bytes(to_json(manifest(new, **facts)))

    @classmethod
    def open(cls, folder: Path, model: Model, made_of: Any = None) -> Self | None:
        """None if it was made by another model or of other files."""
        facts = known_facts(folder)
        if facts.get("kind") != _KIND:
            raise FolderError(f"{folder} is not a search index.")
        if facts.get("model") != model_hash(model) or facts.get("made_of") != made_of:
            return None
        with disk_errors(folder):
            lines = (folder / _PASSAGES).read_text("utf-8").splitlines()
            vectors = load_file(folder / _VECTORS)["vectors"]
        passages = [Passage(**json.loads(line)) for line in lines]
        if vectors.shape != (len(passages), model.network.width):
            raise FolderError(f"{folder} is damaged: {len(passages):,} passages, vectors {vectors.shape}.")
        return cls(model, passages, vectors)


def model_hash(model: Model) -> str:
    """Of the weights: another model has other vectors."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.network.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
