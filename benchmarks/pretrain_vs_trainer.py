"""Pre-training against `transformers.Trainer`: same text, shapes, batch, dropout and optimizer, data loading included.

    python benchmarks/pretrain_vs_trainer.py [--data ../shared/data] [--rounds 5] [--quick]

1. Masked LM: BERT-mini, BERT's own WordPiece vocabulary, WikiText-2. The Trainer gets the text in packed blocks of 128
   tokens, as its example script does by default, and line by line, padded to the longest of each batch.
2. Causal LM: GPT-2 with 6 layers, 384 wide, 8,000 tokens, sequences of 256.

What counts is text: padding is no work. Without the data, the shipped books stand in.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

import weft
from contest import race, report
from weft.model.flops import training_flops
from weft.objectives.catalog import OBJECTIVES, end_of_document
from weft.objectives.masking import MaskSpec
from weft.tokenizer.read import load_tokenizer
from weft.tokenizer.train import train_tokenizer
from weft.tokens.order import Order
from weft.tokens.shards import build_shards
from weft.train.loop import TrainSpec, one_step
from weft.train.machine import matmul_peak
from weft.train.optimizers import OptimizerSpec, make_optimizers
from weft.train.schedules import Schedule

ROOT = Path(__file__).parent.parent
BERT = {
    "vocab_size": 30_522,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
GPT = {"vocab_size": 8000, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}
RATE, DECAY = 5e-4, 0.01


def text_of(data: Path) -> str:
    wikitext = sorted((data / "lm/wikitext-2-raw").glob("*"))
    files = [file for file in wikitext if file.is_file()] or sorted((ROOT / "examples").glob("*.txt"))
    return "\n".join(file.read_text("utf-8") for file in files)


class Weft:
    """The loop's own step, on token shards."""

    def __init__(
        self, kind: str, model: weft.Model, tokenizer, text: str, length: int, samples: int, place: Path
    ) -> None:
        self.kind, self.network = OBJECTIVES[kind], model.network.train()
        shards = build_shards([text], tokenizer, place, separator=end_of_document(tokenizer, self.kind))
        self.objectives = [self.kind.make(shards, tokenizer, length, MaskSpec())]
        self.order = Order((len(self.objectives[0]),), (1.0,), 0)
        self.spec = TrainSpec(10**6, samples, Schedule(10**6, "linear"), OptimizerSpec("adamw", RATE, DECAY))
        self.optimizers = make_optimizers(self.network, self.spec.optimizer)
        self.step, self.flops = 0, 0.0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            _, _, batches = one_step(self.network, self.objectives, self.order, self.optimizers, self.spec, self.step)
            self.step += 1
        batch = batches[0]
        self.flops = training_flops(self.network, batch.packed, None, len(batch.targets)) / len(batch.packed.tokens)


class Theirs:
    """A Trainer that runs `steps` steps each time; made anew outside the clock, so that only training counts."""

    def __init__(self, model, rows: list[list[int]], collator, samples: int) -> None:
        self.model, self.rows, self.collator, self.samples = (
            model,
            [{"input_ids": row} for row in rows],
            collator,
            samples,
        )
        self.place = tempfile.mkdtemp()
        self.trainer: Trainer | None = None
        self.rounds = 0

    def prepare(self, steps: int) -> None:
        arguments = TrainingArguments(
            self.place, max_steps=steps, per_device_train_batch_size=self.samples, learning_rate=RATE,
            weight_decay=DECAY, optim="adamw_torch_fused", report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=True, seed=self.rounds, dataloader_num_workers=0,
        )  # fmt: skip
        self.trainer = Trainer(self.model, arguments, train_dataset=self.rows, data_collator=self.collator)
        self.rounds += 1

    def train(self, steps: int) -> None:
        if self.trainer is None:
            self.prepare(steps)
        self.trainer.train()
        self.trainer = None


def blocks(ids: list[int], length: int) -> list[list[int]]:
    return [ids[start : start + length] for start in range(0, len(ids) - length, length)]


def masked(data: Path, dropout: float, by_line: bool, rounds: int, steps: int, place: Path) -> dict:
    text, vocabulary = text_of(data), data / "vocab"
    file = (
        next((f for f in sorted(vocabulary.glob("*uncased*")) if f.suffix == ".txt"), None)
        if vocabulary.is_dir()
        else None
    )
    tokenizer = (
        load_tokenizer(file) if file else train_tokenizer([*(ROOT / "examples").glob("*.txt")], "wordpiece", 8000)
    )
    size = tokenizer.vocabulary
    rates = {"dropout": dropout, "attention_dropout": dropout}
    ours = Weft(
        "masked", weft.create("bert", "mini", vocabulary=size, **rates), tokenizer, text, 128, 16, place / "tokens"
    )
    config = transformers.BertConfig(
        **{**BERT, "vocab_size": size}, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    their_tokenizer = tokenizer_folder(tokenizer, place / "tokenizer")
    collator = DataCollatorForLanguageModeling(their_tokenizer, mlm_probability=0.15)
    if by_line:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        rows = tokenizer.encode_many(lines, 512)
    else:
        rows = [
            [tokenizer.id_of("cls"), *row, tokenizer.id_of("sep")] for row in blocks(ours.objectives[0].shards[:], 126)
        ]
        rows = [[int(token) for token in row] for row in rows]
    theirs = Theirs(transformers.BertForMaskedLM(config), rows, collator, 16)
    what = "line by line" if by_line else "packed"
    name = f"masked LM, BERT-mini, dropout {dropout}, Trainer {what}"
    tokens = sum(map(len, rows)) / len(rows) * 16
    return compare(name, ours, theirs, rounds, steps, 16 * 128, tokens, 5.0 if by_line else 3.0)


def tokenizer_folder(tokenizer, place: Path):
    place.mkdir(parents=True, exist_ok=True)
    roles = {f"{role}_token": token for role, token in tokenizer.special.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.engine, **roles)


def causal(data: Path, rounds: int, steps: int, place: Path) -> dict:
    text = text_of(data)
    (place / "text.txt").write_text(text)
    tokenizer = train_tokenizer([place / "text.txt"], "bpe", 8000)
    none = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
    model = weft.create("gpt2", vocabulary=8000, layers=6, width=384, heads=6, positions=256, **none)
    ours = Weft("causal", model, tokenizer, text, 256, 8, place / "tokens")
    config = transformers.GPT2Config(**GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    rows = [[int(token) for token in row] for row in blocks(ours.objectives[0].shards[:], 256)]
    collator = DataCollatorForLanguageModeling(tokenizer_folder(with_pad(tokenizer), place / "tokenizer"), mlm=False)
    theirs = Theirs(transformers.GPT2LMHeadModel(config), rows, collator, 8)
    return compare("causal LM, GPT-2 of 6 layers, 384 wide, packed", ours, theirs, rounds, steps, 8 * 256, 8 * 256, 1.5)


def with_pad(tokenizer):
    from dataclasses import replace

    return replace(tokenizer, special={**tokenizer.special, "pad": tokenizer.special["eos"]})


def compare(
    name: str,
    ours: Weft,
    theirs: Theirs,
    rounds: int,
    steps: int,
    our_tokens: float,
    their_tokens: float,
    at_least: float,
) -> dict:
    """Both in steps; what is reported is text tokens, of which a step of the one may hold more than of the other."""
    rates = race(
        {"weft": lambda: ours.train(steps), "Trainer": lambda: theirs.train(steps)},
        rounds=rounds,
        prepare={"Trainer": lambda: theirs.prepare(steps)},
    )
    rates["weft"] = [rate * steps * our_tokens for rate in rates["weft"]]
    rates["Trainer"] = [rate * steps * their_tokens for rate in rates["Trainer"]]
    share = sorted(rates["weft"])[len(rates["weft"]) // 2] * ours.flops / matmul_peak("cpu", torch.float32, 2.0)
    return report(name, rates, "Trainer", at_least, share_of_matmul_peak=round(share, 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few steps: does it run, not how fast")
    parser.add_argument("--only", help="packed, lines, dropout or causal, in this process")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if not options.only:  # each in a process of its own, as what an earlier one left of the allocator would sway it
        for name in ("packed", "lines", "dropout", "causal"):
            subprocess.run([sys.executable, *sys.argv, "--only", name], check=True)
        return
    rounds, steps = (2, 1) if options.quick else (options.rounds, 8)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        match options.only:
            case "packed":
                masked(options.data, 0.0, False, rounds, steps, place)
            case "lines":
                masked(options.data, 0.0, True, rounds, steps, place)
            case "dropout":
                masked(options.data, 0.1, False, rounds, steps, place)
            case "causal":
                causal(options.data, rounds, steps, place)


if __name__ == "__main__":
    main()
