"""In which numbers a loaded model computes: fp32, bf16, int8, or what it is stored in."""

import time
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from weft.errors import InputError
from weft.inference.compiled_forward import compile_forward
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.matrices import WeightPrecision
from weft.model.network import Network
from weft.model.packed import pack
from weft.model.positions import longest
from weft.model.quantized import QuantizedLinear
from weft.progress import say

_TRIAL_SEQUENCES, _TRIAL_TOKENS, _TRIAL_ROUNDS = 8, 32, 3
_LEAST_COSINE = 0.999  # of hidden states in bf16 with those in fp32


def set_precision(network: Network, wanted: str | None) -> str:
    """Compile the network's forward pass, on a CPU. `wanted`: fp32, bf16, int8, or auto for the faster one of fp32 and
    bf16 here. Default: fp32, or the integers that it is stored in. Returns what was chosen.

    Raises InputError if the model or the machine does not allow it.
    """
    if wanted is not None and (not isinstance(wanted, str) or wanted not in ("auto", *get_args(WeightPrecision))):
        raise InputError(f"precision cannot be {wanted!r}; it is auto, {', '.join(get_args(WeightPrecision))}.")
    stored = stored_precision(network)
    if stored != "fp32" and wanted not in (None, "auto", stored):
        raise InputError(f"This model is stored in {stored}, so it cannot be loaded in {wanted}.")
    if next(network.parameters()).device.type != "cpu" or stored in ("bf16", "fp16"):
        if wanted in ("bf16", "int8") and wanted != stored:
            raise InputError(f"precision {wanted} is for CPUs. Load the model with device cpu.")
        return stored
    if stored != "fp32":
        compile_forward(network, "int8")
        return stored
    if wanted == "auto":
        return _faster(network)
    chosen: WeightPrecision = "bf16" if wanted == "bf16" else "int8" if wanted == "int8" else "fp32"
    compile_forward(network, chosen)
    return chosen


def stored_precision(network: Network) -> str:
    """int4 or int8 if some layers are; otherwise that of the weights."""
    bits = [part.bits for part in network.modules() if isinstance(part, QuantizedLinear)]
    if bits:
        return f"int{min(bits)}"
    names = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    return names.get(next(network.parameters()).dtype, "fp32")


def _faster(network: Network) -> WeightPrecision:
    """fp32 or bf16, by measuring both."""
    kernels = load_forward_kernels()
    if kernels is None or not kernels.has_bfloat() or network.recurrent is not None:
        compile_forward(network, "fp32")
        return "fp32"
    compiled, best, hidden = {}, dict[WeightPrecision, float](), dict[WeightPrecision, Tensor]()
    for _ in range(_TRIAL_ROUNDS):
        for name in ("fp32", "bf16"):
            if name not in compiled:
                compile_forward(network, name)
                compiled[name] = network.fast
            network.fast = compiled[name]
            hidden[name], seconds = _timed(network)
            best[name] = min(best.get(name, seconds), seconds)
    is_near = cosine_similarity(hidden["fp32"], hidden["bf16"]).mean() >= _LEAST_COSINE
    chosen: WeightPrecision = "bf16" if is_near and best["bf16"] < best["fp32"] else "fp32"
    compile_forward(network, chosen)
    network.fast = compiled[chosen]
    say(f"precision: {chosen} (fp32 {best['fp32'] * 1e3:.1f} ms, bf16 {best['bf16'] * 1e3:.1f} ms for a trial batch)")
    return chosen


@torch.inference_mode()
def _timed(network: Network) -> tuple[Tensor, float]:
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(network.architecture.vocabulary, (_TRIAL_SEQUENCES, _TRIAL_TOKENS), generator=chance)
    batch = pack(list(ids.numpy()[:, : longest(network.architecture.embedding.positions)]))
    was_training = network.training
    network.eval()
    network(batch, batch if network.architecture.is_encoder_decoder else None)  # packs the weights
    begin = time.perf_counter()
    hidden = network(batch, batch if network.architecture.is_encoder_decoder else None)
    seconds = time.perf_counter() - begin
    network.train(was_training)
    return hidden, seconds
