"""What is held out shares nothing with what is learnt from; and splits that do share something are named."""

import json
import random

import numpy as np
import pytest

import small_tasks
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify
from weft.tasks.example import Example
from weft.tasks.labelled import containment
from weft.tasks.labelled.containment import START, TextIndex, number_texts, plain_words
from weft.tasks.labelled.data import LabelledSplit, Problems
from weft.tasks.labelled.hold_out import hold_out
from weft.tasks.labelled.overlap import find_overlap
from weft.tasks.pair import Pair


def stands_in(inner, outer):
    return any(outer[i : i + len(inner)] == inner for i in range(len(outer) - len(inner) + 1))


@pytest.mark.parametrize("block", [10, 1_000_000])
@pytest.mark.parametrize("short", [True, False])
def test_texts_inside_others_are_found_as_by_trying_all_places(short, block, monkeypatch):
    monkeypatch.setattr(containment, "_BLOCK_WORDS", block)
    draw = random.Random(block)
    texts = [" ".join(draw.choices("abcd", k=draw.randint(1, 9))) for _ in range(150)]
    numbers, known = number_texts(texts)
    words = {int(number): plain_words(text) for number, text in zip(numbers, texts, strict=True)}
    expected = {
        (a, b)
        for a in words
        for b in words
        if a != b and (len(words[a]) < START) == short and stands_in(words[a], words[b])
    }
    found = TextIndex.of(known).matches(known, short=short, same=True)
    assert expected and {pair for both in found for pair in zip(*map(np.ndarray.tolist, both), strict=True)} == expected


def phrases(sentences=60, seed=0):
    """Sentences and phrases out of them, as SST-2 has them; with common short ones."""
    draw = random.Random(seed)
    found = []
    for number in range(sentences):
        words = [*draw.choices(["a", "the", "good", "bad", "film", "plot"], k=8), f"word{number}", "of", "it"]
        label = draw.choice(["neg", "pos", "pos"])
        found.append(Example(" ".join(words), label))
        for _ in range(6):
            start, end = sorted(draw.sample(range(len(words) + 1), 2))
            found.append(Example(" ".join(words[start:end]).title(), label))
    draw.shuffle(found)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_no_text_that_is_held_out_stands_in_training_and_nothing_is_lost(seed):
    examples = phrases(seed=seed)
    found = hold_out(Classify(), examples, seed, "train")
    assert sorted([*found.kept, *found.held]) == list(range(len(examples)))
    assert len(found.held) == pytest.approx(len(examples) / 10, abs=8)
    kept, held = ([plain_words(examples[i].given) for i in side] for side in (found.kept, found.held))
    assert not any(stands_in(one, other) for one in held for other in kept)
    within = [one for one in kept if any(stands_in(one, other) for other in held)]
    assert all(len(one) < START for one in within) and len(within) == found.phrases
    assert found == hold_out(Classify(), examples, seed, "train")


def test_labels_keep_their_shares():
    examples = [Example(f"text {n} of {n * n}", "rare" if n % 10 == 0 else "usual") for n in range(1000)]
    for seed in range(3):
        found = hold_out(Classify(), examples, seed, "train")
        assert sum(examples[i].gold == "rare" for i in found.held) == pytest.approx(10, abs=1)


def test_questions_about_an_article_stay_together():
    def question(n):
        return Example((f"question {n}", f"context {n // 3}"), (), group=f"article {n // 9}" if n < 90 else "")

    examples = [question(n) for n in range(270)]
    found = hold_out(Answer(), examples, 0, "train")
    for of in (lambda one: one.given[1], lambda one: one.group or one.given[1]):
        kept, held = ({of(examples[i]) for i in side} for side in (found.kept, found.held))
        assert kept and held and not kept & held


def test_pairs_that_share_a_side_stay_together():
    examples = [Example((f"premise {n // 3}", f"hypothesis {n}"), "yes") for n in range(90)]
    found = hold_out(Pair(), examples, 1, "train")
    kept, held = ({examples[i].given[0] for i in side} for side in (found.kept, found.held))
    assert len(found.held) == 9 and not kept & held
    assert "so 9 of the 90 examples of train.tsv are held out." in found.sentence("train.tsv")
    assert "stay together, in 3 groups." in found.sentence("train.tsv")


def test_where_all_hangs_together_a_part_is_held_out_all_the_same_and_said_to_leak():
    examples = [Example((f"question {n}", "the one context"), ()) for n in range(40)]
    found = hold_out(Answer(), examples, 0, "train")
    assert (len(found.held), found.leaking) == (4, 4)
    assert "4 of these share one with training" in found.sentence("train.json")


def test_splits_that_overlap_are_named_with_a_count_and_an_example():
    train = [Example("A rather good film, all in all.", "pos"), Example("dull", "neg")]
    test = [
        Example("rather good film, all", "pos", place="test.tsv, line 1"),
        Example("a rather good film, all in all.", "pos", place="test.tsv, line 2"),
        Example("something else", "neg", place="test.tsv, line 3"),
        Example("dull and long and slow", "neg", place="test.tsv, line 4"),  # one word is no text
    ]
    splits = {name: LabelledSplit(name, rows, Problems()) for name, rows in (("train", train), ("test", test))}
    same, inside = find_overlap(Classify(), splits)
    assert same.startswith("Overlap: 1 of the 4 test examples is also in the train data.")
    assert "test.tsv, line 2" in same and "test.tsv, line 1: 'rather good film, all'" in inside
    assert "1 of the 4 test examples is contained in a text of the train data, or contains one." in inside
    pairs = {
        name: LabelledSplit(name, [Example(given, "yes")], Problems())
        for name, given in (("train", ("one", "two")), ("test", ("two", "three")))
    }
    (shared,) = find_overlap(Pair(), pairs)
    assert "1 of the 1 test examples shares a text with the train data" in shared


@pytest.mark.parametrize(("task", "ours", "theirs"), [
    (Classify(), "A rather good film, all in all!", "a rather good film - all in all"),
    (Classify(), "Dull.", "dull"),
    (Pair(), ("Is it so?", "Yes."), ("is it so", "yes")),
    (Answer(), ("Who sat?", "The cat sat."), ("who sat", "the cat sat")),
])  # fmt: skip
def test_a_copy_with_other_punctuation_is_the_same_text(task, ours, theirs):
    splits = {
        name: LabelledSplit(name, [Example(given, "x")], Problems())
        for name, given in (("train", ours), ("test", theirs))
    }
    (said,) = find_overlap(task, splits)
    assert "1 of the 1 test examples is also in the train data." in said


def test_a_run_says_the_overlap_in_its_log_and_its_report(tmp_path):
    rows = small_tasks.rows_of("classify")
    data = {
        name: str(small_tasks.write_rows(tmp_path / f"{name}.jsonl", part))
        for name, part in (("train", rows[:30]), ("validation", rows[25:35]), ("test", rows[35:]))
    }
    said = small_tasks.finetune(tmp_path, "classify", data=data)
    note = "Overlap: 5 of the 10 validation examples are also in the train data."
    assert note in said.err
    assert note in small_tasks.report_of(tmp_path / "run")["notes"][0]
    assert note in (tmp_path / "run/report.html").read_text()


def test_an_evaluation_beside_a_baseline_says_what_its_data_shares_with_the_training_data(tuned, tmp_path):
    rows = small_tasks.rows_of("classify", 30)
    train, data = (
        small_tasks.write_rows(tmp_path / f"{name}.jsonl", part)
        for name, part in (("train", rows[:20]), ("data", rows[15:]))
    )
    said = small_tasks.weft("evaluate", tuned("classify") / "model", data, "--train", train, "--json")
    assert "Overlap: 5 of the 15 test examples are also in the train data." in json.loads(said.out)["notes"][0]
