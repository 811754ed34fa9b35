"""FLOPs compared with torch's own counter."""

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft.model import fused_attention
from weft.model.flops import forward_flops
from weft.model.packed import pack

SHAPE = {"vocabulary": 100, "layers": 3, "width": 32, "heads": 2}


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama", "qwen3", "modernbert"])
def test_it_agrees_with_torchs_counter(family, monkeypatch):
    monkeypatch.setattr(fused_attention, "load_attention_kernels", lambda: None)  # opaque to torch
    network = weft.create(family, **SHAPE).network
    kind = next(iter(network.heads))
    batch = pack([np.arange(20), np.arange(20), np.arange(7)])
    target = pack([np.arange(5), np.arange(9), np.arange(4)]) if family == "t5" else None
    rows = torch.tensor([0, 3, 4])
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        network.head(kind)(network(batch, target), target or batch, rows)
    # torch counts causal attention as if everybody saw everything
    attention = None if network.decoder is None else network.decoder.spec.blocks[0].attention
    squares = sum(length**2 for length in (target or batch).lengths)
    unseen = 0 if attention is None else 2 * attention.heads * attention.head_width * squares * SHAPE["layers"]
    assert forward_flops(network, batch, target, len(rows)) + unseen == counter.get_total_flops()
