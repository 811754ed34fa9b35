"""Batches of every objective: pure functions of (seed, epoch, sample), and losses that add up."""

from pathlib import Path

import numpy as np
import pytest
import torch

import pretend_gpu
import weft
from weft.objectives.causal import Causal
from weft.objectives.denoising import Denoising
from weft.objectives.masked import Masked
from weft.objectives.masked_pairs import MaskedPairs
from weft.objectives.masking import MaskSpec, Vocabulary
from weft.objectives.objective import head_scores, scaled_loss
from weft.objectives.permutation import sentence_marks
from weft.objectives.sentence_pairs import SentencePairs
from weft.objectives.span_corruption import SpanCorruption
from weft.objectives.spans import restore_spans
from weft.tokenizer.train import train_tokenizer
from weft.tokens.shards import build_shards
from weft.train.batches import StepPiece
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.step import Step
from weft.train.validation import validate

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
SHAPE = {"vocabulary": 400, "layers": 2, "width": 32, "heads": 2, "dropout": 0.0}
FAMILY = {"causal": "gpt2", "masked": "bert", "pairs": "bert", "corrupted": "t5", "denoised": "t5"}


@pytest.fixture(scope="module")
def objectives(tmp_path_factory):
    chapters = [text for text in ALICE.read_text().split("CHAPTER ") if len(text) > 500]

    def shards(kind, family):
        tokenizer = train_tokenizer([ALICE], kind, 400, family=family)
        end = tokenizer.id_of("eos" if family != "bert" else "sep")
        folder = tmp_path_factory.mktemp(family)
        return tokenizer, build_shards(chapters, tokenizer, folder, separator=end, sentences=family == "bert")

    _, gpt = shards("bpe", "gpt2")
    bert_tokenizer, bert = shards("wordpiece", "bert")
    t5_tokenizer, t5 = shards("unigram", "t5")
    vocabulary = Vocabulary(400, bert_tokenizer.id_of("mask"), frozenset(range(5)))
    frame = (bert_tokenizer.id_of("cls"), bert_tokenizer.id_of("sep"))
    end, marks = t5_tokenizer.id_of("eos"), sentence_marks(t5_tokenizer)
    sentinels = tuple(t5_tokenizer.engine.token_to_id(f"<extra_id_{i}>") for i in range(100))
    return {
        "causal": Causal(gpt, 32),
        "masked": Masked(bert, 32, vocabulary, frame),
        "pairs": MaskedPairs(SentencePairs(bert), 32, vocabulary, frame),
        "corrupted": SpanCorruption(t5, 32, sentinels, end=end, start=0),
        "denoised": Denoising(t5, 32, sentinels[0], marks, end=end, start=0),
    }


def network_for(objective, name):
    return weft.create(FAMILY[name], **SHAPE, head=objective.head, seed=1).network


@pytest.mark.parametrize("name", FAMILY)
def test_a_batch_is_a_function_of_seed_epoch_and_sample(objectives, name):
    objective = objectives[name]
    together = objective.batch([3, 5, 8], [0, 1, 0], seed=4)
    alone = objective.batch([5], [1], seed=4)
    parts = together.packed.split(together.packed.tokens)
    assert torch.equal(parts[1], alone.packed.tokens)
    again = objective.batch([3, 5, 8], [0, 1, 0], seed=4)
    assert torch.equal(again.packed.tokens, together.packed.tokens)
    assert torch.equal(again.targets, together.targets)
    if name != "causal":
        other = objective.batch([3, 5, 8], [1, 2, 1], seed=4)
        assert not torch.equal(other.packed.tokens, together.packed.tokens)


@pytest.mark.parametrize("name", FAMILY)
def test_accumulated_pieces_give_the_gradient_of_one_large_batch(objectives, name):
    objective = objectives[name]
    network = network_for(objective, name)

    def gradient(groups):
        network.zero_grad()
        batches = [objective.batch(group, [0] * len(group), seed=1) for group in groups]
        totals = {kind: sum(batch.counts[kind] for batch in batches) for kind in batches[0].counts}
        loss = 0.0
        for batch in batches:
            part = scaled_loss(network, batch, totals)
            part.backward()
            loss += float(part)
        return loss, [p.grad.clone() for p in network.parameters() if p.grad is not None]

    large, small = gradient([[1, 2, 3, 4, 5]]), gradient([[1, 2], [3], [4, 5]])
    assert large[0] == pytest.approx(small[0], abs=1e-5)
    for a, b in zip(large[1], small[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILY)
def test_scores_are_the_loss_and_the_share_of_right_answers(objectives, name):
    objective = objectives[name]
    network = network_for(objective, name)
    batch = objective.batch([1, 2, 3], [0, 0, 0], seed=1)
    sums = head_scores(network, batch)
    total = sum(sums[f"loss/{kind}"] / count for kind, count in batch.counts.items())
    assert float(total) == pytest.approx(float(scaled_loss(network, batch, batch.counts)), abs=1e-4)
    assert all(0 <= sums[f"right/{kind}"] <= count for kind, count in batch.counts.items())


@pytest.mark.parametrize("name", FAMILY)
def test_every_objective_learns_on_a_gpu_with_one_wait_per_step(objectives, name):
    """On the pretend GPU (tests/pretend_gpu.py), and as on a CPU."""
    objective = objectives[name]
    found, batch = [], objective.batch([1, 2, 3], [0, 0, 0], seed=1)
    with pretend_gpu.pretend_gpu() as gpu:
        for device in (torch.device("cpu"), gpu):
            step = Step(network_for(objective, name).to(device), objective)
            moved = batch.to(device, non_blocking=True)
            pretend_gpu.waits()
            loss = Engine(step, OptimizerSpec(), clip=0.5).take_step([StepPiece(0, [moved])], 0)
            waits = pretend_gpu.waits()
            found.append({"loss": loss, **validate(step.network, [batch], scores=objective.scores)})
    assert [wait.rpartition(":")[0] for wait in waits] == ["tolist in engine.py"]
    for key, value in found[0].items():
        assert found[1][key] == pytest.approx(value, rel=1e-3)


def test_causal_targets_are_the_next_tokens_and_the_tape_is_used_up(objectives):
    causal = objectives["causal"]
    batch = causal.batch(list(range(len(causal))), [0] * len(causal), seed=0)
    tape = causal.shards[0 : len(causal.shards)]
    np.testing.assert_array_equal(batch.packed.tokens, tape[: len(batch.packed.tokens)])
    np.testing.assert_array_equal(batch.targets, tape[1 : len(batch.targets) + 1])
    assert len(tape) - 1 - len(batch.targets) < 32


def test_masked_rows_point_at_the_tokens_that_were_hidden(objectives):
    masked = objectives["masked"]
    batch = masked.batch([0, 1, 7], [0, 0, 0], seed=3)
    tokens = batch.packed.tokens.clone()
    tokens[batch.rows] = batch.targets
    for sample, row in zip((0, 1, 7), batch.packed.split(tokens), strict=True):
        assert row[0] == 2
        assert row[-1] == 3
        np.testing.assert_array_equal(row[1:-1], masked.shards[sample * 30 : (sample + 1) * 30])


def test_pairs_are_framed_and_segmented(objectives):
    batch = objectives["pairs"].batch(list(range(20)), [0] * 20, seed=3)
    tokens = batch.packed.tokens.clone()
    tokens[batch.rows] = batch.targets
    for row, segment in zip(batch.packed.split(tokens), batch.packed.split(batch.packed.segments), strict=True):
        ends = (row == 3).nonzero().flatten().tolist()
        assert row[0] == 2
        assert len(ends) == 2
        assert segment.tolist() == [0] * (ends[0] + 1) + [1] * (len(row) - ends[0] - 1)
        assert len(row) <= 32
    assert len(batch.answers["next-sentence"].values) == 20


def test_corrupted_pairs_restore_the_text_and_the_decoder_reads_one_token_late(objectives):
    corrupted = objectives["corrupted"]
    batch = corrupted.batch([0, 4], [0, 0], seed=3)
    targets = batch.targets.split(batch.decoder.lengths)
    sources, reads = batch.packed.split(batch.packed.tokens), batch.decoder.split(batch.decoder.tokens)
    for sample, source, target, read in zip((0, 4), sources, targets, reads, strict=True):
        assert source[-1] == target[-1] == corrupted.end
        assert read.tolist() == [0, *target[:-1].tolist()]
        text = restore_spans(source[:-1].numpy(), target[:-1].numpy(), corrupted.sentinels)
        np.testing.assert_array_equal(text, corrupted.shards[sample * 32 : (sample + 1) * 32])


def test_the_cover_schedule_reaches_every_token_of_a_sample_in_its_epochs(objectives):
    masked = objectives["masked"]
    cover = Masked(masked.shards, 32, masked.vocabulary, masked.frame, MaskSpec(0.2, "cover"))
    places = [row for epoch in range(5) for row in cover.batch([6], [epoch], seed=2).rows.tolist()]
    text = cover.shards[6 * 30 : 7 * 30]
    assert sorted(places) == [i + 1 for i in range(30) if text[i] >= 5]


def test_with_context_scores_every_token_once_and_with_a_quarter_of_a_sample_before_it(objectives):
    causal = objectives["causal"]
    reading = causal.with_context()
    network = network_for(causal, "causal").eval()
    tape = torch.from_numpy(np.asarray(causal.shards[:], np.int64))
    scored = []
    for sample in range(len(reading)):
        batch = reading.batch([sample], [0], seed=0)
        first = sample * 24 + (8 if sample else 0)
        scored += list(range(first, sample * 24 + 32))
        assert torch.equal(batch.targets, tape[first + 1 : sample * 24 + 33])
        assert torch.equal(batch.packed.tokens, tape[sample * 24 : sample * 24 + 32])
    assert scored == list(range(scored[-1] + 1))  # none left out, none twice
    assert len(tape) - 1 - len(scored) < 24

    together = head_scores(network, reading.batch([0, 1, 2], [0, 0, 0], seed=0))["loss/causal"]
    alone = [head_scores(network, reading.batch([sample], [0], seed=0))["loss/causal"] for sample in range(3)]
    assert float(together) == pytest.approx(float(sum(alone)), rel=1e-5)
