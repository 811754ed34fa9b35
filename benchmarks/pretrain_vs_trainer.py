"""Pre-training against `transformers.Trainer`: same text, shapes, batch, dropout and optimizer, data loading included.

    python benchmarks/pretrain_vs_trainer.py [--data ../shared/data] [--rounds 7] [--quick]

1. Masked LM: BERT-mini, BERT's own WordPiece vocabulary, WikiText-2. The Trainer gets the text in packed blocks of 128
   tokens, as its example script does by default, and line by line, padded to the longest of each batch.
2. Causal LM: GPT-2 with 6 layers, 384 wide, 8,000 tokens, sequences of 256. Where the processor has bfloat16, also
   with both using it.

The rate counts tokens of text, not padding. Each contestant has its own process, and they take turns. Without the data,
the example books are used.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from transformers import DataCollatorForLanguageModeling

import weft
from contest import Trainee, be, compare_training
from trainers import Ours, Theirs
from weft.objectives.catalog import OBJECTIVES, end_of_document
from weft.objectives.masking import MaskSpec
from weft.tokenizer.read import load_tokenizer
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer
from weft.tokens.shards import build_shards
from weft.train.plan.machine import has_fast_bfloat16
from weft.train.plan.memory import keep_freed_memory

ROOT = Path(__file__).parent.parent
COMPARISONS = {  # name: description, and the ratio that weft should reach
    "packed": ("masked LM, BERT-mini, dropout 0.0, Trainer packed", 3.0),
    "lines": ("masked LM, BERT-mini, dropout 0.0, Trainer line by line", 5.0),
    "dropout": ("masked LM, BERT-mini, dropout 0.1, Trainer packed", 3.0),
    "causal": ("causal LM, GPT-2 of 6 layers, 384 wide, dropout 0.1, Trainer packed", 1.5),
    "causal-plain": ("causal LM, GPT-2 of 6 layers, 384 wide, dropout 0.0, Trainer packed", 1.5),
    "causal-bfloat16": ("causal LM, GPT-2 of 6 layers, 384 wide, dropout 0.0, both bfloat16, Trainer packed", 1.5),
}
RATE = 5e-4


def ours(
    kind: str,
    model: weft.Model,
    tokenizer: Tokenizer,
    text: str,
    length: int,
    samples: int,
    place: Path,
    precision: torch.dtype = torch.float32,
) -> Ours:
    shards = build_shards([text], tokenizer, place, separator=end_of_document(tokenizer, OBJECTIVES[kind]))
    objective = OBJECTIVES[kind].make(shards, tokenizer, length, MaskSpec())
    return Ours(model.network, objective, samples, RATE, precision)


def theirs(model, rows: list[list[int]], collator, samples: int, precision: torch.dtype = torch.float32) -> Theirs:
    return Theirs(model, [{"input_ids": row} for row in rows], collator, samples, RATE, precision)


def text_of(data: Path) -> str:
    files = sorted((data / "lm/wikitext-2-raw").glob("*.raw")) or sorted((ROOT / "examples").glob("a*.txt"))
    return "\n".join(file.read_text("utf-8") for file in files)


def masked(data: Path, dropout: float, by_line: bool, who: str, place: Path) -> Trainee:
    text, vocabulary = text_of(data), data / "vocab/bert-base-uncased-vocab.txt"
    books = sorted((ROOT / "examples").glob("a*.txt"))
    tokenizer = load_tokenizer(vocabulary) if vocabulary.is_file() else train_tokenizer(books, "wordpiece", 8000)
    if who == "weft":
        rates = {"dropout": dropout, "attention_dropout": dropout}
        model = weft.create("bert", "mini", vocabulary=tokenizer.vocabulary, **rates)
        return ours("masked", model, tokenizer, text, 128, 16, place)
    lines = [line for line in text.splitlines() if line.strip()]
    if by_line:
        rows = tokenizer.encode_many(lines, 512)
    else:
        ids = [
            token
            for encoded in tokenizer.engine.encode_batch_fast(lines, add_special_tokens=False)
            for token in encoded.ids
        ]
        rows = [[tokenizer.id_of("cls"), *row, tokenizer.id_of("sep")] for row in blocks(ids, 126)]
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocabulary, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    collator = DataCollatorForLanguageModeling(hugging_face(tokenizer), mlm_probability=0.15)
    return theirs(transformers.BertForMaskedLM(config), rows, collator, 16)


def causal(data: Path, dropout: float, precision: torch.dtype, who: str, place: Path) -> Trainee:
    text = text_of(data)
    (place / "text.txt").write_text(text)
    tokenizer = train_tokenizer([place / "text.txt"], "bpe", 8000)
    tokenizer = replace(tokenizer, special={**tokenizer.special, "pad": tokenizer.special["eos"]})
    if who == "weft":
        rates = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout"), dropout)
        model = weft.create("gpt2", vocabulary=8000, layers=6, width=384, heads=6, positions=256, **rates)
        return ours("causal", model, tokenizer, text, 256, 8, place / "tokens", precision)
    config = transformers.GPT2Config(
        vocab_size=8000, n_positions=256, n_embd=384, n_layer=6, n_head=6,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )  # fmt: skip
    rows = blocks(tokenizer.engine.encode(text, add_special_tokens=False).ids, 256)
    collator = DataCollatorForLanguageModeling(hugging_face(tokenizer), mlm=False)
    return theirs(transformers.GPT2LMHeadModel(config), rows, collator, 8, precision)


def hugging_face(tokenizer: Tokenizer) -> transformers.PreTrainedTokenizerFast:
    roles = {f"{role}_token": token for role, token in tokenizer.special.items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.engine, **roles)


def blocks(ids: list[int], length: int) -> list[list[int]]:
    return [ids[start : start + length] for start in range(0, len(ids) - length, length)]


def work(name: str, who: str, data: Path) -> None:
    """A contestant's process: reads a number of steps, prints its rate."""
    if who == "weft":
        keep_freed_memory()  # as `weft pretrain` does
    with tempfile.TemporaryDirectory() as folder:
        if name.startswith("causal"):
            precision = torch.bfloat16 if name == "causal-bfloat16" else torch.float32
            contestant = causal(data, 0.1 if name == "causal" else 0.0, precision, who, Path(folder))
        else:
            contestant = masked(data, 0.1 if name == "dropout" else 0.0, name == "lines", who, Path(folder))
        be(contestant)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    parser.add_argument("--only", choices=COMPARISONS, help="run only this comparison")
    parser.add_argument("--who", choices=["weft", "Trainer"], help="run as this contestant")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if options.who:
        work(options.only, options.who, options.data)
        return
    possible = [name for name in COMPARISONS if name != "causal-bfloat16" or has_fast_bfloat16("cpu")]
    for name in [options.only] if options.only else possible:
        compare_training(name, *COMPARISONS[name], *((2, 1) if options.quick else (options.rounds, 20)))


if __name__ == "__main__":
    main()
