"""The task embed: losses as the papers write them, pairs read as one by one, what is saved, what is refused."""

import json
import math

import numpy as np
import pytest
import torch

import weft
from small_tasks import finetune, report_of, rows_of, write_rows
from weft.metrics.retrieval import ranks_of_own, retrieval_credits
from weft.model.packed import pack
from weft.objectives.embeddings import TEMPERATURE, ContrastiveAnswers, RankedAnswers
from weft.tasks.batches import pack_inputs
from weft.tasks.embed import EmbedTask
from weft.tasks.example import Example, Input

POOLINGS = ("mean", "first", "last")


def cosine(u, v):
    return float(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)))


@pytest.fixture(scope="module")
def states():
    """Hidden states of seven sequences of unequal length, and the vector of each sequence for each pooling."""
    generator = torch.Generator().manual_seed(1)
    batch = pack([[0] * length for length in (3, 1, 4, 2, 5, 2, 1)])
    hidden = torch.randn(len(batch.tokens), 6, generator=generator, dtype=torch.float64)
    rows = [row.numpy() for row in batch.split(hidden)]
    vectors = {"mean": [r.mean(0) for r in rows], "first": [r[0] for r in rows], "last": [r[-1] for r in rows]}
    return hidden, batch, vectors


@pytest.mark.parametrize("pooling", POOLINGS)
def test_contrastive_loss_is_the_formula(pooling, states):
    """Three examples; the second one has a negative."""
    hidden, batch, vectors = states
    rows = vectors[pooling]
    first, second, negatives = [0, 2, 5], [1, 3, 6], [4]
    copies = torch.zeros(3, 4, dtype=torch.bool)
    answers = ContrastiveAnswers(pooling, torch.tensor(first), torch.tensor(second + negatives), copies)
    wanted = 0.0
    for own, (u, v) in enumerate(zip(first, second, strict=True)):
        there = [math.exp(cosine(rows[u], rows[other]) / TEMPERATURE) for other in second + negatives]
        back = [math.exp(cosine(rows[v], rows[other]) / TEMPERATURE) for other in first]
        wanted -= (math.log(there[own] / sum(there)) + math.log(back[own] / sum(back))) / 2
    assert float(answers.loss(None, hidden, batch, 0.0)) == pytest.approx(wanted, rel=1e-5)


def test_ranked_loss_is_the_formula(states):
    hidden, _, vectors = states
    batch = pack([[0] * length for length in (3, 1, 4, 2, 5, 2)])
    hidden, rows, scores = hidden[: len(batch.tokens)], vectors["mean"], [2.0, 5.0, 2.0]
    cosines = [cosine(rows[2 * i], rows[2 * i + 1]) for i in range(3)]
    wrong = [
        math.exp((cosines[j] - cosines[i]) / TEMPERATURE) for i in range(3) for j in range(3) if scores[i] > scores[j]
    ]
    answers = RankedAnswers("mean", torch.tensor(scores))
    assert float(answers.loss(None, hidden, batch, 0.0)) == pytest.approx(3 * math.log(1 + sum(wrong)), rel=1e-5)


def test_equal_texts_are_not_told_apart():
    given = [("a", "b"), ("c", "b"), ("b", "d", "a")]
    inputs = [
        Input(i, np.arange(2 * len(texts), dtype=np.int32), targets=(None, texts), parts=(2,) * len(texts))
        for i, texts in enumerate(given)
    ]
    answers = EmbedTask(scored=False).batch(inputs, pack_inputs(inputs)).answers["embed"]
    assert answers.first.tolist() == [0, 2, 4] and answers.others.tolist() == [1, 3, 5, 6]
    #                                       b  b  d  a
    assert answers.copies.int().tolist() == [[0, 1, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize("pooling", [None, "cls", "lasttoken"])
def test_pairs_are_read_as_the_model_embeds_each_text(pooling, tuned, tmp_path):
    folder = tuned("embed") / "model"
    if pooling is not None:
        weft.load(folder).save(tmp_path / "model")
        folder = tmp_path / "model"
        (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": pooling}))
    model, rows = weft.load(folder), rows_of("embed", 9)
    answers = model.answers([Example((row["text"], row["second"]), None) for row in rows])
    for side, role in enumerate(("text", "second")):
        vectors = model.embed([row[role] for row in rows])
        np.testing.assert_allclose([answer[side] for answer in answers], vectors, atol=1e-6)
    said = [found["score"] for found in model.predict([(row["text"], row["second"]) for row in rows])]
    assert said == pytest.approx([cosine(u, v) for u, v in answers], abs=1e-5)


def test_what_is_saved_opens_in_sentence_transformers_with_equal_vectors(tuned):
    library = pytest.importorskip("sentence_transformers")
    folder, texts = tuned("embed") / "model", ["a good film", "x", "a much longer text about nothing at all " * 9]
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(theirs.encode(texts), weft.load(folder).embed(texts), atol=1e-5)
    assert theirs.similarity_fn_name == "cosine"


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_ranks_are_those_of_brute_force(form):
    generator = np.random.default_rng(0)
    u, v = generator.normal(size=(2, 40, 3)).round(1)  # with ties
    names = [str(number % 23) for number in range(40)]
    v = v[[names.index(name) for name in names]]  # equal texts have equal vectors
    wanted = [len({names[j] for j in range(40) if u[i] @ v[j] >= u[i] @ v[i]}) for i in range(40)]
    if form == "sparse":
        from scipy.sparse import csr_matrix

        u, v = csr_matrix(u), csr_matrix(v)
    found = ranks_of_own(u, v, names)
    assert found.tolist() == wanted
    credits = retrieval_credits(found)
    assert credits["mrr"].mean() == pytest.approx(np.mean([1 / rank for rank in wanted]))
    assert credits["recall_at_1"].tolist() == [float(rank == 1) for rank in wanted]


def scored_rows(count):
    """The more letters the texts share, the higher the score."""
    return [
        {"text": "abcd"[: number % 5] + "xyz", "second": "abcd"[: number % 5] + "uvw", "score": number % 5}
        for number in range(count)
    ]


def test_scored_pairs_learn_an_order_and_are_judged_by_it(tmp_path):
    train = write_rows(tmp_path / "train.jsonl", scored_rows(60))
    said = finetune(tmp_path, "embed", data={"train": str(train)}, budget="20 steps", baseline=True)
    assert said.code == 0, said.err
    report = report_of(tmp_path / "run")
    assert set(report["figures"]) == {"spearman", "pearson"}
    assert said.err.endswith("TEXT SECOND\n")  # the next command names both texts
    assert report["baseline"]["name"] == "cosine of TF-IDF vectors"


def test_pairs_without_scores_learn_to_find_each_other(tmp_path):
    colours, fruits = ("red", "blue", "green", "black"), ("apple", "plum", "kiwi", "olive")
    rows = [
        {"text": f"{colours[number % 4]} one {number}", "second": f"two {fruits[number % 4]} {number}",
         "negative": f"two {fruits[(number + 1) % 4]} {number}"}
        for number in range(80)
    ]  # fmt: skip
    train = write_rows(tmp_path / "train.jsonl", rows)
    settings = {"budget": "60 steps", "batch": 16, "learning_rate": 3e-3, "metric": "mrr"}
    assert finetune(tmp_path, "embed", data={"train": str(train)}, **settings).code == 0
    model = weft.load(tmp_path / "run/model")
    u, v = model.embed(["red one 3", "blue one 5"]), model.embed(["two apple 3", "two plum 5"])
    assert (u @ v.T).argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"text": "a", "second": "b", "score": 1}] * 5, "All training examples have the same score"),
        (
            [{"text": "a", "second": "b", "score": n, "negative": "c"} for n in range(5)],
            "Scored pairs need no negatives",
        ),
        ([{"text": "a", "label": 1}] * 5, "no column that looks like the second"),
    ],
)
def test_data_that_teach_nothing_are_refused(rows, problem, tmp_path):
    train = write_rows(tmp_path / "train.jsonl", rows)
    assert problem in finetune(tmp_path, "embed", data={"train": str(train)}).sentence


def test_an_encoder_that_others_trained_is_judged_as_it_is(minilm):
    assert weft.load(minilm).task is None
    model = weft.load(minilm, task="embed")
    close, far = model.predict(
        [("A man plays the guitar.", "Somebody makes music."), ("A cat sleeps.", "Shares fell.")]
    )
    assert close["score"] > far["score"] + 0.3
