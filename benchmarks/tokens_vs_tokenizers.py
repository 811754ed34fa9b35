"""Writing token shards against the raw rate of `tokenizers`: the cost of reading, boundaries, checksums and writing.

python benchmarks/tokens_vs_tokenizers.py [--data ../shared/data] [--rounds 15] [--quick]
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from contest import race, report
from weft.sources.documents import read_documents
from weft.sources.reading import Reading
from weft.tokenizer.train import train_tokenizer
from weft.tokens.shards import build_shards

ROOT = Path(__file__).parent.parent


def compare(kind: str, files: list[Path], rounds: int, place: Path) -> None:
    tokenizer = train_tokenizer(files, kind, 8000, most_bytes=2_000_000)  # type: ignore[arg-type]
    texts = [document.text for document in read_documents(files, Reading("block"))]
    size = sum(len(text.encode()) for text in texts)

    def run_weft() -> None:
        shutil.rmtree(place / kind, ignore_errors=True)
        documents = (document.text for document in read_documents(files, Reading("block")))
        build_shards(documents, tokenizer, place / kind, separator=0)

    def run_tokenizers() -> None:
        for start in range(0, len(texts), 1000):
            for encoding in tokenizer.engine.encode_batch_fast(texts[start : start + 1000], add_special_tokens=False):
                _ = encoding.ids

    rates = race({"weft": run_weft, "tokenizers": run_tokenizers}, rounds=rounds, work=size)
    report(f"token shards, {kind}, Gutenberg paragraphs", rates, "tokenizers", 0.9, unit="bytes/s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    books = sorted((options.data / "lm/gutenberg").glob("*.txt"))
    with tempfile.TemporaryDirectory() as folder:
        copies = [copy_utf8(book, Path(folder)) for book in books] or [ROOT / "examples/austen.txt"]
        for kind in ("bpe", "wordpiece"):
            compare(kind, copies[:1] if options.quick else copies, 2 if options.quick else options.rounds, Path(folder))


def copy_utf8(book: Path, place: Path) -> Path:
    (place / book.name).write_text(book.read_text("latin-1"))
    return place / book.name


if __name__ == "__main__":
    main()
