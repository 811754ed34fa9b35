"""The attention kernel against torch's operations: forward and backward, equal and mixed sequence lengths.

python benchmarks/attention_vs_torch.py [--rounds 9] [--quick]
"""

import argparse
import random

import torch

from contest import race, report
from weft.model import fused_attention
from weft.model.attention import View, attend
from weft.model.packed import pack

chance = random.Random(0)
SHAPES = {  # lengths, heads, head width, mask
    "32 sentences of 3 to 60 tokens": ([chance.randint(3, 60) for _ in range(32)], 12, 32, View()),
    "32 pairs of 30 to 200 tokens": ([chance.randint(30, 200) for _ in range(32)], 12, 32, View()),
    "64 of 128 tokens": ([128] * 64, 4, 64, View()),
    "16 of 256 tokens, causal": ([256] * 16, 6, 64, View(causal=True)),
    "8 of 512 tokens": ([512] * 8, 12, 64, View()),
    "2 of 2,048 tokens, window of 64": ([2048] * 2, 12, 64, View(window=64)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="check that it runs; the speed means nothing")
    options, _ = parser.parse_known_args()
    load = fused_attention.load_attention_kernels
    for what, (lengths, heads, width, view) in SHAPES.items():
        batch = pack([[0] * length for length in sorted(lengths, reverse=True)])
        joint = torch.randn(len(batch.tokens), 3 * heads, width, requires_grad=True)
        wanted = torch.randn(len(batch.tokens), heads, width)
        for dropout in (0.1, 0.0):

            def turn(kernels, batch=batch, joint=joint, wanted=wanted, view=view, dropout=dropout):
                fused_attention.load_attention_kernels = kernels
                q, k, v = joint.chunk(3, dim=1)
                attend(q, k, v, batch, batch, view, scaled=True, dropout=dropout).backward(wanted)
                joint.grad = None

            contestants = {"weft": lambda turn=turn: turn(load), "torch": lambda turn=turn: turn(lambda: None)}
            rates = race(contestants, rounds=2 if options.quick else options.rounds, work=len(batch.tokens))
            report(f"attention, {what}, dropout {dropout:g}", rates, "torch", 1.0)


if __name__ == "__main__":
    main()
