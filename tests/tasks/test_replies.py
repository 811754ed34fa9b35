"""Replies are judged by the likelihood of the right one: bits per byte, and hits@1 among candidates."""

import numpy as np
import pytest

from small_tasks import finetune, report_of, rows_of, write_rows
from weft.metrics.baselines.reply import candidate_cosines, reply_losses
from weft.metrics.ngram import NGram
from weft.tasks.candidates import MOST_RANKED, REPLY_CANDIDATES, hits, with_candidates
from weft.tasks.example import Example
from weft.tasks.loaded import LoadedModel


def test_candidates_are_the_right_reply_and_others_that_differ():
    examples = [Example("", f"reply {number % 60}") for number in range(500)]
    found = with_candidates(examples)
    assert len(found) == MOST_RANKED and found == with_candidates(examples)
    for example, texts in found:
        assert texts[0] == example.gold and len(set(texts)) == len(texts) == REPLY_CANDIDATES
    assert with_candidates([Example("", "same")] * 5) == []


def test_bits_are_counted_for_the_bytes_that_were_read(tuned):
    """A reply that is longer than the model reads is not the cheaper for it."""
    loaded = LoadedModel.load(tuned("reply") / "model")
    long = Example("hello", "hi Bob, it is Anna " * 40)
    (nats, tokens, size), short = loaded.task.losses(
        loaded.task_network, [long, Example("hello", "hi Böb")], loaded.input_spec
    )
    (one,) = loaded.task.inputs([long], loaded.input_spec)
    assert one.was_cut and short[2] == len("hi Böb".encode())
    read = loaded.input_spec.tokenizer.decode(one.targets.ids[:-1].tolist())
    assert nats > 0 and tokens == len(one.targets.ids)
    assert size == len(read.encode()) < len(long.gold)


def test_equally_good_candidates_share_the_hit():
    rows = [[3.0, 1, 2], [1.0, 3, 2], [2.0, 2, 1], [0.0, 0, 0]]
    assert hits([np.asarray(row) for row in rows]).tolist() == pytest.approx([1, 0, 1 / 2, 1 / 3])


def test_the_conditional_ngram_scores_only_replies_and_knows_the_prompt():
    train = [("red?", "yes indeed"), ("blue?", "not at all")] * 50
    right, wrong = reply_losses(train, [("red?", "yes indeed"), ("red?", "not at all")])
    assert right < wrong
    longer = reply_losses(train, [("never seen before, red?", "yes indeed")])
    assert longer[0] == pytest.approx(right, rel=1e-6)  # the end of the prompt is its context, the rest is not scored


def test_the_mean_of_the_losses_is_the_loss():
    tokens = np.random.default_rng(0).integers(0, 4, 200)
    model = NGram(tokens, 4, 3)
    assert model.loss(tokens) == pytest.approx(model.losses(tokens).mean())


def test_tfidf_finds_the_candidate_that_shares_words():
    train = [("where is the cat", "the cat is here"), ("who sings", "a bird sings")]
    (row,) = candidate_cosines(train, [("is the cat here", ["a bird sings", "the cat is here"])])
    assert row[1] > row[0] == 0


def test_hits_decide_for_replies_and_stand_beside_tfidf(tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of("reply")))}
    said = finetune(tmp_path, "reply", data=data, baseline=True)
    assert said.code == 0, said.err
    report = report_of(tmp_path / "run")
    for found in (report["figures"], report["baseline"]["figures"]):
        assert 0 <= found["hits_at_1"] <= 1 and found["bits_per_byte"] > 0 and "chrf" in found
    assert {"hits_at_1", "bits_per_byte"} <= set(report["intervals"])
