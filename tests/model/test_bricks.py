"""Single modules: dropout, loss, heads, positions, families, activations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook

import weft
from weft.errors import RecipeError
from weft.model.dropout import drop
from weft.model.feedforward import activate
from weft.model.heads import Head, HeadSpec
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.model.positions import Relative, Rotary, relative_bucket, rotary_table, rotate, sinusoid_table


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_dropout_zeroes_a_share_p_and_keeps_the_mean(p):
    torch.manual_seed(0)
    x = torch.ones(400_003)  # not a multiple of four
    y = drop(x, p)
    assert abs(float((y == 0).float().mean()) - p) < 0.004
    assert abs(float(y.mean()) - 1) < 0.01
    assert y.unique().tolist() == pytest.approx(sorted({0.0, 1 / (1 - p)} if p else {1.0}))


def test_dropout_is_a_function_of_the_seed_and_its_gradient_is_its_mask():
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(5)
    first = drop(x, 0.3)
    torch.manual_seed(5)
    assert torch.equal(first, drop(x, 0.3))
    assert not torch.equal(first, drop(x, 0.3))
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", ["trained", "none"])
@pytest.mark.parametrize("block", [2**24, 40])  # one block, and one row at a time
def test_vocabulary_loss_is_cross_entropy_with_its_gradients(smoothing, bias, block, monkeypatch):
    monkeypatch.setattr("weft.model.loss._BLOCK_LOGITS", block)
    torch.manual_seed(0)
    head = Head(HeadSpec("causal", 37, bias=bias), 8)
    x, targets = torch.randn(11, 8, requires_grad=True), torch.randint(37, (11,))
    ours = vocabulary_loss(head, x, targets, scale=1 / 11, smoothing=smoothing)
    (3 * ours).backward()
    grads = [x.grad.clone(), *(parameter.grad.clone() for parameter in head.parameters())]
    x.grad = None
    head.zero_grad()
    theirs = F.cross_entropy(head.out(x), targets, label_smoothing=smoothing)
    (3 * theirs).backward()
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(grads, [x.grad, *(parameter.grad for parameter in head.parameters())], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(vocabulary_loss(head, x, targets, scale=1 / 11, smoothing=smoothing), theirs)


def test_without_rows_the_vocabulary_matrix_has_a_gradient_of_zero():
    head = Head(HeadSpec("masked", 10), 4)
    vocabulary_loss(head, torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long)).backward()
    assert torch.equal(head.out.weight.grad, torch.zeros(10, 4))


def test_the_masked_head_projects_only_the_rows_asked_for():
    network = weft.create("bert", vocabulary=50, layers=1, width=16, heads=2).network
    batch = pack([[1, 2, 3], [4, 5]])
    rows = torch.tensor([1, 4])
    head, hidden = network.heads["masked"], network(batch)
    assert head(hidden, batch, rows).shape == (2, 50)
    torch.testing.assert_close(head(hidden, batch, rows), head(hidden, batch)[rows])


def test_tied_parameters_are_one_before_and_after_a_round_trip(tmp_path):
    model = weft.create("gpt2", vocabulary=50, layers=1, width=16, heads=2)
    model.save(tmp_path)
    for network in (model.network, weft.load(tmp_path).network):
        assert network.heads["causal"].out.weight is network.embed.tokens.weight


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 100))
def test_rotary_scores_depend_only_on_the_distance(i, j, shift):
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0)).unbind()

    def score(a, b):
        tables = [rotary_table(Rotary(1000), torch.tensor([place]), 8, torch.float32) for place in (a, b)]
        return (rotate(q, tables[0]) * rotate(k, tables[1])).sum()

    torch.testing.assert_close(score(i, j), score(i + shift, j + shift), atol=1e-3, rtol=1e-3)


def test_sinusoids_are_the_papers():
    table = sinusoid_table(torch.arange(10), 6, torch.float64)
    for place in range(10):
        for i in range(3):
            angle = torch.tensor(place / 10_000 ** (2 * i / 6), dtype=torch.float64)
            torch.testing.assert_close(table[place, i], angle.sin())
            torch.testing.assert_close(table[place, 3 + i], angle.cos())


def test_relative_buckets_are_exact_near_by_and_shared_far_away():
    spec = Relative(32, 128)
    behind = relative_bucket(-torch.arange(300), spec, both_ways=False)
    assert behind[:16].tolist() == list(range(16))
    assert (behind.diff() >= 0).all()
    assert behind[-1] == 31
    assert (relative_bucket(torch.arange(1, 9), spec, both_ways=False) == 0).all()  # ahead: masked anyway
    ahead = relative_bucket(torch.arange(1, 300), spec, both_ways=True)
    assert (ahead >= 16).all()


PUBLISHED = {  # parameters, as the papers or the released checkpoints have them
    ("bert", "base"): 109_514_298, ("bert", "large"): 335_174_458, ("roberta", "base"): 124_697_433,
    ("distilbert", "base"): 66_985_530, ("gpt2", "small"): 124_439_808, ("gpt2", "xl"): 1_557_611_200,
    ("t5", "small"): 60_506_624, ("t5", "11b"): 11_307_321_344, ("llama", "7b"): 6_738_415_616,
    ("llama", "3-8b"): 8_030_261_248, ("qwen3", "0.6b"): 596_049_920,
}  # fmt: skip


@pytest.mark.parametrize(("family", "size"), PUBLISHED)
def test_published_sizes_have_the_published_number_of_parameters(family, size):
    from weft.model.families import FAMILIES
    from weft.model.network import count_parameters, outline

    network = outline(FAMILIES[family].sized(size).architecture())
    assert count_parameters(network) == PUBLISHED[family, size]


def test_gpt3s_table_is_as_large_as_its_names_say():
    from weft.model.families import FAMILIES
    from weft.model.network import count_parameters, outline

    gpt2 = FAMILIES["gpt2"]
    for size in (name for name in gpt2.sizes if name.startswith("gpt3-")):
        number, unit = float(size[5:-1]), {"m": 1e6, "b": 1e9}[size[-1]]
        count = count_parameters(outline(gpt2.sized(size).architecture()))
        assert count == pytest.approx(number * unit, rel=0.03), size


def test_fresh_weights_are_a_function_of_the_seed():
    shape = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}
    first, again, other = (weft.create("t5", **shape, seed=seed).network.state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_a_fresh_t5s_weights_have_their_scales(tied, scaled):
    shape = {"vocabulary": 3000, "layers": 1, "width": 64, "heads": 2}
    network = weft.create("t5", **shape, tied=tied, output_scaled=scaled).network
    out, table = network.heads["seq2seq"].out.weight, network.embed.tokens.weight
    assert out.std().item() == pytest.approx(0.02 * (8 if scaled else 1), rel=0.02)
    assert table.std().item() == pytest.approx(0.02 * (8 if scaled and tied else 1), rel=0.02)
    query, key, _ = network.encoder.blocks[0].attention.qkv.weight.chunk(3)
    assert query.std().item() == pytest.approx(0.02 / 8, rel=0.05)
    assert key.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "modernbert", "transformer"])
def test_fresh_models_start_near_the_uniform_guess(family):
    model = weft.create(family, vocabulary=200, layers=4, width=64, heads=4)
    sequences = [list(range(10, 60))]
    logits = model.logits(sequences, sequences if model.network.architecture.is_encoder_decoder else None)[0]
    assert 0.001 < logits.std() < 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: weft.create("brt"), "did you mean bert"),
        (lambda: weft.create("bert", "bse"), "did you mean base"),
        (lambda: weft.create("bert", layerz=3), "did you mean layers"),
        (lambda: weft.create("bert", layers=0), "at least 1"),
        (lambda: weft.create("bert", layers="six"), "an integer"),
        (lambda: weft.create("bert", layers=10**9), "more than"),
        (lambda: weft.create("bert", width=100, heads=12), "not a multiple"),
        (lambda: weft.create("bert", dropout=1.5), "below 1"),
        (lambda: weft.create("llama", heads=4, width=16, key_value_heads=3), "evenly"),
        (lambda: weft.create("llama", heads=1, width=5), "even head width"),
        (lambda: weft.create("gpt2", head="masked"), "no head 'masked'"),
        (lambda: weft.create("bert", positions="rotery"), "did you mean rotary"),
        (lambda: weft.create("lstm", positions="rotary"), "has no position encoding"),
        (lambda: weft.create("bert", activation="gelo"), "one of gelu"),
    ],
)
def test_impossible_models_are_refused_in_a_sentence(call, says):
    with pytest.raises(RecipeError, match=says):
        call()


def test_a_window_works_together_with_a_relative_bias():
    model = weft.create(
        "modernbert",
        vocabulary=40,
        layers=1,
        width=16,
        heads=2,
        window=6,
        local_layers=(0,),
        positions="relative",
        seed=2,
    )
    before, after = [3] * 40, [*[3] * 20, 9, *[3] * 19]
    a, b = model.hidden([before])[0], model.hidden([after])[0]
    assert [place for place in range(40) if not (a[place] == b[place]).all()] == list(range(17, 24))


@pytest.mark.parametrize("block", [2**24, 80])
def test_the_loss_works_under_autocast(block, monkeypatch):
    monkeypatch.setattr("weft.model.loss._BLOCK_LOGITS", block)
    network = weft.create("bert", vocabulary=37, layers=1, width=16, heads=2, seed=1).network
    batch, head = pack([[1, 2, 3, 4]]), network.heads["masked"]
    grads = []
    for enabled in (False, True):
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            prepared = head.prepare(network(batch), batch)
            loss = vocabulary_loss(head, prepared, batch.tokens, scale=0.25)
        loss.backward()
        grads.append([parameter.grad.clone() for parameter in network.parameters()])
        assert all(grad.dtype == torch.float32 for grad in grads[-1])
    for a, b in zip(*grads, strict=True):
        assert (a - b).norm() < 0.1 * a.norm() + 1e-3


def test_the_loss_computes_only_the_gradients_that_are_needed_and_keeps_none(monkeypatch):
    head = Head(HeadSpec("causal", 37), 8)
    x, targets = torch.randn(5, 8, requires_grad=True), torch.arange(5)
    calls = []
    import weft.model.loss as module

    real = module._gradient_in_place
    monkeypatch.setattr(module, "_gradient_in_place", lambda *a: calls.append(1) or real(*a))
    with torch.no_grad():
        vocabulary_loss(head, x, targets)
    assert not calls
    loss = vocabulary_loss(head, x, targets)
    loss.backward()
    assert calls
    with pytest.raises(RuntimeError):
        loss.backward()


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "modernbert"])
def test_a_network_is_one_graph_to_the_compiler(family):
    """What `torch.compile(fullgraph=True)` sees; traced only, as compiling takes long."""
    network = weft.create(family, vocabulary=40, layers=1, width=16, heads=2).network
    batch = pack([[1, 2, 3], [4, 5, 6]])
    arguments = (batch, batch) if network.architecture.is_encoder_decoder else (batch,)
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*arguments), network(*arguments))


def test_a_loss_without_gradients_does_not_affect_the_next_one_with_gradients():
    head = Head(HeadSpec("causal", 37), 8)
    x, targets = torch.randn(5, 8), torch.arange(5)
    with torch.inference_mode():
        before = float(vocabulary_loss(head, x, targets))
    loss = vocabulary_loss(head, x.requires_grad_(), targets)
    loss.backward()
    assert float(loss) == before


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_hooked_output_is_not_overwritten_by_the_activation(family, everywhere):
    network = weft.create(family, vocabulary=40, layers=1, width=16, heads=2).network.eval()
    layer = (network.encoder or network.decoder).blocks[0].feedforward.up
    kept = []

    def keep(module, given, out):
        if module is layer:
            kept.append((out, out.clone()))

    hook = register_module_forward_hook(keep) if everywhere else layer.register_forward_hook(keep)
    try:
        with torch.no_grad():
            watched = network(pack([[1, 2, 3]]))
    finally:
        hook.remove()
    assert torch.equal(*kept[0])
    with torch.no_grad():
        assert torch.equal(network(pack([[1, 2, 3]])), watched)


def test_an_activation_does_not_change_its_input():
    x = torch.randn(5)
    before = x.clone()
    with torch.no_grad():
        activate(x, "gelu"), activate(x, "gelu-tanh")
    assert torch.equal(x, before)
