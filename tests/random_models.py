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


def tiny_gpt(seed: int, **shape) -> weft.Model:
    """In double precision, with large random weights, so that its predictions differ."""
    usual = {"vocabulary": 7, "layers": 1, "width": 4, "heads": 2, "positions": 32}
    model = weft.create("gpt2", seed=seed, **{**usual, **shape})
    torch.manual_seed(seed)
    for weight in model.network.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    model.network.double()
    return model


def next_token(model: weft.Model):
    """The model as p(next | before), one context at a time."""

    def p(before):
        with torch.no_grad():
            return torch.from_numpy(model.logits([before])[0][-1]).double().softmax(-1).numpy()

    return p
