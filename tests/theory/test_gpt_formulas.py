"""The chapter on GPT: each formula as written gives what weft computes. Double precision, unequal lengths."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from random_models import next_token, tiny_gpt
from weft.errors import RecipeError
from weft.model.families import design
from weft.model.families.gpt2 import Gpt2
from weft.model.initialize import draw_normal
from weft.model.network import create_network
from weft.objectives.causal import Causal
from weft.theory.models import guide_model
from weft.theory.written import gpt as written
from weft.train.plan import scaling

VOCABULARY = 7
tokens = st.integers(0, VOCABULARY - 1)
seeds = st.integers(0, 1000)


@settings(max_examples=15)
@given(st.lists(tokens, min_size=5, max_size=12), st.integers(1, 4), st.integers(1, 3), seeds)
def test_likelihood(tape, length, count, seed):
    objective, losses, chances = Causal(np.array(tape), length), [], []
    samples = list(range(len(objective)))[:count]
    batch = objective.batch(samples, [0] * len(samples), 0)
    texts = [tape[sample * length : (sample + 1) * length + 1] for sample in samples]
    for model in (tiny_gpt(seed), tiny_gpt(seed + 1)):
        p = next_token(model)
        losses.append(float(objective.loss(model.network, batch, batch.counts).detach()))
        assert losses[-1] == pytest.approx(np.mean([written.surprise_per_token(p, x) for x in texts]), abs=1e-4)
        whole = float(objective.loss(model.network, batch, {"causal": 2 * batch.counts["causal"]}).detach())
        assert whole == pytest.approx(losses[-1] / 2, abs=1e-4)
        chances.append(math.prod(written.likelihood(p, x) for x in texts))
    assert abs(losses[0] - losses[1]) < 1e-4 or (losses[0] < losses[1]) == (chances[0] > chances[1])


def weights_of(network):
    """Tables and layers, by the letters of the formula."""

    def plain(module):
        return module.weight.detach().numpy(), module.bias.detach().numpy()

    layers = []
    for block in network.decoder.blocks:
        w = {}
        (matrix, bias), out = plain(block.attention.qkv), plain(block.attention.out)
        for kind, part, shift in zip("QKV", np.split(matrix, 3), np.split(bias, 3), strict=True):
            w[f"W_{kind}"], w[f"b_{kind}"] = part, shift
        w["W_O"], w["b_O"] = out
        w["g_1"], w["s_1"] = plain(block.attention_norm)
        w["g_2"], w["s_2"] = plain(block.feedforward_norm)
        w["W_1"], w["b_1"] = plain(block.feedforward.up)
        w["W_2"], w["b_2"] = plain(block.feedforward.down)
        layers.append(w)
    tables = [table.weight.detach().numpy() for table in (network.embed.tokens, network.embed.positions)]
    return [*tables, *plain(network.decoder.norm)], layers


@settings(max_examples=15)
@given(st.lists(st.lists(tokens, min_size=1, max_size=6), min_size=1, max_size=3), st.integers(1, 2), seeds)
def test_gpt_forward(texts, layers, seed):
    model = tiny_gpt(seed, layers=layers)
    tables, weights = weights_of(model.network)
    assert [w["W_1"].shape for w in weights] == [(16, 4)] * layers
    with torch.no_grad():
        found = model.logits(texts)
    for text, logits in zip(texts, found, strict=True):
        np.testing.assert_allclose(logits, written.gpt_logits(text, tables, weights, 2), rtol=1e-5, atol=1e-5)
    sized = tiny_gpt(seed, inner=5).network.decoder.blocks[0].feedforward
    assert sized.up.weight.shape == (5, 4)


@settings(max_examples=6)
@given(st.sampled_from(["gpt2", "transformer"]), st.integers(1, 2), st.sampled_from([0.02, 0.5]), seeds)
def test_residual_init(family, layers, sigma, seed):
    _, architecture = design(family, vocabulary=VOCABULARY, layers=layers, width=4, heads=2, inner=8, positions=8)
    spec = replace(architecture.init, std=sigma, depth_scaled=True)
    network = create_network(replace(architecture, init=spec), seed)
    for name, weight in network.named_parameters():
        if weight.dim() == 2:
            writes = name.endswith(("attention.out.weight", "cross.out.weight", "down.weight"))
            deviation = written.first_deviation(sigma, architecture.layers, writes)
            torch.testing.assert_close(weight.detach(), draw_normal(seed, name, weight.shape) * deviation)
    alike = create_network(replace(architecture, init=replace(spec, depth_scaled=False)), seed)
    for name, weight in alike.named_parameters():
        if weight.dim() == 2:
            torch.testing.assert_close(weight.detach(), draw_normal(seed, name, weight.shape) * sigma)


@given(st.integers(1, 40), st.integers(1, 8), st.one_of(st.none(), st.integers(1, 9)))
def test_head_width(d, H, D):
    if D is None and d % H:
        with pytest.raises(RecipeError, match="not a multiple"):
            Gpt2(width=d, heads=H).architecture()
        assert not any(written.heads_fit(d, H, size) for size in range(1, d + 1))
        return
    found = Gpt2(width=d, heads=H, head_width=D).architecture().decoder.blocks[0].attention.head_width
    assert found == D if D is not None else written.heads_fit(d, H, found)


@given(st.floats(1e10, 1e24), st.sampled_from([64, 128, 256, 512, 1024, 100]))
def test_run_rules(C, n):
    assert scaling.length_for(C) == written.rule_for_length(C, scaling.USUAL_FLOPS)
    assert scaling.batch_for(C, n) == written.rule_for_batch(C, n)


OPTIONS = (" Turtle", " naïve Hatter", " the Queen of Hearts", " no", " 海")


@settings(max_examples=8)
@given(st.sets(st.sampled_from(OPTIONS), min_size=1), st.sampled_from(["none", "tokens", "bytes"]))
def test_choose(options, normalize):
    tokenizer, prompt, options = guide_model().tokenizer, "said the Mock", sorted(options)
    model = weft.create("gpt2", tokenizer=tokenizer, layers=1, width=8, heads=2, positions=32, init_std=0.7)
    start, p = [model.start_end.start_id] * (model.start_end.start_id is not None), next_token(model)
    before = start + model.tokenizer.encode(prompt)
    log_p, size = [], []
    for option in options:
        ids = model.tokenizer.encode(option)
        assert model.tokenizer.encode(prompt + option) == before[len(start) :] + ids
        log_p.append([math.log(p(before + ids[:j])[ids[j]]) for j in range(len(ids))])
        size.append({"none": 1, "tokens": len(ids), "bytes": len(option.encode())}[normalize])
    found = model.choose(prompt, options, normalize=normalize, details=True)
    shares = dict(zip(options, written.option_shares(log_p, size), strict=True))
    assert {one.option: one.probability for one in found} == pytest.approx(shares, rel=1e-3)
    assert [one.option for one in found] == sorted(options, key=lambda option: -shares[option])
    assert model.choose(prompt, options, normalize=normalize) == found[0].option
    assert [one.log_prob for one in found] == pytest.approx(
        [sum(log_p[options.index(o.option)]) for o in found], rel=1e-3
    )
