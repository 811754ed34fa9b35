"""The provenance of a corpus: `weft.json`, and the lists of files, which grow with the corpus.

`inputs.parquet` has a row for each input file and `files.parquet` one for each shard, with size and SHA-256. weft.json
has the hashes of these two lists, so it stays small.
"""

import hashlib
import json
import platform
import unicodedata
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from weft.corpus.tables import ParquetTable, pyarrow, rows_of_file
from weft.errors import needs
from weft.folders import MANIFEST, read_json, sha256_of, to_json, write_file

INPUT_LIST, SHARD_LIST, _BEGUN = "inputs.parquet", "files.parquet", "begun.json"
_LIBRARIES = ("daft", "pyarrow", "numpy", "regex", "ftfy", "py3langid", "lxml", "charset-normalizer", "warcio")
_MODULES = {"charset-normalizer": "charset_normalizer"}
_HASHED = [("file", pyarrow.string()), ("bytes", pyarrow.int64()), ("sha256", pyarrow.string())]
_SCHEMAS = {INPUT_LIST: pyarrow.schema([("source", pyarrow.string()), *_HASHED]), SHARD_LIST: pyarrow.schema(_HASHED)}

_Rows = Iterable[dict[str, Any]]


def library_versions() -> dict[str, str]:
    """The versions of everything that decides the bytes. Raises InputError if a library is missing."""
    for library in _LIBRARIES:
        needs(_MODULES.get(library, library), "corpus", "to build a corpus")
    own = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    return {**own, **{library: metadata.version(library) for library in _LIBRARIES}}


def write_manifest(folder: Path, facts: dict[str, Any], inputs: _Rows, files: _Rows) -> None:
    """Writes both lists, then weft.json. An empty list has no file."""
    listed = {}
    for name, rows in ((INPUT_LIST, inputs), (SHARD_LIST, files)):
        with ParquetTable(folder / name, _SCHEMAS[name]) as table:
            for row in rows:
                table.add(row)
        if (folder / name).is_file():
            listed[name] = {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
    (folder / MANIFEST).write_bytes(to_json({**facts, "files": listed}))


def shards_of(folder: Path, known: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Each file of a corpus with its size. Older corpora have the list in weft.json."""
    for name, facts in known.get("files", {}).items():
        yield name, facts["bytes"]
    if SHARD_LIST in known.get("files", {}) and (folder / SHARD_LIST).is_file():
        for row in rows_of_file(folder / SHARD_LIST):
            yield row["file"], row["bytes"]


def work_name(fingerprint: str, versions: dict[str, str]) -> str:
    """The name of a build's work folder. Builds with different settings or library versions never share one."""
    return hashlib.sha256(json.dumps([fingerprint, versions], sort_keys=True).encode()).hexdigest()[:16]


def note_begun(folder: Path, fingerprint: str, versions: dict[str, str]) -> None:
    write_file(folder / _BEGUN, to_json({"fingerprint": fingerprint, "versions": versions}))


def why_restarted(folder: Path, fingerprint: str, versions: dict[str, str]) -> str:
    """Why this build cannot continue in another build's folder."""
    begun = read_json(folder / _BEGUN) if (folder / _BEGUN).is_file() else {}
    if begun.get("fingerprint") != fingerprint:
        return "it had other settings or files"
    return f"it had {changed_versions(begun.get('versions', {}), versions)}"


def changed_versions(before: dict[str, str], now: dict[str, str]) -> str:
    """The versions that differ, such as "pyarrow 16.0 (now 17.0)"; empty if none does."""
    names = [name for name in now if before.get(name) != now[name]]
    return ", ".join(f"{name} {before.get(name, 'unknown')} (now {now[name]})" for name in names)
