"""The settings of an architecture in a GGUF file, by type, and what weft has no counterpart for."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.exports.gguf.file import GgufSource
from weft.model.positions import LinearScaling, Llama3Scaling

_LARGEST = 10_000_000
_MISSING = object()
# Settings of variants that share the name llama, with the values that change nothing.
_VARIANTS: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "attention.sliding_window": (0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "attention.causal": (True,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "rope.scaling.attn_factor": (1.0,),
}


class GgufSettings:
    def __init__(self, source: GgufSource, kind: str) -> None:
        self.source, self.kind = source, kind

    def _get(self, key: str, default: Any) -> Any:
        found = self.source.values.get(f"{self.kind}.{key}", default)
        if found is _MISSING:
            self.source.refuse(f"it has no setting {self.kind}.{key}.")
        if isinstance(found, list) and found and all(one == found[0] for one in found):
            return found[0]  # one value for each layer
        return found

    def _wrong(self, key: str, value: Any, wanted: str) -> None:
        shown = f"a list of {len(value)}" if isinstance(value, list) else repr(value)[:100]
        self.source.refuse(f"the setting {self.kind}.{key} is {shown}, not {wanted}.")

    def integer(self, key: str, default: Any = _MISSING) -> int:
        found = self._get(key, default)
        if type(found) is not int or not 0 < found <= _LARGEST:
            self._wrong(key, found, f"a number from 1 to {_LARGEST:,}")
        return found

    def number(self, key: str, default: Any = _MISSING) -> float:
        found = self._get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            self._wrong(key, found, "a number")
        return _shortest(float(found))

    def text(self, key: str, default: str) -> str:
        found = self._get(key, default)
        if not isinstance(found, str):
            self._wrong(key, found, "a text")
        return found

    def refuse_unlike_gpt2(self) -> None:
        self._refuse_variants()
        width, heads = self.integer("embedding_length"), self.integer("attention.head_count")
        for key, usual in (
            ("attention.head_count_kv", heads),
            ("attention.key_length", width // heads),
            ("attention.value_length", width // heads),
        ):
            if (found := self.integer(key, usual)) != usual:
                self._wrong(key, found, f"{usual}, as in every GPT-2")

    def refuse_unlike_llama(self) -> None:
        self._refuse_variants()
        width, heads = self.integer("embedding_length"), self.integer("attention.head_count")
        size = self.integer("attention.key_length", max(width // heads, 1))
        for key in ("attention.value_length", "rope.dimension_count"):
            if (found := self.integer(key, size)) != size:
                self._wrong(key, found, f"{size}, the head width: weft has no such variant")

    def _refuse_variants(self) -> None:
        for key, harmless in _VARIANTS.items():
            found = self._get(key, None)
            if found is not None and found not in harmless:
                self._wrong(key, found, f"{harmless[0]}: weft has no such variant")


def _shortest(value: float) -> float:
    """1e-05 rather than 9.999999747378752e-06, which is the same in float32."""
    return float(str(np.float32(value))) if np.float32(value) == value else value


def read_rotary(said: GgufSettings, head_width: int) -> tuple[float, LinearScaling | Llama3Scaling | None]:
    """The base of the rotary frequencies, and their scaling."""
    theta = said.number("rope.freq_base", 10_000.0)
    if not 1e-30 <= theta < 1e12:
        said.source.refuse(f"the setting {said.kind}.rope.freq_base is {theta}, which is no base of frequencies.")
    linear = _linear_scaling(said)
    if "rope_freqs.weight" not in said.source.tensors:
        return theta, linear
    llama3 = _llama3_scaling(said, theta, head_width)
    if linear is not None and llama3 is not None:
        said.source.refuse("its positions are scaled twice, linearly and as Llama 3's; weft does either.")
    return theta, linear or llama3


def _linear_scaling(said: GgufSettings) -> LinearScaling | None:
    """A factor without a type is linear for llama.cpp, and 0 is no factor. Old files name it otherwise."""
    kind = said.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        said.source.refuse("its positions are scaled in a way that weft does not have: it has linear and Llama 3's.")
    factor = said.number("rope.scaling.factor", said.number("rope.scale_linear", 0.0))
    if factor < 0:
        said.source.refuse(f"the setting {said.kind}.rope.scaling.factor is {factor}, which is not above 0.")
    return None if kind == "none" or factor in (0.0, 1.0) else LinearScaling(factor)


def _llama3_scaling(said: GgufSettings, theta: float, head_width: int) -> Llama3Scaling | None:
    """The file holds a factor for each frequency; Llama 3's are made of four numbers. Usually low is 1, high 4."""
    if said.source.tensors["rope_freqs.weight"].shape != (head_width // 2,):
        said.source.refuse(f"rope_freqs.weight has not {head_width // 2} numbers, half of the head width.")
    factors = said.source.get("rope_freqs.weight").astype(np.float64)
    if (factors == 1.0).all():
        return None
    even = np.arange(0, head_width, 2, dtype=np.float32)
    frequency = (1.0 / np.float32(theta) ** (even / np.float32(head_width))).astype(np.float64)
    largest = _shortest(float(factors.max()))
    original = said.source.values.get(f"{said.kind}.rope.scaling.original_context_length")
    sizes = [size for size in (original, 8192) if type(size) is int and 0 < size <= _LARGEST]
    usual = [Llama3Scaling(largest, 1.0, 4.0, size) for size in sizes]
    for scaling in (*usual, *_fitted(factors, frequency, largest, sizes)):
        if np.allclose(_factors(scaling, frequency), factors, rtol=1e-5):
            return scaling
    return said.source.refuse("rope_freqs.weight holds other factors than Llama 3's scaling gives.")


def _factors(scaling: Llama3Scaling, frequency: np.ndarray) -> np.ndarray:
    turns = scaling.original_size * frequency / (2 * math.pi)
    blend = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0, 1)
    return 1 / ((1 - blend) / scaling.factor + blend)


def _fitted(factors: np.ndarray, frequency: np.ndarray, largest: float, sizes: list[int]) -> Iterator[Llama3Scaling]:
    """The line through two frequencies that are neither unchanged nor divided by the whole factor. A size, low and high
    that are all multiplied by the same number describe the same line.
    """
    between = np.flatnonzero((factors > 1 + 1e-6) & (factors < largest * (1 - 1e-6)))
    if len(between) < 2 or largest <= 1:
        return
    first, last = between[[0, -1]]
    blend = (1 / factors - 1 / largest) / (1 - 1 / largest)
    slope = (blend[first] - blend[last]) / (frequency[first] - frequency[last])
    offset = blend[first] - slope * frequency[first]
    if slope <= 0 or offset >= 0:
        return
    size, span = 2 * math.pi * slope / -offset, -1 / offset  # with low = 1
    for whole in (*sizes, max(round(min(size, _LARGEST)), 1)):
        low = float(whole / size)
        yield Llama3Scaling(largest, round(low, 4), round(low * (1 + span), 4), whole)
        yield Llama3Scaling(largest, low, float(low * (1 + span)), whole)
