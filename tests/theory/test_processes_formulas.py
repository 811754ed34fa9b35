"""The chapter on several processes: each formula as written gives what weft computes. Processes are threads here."""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import weft
from thread_processes import ThreadProcesses, run_as_processes
from weft.model.packed import pack
from weft.model.peers import WeightCut, enter, sum_over
from weft.model.sliced_loss import VocabularySlice, gradient_in_place, sum_of_losses
from weft.model.tensor_parallel import network_of_peer
from weft.objectives.objective import Batch, HeadObjective
from weft.theory.written import processes as written
from weft.train.batches import StepPiece
from weft.train.engine import Engine
from weft.train.gradients import Branch, PieceGradients, TreeSum, branches_of
from weft.train.local import shared_rows
from weft.train.optimizers import OptimizerSpec
from weft.train.peer_gradients import PeerGradients
from weft.train.processes import Grid, Processes
from weft.train.step import Step

seeds = st.integers(0, 2**31)
worlds = st.integers(1, 4)


@dataclass(frozen=True)
class CountedProcesses(ThreadProcesses):
    """`sent`: how many numbers each has sent."""

    sent: dict[int, int] = field(kw_only=True)

    def swap(self, parts, rows):
        self.count(sum(part.numel() for rank, part in enumerate(parts) if rank != self.rank))
        return super().swap(parts, rows)

    def collect(self, share):
        self.count((self.world - 1) * share.numel())
        return super().collect(share)

    def count(self, numbers):
        self.sent[self.rank] = self.sent.get(self.rank, 0) + numbers


def together(world, work):
    """What `work` returns in each of so many processes."""
    sent = {}
    return run_as_processes(
        world, lambda one: work(CountedProcesses(one.rank, one.world, shared=one.shared, sent=sent))
    )


def as_peers(world, work):
    """All compute the same samples: a grid of one row."""
    alone = Processes(device="cpu")
    return together(world, lambda peers: work(replace(alone, rank=peers.rank, world=world, grid=Grid(alone, peers))))


@cache
def network_for(seed):
    torch.manual_seed(seed)
    network = weft.create("gpt2", vocabulary=7, layers=1, width=12, heads=6, inner=6, positions=9, activation="relu")
    for weight in network.network.parameters():
        nn.init.normal_(weight, std=0.5)
    return network.network.double().eval()


@cache
def encoder_decoder():
    """With cross-attention, and a gate in the feed-forward layer."""
    shape = {"vocabulary": 7, "layers": 1, "width": 12, "heads": 6, "head_width": 2, "inner": 6, "gated": True}
    return weft.create("t5", **shape).network.double().eval()


@given(st.integers(1, 7), st.integers(1, 12))
def test_shared_pieces(world, pieces):
    for rank in range(world):
        one = Processes(rank, world, "cpu")
        own = written.pieces_of_process(rank, world, pieces)
        assert list(one.own_pieces(pieces)) == own
        assert list(Processes(0, world, "cpu").own_pieces(pieces, rank)) == own
        in_turn = replace(one, is_sharded=True).own_pieces(pieces)
        assert list(in_turn) == written.pieces_in_turn(rank, world, pieces)


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2), min_size=1, max_size=3), st.integers(1, 3), seeds)
@settings(max_examples=10)
def test_mean_of_all(pieces, world, seed):
    """The lengths of the batches of each piece. Every process finds the loss, and the gradient, of the whole step."""
    world, network = min(world, len(pieces)), network_for(seed % 3)
    rng = np.random.default_rng(seed)
    batches = [
        [
            Batch(packed, packed.tokens.roll(1), counts={"causal": n})
            for n in each
            for packed in [pack([rng.integers(7, size=n)])]
        ]
        for each in pieces
    ]
    losses, everything = [], [batch for each in batches for batch in each]
    for each in batches:
        with torch.no_grad():
            log_p = [network.head("causal")(network(b.packed), b.packed).log_softmax(-1) for b in each]
        losses.append(
            [-float(p[y]) for one, b in zip(log_p, each, strict=True) for p, y in zip(one, b.targets, strict=True)]
        )
    total = sum(b.counts["causal"] for b in everything)
    whole = sum(HeadObjective().loss(network, b, {"causal": total}) for b in everything)
    norm = torch.cat([g.flatten() for g in torch.autograd.grad(whole, list(network.parameters()))]).norm()

    def work(processes):
        step = Step(deepcopy(network), HeadObjective(), torch.float64)
        engine = Engine(step, OptimizerSpec(), pieces=len(pieces), processes=processes)
        return engine.take_step([StepPiece(i, batches[i]) for i in processes.own_pieces(len(pieces))], 0)

    for loss, found_norm in together(world, work):
        assert loss == pytest.approx(written.mean_of_all(losses), rel=1e-5)
        assert found_norm == pytest.approx(float(norm), rel=1e-5)


@given(st.integers(1, 9), seeds)
def test_tree_sum(pieces, seed):
    torch.manual_seed(seed)
    g, h = torch.randn(2, pieces, 5)
    tree = TreeSum()
    for number in range(pieces):
        tree.add(Branch(number, 1, [g[number].clone(), h[number].clone()]))
        sizes = [(branch.first, branch.size) for branch in tree.branches]
        assert sizes == branches_of(range(number + 1))
    for found, each in zip(tree.total(), (g, h), strict=True):
        assert torch.equal(found, torch.from_numpy(written.tree_sum(each.numpy())))  # the same bits
    assert tree.branches == []
    for first in range(pieces):
        covered = [number for begin, size in branches_of(range(first, pieces)) for number in range(begin, begin + size)]
        assert covered == list(range(first, pieces))
        assert all(begin % size == 0 and size & (size - 1) == 0 for begin, size in branches_of(range(first, pieces)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), worlds, st.integers(0, 5), seeds)
@settings(max_examples=15)
def test_exchange(sizes, world, more, seed):
    pieces = world + more
    torch.manual_seed(seed)
    g = [torch.randn(pieces, size) for size in sizes]

    def work(processes):
        weights = [nn.Parameter(torch.zeros(size)) for size in sizes]
        gradients = PieceGradients(weights, pieces, processes)
        for piece in processes.own_pieces(pieces):
            for weight, each in zip(weights, g, strict=True):
                weight.grad = each[piece].clone()
            gradients.take(piece)
        gradients.finish()
        return [weight.grad.numpy() for weight in weights], processes.sent.get(processes.rank, 0)

    for rank, (found, sent) in enumerate(together(world, work)):
        for one, each in zip(found, g, strict=True):
            np.testing.assert_array_equal(one, written.tree_sum(each.numpy()))  # the same bits in every process
        branches = len(branches_of(written.pieces_of_process(rank, world, pieces)))
        assert sent == written.sent_numbers(sizes, world, branches)


@given(st.integers(0, 12), st.integers(1, 5))
def test_sharded_rows(rows, world):
    found = [list(shared_rows(rows, rank, world)) for rank in range(world)]
    assert found == [written.rows_of_process(rank, world, rows) for rank in range(world)]
    assert sorted(chain(*found)) == list(range(rows))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), worlds, st.integers(0, 1))
def test_peer_rows(lengths, world, dimension):
    cut, whole = WeightCut(dimension, tuple(lengths)), [3, 3]
    whole[dimension] = sum(lengths)
    x = torch.arange(3 * sum(lengths)).view(whole)
    for rank in range(world):
        own, first = Processes(rank, world, "cpu"), Processes(0, world, "cpu")
        rows = written.rows_of_peer(rank, world, lengths)
        assert [i for one in cut.ranges(own) for i in one] == rows
        assert cut.ranges(first, rank) == cut.ranges(own)
        part = cut.part(whole, own)
        assert torch.equal(part.taken_from(x), x.index_select(dimension, torch.tensor(rows, dtype=torch.int64)))
        assert part == cut.part(part.shape, first, rank)


def linear(layer):
    return (weight.detach().numpy() for weight in (layer.weight, layer.bias))


def peer_parts(seed, world):
    """A network, and what it computes at its borders in each peer."""
    network = network_for(seed)
    return network, lambda work: as_peers(world, lambda own: work(network_of_peer(network, own.tensor), own))


def random_x(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(st.integers(0, 2), st.sampled_from([1, 2, 3]), seeds)
@settings(max_examples=15)
def test_peer_heads(number, world, seed):
    network, in_peers = peer_parts(number, world)
    x, batch = random_x(seed, 3, 12), pack([range(3)])
    whole = network.decoder.blocks[0].attention
    view = network.decoder.views(batch, x.dtype)[0]
    kept = {"heads": []}
    whole(x, batch, view, maps=kept)

    def work(part, own):
        attention, heads = part.decoder.blocks[0].attention, []
        attention.out.register_forward_pre_hook(lambda _, given: heads.append(given[0].detach()))
        return attention(x, batch, view).detach(), heads[0].unflatten(1, (-1, 2)).numpy()

    found = in_peers(work)
    W, b = linear(whole.out)
    for out, _ in found:
        for t in range(3):
            expected = written.heads_of_peers([z[t] for _, z in found], W, b)
            np.testing.assert_allclose(out[t], expected, atol=1e-12)
        np.testing.assert_allclose(out, whole(x, batch, view).detach(), atol=1e-12)

    def cross(network):
        return network.decoder.blocks[0].cross(x[:2], pack([range(2)]), x, batch).detach()

    for out in as_peers(world, lambda own: cross(network_of_peer(encoder_decoder(), own.tensor))):
        np.testing.assert_allclose(out, cross(encoder_decoder()), atol=1e-12)


@given(st.integers(0, 2), st.sampled_from([1, 2, 3]), seeds)
@settings(max_examples=15)
def test_peer_feedforward(number, world, seed):
    network, in_peers = peer_parts(number, world)
    x, whole = random_x(seed, 2, 12), network.decoder.blocks[0].feedforward
    expected = [written.feedforward_of_peers(one.numpy(), *linear(whole.up), *linear(whole.down), world) for one in x]
    for out in in_peers(lambda part, own: part.decoder.blocks[0].feedforward(x).detach()):
        np.testing.assert_allclose(out, expected, atol=1e-12)

    def gated(network):
        return network.decoder.blocks[0].feedforward(x).detach()

    for out in as_peers(world, lambda own: gated(network_of_peer(encoder_decoder(), own.tensor))):
        np.testing.assert_allclose(out, gated(encoder_decoder()), atol=1e-12)


@given(worlds, seeds)
@settings(max_examples=15)
def test_peer_gradient(world, seed):
    """y = sum over peers of W_r x: the entrance adds up the peers' gradients, the exit hands on the same one."""
    W, x, upstream = random_x(seed, world, 3, 2), random_x(seed + 1, 2), random_x(seed + 2, 3)

    def work(processes):
        own = x.clone().requires_grad_()
        y = sum_over(W[processes.rank] @ enter(own, processes), processes)
        y.backward(upstream)
        return y.detach(), own.grad

    expected = written.gradient_at_entrance([(upstream @ one).numpy() for one in W])
    for y, gradient in together(world, work):
        np.testing.assert_allclose(y, sum(one @ x for one in W), atol=1e-12)
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


@given(st.integers(0, 2), st.sampled_from([1, 2, 3]))
@settings(max_examples=10)
def test_peer_tokens(number, world):
    network, in_peers = peer_parts(number, world)
    E = network.embed.tokens.weight.detach().numpy()
    expected = [written.look_up_at_peers(E, t, world) for t in range(len(E))]
    for found in in_peers(lambda part, own: part.embed.tokens(torch.arange(len(E))).detach()):
        np.testing.assert_array_equal(found, expected)


@given(worlds, st.integers(1, 3), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([1.0, 0.25]), seeds)
@settings(max_examples=25)
def test_peer_loss(world, rows, epsilon, scale, seed):
    V = 4 + seed % 3
    z = random_x(seed, rows, V) * (500 if seed % 2 else 5)  # with 500, e to the logits would be infinite
    y = torch.arange(rows) * (seed % 5) % V
    shares = [written.rows_of_peer(rank, world, [V]) for rank in range(world)]

    def work(processes):
        out = VocabularySlice(2, len(shares[processes.rank]))
        out.peers, out.vocabulary = processes, V
        out.tokens = range(shares[processes.rank][0], shares[processes.rank][-1] + 1)
        logits = z[:, shares[processes.rank]].clone()
        loss, sums = sum_of_losses(out, logits, y[:, None], epsilon)
        return loss, gradient_in_place(out, logits, sums, y[:, None], scale, epsilon)

    found = together(world, work)
    apart = [[[float(row[i]) for i in share] for share in shares] for row in z]
    expected = sum(written.loss_of_peers(row, int(right), epsilon) for row, right in zip(apart, y, strict=True))
    assert [float(loss) for loss, _ in found] == pytest.approx([expected] * world, rel=1e-12)
    gradient = [written.logit_gradient_of_peers(row, int(right), epsilon) for row, right in zip(apart, y, strict=True)]
    joined = torch.cat([one for _, one in found], dim=1)
    np.testing.assert_allclose(joined, scale * np.array(gradient), atol=1e-12)


@given(st.integers(0, 2), st.sampled_from([1, 2, 3]), seeds)
@settings(max_examples=10)
def test_peer_norm(number, world, seed):
    network, in_peers = peer_parts(number, world)
    whole = {name: random_x(seed + i, *weight.shape) for i, (name, weight) in enumerate(network.named_parameters())}

    def work(part, own):
        shared = part.tensor_parallel.cuts
        for name, weight in part.named_parameters():
            cut = shared.get(name)
            weight.grad = (
                whole[name] if cut is None else cut.part(whole[name].shape, own.tensor).taken_from(whole[name])
            )
        gradients = {name: weight.grad.numpy() for name, weight in part.named_parameters()}
        norm = float(PeerGradients(part, own).whole_norm())
        return (
            norm,
            [g for name, g in gradients.items() if name in shared],
            [g for name, g in gradients.items() if name not in shared],
        )

    found = in_peers(work)
    expected = written.norm_of_peers([cut for _, cut, _ in found], found[0][2])
    assert [norm for norm, _, _ in found] == pytest.approx([expected] * world, rel=1e-12)
    assert expected == pytest.approx(float(torch.cat([g.flatten() for g in whole.values()]).norm()), rel=1e-12)
