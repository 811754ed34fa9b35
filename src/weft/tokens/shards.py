"""Documents as token ids in memory-mapped files.

A shard has three files: `00000.tokens` (uint16 if the vocabulary fits, otherwise uint32), `00000.ends` (int64, the end
of each document, counted from the beginning of the shard) and `00000.json` (counts and checksums). A separator follows
each document, so the shards form one continuous sequence of tokens, the tape. With `sentences`, a fourth file holds the
end of each sentence.

A shard is a fixed run of documents. Its JSON file is written last, so a killed build continues with the first shard
that has none, and gives the same bytes.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers

from weft.errors import FolderError, InputError
from weft.folders import read_json, to_json, write_file
from weft.threads import usable_cores
from weft.tokenizer.tokenizer import PIECE_CHARACTERS, Tokenizer, cut_long
from weft.words import ENDS_OF_SENTENCES

SHARD_BYTES = 64_000_000  # of text
_BATCH_CHARACTERS = max(
    500_000, 2 * PIECE_CHARACTERS * usable_cores()
)  # for the tokenizer at once: work for all threads
_SETTINGS = "tokens.json"
# A sentence ends with its final punctuation and closing quotes, or with its line. The parts join to the whole text. At
# most a hundred punctuation marks in a row match: otherwise the time would grow with the square of their number.
_SENTENCE = re.compile(
    rf".+?(?:[.!?。！？…{ENDS_OF_SENTENCES}]{{1,100}}[\"'”’」』)]*(?=\s|$|[^\x00-\x7f])|\n+|$)\s*", re.DOTALL
)


@dataclass(frozen=True)
class TokenShards:
    """A finished folder of shards. `shards[a:b]` reads tokens from anywhere on the tape."""

    folder: Path
    dtype: np.dtype
    separator: int
    lengths: tuple[int, ...]  # tokens per shard
    characters: int = 0  # of the text
    bytes: int = 0

    @cached_property
    def starts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, span: slice) -> np.ndarray:
        """The tokens from `span.start` to `span.stop` as int64; the range may cross shards."""
        start, stop, _ = span.indices(len(self))
        parts = []
        shard = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(self.starts[shard + 1]))
            parts.append(self._maps[shard][start - self.starts[shard] : end - self.starts[shard]])
            start, shard = end, shard + 1
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    @cached_property
    def documents(self) -> np.ndarray:
        """The end of each document on the tape, including its separator."""
        return self._ends("ends")

    @cached_property
    def sentences(self) -> np.ndarray:
        """The end of each sentence on the tape. The last sentence of a document includes its separator."""
        if not (self.folder / "00000.sentences").is_file():
            raise FolderError(f"{self.folder} was built without sentences. Delete it and build it again.")
        return self._ends("sentences")

    @cached_property
    def _maps(self) -> list[np.ndarray]:
        files = [self.folder / f"{shard:05}.tokens" for shard in range(len(self.lengths))]
        return [np.memmap(file, self.dtype, "r") if file.stat().st_size else np.zeros(0, self.dtype) for file in files]

    def _ends(self, kind: str) -> np.ndarray:
        parts = [np.fromfile(self.folder / f"{shard:05}.{kind}", np.int64) for shard in range(len(self.lengths))]
        return np.concatenate([part + start for part, start in zip(parts, self.starts[:-1], strict=True)])


def build_shards(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    separator: int,
    opening: int | None = None,
    sentences: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> TokenShards:
    """Builds shards of `texts`. Finished shards are kept if they hold the same documents.

    `separator` ends each document; `opening`, if given, begins it.
    """
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary <= 2**16 else np.uint32)
    settings = {
        "dtype": dtype.name,
        "separator": separator,
        "opening": opening,
        "sentences": sentences,
        "shard_bytes": shard_bytes,
        "tokenizer": hashlib.sha256(tokenizer.engine.to_str().encode()).hexdigest(),
    }
    _start(folder, settings)
    documents, count = iter(texts), 0
    while (first := next(documents, None)) is not None:
        group: Iterable[str] = _take(chain([first], documents), shard_bytes)
        if (known := folder / f"{count:05}.json").is_file():
            group = list(group)
            if read_json(known).get("text") == _Tally.of(group).fingerprint:
                count += 1
                continue  # an earlier build finished it with the same documents
            known.unlink()  # the documents have changed: the shard is rewritten
        _write_shard(folder, count, group, tokenizer, dtype, (opening, separator), sentences)
        count += 1
    if count == 0:
        raise InputError("There is no text to tokenize.")
    write_file(folder / _SETTINGS, to_json({**settings, "shards": count}))
    return open_shards(folder)


def open_shards(folder: Path) -> TokenShards:
    settings = read_json(folder / _SETTINGS)
    if "shards" not in settings:
        raise FolderError(f"{folder} is not finished. Build it again; finished shards are kept.")
    shards = [read_json(folder / f"{shard:05}.json") for shard in range(settings["shards"])]
    return TokenShards(
        folder,
        np.dtype(settings["dtype"]),
        settings["separator"],
        tuple(shard["tokens"] for shard in shards),
        sum(shard["characters"] for shard in shards),
        sum(shard["bytes"] for shard in shards),
    )


def check_shards(folder: Path) -> None:
    """Raises FolderError if a file does not match its checksum."""
    for shard in range(read_json(folder / _SETTINGS)["shards"]):
        for name, checksum in read_json(folder / f"{shard:05}.json")["sha256"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != checksum:
                raise FolderError(
                    f"{folder / name} is damaged: its checksum is wrong. Delete the folder and build it again."
                )


def split_sentences(text: str) -> list[str]:
    """The sentences of a text. Joined, they are the text."""
    return _SENTENCE.findall(text)


def _start(folder: Path, settings: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / _SETTINGS).is_file():
        earlier = read_json(folder / _SETTINGS)
        if {key: earlier.get(key) for key in settings} != settings:
            raise FolderError(f"{folder} holds tokens made with other settings. Choose another folder or delete it.")
    write_file(folder / _SETTINGS, to_json(settings))  # without the number of shards until all are finished


def _take(documents: Iterator[str], most_bytes: int) -> Iterator[str]:
    """Yields the next documents until they have `most_bytes`."""
    size = 0
    while size < most_bytes and (text := next(documents, None)) is not None:
        size += len(text.encode())
        yield text


class _Tally:
    """Counts and hashes documents while they are iterated."""

    def __init__(self) -> None:
        self.documents = self.characters = self.bytes = 0
        self._digest = hashlib.sha256()

    @classmethod
    def of(cls, group: Iterable[str]) -> Self:
        tally = cls()
        for _ in tally.watch(group):
            pass
        return tally

    def watch(self, group: Iterable[str]) -> Iterator[str]:
        for text in group:
            data = text.encode()
            self.documents += 1
            self.characters += len(text)
            self.bytes += len(data)
            self._digest.update(data + b"\0")
            yield text

    @property
    def fingerprint(self) -> str:
        return self._digest.hexdigest()


def _write_shard(
    folder: Path,
    shard: int,
    group: Iterable[str],
    tokenizer: Tokenizer,
    dtype: np.dtype,
    frame: tuple[int | None, int],
    sentences: bool,
) -> None:
    tally = _Tally()
    tokens, ends, breaks = _encode(tally.watch(group), tokenizer, sentences, dtype, frame)
    files = {f"{shard:05}.tokens": tokens, f"{shard:05}.ends": ends}
    if sentences:
        files[f"{shard:05}.sentences"] = breaks
    sums = {}
    for name, array in files.items():
        data = array.tobytes()
        write_file(folder / name, data)
        sums[name] = hashlib.sha256(data).hexdigest()
    facts = {
        "documents": tally.documents,
        "tokens": len(tokens),
        "characters": tally.characters,
        "bytes": tally.bytes,
        "text": tally.fingerprint,
        "sha256": sums,
    }
    write_file(folder / f"{shard:05}.json", to_json(facts))


def _encode(
    group: Iterable[str], tokenizer: Tokenizer, sentences: bool, dtype: np.dtype, frame: tuple[int | None, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens of the documents, the ends of the documents, and the ends of the sentences (or pieces)."""
    cut = split_sentences if sentences else cut_long
    pieces = ((number, piece) for number, text in enumerate(group) for piece in cut(text) or [""])
    parts, lengths, owners = [], [], []
    for numbers, ids in _encode_batches(pieces, tokenizer):
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        parts.append(np.fromiter(chain.from_iterable(ids), dtype, int(sizes.sum())))
        lengths.append(sizes)
        owners.append(np.asarray(numbers, np.int64))
    return _framed(np.concatenate(parts), np.concatenate(lengths), np.concatenate(owners), frame)


def _encode_batches(
    pieces: Iterator[tuple[int, str]], tokenizer: Tokenizer
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """Yields batches of (document numbers of the pieces, their token ids).

    The tokenizer encodes one batch in all its threads, with the next one queued, while earlier results are consumed.
    Batches ignore document borders, so one long document needs no more memory than many short ones.
    """

    def encode(texts: list[str]) -> list[tokenizers.Encoding]:
        return tokenizer.engine.encode_batch_fast(texts, add_special_tokens=False)

    waiting: deque[tuple[list[int], Future[list[tokenizers.Encoding]]]] = deque()
    with ThreadPoolExecutor(1) as background:
        while (batch := list(_take_pieces(pieces))) or waiting:
            if batch:
                waiting.append(([owner for owner, _ in batch], background.submit(encode, [text for _, text in batch])))
            if len(waiting) > 2 or not batch:
                owners, work = waiting.popleft()
                yield owners, [encoding.ids for encoding in work.result()]


def _framed(
    tokens: np.ndarray, lengths: np.ndarray, owners: np.ndarray, frame: tuple[int | None, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inserts openings and separators around the documents. `owners` is the document number of each piece."""
    opening, separator = frame
    changes = np.diff(owners) != 0
    first, last = np.append(True, changes), np.append(changes, True)
    ends = np.cumsum(lengths)
    around = [((ends - lengths)[first], opening)] if opening is not None else []
    around.append((ends[last], separator))
    places = np.stack([place for place, _ in around], axis=1).ravel()  # in tape order
    values = np.tile(np.asarray([token for _, token in around], tokens.dtype), int(last.sum()))
    breaks = ends + np.cumsum(last) + (np.cumsum(first) if opening is not None else 0)
    return np.insert(tokens, places, values), breaks[last], breaks


def _take_pieces(pieces: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    size = 0
    while size < _BATCH_CHARACTERS and (item := next(pieces, None)) is not None:
        size += len(item[1])
        yield item
