"""The chapter on encoder and decoder: each formula as written gives what weft computes. Double precision."""

from functools import partial

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.generate.start_end_tokens import StartEndTokens
from weft.model.attention import AttentionSpec, CrossAttention, View
from weft.model.block import Block, BlockSpec
from weft.model.families.t5 import T5
from weft.model.families.transformer import Transformer
from weft.model.feedforward import FeedForwardSpec
from weft.model.keep import Keep
from weft.model.network import Network
from weft.model.norm import NormSpec
from weft.model.packed import pack
from weft.objectives.objective import Batch, head_scores, scaled_loss
from weft.objectives.span_corruption import SpanCorruption
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec
from weft.tasks.rewrite import Translate
from weft.theory.models import guide_model
from weft.theory.written import encoder_decoder as written

VOCABULARY = 7
pairs_of_lengths = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3)
seeds = st.integers(0, 2**31)


def random_weights(module):
    for weight in module.double().parameters():
        torch.nn.init.normal_(weight, std=0.6)
    return module.eval().requires_grad_(False)


def small_network(seed, family=Transformer, **changes):
    torch.manual_seed(seed)
    size = {"vocabulary": VOCABULARY, "width": 4, "heads": 2, "inner": 5}
    return random_weights(Network(family(**{**size, "layers": 2, "decoder_layers": 1, **changes}).architecture()))


def random_tokens(lengths, seed):
    random = np.random.default_rng(seed)
    return [random.integers(VOCABULARY, size=length) for length in lengths]


def each(batch, *tensors):
    return zip(*(batch.split(x) for x in tensors), strict=True)


@settings(max_examples=12)
@given(pairs_of_lengths, seeds)
def test_encoder_decoder(lengths, seed):
    network = small_network(seed)
    sources, targets = (random_tokens(side, seed + n) for n, side in enumerate(zip(*lengths, strict=True)))
    found = pack(targets).split(network(pack(sources), pack(targets)))
    memories = pack(sources).split(network(pack(sources)))
    for source, target, hidden, memory in zip(sources, targets, found, memories, strict=True):
        x, y = pack([source]), pack([target])
        encoder = [partial(block, batch=x, view=View()) for block in network.encoder.blocks]
        decoder = [partial(in_decoder, block, x, y) for block in network.decoder.blocks]
        M, H = written.read_and_write(network.embed(x), network.embed(y), encoder, decoder)
        torch.testing.assert_close(memory, M)
        torch.testing.assert_close(hidden, H)


def in_decoder(block, source, target, Y, M):
    return block(Y, target, View(causal=True), M, source)


@settings(max_examples=12)
@given(st.integers(1, 5), st.integers(1, 5), seeds)
def test_keys_seen(source, target, seed):
    network = small_network(seed, decoder_heads=1, decoder_inner=3)
    encoder, decoder = network.architecture.encoder, network.architecture.decoder
    assert [encoder.layers, decoder.layers] == [2, 1] and small_network(
        seed, decoder_layers=None
    ).decoder.spec.layers == 2
    assert [spec.blocks[0].attention.heads for spec in (encoder, decoder)] == [2, 1]
    assert [spec.blocks[0].feedforward.inner for spec in (encoder, decoder)] == [5, 3]
    assert small_network(seed).decoder.spec.blocks[0] == encoder.blocks[0]
    x, y = (pack(random_tokens([length], seed)) for length in (source, target))
    _, kept = network(x, y, keep=Keep(attention=(0,), cross=(0,), source=Keep(attention=(1,))))
    maps = {"encoder": kept.source.attention[1], "decoder": kept.attention[0], "cross": kept.cross[0]}
    for where, (weights,) in maps.items():
        for head in weights:
            for i, row in enumerate(head):
                assert [j for j, weight in enumerate(row) if weight > 0] == written.keys_seen(where, i, len(row))


@given(pairs_of_lengths, st.integers(1, 3), st.integers(1, 4), seeds)
def test_cross_attention(lengths, heads, width, seed):
    torch.manual_seed(seed)
    layer = random_weights(CrossAttention(AttentionSpec(heads, width, heads, bias=False), 3))
    x, y = (pack([range(length) for length in side]) for side in zip(*lengths, strict=True))
    memory, hidden = (torch.randn(len(side.tokens), 3, dtype=torch.float64) for side in (x, y))
    W_Q = layer.query.weight.numpy().reshape(heads, width, 3)
    W_K, W_V = layer.key_value.weight.numpy().reshape(2, heads, width, 3)
    found = layer(hidden, y, memory, x)
    for M, Y, Z in zip(x.split(memory), y.split(hidden), y.split(found), strict=True):
        out = [written.cross_attention_head(Y.numpy(), M.numpy(), W_Q[h], W_K[h], W_V[h]) for h in range(heads)]
        expected = layer.out(torch.from_numpy(np.concatenate(out, axis=1)))
        torch.testing.assert_close(Z, expected)


@settings(max_examples=12)
@given(pairs_of_lengths, seeds)
def test_decoder_layer(lengths, seed):
    torch.manual_seed(seed)
    spec = BlockSpec(AttentionSpec(2, 2, 2), FeedForwardSpec(3), NormSpec(), "post")
    x, y = (pack([range(length) for length in side]) for side in zip(*lengths, strict=True))
    memory, hidden = (torch.randn(len(side.tokens), 4, dtype=torch.float64) for side in (x, y))
    for cross in (True, False):  # an encoder's layer is the same without the part in the middle
        block = random_weights(Block(spec, 4, cross=cross))
        view = View(causal=cross)
        found = block(hidden, y, view, memory, x)
        for M, Y, Z in zip(x.split(memory), y.split(hidden), y.split(found), strict=True):
            source, target = pack([range(len(M))]), pack([range(len(Y))])
            own = partial(block.attention, batch=target, view=view)
            across = partial(in_cross, block.cross, source, target)
            norms = [block.attention_norm, block.cross_norm or torch.nn.Identity(), block.feedforward_norm]
            expected = written.decoder_layer(Y, M, own, across, block.feedforward, norms)
            torch.testing.assert_close(Z, expected)


def in_cross(cross, source, target, h, M):
    return 0 if cross is None else cross(h, target, M, source)


@settings(max_examples=10)
@given(st.integers(1, 4), st.booleans(), seeds)
def test_next_token_shares(tokens, is_t5, seed):
    network = small_network(seed, T5, head_width=2, buckets=4, distance=8) if is_t5 else small_network(seed)
    head, E = network.head("seq2seq"), network.embed.tokens.weight.numpy()
    b, s = (np.zeros(VOCABULARY), 0.5) if is_t5 else (head.out.bias.numpy(), 1.0)
    hidden = torch.randn(tokens, 4, dtype=torch.float64)
    found = head(hidden, pack([range(tokens)])).softmax(-1)
    np.testing.assert_allclose(found, [written.next_token_shares(E, b, h, s) for h in hidden.numpy()], atol=1e-12)
    own = small_network(seed, T5, head_width=2, buckets=4, distance=8, tied=False)
    W = own.head("seq2seq").out.weight
    assert W.shape == (VOCABULARY, 4) and not torch.equal(W, own.embed.tokens.weight)
    torch.testing.assert_close(own.head("seq2seq")(hidden, pack([range(tokens)])), hidden @ W.T / 2)
    states = small_network(seed, T5, head_width=2, buckets=4, distance=8)
    states.heads["seq2seq"].out = None
    torch.testing.assert_close(states.heads["seq2seq"](hidden, pack([range(tokens)])), hidden / 2)


@settings(max_examples=25)
@given(st.dates(), st.integers(2, 12), st.lists(st.integers(8, 40), min_size=4, max_size=9), seeds)
def test_shifted_target(day, most, text, seed):
    tokenizer, end, start = guide_model("dates").tokenizer, 0, 2
    target = day.isoformat()
    ids = tokenizer.encode(target)[:-1]
    spec = InputSpec(tokenizer, most, has_source=True, ends=StartEndTokens((end,), start))
    (found,) = Translate().inputs([Example("7 May 2021", target)], spec)
    wanted = written.ended_target(ids, end, most)
    assert found.targets.ids.tolist() == wanted and len(wanted) <= most
    assert found.targets.decoder_ids.tolist() == written.decoder_input(wanted, start)
    assert found.ids.tolist() == [*tokenizer.encode("7 May 2021")[:-1][: most - 1], end]
    spans = SpanCorruption(np.array(text * 2), len(text), (3, 4, 5, 6), end, start).batch([0, 1], [0, 0], seed)
    for read, right in each(spans.decoder, spans.decoder.tokens, spans.targets):
        assert right.tolist()[-1] == end and read.tolist() == written.decoder_input(right.tolist(), start)


@settings(max_examples=12)
@given(pairs_of_lengths, seeds)
def test_teacher_forcing(lengths, seed):
    """All steps at once cost as much as one step after the other."""
    network, start = small_network(seed), 2
    sources, targets = (random_tokens(side, seed + n) for n, side in enumerate(zip(*lengths, strict=True)))
    right = []
    for x, y in zip(sources, targets, strict=True):
        for t in range(len(y)):
            so_far = pack([written.decoder_input(y[: t + 1].tolist(), start)])
            logits = network.head("seq2seq")(network(pack([x]), so_far), so_far)
            right.append(float(logits[-1].softmax(-1)[y[t]]))
    decoder = pack([written.decoder_input(y.tolist(), start) for y in targets])
    batch = Batch(
        pack(sources), torch.from_numpy(np.concatenate(targets)), decoder=decoder, counts={"seq2seq": len(right)}
    )
    loss = float(scaled_loss(network, batch, batch.counts))
    np.testing.assert_allclose(loss, written.mean_surprise(right), rtol=1e-5)
    np.testing.assert_allclose(float(scaled_loss(network, batch, {"seq2seq": 0})), loss * len(right), rtol=1e-5)
    np.testing.assert_allclose(float(head_scores(network, batch)["loss/seq2seq"]), loss * len(right), rtol=1e-5)
