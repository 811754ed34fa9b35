"""Seconds until a character model of Shakespeare reaches validation loss 1.88 on the last tenth of the text.

    python benchmarks/time_to_quality.py [--data ../shared/data] [--rounds 3] [--budget 20s]

The peer is a plain GPT trainer: 4 layers, 128 wide, context 64, batch 12, AdamW with warm-up and cosine, 2,000 steps,
`torch.compile`. Its time includes compiling, but not validation. weft gets the text and `budget: 20s`, nothing else.
Its time includes choosing size, batch, rates and steps, the tokenizer, the tokens, training and saving. Its loss is
measured on the whole last tenth. Each turn runs in its own process with an empty cache of compiled code. Importing
torch is not timed.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import weft
from weft.model.packed import pack
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain

GOOD = 1.88
LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS = 4, 128, 4, 64, 12, 2000
RATE, LEAST_RATE, WARMUP = 1e-3, 1e-4, 100


class PlainBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = (2 * LAYERS) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=0.02 * scale)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def plain_trainer(text: str, seed: int, steps: int) -> tuple[float, float]:
    """Returns the seconds until the loss was reached (or until the end), and the last loss."""
    torch.manual_seed(seed)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([alphabet[character] for character in text])
    train, held_out = ids[: int(0.9 * len(ids))], ids[int(0.9 * len(ids)) :]
    windows = held_out[: (len(held_out) - 1) // CONTEXT * CONTEXT]
    questions = windows.view(-1, CONTEXT)
    answers = held_out[1 : len(windows) + 1].view(-1, CONTEXT)
    began = time.perf_counter()
    plain = PlainGPT(len(alphabet))
    model = torch.compile(plain)
    matrices = [weight for weight in plain.parameters() if weight.dim() == 2]
    others = [weight for weight in plain.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99), fused=True)
    loss = math.inf
    for step in range(steps):
        share = (step + 1) / WARMUP if step < WARMUP else (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = share * RATE if step < WARMUP else LEAST_RATE + share * (RATE - LEAST_RATE)
        starts = torch.randint(len(train) - CONTEXT, (BATCH,))
        rows = torch.stack([train[start : start + CONTEXT + 1] for start in starts])
        model(rows[:, :-1], rows[:, 1:]).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 100 == 0 or step == steps - 1:
            paused = time.perf_counter()
            with torch.no_grad():
                parts = [(plain(q, a), len(q)) for q, a in zip(questions.split(256), answers.split(256), strict=True)]
            loss = float(sum(part * count for part, count in parts) / len(questions))
            began += time.perf_counter() - paused
            if loss <= GOOD:
                break
    return time.perf_counter() - began, loss


def weft_run(text: Path, budget: str, seed: int) -> tuple[float, float]:
    """Returns the seconds of the whole run, and its loss on the last tenth."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.yml"
        recipe.write_text(
            f"corpus: {{sources: [{{path: {text.resolve()}}}], splits: {{validation: 0.1}}}}\n"
            f"tokenizer: {{kind: char}}\npretrain: {{objective: causal, budget: {budget}, seed: {seed}}}\n"
        )
        began = time.perf_counter()
        pretrain(read_recipe(recipe), Path(folder), Path(folder) / "run")
        seconds = time.perf_counter() - began
        model = weft.load(Path(folder) / "run/model")
        whole = text.read_text("utf-8")
        ids = model.tokenizer.encode(whole[len(whole) - round(len(whole) * 0.1) :])
        return seconds, loss_of(model, ids)


def loss_of(model: weft.Model, ids: list[int]) -> float:
    """Mean loss over consecutive windows of the training length."""
    length = min(model.longest or 256, 256)
    total = count = 0.0
    head = model.network.head("causal")
    with torch.inference_mode():
        for start in range(0, len(ids) - 1, 32 * length):
            piece = ids[start : start + 32 * length + 1]
            rows = [piece[i : i + length] for i in range(0, len(piece) - 1, length)]
            batch = pack([row[: len(piece) - 1 - i * length] for i, row in enumerate(rows)])
            wanted = torch.tensor(piece[1:])
            total += float(F.cross_entropy(head(model.network(batch), batch), wanted, reduction="sum"))
            count += len(wanted)
    return total / count


def turn(who: str, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """Returns seconds and loss of a contestant, which runs in its own process."""
    command = [sys.executable, __file__, "--data", str(options.data), "--budget", options.budget]
    command += ["--steps", str(options.steps)]
    with tempfile.TemporaryDirectory() as cache:
        surroundings = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        done = subprocess.run(
            [*command, "--who", who, "--seed", str(seed)],
            env=surroundings,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    seconds, loss = json.loads(done.stdout.splitlines()[-1])
    print(f"{who}: loss {loss:.3f} after {seconds:.1f} s", file=sys.stderr, flush=True)
    return seconds, loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--quick", action="store_true", help="a few steps, to check that it runs")
    parser.add_argument("--who", choices=["weft", "plain"], help="run as this contestant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of the plain trainer")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.budget, options.steps = 1, "5s", 20
    if options.who:
        ours = options.who == "weft"
        text, seed = options.data / "lm/tinyshakespeare.txt", options.seed
        result = (
            weft_run(text, options.budget, seed)
            if ours
            else plain_trainer(text.read_text("utf-8"), seed, options.steps)
        )
        print(json.dumps(result))
        return
    found: dict[str, list[tuple[float, float]]] = {"weft": [], "plain": []}
    for seed in range(options.rounds):
        for who, turns in found.items():
            turns.append(turn(who, seed, options))
    report_times(found)


def report_times(found: dict[str, list[tuple[float, float]]]) -> None:
    seconds = {who: [taken for taken, _ in turns] for who, turns in found.items()}
    losses = {who: [round(loss, 3) for _, loss in turns] for who, turns in found.items()}
    medians = {who: statistics.median(taken) for who, taken in seconds.items()}
    ratios = [theirs / ours for ours, theirs in zip(seconds["weft"], seconds["plain"], strict=True)]
    ratio = medians["plain"] / medians["weft"]
    line = {
        "benchmark": f"time to validation loss {GOOD}, Shakespeare by characters",
        "unit": "s",
        "weft": round(medians["weft"], 1),
        "plain trainer": round(medians["plain"], 1),
        "ratio": round(ratio, 2),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "at_least": 5.0,
        "reached": ratio >= 5.0 and max(losses["weft"]) <= GOOD,
        "losses": losses,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
