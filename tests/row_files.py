"""Files of rows, packed in every way, and what was read from them."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

from weft.sources.records import BadRecord, Record

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
packings = st.sampled_from(["", *COMPRESS, ".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst"])


def archive(file: Path, files: dict[str, bytes]) -> Path:
    packed = io.BytesIO()
    if file.suffix == ".zip":
        with zipfile.ZipFile(packed, "w") as target:
            for name, content in files.items():
                target.writestr(name, content)
    else:
        with tarfile.open(fileobj=packed, mode="w") as target:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                target.addfile(entry, io.BytesIO(content))
    last = {".tgz": ".gz"}.get(file.suffix, file.suffix)
    file.write_bytes(COMPRESS[last](packed.getvalue()) if last in COMPRESS else packed.getvalue())
    return file


def contents(rows: Iterable[Record | BadRecord]) -> list[dict[str, Any]]:
    rows = list(rows)
    assert all(isinstance(row, Record) for row in rows), [row for row in rows if isinstance(row, BadRecord)]
    return [row.values for row in rows]


def faults(rows: Iterable[Record | BadRecord]) -> dict[int, str]:
    return {row.number: row.reason for row in rows if isinstance(row, BadRecord)}
