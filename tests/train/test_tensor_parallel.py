"""Tensor parallel peers compute what one process computes. Peers are threads here."""

from dataclasses import replace

import pytest
import torch

import weft
from thread_processes import run_as_processes
from weft.errors import RecipeError
from weft.model.families import design
from weft.model.network import Network, count_parameters, outline
from weft.model.packed import pack
from weft.model.tensor_parallel import check_can_be_cut, network_of_peer
from weft.objectives.answers import ClassAnswers
from weft.objectives.objective import Batch, HeadObjective
from weft.recipe.file import check_recipe
from weft.recipe.processes import ProcessesSection
from weft.train.build import fresh_network
from weft.train.fresh_parts import fill_network
from weft.train.grid import arranged
from weft.train.layout import WeightLayout, whole_state
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate
from weft.train.peer_gradients import PeerGradients
from weft.train.pretrain import pretrain
from weft.train.processes import Processes

SIZE = {"vocabulary": 53, "layers": 2, "width": 24, "heads": 6, "inner": 36}  # of 53 tokens there are no even shares
FAMILIES = {
    "gpt2": {},
    "bert": {"head": "masked+next-sentence"},
    "roberta": {},
    "distilbert": {},
    "llama": {},
    "qwen3": {"heads": 12, "key_value_heads": 6, "head_width": 8, "tied": True},
    "t5": {"head_width": 8},
    "t5 v1.1": {"head_width": 8, "gated": True, "activation": "gelu-tanh", "tied": False, "output_scaled": False},
}


def architecture_of(name):
    return design(name.partition(" ")[0], **{**SIZE, **FAMILIES[name]})[1]


def random_network(name):
    """Without dropout, and with weights so large that every layer matters."""
    network = Network(architecture_of(name)).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in network.parameters():
            scale = weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.3
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale + (weight.dim() == 1) * 0.5)
    return network


def batch_for(network):
    """Sequences of unequal lengths, with the first and the last token of the vocabulary."""
    read, written = pack([[1, 2, 3, 4, 52], [6, 7, 0], [9, 10, 11, 12]]), pack([[3, 4, 5], [7, 7, 8, 9], [52]])
    if "seq2seq" in network.heads:
        return Batch(read, written.tokens.roll(1), decoder=written, counts={"seq2seq": 8})
    if "causal" in network.heads:
        return Batch(read, read.tokens.roll(-1), counts={"causal": 12})
    batch = Batch(read, torch.tensor([52, 0, 9]), torch.tensor([1, 5, 11]), counts={"masked": 3})
    if "next-sentence" not in network.heads:
        return batch
    answers = {"next-sentence": ClassAnswers("next-sentence", torch.tensor([0, 1, 1]))}
    return replace(batch, answers=answers, counts={"masked": 3, "next-sentence": 3})


def as_peers(world, work):
    """What `work` returns in each of so many tensor parallel processes."""
    return run_as_processes(world, lambda processes: work(arranged(processes, ProcessesSection(tensor=world))))


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_peers_have_the_loss_gradients_norm_and_scores_of_one_process(name, world):
    network = random_network(name)
    objective, batch = HeadObjective(smoothing=0.1), batch_for(network)
    loss = objective.loss(network, batch, batch.counts)
    loss.backward()
    gradients = {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
    norm, scores = torch.nn.utils.get_total_norm(list(gradients.values())), objective.scores(network, batch)

    def compute(processes):
        part = network_of_peer(network, processes.tensor)
        own = objective.loss(part, batch, batch.counts)
        own.backward()
        norm, layout = PeerGradients(part, processes).whole_norm(), WeightLayout(part)
        found = {n: layout.whole(n, w.grad) for n, w in part.named_parameters() if w.grad is not None}
        return own.detach(), norm.float(), objective.scores(part, batch), found

    for found in as_peers(world, compute):
        torch.testing.assert_close(found, (loss.detach(), norm, scores, gradients), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_parts_are_put_together_to_the_same_network(name):
    network = random_network(name)

    def gathered(processes):
        part = network_of_peer(network, processes.tensor)
        assert count_parameters(part) == count_parameters(network)
        matrices = sum(weight.numel() for name, weight in part.named_parameters() if "positions" not in name)
        return whole_state(part), matrices

    for state, matrices in as_peers(3, gathered):
        assert matrices < 0.45 * count_parameters(network)
        assert state.keys() == network.state_dict().keys()
        assert all(torch.equal(state[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES)
def test_peers_draw_the_weights_that_one_process_draws(name):
    architecture = architecture_of(name)
    expected = fresh_network(architecture, seed=7).state_dict()

    def drawn(processes):
        part = network_of_peer(outline(architecture), processes.tensor)
        fill_network(part, 7, "cpu")
        return whole_state(part)

    for state in as_peers(2, drawn):
        assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


# Not BERT: the gradient of its key biases is 0 but for rounding, which AdamW enlarges to whole steps.
@pytest.mark.parametrize(("name", "optimizer"), [("qwen3", "muon"), ("t5", "muon"), ("t5 v1.1", "adamw")])
def test_peers_take_the_steps_of_one_process(name, optimizer):
    batch = batch_for(random_network(name))

    def trained(network, processes):
        optimizers = make_optimizers(network, OptimizerSpec(optimizer, weight_decay=0.1), exact=True)
        for step in range(3):
            HeadObjective().loss(network, batch, batch.counts).backward()
            if processes.tensor.world > 1:
                PeerGradients(network, processes).whole_norm()
            set_rate(optimizers, 1.0, step)
            for one in optimizers:
                one.step()
                one.zero_grad()
        return whole_state(network)

    expected = trained(random_network(name), Processes(device="cpu"))
    for state in as_peers(
        2, lambda processes: trained(network_of_peer(random_network(name), processes.tensor), processes)
    ):
        torch.testing.assert_close(state, expected, atol=2e-4, rtol=1e-3)


def test_a_weight_that_is_not_trained_stays_so_and_tied_weights_stay_tied():
    network = random_network("bert")
    network.encoder.blocks[0].attention.qkv.weight.requires_grad_(False)
    for part in as_peers(2, lambda processes: network_of_peer(network, processes.tensor)):
        assert not part.encoder.blocks[0].attention.qkv.weight.requires_grad
        assert part.heads["masked"].out.weight is part.embed.tokens.weight


@pytest.mark.parametrize(
    ("family", "changes", "problem"),
    [
        ("modernbert", {"heads": 4}, "works for bert, .*, qwen3, not for modernbert"),
        ("gpt2", {}, "tensor is 4, but model.heads is 6"),
        ("qwen3", {"heads": 4, "key_value_heads": 2}, "tensor is 4, but model.key_value_heads is 2"),
        ("bert", {"heads": 4, "inner": 50}, "tensor is 4, but model.inner is 50"),
    ],
)
def test_networks_that_cannot_be_cut_are_one_sentence(family, changes, problem):
    with pytest.raises(RecipeError, match=problem):
        check_can_be_cut(design(family, **{**SIZE, **changes})[1], 4)


def test_the_planner_chooses_a_size_that_the_peers_can_share(tmp_path, monkeypatch):
    """The smallest GPT-2 has 2 heads, the next one 3."""
    monkeypatch.setattr("weft.train.pretrain.matmul_peak", lambda *_: 1e9)  # takes seconds, and is only shown
    (tmp_path / "book.txt").write_text("The quick brown fox jumps over the lazy dog, again and again. " * 30)
    small = {
        "budget": "1 steps",
        "sequence_length": 8,
        "batch_tokens": 32,
        "optimizer": "adamw",
        "precision": "float32",
    }
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2"},
        "pretrain": small,
    }
    recipe = check_recipe(tree)
    found = as_peers(3, lambda processes: pretrain(recipe, tmp_path, tmp_path / "run", processes=processes))
    assert found == [found[0]] * 3
    network = weft.load(found[0]["model"]).network
    assert network.architecture.decoder.blocks[0].attention.heads == 3
    assert count_parameters(network) == found[0]["parameters"]
    with pytest.raises(RecipeError, match=r"model\.heads is 4"):
        wrong = check_recipe({**tree, "model": {"family": "gpt2", "layers": 1, "width": 24, "heads": 4}})
        as_peers(3, lambda processes: pretrain(wrong, tmp_path, tmp_path / "none", processes=processes))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("world", "settings", "problem"),
    [
        (1, {"tensor": 2}, "tensor is 2, which does not divide the 1 process that was started.* --nproc-per-node 2,"),
        (6, {"tensor": 4}, "tensor is 4, which does not divide the 6 processes that were started"),
        (4, {"tensor": 2, "data": 4}, "makes 8 processes; 4 processes were started"),
    ],
)
def test_processes_that_make_no_grid_are_one_sentence(world, settings, problem):
    with pytest.raises(RecipeError, match=problem):
        arranged(Processes(0, world, "cpu"), ProcessesSection(**settings))


def test_neighbours_compute_the_same_samples():
    def place(processes):
        grid = arranged(processes, ProcessesSection(tensor=2, sharded=True))
        pieces = list(grid.data.own_pieces(4))
        return grid.data.rank, grid.tensor.rank, grid.tensor.gather(processes.rank), pieces, grid.has_whole_weights

    assert run_as_processes(4, place) == [
        (0, 0, [0, 1], [0, 2], False),
        (0, 1, [0, 1], [0, 2], False),
        (1, 0, [2, 3], [1, 3], False),
        (1, 1, [2, 3], [1, 3], False),
    ]
