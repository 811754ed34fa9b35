"""Hidden states and attention weights of single layers: as transformers gives them, at no cost when not asked for."""

import numpy as np
import pytest
import torch

import oracle
import weft
from weft.errors import InputError
from weft.model import attention
from weft.model.keep import Keep
from weft.model.packed import pack

SHAPE = {"vocabulary": 40, "layers": 3, "width": 32, "heads": 2}


def everything(stack, *, cross=False, source=None):
    layers = tuple(range(len(stack.blocks)))
    hidden = (*layers, len(layers))
    return Keep(hidden, attention=layers, scores=layers, cross=layers if cross else (), source=source)


def assert_maps_equal(ours, theirs, queries, keys):
    """Ours: by layer, a map per sequence. Theirs: by layer, a padded batch."""
    assert len(ours) == len(theirs)
    for layer, batch in enumerate(theirs):
        for row, (query, key) in enumerate(zip(queries, keys, strict=True)):
            expected = batch[row, :, :query, :key].detach().numpy()
            np.testing.assert_allclose(ours[layer][row].detach().numpy(), expected, atol=1e-5)


def assert_states_equal(ours, theirs, batch):
    assert len(ours) == len(theirs)
    for number, padded in enumerate(theirs):
        for mine, row in zip(batch.split(ours[number]), oracle.rows(padded, batch.lengths), strict=True):
            np.testing.assert_allclose(mine.detach().numpy(), row, atol=1e-4)


@pytest.mark.parametrize("name", ["BertModel", "GPT2Model", "LlamaModel", "Qwen3Model"])
def test_kept_states_and_weights_are_those_of_transformers(name, tmp_path):
    theirs = oracle.build(oracle.Case(name, 0, {"attn_implementation": "eager"}))
    network = weft.load(oracle.save(theirs, tmp_path)).network
    sequences = oracle.sequences(theirs.config.vocab_size, 3)
    ids, mask = oracle.pad(sequences, 0)
    output = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
    batch = pack(sequences)
    hidden, kept = network(batch, keep=everything(network.encoder or network.decoder))
    torch.testing.assert_close(hidden, network(batch), atol=1e-5, rtol=1e-5)
    assert_states_equal(kept.hidden, output.hidden_states, batch)
    assert_maps_equal(kept.attention, output.attentions, batch.lengths, batch.lengths)


def test_an_encoder_decoder_keeps_both_sides_and_the_cross_attention(tmp_path):
    theirs = oracle.build(oracle.Case("T5Model", 1, {"attn_implementation": "eager"}))
    network = weft.load(oracle.save(theirs, tmp_path)).network
    sources, targets = (oracle.sequences(theirs.config.vocab_size, seed) for seed in (3, 4))
    (ids, mask), (target_ids, target_mask) = oracle.pad(sources, 0), oracle.pad(targets, 0)
    output = theirs(
        input_ids=ids,
        attention_mask=mask,
        decoder_input_ids=target_ids,
        decoder_attention_mask=target_mask,
        output_hidden_states=True,
        output_attentions=True,
    )
    batch, target = pack(sources), pack(targets)
    keep = everything(network.decoder, cross=True, source=everything(network.encoder))
    _, kept = network(batch, target, keep=keep)
    assert_states_equal(kept.hidden, output.decoder_hidden_states, target)
    assert_states_equal(kept.source.hidden, output.encoder_hidden_states, batch)
    assert_maps_equal(kept.attention, output.decoder_attentions, target.lengths, target.lengths)
    assert_maps_equal(kept.source.attention, output.encoder_attentions, batch.lengths, batch.lengths)
    assert_maps_equal(kept.cross, output.cross_attentions, target.lengths, batch.lengths)


@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "llama", "t5"])
def test_the_softmax_of_the_scores_is_the_weights(family):
    network = weft.create(family, **SHAPE, head="encoder" if family == "t5" else "none").network
    _, kept = network(pack([[1, 2, 3], [4, 5, 6, 7], [8]]), keep=Keep(attention=(0, 2), scores=(0, 2)))
    assert kept.attention.keys() == kept.scores.keys() == {0, 2}
    for layer in (0, 2):
        for weights, scores in zip(kept.attention[layer], kept.scores[layer], strict=True):
            torch.testing.assert_close(scores.softmax(-1), weights)


def test_only_layers_whose_weights_are_kept_leave_their_kernel(monkeypatch):
    by_formula = []
    formula = attention.attend_with_maps

    def counted(*given, **options):
        by_formula.append(1)
        return formula(*given, **options)

    monkeypatch.setattr(attention, "attend_with_maps", counted)
    network, batch = weft.create("bert", **SHAPE).network, pack([[1, 2, 3], [4, 5]])
    network(batch)
    network(batch, keep=Keep(hidden=(0, 1, 2, 3)))
    assert not by_formula
    network(batch, keep=Keep(attention=(1,), scores=(1,)))
    assert len(by_formula) == 1


def test_gradients_flow_through_what_is_kept():
    network = weft.create("t5", **SHAPE).network.train()
    keep = Keep(hidden=(1,), scores=(2,), cross=(1,), source=Keep(attention=(0,)))
    _, kept = network(pack([[1, 2, 3], [4, 5]]), pack([[0, 1], [0, 2, 3]]), keep=keep)
    for part, name in (
        (kept.hidden[1], "decoder.blocks.0.feedforward.down.weight"),
        (kept.cross[1][0].square(), "decoder.blocks.1.cross.query.weight"),
        (kept.source.attention[0][0].square(), "encoder.blocks.0.attention.qkv.weight"),
    ):
        (gradient,) = torch.autograd.grad(part.sum(), [network.get_parameter(name)], retain_graph=True)
        assert gradient.abs().sum() > 0, name


def test_weights_are_kept_before_dropout():
    network = weft.create("bert", **SHAPE, dropout=0.0, attention_dropout=0.5).network.train()
    _, kept = network(pack([list(range(30))]), keep=Keep(attention=(0,)))
    torch.testing.assert_close(kept.attention[0][0].sum(-1), torch.ones(2, 30))


@pytest.mark.parametrize(
    ("keep", "says"),
    [(Keep(hidden=(4,)), "hidden state 4"), (Keep(attention=(3,)), "layer 3"), (Keep(cross=(0,)), "cross-attention")],
)
def test_a_layer_that_is_not_there_is_refused(keep, says):
    with pytest.raises(ValueError, match=says):
        weft.create("bert", **SHAPE).network(pack([[1, 2]]), keep=keep)


def test_a_model_gives_its_layers_as_arrays():
    model, sequences = weft.create("bert", **SHAPE), [[1, 2, 3], [4], [5, 6]]
    for row, last, states, maps in zip(
        sequences,
        model.hidden(sequences),
        model.hidden(sequences, layers=(0, 3)),
        model.attentions(sequences),
        strict=True,
    ):
        assert states.shape == (2, len(row), 32)
        np.testing.assert_allclose(states[1], last, atol=1e-6)
        assert [one.shape for one in maps] == [(2, len(row), len(row))] * 3
        assert all(np.allclose(one.sum(-1), 1) for one in maps)
    with pytest.raises(InputError, match="hidden state 4"):
        model.hidden(sequences, layers=[4])
    with pytest.raises(InputError, match="LSTM"):
        weft.create("lstm", vocabulary=40, layers=1, width=8).attentions(sequences)
