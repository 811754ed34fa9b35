"""What is read off a network: a batch as one by one, every word of a long sentence once, every answer in some window;
with Chinese characters, emoji, characters that no token has, and nothing at all.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from task_models import PAIRS, TEXTS, WORDS, asked, make, save, tokenizer_of
from weft.metrics.entities import repaired_tags
from weft.tasks.answer import OVERLAP_SHARE, QUESTION_SHARE, Answer, Gold
from weft.tasks.batches import groups
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.intent import Intent
from weft.tasks.loaded import LoadedModel
from weft.tasks.pair import Pair
from weft.tasks.predicted_tags import as_written
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag, WordTargets
from weft.tasks.task import Task

LABELS = ("bad", "good", "so-so")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LONG = tuple(TEXTS[2].split())
SENTENCES = [*WORDS, LONG, ("\u200b", "爱", "丽", "丝", "🐇", "\u0007"), ("\u200b",), tuple("白兔先生")]
QUESTIONS = [("Who?", text) for text in TEXTS] + [("谁?", TEXTS[2]), ("Why?", "\u200b\u200b")]
TASKS: list[tuple[Task, list]] = [
    (Classify(LABELS), [*TEXTS, "\u200b"]),
    (MultiLabel(LABELS), TEXTS),
    (Pair(LABELS), PAIRS),
    (Similarity(("score",)), PAIRS),
    (Tag(TAGS, entities=True), SENTENCES),
    (Tag(TAGS, entities=True, crf=True), SENTENCES),
    (Tag(("NOUN", "VERB", "X")), SENTENCES),
    (Intent((*TAGS, "intent:off", "intent:on")), SENTENCES),
    (Answer(), QUESTIONS),
    (Answer(with_none=True), QUESTIONS),
]
READ = [(task, given, family) for task, given in TASKS for family in ("bert", "roberta", "gpt2", "llama")]
WRITTEN = [
    *((Translate(most_new=10), TEXTS, family) for family in ("t5", "transformer")),
    *((Reply(head="causal", most_new=10), TEXTS, family) for family in ("gpt2", "llama")),
]


def ready(task: Task, family: str, length: int = 24) -> tuple[Any, InputSpec]:
    built, reader = make(task, family, length=length)
    if isinstance(task, Tag) and task.crf:
        task.prepare(built.network, [])
        generator = torch.Generator().manual_seed(1)
        for parameter in built.network.get_submodule("crf").parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return built, reader


def named(case) -> str:
    task, _, family = case
    return f"{task.name}-{type(task).__name__}{'-crf' * getattr(task, 'crf', False)}-{family}"


def answers(task: Task, network, reader: InputSpec, examples: list[Example]) -> list:
    return task.answers(network, examples, reader)[0]


def check_same(one, other) -> None:
    if isinstance(one, str):
        assert one == other
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for part, twin in zip(one, other, strict=True):
            check_same(part, twin)
    else:
        np.testing.assert_allclose(one, other, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("case", [*READ, *WRITTEN], ids=named)
def test_a_batch_is_answered_as_one_by_one(case):
    task, given, family = case
    built, reader = ready(task, family, 24 if case in READ else 128)
    examples = asked(given)
    together = answers(task, built.network, reader, examples)
    assert len(together) == len(examples)
    for example, answer in zip(examples, together, strict=True):
        check_same(answer, answers(task, built.network, reader, [example])[0])
    turned = answers(task, built.network, reader, examples[::-1])[::-1]
    check_same(together, turned)
    assert any(str(answer) != str(together[0]) for answer in together)


@pytest.mark.parametrize("case", [*READ, *WRITTEN], ids=named)
def test_nothing_is_answered_with_nothing(case):
    task, _, family = case
    built, reader = ready(task, family)
    assert answers(task, built.network, reader, []) == []


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 100))
def test_inputs_are_read_once_each_in_batches_of_bounded_size(lengths, most):
    inputs = [Input(0, np.zeros(length, np.int32)) for length in lengths]
    parts = list(groups(inputs, most))
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or sum(lengths[index] for index in part) <= most for part in parts)


word = st.one_of(
    st.sampled_from(
        [
            "Alice",
            "rabbit-hole",
            "naïve",
            "爱丽丝",
            "🐇",
            "👨‍👩‍👧",
            "\u200b",
            "\u0007",
            "",
            "don't",
            "straightforwardness",
        ]
    ),
    st.text(min_size=1, max_size=6),
)
words = st.lists(word, min_size=1, max_size=40).map(tuple)
families = st.sampled_from(["bert", "roberta", "gpt2", "llama"])


@given(words, families, st.integers(8, 30))
def test_every_word_is_asked_about_once_by_its_first_piece_and_windows_fit(sentence, family, limit):
    tokenizer = tokenizer_of(family)
    inputs = Tag(TAGS).inputs(asked([sentence]), InputSpec(tokenizer, limit))
    assert [number for one in inputs for number in one.targets.words] == list(range(len(sentence)))
    for one in inputs:
        assert len(one.ids) <= limit
        assert one.was_cut == (len(inputs) > 1)
        known = dict(zip(one.targets.known.tolist(), one.targets.rows.tolist(), strict=True))
        for number, place in enumerate(one.targets.words):
            word = as_written(sentence, tokenizer)[place]
            pieces = tokenizer.engine.encode([word], is_pretokenized=True, add_special_tokens=False).ids
            assert bool(pieces) == (number in known)
            if pieces:
                assert one.ids[known[number]] == pieces[0]


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_tags_of_a_long_sentence_are_those_of_its_windows(family, crf):
    task = Tag(TAGS, entities=True, crf=crf)
    built, reader = ready(task, family, 16)
    (example,) = asked([LONG])
    windows = [one.targets.words for one in task.inputs([example], reader)]
    assert len(windows) > 3
    written = as_written(LONG, reader.tokenizer)  # a window goes on in the text: its first word has a space before it
    parts = answers(task, built.network, reader, asked([_window(written, LONG, window) for window in windows]))
    (whole,) = answers(task, built.network, reader, [example])
    assert whole == tuple(tag for part in parts for tag in part)
    assert len(whole) == len(LONG)


def _window(written, words, window):
    return (written[window.start], *words[window.start + 1 : window.stop])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_with_a_crf_all_tags_are_well_formed(family):
    task = Tag(TAGS, entities=True, crf=True)
    built, reader = ready(task, family, 12)
    said = answers(task, built.network, reader, asked(SENTENCES))
    assert all(repaired_tags(tags, "iob2") == (list(tags), 0) for tags in said)
    assert any(tag.startswith("I-") for tags in said for tag in tags)


def test_a_word_without_a_piece_is_nothing_or_part_of_the_entity_around_it():
    task = Tag(TAGS, entities=True)
    known = WordTargets(range(6), np.asarray([1, 2, 3]), np.asarray([0, 2, 5]), None)
    best = torch.tensor([0, 3, 4, 0, 0]).float()  # B-LOC, I-LOC, O
    logits = torch.nn.functional.one_hot(best.long(), 5).float()
    tags = [TAGS[number] for number in task.read([logits], [known])[0][0]]
    assert tags == ["B-LOC", "I-LOC", "I-LOC", "O", "O", "O"]
    other = replace(known, known=np.asarray([0, 1, 2]))
    assert [TAGS[number] for number in task.read([logits], [other])[0][0]][3:] == ["O"] * 3


def test_a_saved_crf_decides_as_before(tmp_path):
    task = Tag(TAGS, entities=True, crf=True)
    built, reader = ready(task, "bert", 20)
    before = answers(task, built.network, reader, asked(SENTENCES))
    model = LoadedModel.load(save(task, built, reader, tmp_path / "model"))
    assert model.task == task
    assert model.answers(asked(SENTENCES)) == before
    plain = answers(replace(task, crf=False), built.network, reader, asked(SENTENCES))
    assert plain != before


context_words = st.lists(
    st.sampled_from("Alice rabbit-hole naïve 爱丽丝 🐇 the \u200b don't 1865, straightforwardness \n".split(" ")),
    min_size=1,
    max_size=40,
)


@given(context_words, families, st.integers(16, 60))
def test_an_answer_is_where_its_tokens_are_and_some_window_holds_it(parts, family, limit):
    """Every row of one to four words."""
    context, question = " ".join(parts), "Who was it?"
    golds = [
        Gold(" ".join(parts[first:last]), len(" ".join([*parts[:first], ""])))
        for first in range(len(parts))
        for last in range(first + 1, min(first + 4, len(parts)) + 1)
        if parts[first].isprintable() and parts[last - 1].isprintable()  # else no token stands there
    ]
    engine = tokenizer_of(family).engine
    room = limit - engine.num_special_tokens_to_add(is_pair=True)
    asked_with = min(len(engine.encode(question, add_special_tokens=False)), max(1, int(room * QUESTION_SHARE)))
    shared = int((room - asked_with) * OVERLAP_SHARE)
    examples = [Example((question, context), (gold,)) for gold in golds]
    held = [0] * len(golds)
    for one in Answer().inputs(examples, InputSpec(tokenizer_of(family), limit)):
        assert len(one.ids) <= limit
        (begin, end), offsets = one.targets.span, one.targets.offsets
        if (begin, end) != (0, 0):
            assert context[offsets[begin, 0] : offsets[end, 1]].strip() == golds[one.example].text
            held[one.example] += 1
    for gold, count in zip(golds, held, strict=True):
        assert count or len(engine.encode(" " + gold.text, add_special_tokens=False)) > shared


@given(context_words, st.data(), families)
def test_an_answer_inside_of_words_is_covered_by_as_few_tokens_as_can_be(parts, data, family):
    context = " ".join(parts)
    begin = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(begin + 1, min(begin + 20, len(context))))
    assume(all(context[place].isprintable() and not context[place].isspace() for place in (begin, end - 1)))
    gold = Gold(context[begin:end], begin)
    (one,) = Answer().inputs([Example(("?", context), (gold,))], InputSpec(tokenizer_of(family), 2000))
    first, last = one.targets.span
    offsets = one.targets.offsets
    assert offsets[first, 0] <= begin < offsets[first, 1]
    assert offsets[last, 0] < end <= offsets[last, 1]


@pytest.mark.parametrize(("text", "expected"), [
    ("Paris", Gold("Paris", 4)),
    (" Paris ", Gold("Paris", 4)),  # blanks are no token's
    ([{"text": "Paris", "answer_start": 5}], Gold("Paris", 4)),  # a place that is a little off
    ({"text": ["Paris", "in"], "answer_start": [4, 1]}, Gold("Paris", 4)),
])  # fmt: skip
def test_a_gold_answer_is_where_its_text_stands(text, expected):
    values = {"question": "Where?", "context": "So: Paris in May", "answers": text}
    values["context"] = values["context"].replace("Paris", " Paris ") if text == " Paris " else values["context"]
    gold = Answer().example(values, with_gold=True).gold[0]
    assert gold.text == expected.text
    assert values["context"][gold.start :].startswith(expected.text)


def test_candidates_say_where_they_stand_in_any_script():
    task = Answer()
    for family in ("bert", "roberta", "gpt2"):
        built, reader = ready(task, family, 32)
        examples = asked([("Who?", "爱丽丝 🐇 and\n  the   White Rabbit 👨‍👩‍👧 naïve " * 3), ("Why?", "\u200b")])
        first, nothing = answers(task, built.network, reader, examples)
        context = examples[0].given[1]
        assert len(first) > 5
        assert all(one.text and one.text == one.text.strip() == context[one.start : one.end] for one in first)
        (one, *_) = inputs = task.inputs(examples[:1], reader)
        blank = [not context[start:end].strip() for start, end in one.targets.offsets]
        logits = np.where(np.asarray(blank)[:, None], 9.0, np.zeros((1, 2)))
        said = task.join(
            examples[0], [(one, logits), *((other, np.zeros((len(other.ids), 2))) for other in inputs[1:])]
        )
        assert all(candidate.text for candidate in said)
        if family == "bert":  # which has no token for it
            assert [(one.text, one.start) for one in nothing] == [("", -1)]


@pytest.mark.parametrize(
    "task", [Tag(TAGS, entities=True), Intent((*TAGS, "intent:off", "intent:on"))], ids=["tag", "intent"]
)
@pytest.mark.parametrize("family", ["bert", "gpt2", "qwen3"])
def test_words_that_leave_nothing_to_read_change_nothing_for_others(family, task):
    built, reader = ready(task, family)
    (alone,) = answers(task, built.network, reader, asked([WORDS[0]]))
    for sentences, place in (([("",), WORDS[0]], 1), ([WORDS[0], ("", "")], 0)):
        said = answers(task, built.network, reader, asked(sentences))
        check_same(said[place], alone)
        nothing = said[1 - place] if task.name == "tag" else said[1 - place][1]
        assert nothing == ("O",) * len(sentences[1 - place])
    assert len(answers(task, built.network, reader, asked([("",)]))) == 1
