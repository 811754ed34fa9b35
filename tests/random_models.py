"""Small models of every family, with random weights. `SHAPES`: those that write."""

import torch

import weft

SHAPES = {
    "gpt2": {"layers": 2, "width": 32, "heads": 4},
    "llama": {"layers": 2, "width": 32, "heads": 4, "key_value_heads": 2},
    "qwen3": {"layers": 2, "width": 32, "heads": 4, "key_value_heads": 1},
    "lstm": {"layers": 2, "width": 32},
    "t5": {"layers": 2, "width": 32, "heads": 4},
    "transformer": {"layers": 2, "width": 32, "heads": 4},
}

ENCODERS = {
    "bert": {"layers": 2, "width": 48, "heads": 4},
    "roberta": {"layers": 2, "width": 48, "heads": 3},
    "distilbert": {"layers": 2, "width": 48, "heads": 2},
    "modernbert": {"layers": 4, "width": 48, "heads": 4, "window": 16},
}


def make_random(family: str, seed: int = 0, vocabulary: int = 70, **more) -> weft.Model:
    """Random weights, large enough that every layer matters."""
    model = weft.create(family, vocabulary=vocabulary, seed=seed, **{**(SHAPES | ENCODERS)[family], **more})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.network.parameters():
            scale = 1.5 * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.5)
    return model
