"""Fine-tuning against `transformers.Trainer`: the same model (MiniLM), texts, batch, dropout and optimizer.

    python benchmarks/finetune_vs_trainer.py [--data ../shared/data] [--rounds 7] [--only short] [--quick]

Texts keep their lengths. The Trainer pads each batch to its longest text (DataCollatorWithPadding), as is usual; weft
does not pad. The rate counts tokens of text, not padding.
"""

import argparse
from pathlib import Path

import transformers
from transformers import DataCollatorWithPadding

from contest import Trainee, be, compare_training
from labelled import MODEL, SETS, Texts, examples, minilm
from trainers import Ours, Theirs
from weft.tasks.example import Example
from weft.tasks.task import TaskObjective
from weft.train.plan.memory import keep_freed_memory

RATE, WANTED = 1e-4, 2.0


def ours(texts: Texts, found: list[Example]) -> Ours:
    task, built, reader = minilm(found, texts.length)
    return Ours(built.network, TaskObjective(task, task.inputs(found, reader)), texts.batch, RATE)


def theirs(texts: Texts, found: list[Example]) -> Theirs:
    labels = sorted({one.gold for one in found})
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    sides = zip(*(one.given if isinstance(one.given, tuple) else (one.given,) for one in found), strict=True)
    encoded = tokenizer(*map(list, sides), truncation=True, max_length=texts.length)
    rows = [
        {name: values[number] for name, values in encoded.items()} | {"labels": labels.index(one.gold)}
        for number, one in enumerate(found)
    ]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=len(labels))
    return Theirs(model, rows, DataCollatorWithPadding(tokenizer), texts.batch, RATE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    parser.add_argument("--only", choices=SETS, help="run only this comparison")
    parser.add_argument("--who", choices=["weft", "Trainer"], help="run as this contestant")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if options.who:
        texts, found = SETS[options.only], examples(options.only, options.data)
        if options.who == "weft":
            keep_freed_memory()  # as `weft finetune` does
        trainee: Trainee = ours(texts, found) if options.who == "weft" else theirs(texts, found)
        be(trainee)
        return
    for name in [options.only] if options.only else SETS:
        texts = SETS[name]
        what = f"fine-tuning MiniLM, {texts.what}, batch {texts.batch}, Trainer with dynamic padding"
        compare_training(name, what, WANTED, *((2, 1) if options.quick else (options.rounds, texts.steps)))


if __name__ == "__main__":
    main()
