"""In which numbers a loaded model computes: fp32, bf16, int8, or what it is stored in."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from weft.devices import check_bfloat16, device_title, has_bfloat16
from weft.errors import InputError
from weft.inference.compiled_forward import CompiledForward, compile_forward
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.int4 import fits_int4
from weft.inference.matrices import WeightPrecision
from weft.model.network import Network
from weft.model.packed import pack
from weft.model.positions import longest
from weft.model.quantized import QuantizedLinear
from weft.progress import say

_TRIAL_SEQUENCES, _TRIAL_TOKENS, _TRIAL_ROUNDS = 8, 32, 3
_LEAST_COSINE = 0.999  # of hidden states in bf16 with those in fp32


def set_precision(network: Network, wanted: str | None) -> None:
    """Compile the network's forward pass, on a CPU. `wanted`: fp32, bf16, int8, or auto for the faster one of fp32 and
    bf16 here. Default: fp32, or the integers that it is stored in. On a GPU bf16 rounds the weights themselves.

    Raises InputError if the model or the machine does not allow it.
    """
    device, stored = next(network.parameters()).device, stored_precision(network)
    known = ("auto", *get_args(WeightPrecision))
    if wanted in ("fp16", "float16"):
        raise InputError("precision cannot be fp16: T5 and others overflow in it. Choose bf16 or fp32.")
    if wanted is not None and (not isinstance(wanted, str) or wanted not in (*known, stored)):
        raise InputError(f"precision cannot be {wanted!r}; it is {', '.join(known)}.")
    if stored != "fp32" and wanted not in (None, "auto", stored):
        raise InputError(f"This model is stored in {stored}, so it cannot be loaded in {wanted}.")
    on_cpu = device.type == "cpu"
    if stored == "fp32" and wanted in ("bf16", "int8"):
        if not on_cpu and wanted == "int8":
            raise InputError("precision int8 is for CPUs. Load the model with device cpu.")
        if network.recurrent is not None:
            raise InputError(f"An LSTM computes in fp32, so it cannot be loaded in {wanted}.")
    if not on_cpu:
        _set_on_gpu(network, device, stored, wanted)
        return
    if stored != "fp32":
        compile_forward(network, "int8")
        _say_which_groups_do_not_fit(network)
    elif wanted == "auto":
        _choose_faster(network)
    else:
        compile_forward(network, "bf16" if wanted == "bf16" else "int8" if wanted == "int8" else "fp32")


@contextmanager
def teaching(network: Network, precision: str | None) -> Iterator[None]:
    """While it teaches, a network computes in bf16 if the processor multiplies such numbers: its answers need no more
    digits than those of the student. `precision` is that of training; float32 forbids it.
    """
    kernels = load_forward_kernels() if next(network.parameters()).device.type == "cpu" else None
    has_bf16 = kernels is not None and bool(kernels.has_bfloat()) and network.recurrent is None
    if not has_bf16 or precision == "float32" or stored_precision(network) != "fp32":
        yield
        return
    set_precision(network, "bf16")
    try:
        yield
    finally:
        set_precision(network, None)


def _set_on_gpu(network: Network, device: torch.device, stored: str, wanted: str | None) -> None:
    if stored != "fp32":
        say(
            f"This model is stored in {stored}. A GPU multiplies its integers in fp32, so it is smaller but not faster "
            "than an fp32 model; the kernels for integers are for CPUs (device cpu)."
        )
    elif wanted == "bf16":
        check_bfloat16(device, "precision bf16", "fp32")
        network.to(torch.bfloat16)
    elif wanted == "auto" and device.type == "cuda" and network.recurrent is None and has_bfloat16(device):
        network.to(torch.bfloat16)
        say(f"precision: bf16 on {device_title(device)}")


def stored_precision(network: Network) -> str:
    """int4 or int8 if some layers are, otherwise fp32."""
    bits = [part.bits for part in network.modules() if isinstance(part, QuantizedLinear)]
    return f"int{min(bits)}" if bits else "fp32"


def computing_precision(network: Network) -> str:
    """What the network is stored in if that is integers; otherwise in which numbers it computes now."""
    if (stored := stored_precision(network)) != "fp32":
        return stored
    names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
    return names.get(next(network.parameters()).dtype) or packed_precision(network)


def packed_precision(network: Network) -> WeightPrecision:
    """Of the fp32 matrices, as the compiled forward pass multiplies them."""
    first, fast = next(network.parameters()), network.fast
    is_plain = first.device.type == "cpu" and first.dtype == torch.float32
    return fast.precision if is_plain and isinstance(fast, CompiledForward) else "fp32"


def _say_which_groups_do_not_fit(network: Network) -> None:
    """Another machine, without the kernels, quantizes the inputs of these layers, so its results differ slightly."""
    layers = [part for part in network.modules() if isinstance(part, QuantizedLinear) and part.bits == 4]
    odd = sorted({part.quantized.group for part in layers if not fits_int4(part.quantized)})
    if odd and load_forward_kernels() is not None:
        count = sum(part.quantized.group in odd for part in layers)
        say(
            f"{count} of {len(layers)} int4 layers have groups of {', '.join(map(str, odd))} inputs and are multiplied "
            "in fp32, which is slower: the int4 kernel takes multiples of 8."
        )


def _choose_faster(network: Network) -> None:
    """fp32 or bf16, by measuring both."""
    kernels = load_forward_kernels()
    if kernels is None or not kernels.has_bfloat() or network.recurrent is not None:
        compile_forward(network, "fp32")
        return
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
