"""The head of an encoder in numpy, on the hidden states that CTranslate2 computed. The README of an export contains
this function as it is written here, so it uses nothing but `math` and `numpy`.
"""

import math
from typing import Any

import numpy as np


def head_logits(x: np.ndarray, head: dict[str, Any], weights: dict[str, np.ndarray]) -> np.ndarray:
    """`x`: last_hidden_state (length, width) or pooler_output (width,) of one text, as `head["input"]` says."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{head['name']}.{name}.weight"].T + weights.get(f"{head['name']}.{name}.bias", 0)

    x = {"every": lambda: x, "first": lambda: x[0], "last": lambda: x[-1], "mean": lambda: x.mean(0)}[head["pool"]]()
    if head["activation"] is not None:
        activations: dict[str, Any] = {
            "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2))),
            "gelu-tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            "relu": lambda x: np.maximum(x, 0),
            "relu-squared": lambda x: np.maximum(x, 0) ** 2,
            "silu": lambda x: x / (1 + np.exp(-x)),
            "tanh": np.tanh,
        }
        x = activations[head["activation"]](linear(x, "dense"))
    if head["norm"] is not None:
        x = x - x.mean(-1, keepdims=True) if head["norm"] == "layer" else x
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + head["epsilon"])
        x = x * weights[f"{head['name']}.norm.weight"] + weights.get(f"{head['name']}.norm.bias", 0)
    return np.asarray(linear(x * head["scale"], "out"), np.float32)
