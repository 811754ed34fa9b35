"""Models that are stored in integers write as their modules compute, and every row as if it were alone."""

import numpy as np
import pytest
import torch

import weft
from weft.model.packed import pack
from weft.model.quantized import QuantizedWeight, put_quantized, quantize_weight

FAMILIES = {"llama": {"width": 48, "heads": 3}, "gpt2": {"width": 48, "heads": 3}, "t5": {"width": 48, "heads": 3}}


def group_of_16(weight: torch.Tensor) -> QuantizedWeight:
    grouped = weight.detach().unflatten(1, (-1, 16))
    scales = grouped.abs().amax(dim=-1, keepdim=True) / 7
    return QuantizedWeight((grouped / scales).round().flatten(1).to(torch.int8), scales[..., 0].contiguous(), 4)


@pytest.fixture(scope="module", params=[(family, bits) for family in FAMILIES for bits in (8, 4)], ids=str)
def model(request) -> weft.Model:
    family, bits = request.param
    model = weft.create(family, layers=2, vocabulary=300, seed=1, **FAMILIES[family])
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)  # otherwise all tokens are nearly as likely
    for name, module in list(model.network.named_modules()):
        if type(module) is torch.nn.Linear and not name.startswith("heads"):
            put_quantized(
                model.network, name, quantize_weight(module.weight) if bits == 8 else group_of_16(module.weight)
            )
    return model


def prompts(count: int) -> list[list[int]]:
    chance = np.random.default_rng(count)
    return [chance.integers(5, 300, chance.integers(2, 20)).tolist() for _ in range(count)]


def test_a_row_is_written_as_if_it_were_alone(model):
    given = prompts(7)
    together = model.generate(given, max_new_tokens=12)
    assert together == [model.generate([one], max_new_tokens=12)[0] for one in given]


def test_the_kernels_compute_what_the_modules_compute(model):
    given, sources = prompts(3), prompts(3)
    is_pair = model.network.architecture.is_encoder_decoder
    scores = model.score(given, sources if is_pair else None)
    network = model.network.eval()
    for number, (one, score) in enumerate(zip(given, scores, strict=True)):
        with torch.enable_grad():  # with gradients the modules compute, not the kernels
            sequence = [model.start_end.start_id or 0, *one] if is_pair else one
            read = (sources[number], sequence[:-1]) if is_pair else (sequence[:-1], None)
            logits = module_logits(network, *read)
        expected = logits.log_softmax(-1)[range(len(sequence) - 1), sequence[1:]]
        found = torch.tensor(score.log_probs)[-len(expected) :]
        torch.testing.assert_close(found, expected, atol=0.05, rtol=0.02)


def module_logits(network, sequence: list[int], target: list[int] | None) -> torch.Tensor:
    batch = pack([sequence])
    reader = batch if target is None else pack([target])
    hidden = network(batch, None if target is None else reader)
    return network.head("causal" if target is None else "seq2seq")(hidden, reader).detach()
