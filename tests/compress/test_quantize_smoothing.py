"""Foldings change no output of the fp32 network, and are done only where that holds."""

import numpy as np
import pytest
import torch

import weft
from weft.compress.quantize.smoothing import fold, smoothing_factors, smoothing_sites

SHAPE = {"vocabulary": 60, "layers": 2, "width": 32, "heads": 4}
MODELS = {
    "bert": {}, "roberta": {}, "distilbert": {}, "modernbert": {}, "gpt2": {}, "llama": {"key_value_heads": 2},
    "qwen3": {"key_value_heads": 1}, "t5": {}, "transformer": {},
}  # fmt: skip
VARIANTS = [
    *((family, more) for family, more in MODELS.items()),
    ("t5", {"gated": True}),
    ("gpt2", {"activation": "relu"}),
    ("gpt2", {"activation": "relu-squared"}),
    ("llama", {"attention_bias": True, "feedforward_bias": True}),
]
IDS, TARGETS = [[3, 7, 9, 4, 21], [5, 6, 8]], [[0, 3, 4], [0, 9, 2, 5]]


def scattered(family: str, **more) -> weft.Model:
    model = weft.create(family, **SHAPE, **more)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.network.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.7)
    return model


def logits(model: weft.Model) -> list[np.ndarray]:
    return model.logits(IDS, TARGETS if model.network.architecture.is_encoder_decoder else None)


@pytest.mark.parametrize(("family", "more"), VARIANTS, ids=lambda value: str(value))
def test_folding_changes_no_logits(family, more):
    model = scattered(family, **more)
    before = logits(model)
    generator = torch.Generator().manual_seed(2)
    sites = list(smoothing_sites(model.network))
    assert sites
    for site in sites:
        weight = model.network.get_parameter(f"{site.consumer}.weight")
        old = weight.clone()
        fold(model.network, site, site.shared(torch.rand(weight.shape[1], generator=generator) * 9 + 0.1))
        assert not torch.allclose(weight, old)
    for a, b in zip(logits(model), before, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max())


def consumers(family: str, **more) -> set[str]:
    names = (site.consumer for site in smoothing_sites(scattered(family, **more).network))
    return {name.split("blocks.")[1].partition(".")[2] for name in names}


def test_only_exact_foldings_are_offered():
    assert consumers("bert") == {"attention.out"}, "post-norm, GELU: only values"
    assert consumers("gpt2") == {"attention.qkv", "attention.out", "feedforward.up"}, "pre-norm, GELU"
    everything = {"attention.qkv", "attention.out", "feedforward.up", "feedforward.down"}
    assert consumers("llama") == consumers("modernbert") == everything, "pre-norm, gated"
    assert consumers("t5") == {*everything, "cross.query", "cross.out"}, "pre-norm, ReLU, cross-attention"
    assert consumers("gpt2", activation="relu") == everything


def test_factors_even_out_activations_and_weights():
    largest, weight = torch.tensor([100.0, 1.0, 0.0]), torch.tensor([[0.5, 0.1, 0.2], [-1.0, 0.3, 0.0]])
    factors = smoothing_factors(largest, weight)
    torch.testing.assert_close((largest / factors)[:2], (weight * factors).abs().amax(0)[:2])
    assert torch.isfinite(factors).all() and (factors > 0).all()
