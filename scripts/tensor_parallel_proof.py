"""Tensor parallel pre-training beside one process: losses, and the model that comes out.

    python scripts/tensor_parallel_proof.py --steps 100

For a BERT with next sentences, a GPT-2, a Qwen3 (Muon, QK-norm, grouped keys) and a T5: one process, two tensor
parallel ones, 2 × 2, and 2 × 2 fully sharded. Prints the largest relative difference of a step's loss and of the
validation loss from those of one process. As a measure, one process that adds its gradients in another order.
`transformers` must open each model and compute what weft computes.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import weft
from weft.model.packed import pack

BOOK = Path(__file__).parent.parent / "examples" / "alice.txt"
SHAPE = "layers: 2, width: 64, heads: 4, inner: 192"
# Family: objective, more of its shape, tokenizer, optimizer. 501 tokens cannot be cut evenly. At T5's planned rate,
# 0.0028, this model's gradients explode again and again, and any rounding becomes 1 % of the loss within 100 steps.
RECIPES = {
    "bert": ("masked+next-sentence", "", "kind: wordpiece, vocab_size: 501", "adamw"),
    "gpt2": ("causal", "", "kind: bpe, vocab_size: 501", "adamw"),
    "qwen3": ("causal", ", key_value_heads: 2, head_width: 16", "kind: bpe, vocab_size: 501", "muon"),
    "t5": ("span", ", head_width: 16", "kind: unigram, vocab_size: 501", "adamw, learning_rate: 0.0005"),
}
LAYOUTS = {
    "one process": (1, ()),
    "one process, another order": (1, ("pretrain.accumulation=1",)),
    "tensor 2": (2, ("processes.tensor=2",)),
    "data 2 × tensor 2": (4, ("processes.tensor=2",)),
    "sharded 2 × tensor 2": (4, ("processes.tensor=2", "processes.sharded=true")),
}
LIMIT = 1e-4


def write_recipe(family: str, folder: Path, steps: int) -> Path:
    objective, shape, tokenizer, optimizer = RECIPES[family]
    (folder / "book.txt").write_text(BOOK.read_text("utf-8")[:60_000])
    recipe = folder / f"{family}.yml"
    recipe.write_text(
        f"""
name: {family}
corpus: {{sources: [{{path: book.txt}}], splits: {{validation: 0.1}}, documents: block}}
tokenizer: {{{tokenizer}}}
model: {{family: {family}, {SHAPE}{shape}}}
pretrain:
  {{objective: {objective}, budget: {steps} steps, sequence_length: 32, batch_tokens: 1024, accumulation: 2, pieces: 2,
   optimizer: {optimizer}, log_every: 1, validate_every: 20, checkpoint_every: 50, label_smoothing: 0.05, seed: 3,
   precision: float32, compile: false, threads: 1}}
"""
    )
    return recipe


def train(recipe: Path, output: Path, processes: int, settings: tuple[str, ...]) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "weft", "pretrain", str(recipe), "-o", str(output), *settings]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr


def losses(run: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def largest_difference(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def open_with_transformers(family: str, folder: Path) -> float:
    """The largest difference between the logits of transformers and those of weft."""
    from transformers import AutoModelForCausalLM, AutoModelForPreTraining, AutoModelForSeq2SeqLM

    kinds = {"bert": AutoModelForPreTraining, "t5": AutoModelForSeq2SeqLM}
    theirs = kinds.get(family, AutoModelForCausalLM).from_pretrained(folder).eval()
    network, tokens = weft.load(folder).network.eval(), [5, 9, 33, 8, 21, 40]
    batch, ids = pack([tokens]), torch.tensor([tokens])
    with torch.no_grad():
        if family == "t5":
            logits, hidden = theirs(input_ids=ids, decoder_input_ids=ids).logits[0], network(batch, batch)
        else:
            found = theirs(input_ids=ids)
            logits, hidden = (found.prediction_logits if family == "bert" else found.logits)[0], network(batch)
        kind = {"bert": "masked", "t5": "seq2seq"}.get(family, "causal")
        return float((network.head(kind)(hidden, batch) - logits).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--families", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    options = parser.parse_args()
    print("| family | processes | loss of a step | validation | transformers' logits | model.safetensors |")
    print("|---|---|---|---|---|---|")
    for family in options.families:
        with tempfile.TemporaryDirectory() as place:
            recipe = write_recipe(family, Path(place), options.steps)
            runs = {name: Path(place) / str(number) for number, name in enumerate(LAYOUTS)}
            for name, run in runs.items():
                train(recipe, run, *LAYOUTS[name])
                pairs = [
                    [losses(one, what) for one in (runs["one process"], run)] for what in ("loss", "validation_loss")
                ]
                step, validation = (largest_difference(*pair) for pair in pairs)
                apart = open_with_transformers(family, run / "model")
                digest = hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest()[:8]
                print(f"| {family} | {name} | {step:.1e} | {validation:.1e} | {apart:.1e} | {digest} |", flush=True)
                assert len(pairs[0][1]) == options.steps
                assert step < LIMIT, f"{family}, {name}: a loss differs by {step:.1e}"
                assert apart < 1e-3, f"{family}, {name}: transformers computes something else"


if __name__ == "__main__":
    main()
