"""Written with a cache = computed anew; in a batch = alone; lean, in blocks, in whole bytes = as it was trained."""

import numpy as np
import pytest
import torch

import oracle
import weft
from random_models import SHAPES, make_random
from weft.generate import kernels, layer_kernel, layouts, prepare
from weft.generate.decoder import Decoder, TokenChunk
from weft.generate.prepare import Prepared, prepared
from weft.inference.matrices import KernelMatrix

SWAPPED = [("gpt2", "rotary"), ("gpt2", "relative"), ("llama", "learned"), ("llama", "sinusoidal")]


def check_steps(model: weft.Model, ready: Prepared) -> None:
    """Every step's logits against those of the whole sequence so far, rows leaving, forking and joining on the way."""
    prompts = oracle.sequences(70, 3, count=6, longest=40)
    has_source = model.network.architecture.is_encoder_decoder
    sources = oracle.sequences(70, 4, count=6, longest=40) if has_source else None
    texts = [[0] for _ in prompts] if has_source else [list(prompt) for prompt in prompts]
    chance = np.random.default_rng(0)
    with torch.inference_mode():
        decoder = Decoder(ready, 2**22)
        rows = [decoder.open_row(decoder.read_source(source)) for source in sources] if sources else []
        rows = rows or [decoder.open_row() for _ in prompts]
        logits = decoder.read([TokenChunk(row, text, 1) for row, text in zip(rows, texts, strict=True)])
        for step in range(20):
            expected = model.logits(sources, texts) if has_source else model.logits(texts)
            np.testing.assert_allclose(logits, np.stack([one[-1] for one in expected]), atol=1e-4)
            if step in (3, 7):
                leaving = int(chance.integers(len(rows)))
                decoder.close(rows.pop(leaving))
                texts.pop(leaving)
                sources = [one for place, one in enumerate(sources) if place != leaving] if sources else None
            if step == 5:
                rows = [row for one in rows for row in (one, decoder.fork(one))]
                texts = [list(text) for text in texts for _ in range(2)]
                sources = [source for source in sources for _ in range(2)] if sources else None
            tokens = chance.integers(0, 70, (len(texts), 1 + step % 3)).tolist()
            for text, new in zip(texts, tokens, strict=True):
                text += new
            logits = decoder.read([TokenChunk(row, new, 1) for row, new in zip(rows, tokens, strict=True)])


@pytest.mark.parametrize("family", SHAPES)
def test_cached_equals_uncached(family):
    model = make_random(family)
    check_steps(model, Prepared(model.network.eval(), None))
    check_steps(model, prepared(model.network))


@pytest.mark.parametrize(("family", "positions"), SWAPPED)
def test_cached_equals_uncached_whatever_tells_positions(family, positions):
    model = make_random(family, positions=positions)
    check_steps(model, prepared(model.network))


def test_cached_equals_uncached_without_a_compiler(monkeypatch):
    for room in (kernels, layer_kernel, layouts, prepare):
        monkeypatch.setattr(room, "load_generation_kernels", lambda: None)
    for family in ("gpt2", "t5"):
        model = make_random(family)
        check_steps(model, prepared(model.network))


def test_local_layers_see_their_window_only():
    from dataclasses import replace

    from weft.model.network import Network
    from weft.model.stack import LocalSpec

    model = make_random("gpt2")
    architecture = model.network.architecture
    local = replace(architecture.decoder, local=LocalSpec((1,), window=4, theta=100.0))
    network = Network(replace(architecture, decoder=local)).eval()
    network.load_state_dict(model.network.state_dict())
    windowed = weft.Model(network, model.description)
    assert not np.allclose(windowed.logits([list(range(20))])[0][-1], model.logits([list(range(20))])[0][-1])
    check_steps(windowed, prepared(network))


@pytest.mark.parametrize(("family", "positions"), [*((family, None) for family in SHAPES), ("gpt2", "relative")])
def test_in_a_batch_as_alone(family, positions):
    model = make_random(family, seed=1, **({} if positions is None else {"positions": positions}))
    prompts = oracle.sequences(70, 8, count=9, longest=60)
    prompts.append(list(range(10, 60)) * 2)  # far longer than the others: a group of its own
    for how in ({}, {"beams": 3, "n": 2}, {"strategy": "sample", "seed": 3, "top_k": 10}):
        together = model.generate(prompts, max_new_tokens=15, **how)
        assert together == [model.generate(prompt, max_new_tokens=15, **how) for prompt in prompts]


def test_the_kernel_multiplies_as_torch_does_and_a_row_does_not_depend_on_the_others():
    found = kernels.load_generation_kernels()
    if found is None:
        pytest.skip("no C compiler here")
    for depth, width in ((1, 1), (3, 64), (384, 100), (37, 129), (64, 1000)):
        linear = torch.nn.Linear(depth, width)
        for int8 in (False, True):
            layout = layouts.KernelLayout(KernelMatrix(linear, "int8" if int8 else "fp32"), found)
            with torch.inference_mode():
                x = torch.randn(70, depth)
                whole, tolerance = layout(x), 0.1 if int8 else 1e-4
                torch.testing.assert_close(whole, linear(x), atol=tolerance, rtol=tolerance)
                for rows in (1, 2, 3, 4, 5, 6, 7, 16, 63, 64, 65):
                    assert torch.equal(layout(x[:rows]), whole[:rows])


def test_whole_bytes_write_nearly_the_same(pieces):
    plain = pieces.score("Alice was beginning to get very tired of sitting by her sister on the bank.")
    texts = ["Down, down, d", "The Mock Turtle said"]  # the best token leads by ten times the rounding error
    with torch.inference_mode():
        ids = [pieces.tokenizer.encode(text) for text in texts]
        exact, rounded = (
            decoder.read([TokenChunk(decoder.open_row(), row, 1) for row in ids]).log_softmax(-1)
            for decoder in (Decoder(prepared(pieces.network, int8=int8), 2**24) for int8 in (False, True))
        )
    assert 0 < (exact - rounded).abs().max() < 0.5
    assert torch.equal(exact.argmax(-1), rounded.argmax(-1))
    assert all(isinstance(text, str) for text in pieces.generate(texts, int8=True))
    assert plain.perplexity > 1


def test_changed_weights_are_noticed():
    model = make_random("gpt2")
    before = model.generate([1, 2, 3], max_new_tokens=10)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.copy_(parameter.flip(0))
    assert model.generate([1, 2, 3], max_new_tokens=10) != before


def test_getting_ready_to_write_does_not_move_the_random_numbers_of_a_training_run():
    kernels.load_generation_kernels.cache_clear()
    torch.manual_seed(1)
    model = make_random("gpt2")
    before = torch.get_rng_state()
    model.generate([1, 2, 3], strategy="sample", int8=True)
    model.generate([1, 2, 3], strategy="sample")
    assert torch.equal(torch.get_rng_state(), before)
