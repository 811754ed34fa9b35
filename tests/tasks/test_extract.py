"""The task extract: which sentences are gold, how they are read and chosen, what is learned, what is refused."""

from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from small_tasks import finetune, report_of, rows_of, write_rows
from weft.metrics.baselines.rewrite import sentences_of
from weft.metrics.rouge import best_units, rouge
from weft.model.packed import pack
from weft.tasks.batches import pack_inputs
from weft.tasks.extract import chosen_sentences

texts = st.text(st.sampled_from("ab .!?\n\r\u2028。！\x85"), max_size=40)
units = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4).map(" ".join), min_size=1, max_size=5)


@given(texts)
def test_sentences_join_to_the_text_and_none_is_blank(text):
    found = sentences_of(text)
    assert "".join(found) == text
    assert all(one.strip() for one in found) or not text.strip()


def test_lines_are_the_sentences_of_a_dialogue():
    assert sentences_of("A: Hi. Hello.\nB: Yes!\n") == ["A: Hi. Hello.\n", "B: Yes!\n"]
    assert sentences_of("It rains. It pours.\n") == ["It rains. ", "It pours.\n"]
    assert sentences_of("Notes\n\nIt rains. It pours.\n") == ["Notes\n\n", "It rains. ", "It pours.\n"]


def test_a_million_blank_lines_are_one_sentence():
    assert sentences_of("\n" * 1_000_000) == ["\n" * 1_000_000]


def score(units, chosen, reference):
    """ROUGE-1 plus ROUGE-2 by counting; bigrams do not cross sentences."""

    def f1(size):
        def grams(text):
            words = text.split()
            return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]

        ours, gold = [gram for i in chosen for gram in grams(units[i])], grams(reference)
        left, shared = list(gold), 0
        for gram in ours:
            if gram in left:
                left.remove(gram)
                shared += 1
        return 2 * shared / (len(ours) + len(gold)) if ours or gold else 0.0

    return f1(1) + f1(2)


@given(units, units.map(" ".join), st.integers(1, 5))
def test_no_sentence_makes_the_gold_ones_better(units, reference, most):
    chosen = best_units(units, reference, most)
    assert chosen == sorted(set(chosen)) and 1 <= len(chosen) <= most
    best = score(units, chosen, reference)
    assert best >= max(score(units, [i], reference) for i in range(len(units))) - 1e-9
    if len(chosen) < most:
        others = set(range(len(units))) - set(chosen)
        assert all(score(units, [*chosen, i], reference) <= best + 1e-9 for i in others)


def test_the_sentences_of_a_summary_are_found():
    units = ["Ben went home.", "It rained a lot.", "Anna bought a red car.", "天气很好。"]
    assert best_units(units, "Anna bought a red car. It rained.", 10) == [1, 2]
    assert best_units(units, "今天天气很好", 10) == [3]
    assert best_units(units, "something else", 10) == [0]  # nothing in common: one all the same


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=6))
def test_the_choice_has_the_largest_expected_f1(scores):
    """2 Σ p / (k + Σ p) over all choices."""
    scores = np.asarray(scores)

    def expected(chosen):
        return 2 * sum(scores[i] for i in chosen) / (len(chosen) + scores.sum())

    subsets = [one for size in range(1, len(scores) + 1) for one in combinations(range(len(scores)), size)]
    assert expected(chosen_sentences(scores)) == pytest.approx(max(map(expected, subsets)))


def test_windows_hold_whole_sentences_each_once(tuned):
    model = weft.load(tuned("extract") / "model")
    sentences = [f"Anna has cat {number}. " for number in range(30)]
    examples = [model.task.example({"source": "".join(sentences)}, with_gold=False)]
    inputs = model.task.inputs(examples, model.input_spec)
    assert len(inputs) > 1 and all(len(one.ids) <= model.input_spec.most_tokens for one in inputs)
    numbers = [number for one in inputs for number in one.targets.numbers]
    assert numbers == list(range(30))
    ends = [model.tokenizer.encode(one)[-1] for one in sentences]  # the separator
    for one in inputs:
        assert one.ids[one.targets.rows].tolist() == [ends[number] for number in one.targets.numbers]
    whole = model.tokenizer.engine.encode(sentences[0]).ids
    assert inputs[0].ids[: len(whole)].tolist() == whole


@torch.inference_mode()
def test_scores_are_the_head_read_at_the_end_of_each_sentence(tuned):
    model = weft.load(tuned("extract") / "model")
    texts = [row["source"] for row in rows_of("extract", 5)] + ["\x01", "One sentence only"]
    examples = [model.task.example({"source": text}, with_gold=False) for text in texts]
    inputs = model.task.inputs(examples, model.input_spec)
    packed = pack_inputs(inputs)
    together = model.task.pieces(model.network, model.network(packed), packed, inputs)
    for one, found in zip(inputs, together, strict=True):
        alone = pack([one.ids.tolist()])
        logits = model.network.head("token")(model.network(alone), alone).softmax(-1)[:, 1]
        np.testing.assert_allclose(found, logits[one.targets.rows].numpy(), atol=1e-5)


def test_it_learns_which_sentences_sum_a_text_up(tmp_path):
    def rows(people):
        parts = ("It rains.", "{} has a cat.", "The sun is out.")
        return [
            {"source": " ".join(parts[i] for i in order).format(who), "target": f"{who} has a cat."}
            for who in people for order in permutations(range(3))
        ]  # fmt: skip

    files = {"train": ("Anna", "Bob", "Cleo", "Dan"), "validation": ("Eva", "Finn"), "test": ("Gina", "Hugo")}
    data = {use: str(write_rows(tmp_path / f"{use}.jsonl", rows(people))) for use, people in files.items()}
    settings = {"budget": "200 steps", "batch": 24, "learning_rate": 1e-2}
    said = finetune(tmp_path, "extract", data=data, baseline=True, **settings)
    assert said.code == 0, said.err
    report = report_of(tmp_path / "run")
    assert report["baseline"]["name"].startswith("the first ")
    model = weft.load(tmp_path / "run/model")
    [found] = model.predict(["The sun is out. It rains. Cleo has a cat."], details=True)
    assert found["text"] == "Cleo has a cat."
    assert [one["text"] for one in found["sentences"]] == ["The sun is out.", "It rains.", "Cleo has a cat."]
    assert max(found["sentences"], key=lambda one: one["score"])["text"] == found["text"]
    assert report["figures"]["rougeL"] > 0.9


def test_figures_are_those_of_the_summaries(tuned):
    run = tuned("extract")
    model, rows = weft.load(run / "model"), rows_of("extract", 6)
    said = [found["text"] for found in model.predict([row["source"] for row in rows])]
    examples = [model.task.example(row, with_gold=True) for row in rows]
    answers = model.answers(examples)
    wanted = np.mean([rouge(text, row["target"])["rougeL"] for text, row in zip(said, rows, strict=True)])
    assert model.task.figures(examples, answers)["rougeL"] == pytest.approx(wanted)
    assert model.task.judge(examples, answers).figures["rougeL"] == pytest.approx(wanted)
