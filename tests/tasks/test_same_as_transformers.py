"""A fine-tuned folder says the same to transformers: labels, scores, tags, spans, texts; cut at the same token."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from task_models import (
    DECODERS,
    ENCODERS,
    PAIRS,
    TEXTS,
    WITH_SOURCE,
    WORDS,
    asked,
    in_text,
    make,
    save,
    tokenizer_of,
)
from weft.generate import prompts
from weft.generate.prepare import prepared
from weft.generate.writer import Writer
from weft.tasks.answer import LONGEST_ANSWER, OVERLAP_SHARE, SPANS_PER_WINDOW, Answer, AnswerSpan
from weft.tasks.batches import pack_inputs
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.encode import encode_pairs, encode_texts, shortened
from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec
from weft.tasks.intent import Intent
from weft.tasks.loaded import LoadedModel
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Rewrite, Summarize, Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.train.build import Built

FAMILIES = (*ENCODERS, *DECODERS)
SHORT = [text for text in TEXTS if len(text) < 100]
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
QUESTIONS = [
    ("Who sat on the bank?", TEXTS[2][:105]),
    ("Where?", TEXTS[0]),
    ("谁?", TEXTS[3]),
    ("What was she tired of?", TEXTS[2]),  # read in windows
]


def opened(folder: Path, kind: str):
    """transformers' model, nothing missing and nothing left over, and its tokenizer."""
    auto = getattr(transformers, f"AutoModelFor{kind}")
    model, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:  # decoders have none: one pads with the end, as with GPT-2's own
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    return model.eval(), tokenizer


def logits_of(model, tokenizer, *texts) -> torch.Tensor:
    """Of one padded batch."""
    with torch.inference_mode():
        return model(**tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")).logits


def said_by_weft(folder: Path, given) -> np.ndarray:
    return np.asarray(LoadedModel.load(folder).answers(asked(given)))


def check_same(ours: np.ndarray, theirs: torch.Tensor) -> None:
    assert theirs.std(0).min() > 1e-3  # the texts are told apart
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5, rtol=0)


def from_pipeline(model, tokenizer, given, names) -> np.ndarray:
    """The scores of all labels, in the order of `names`."""
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    inputs = [one if isinstance(one, str) else {"text": one[0], "text_pair": one[1]} for one in given]
    rows = [pipe(one, top_k=None, truncation=True) for one in inputs]
    found = [{item["label"]: item["score"] for item in row} for row in rows]
    assert all(set(row) == set(names) for row in found)
    return np.asarray([[row[name] for name in names] for row in found])


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_have_the_same_names_and_chances(family, tmp_path):
    task = Classify(("bad", "good", "so-so"))
    folder = save(task, *make(task, family), tmp_path / "model")
    model, tokenizer = opened(folder, "SequenceClassification")
    assert model.config.id2label == dict(enumerate(task.labels))
    assert model.config.problem_type == "single_label_classification"
    ours = said_by_weft(folder, TEXTS)
    check_same(ours, logits_of(model, tokenizer, TEXTS).softmax(-1))
    np.testing.assert_allclose(from_pipeline(model, tokenizer, TEXTS, task.labels), ours, atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_several_labels_have_a_chance_each(family, tmp_path):
    task = MultiLabel(("cheap", "fast", "good"))
    folder = save(task, *make(task, family, seed=1), tmp_path / "model")
    model, tokenizer = opened(folder, "SequenceClassification")
    assert model.config.problem_type == "multi_label_classification"
    ours = said_by_weft(folder, TEXTS)
    check_same(ours, logits_of(model, tokenizer, TEXTS).sigmoid())
    np.testing.assert_allclose(from_pipeline(model, tokenizer, TEXTS, task.labels), ours, atol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_have_the_same_chances(family, tmp_path):
    task = Pair(("contradicts", "follows"))
    folder = save(task, *make(task, family, seed=2), tmp_path / "model")
    model, tokenizer = opened(folder, "SequenceClassification")
    ours = said_by_weft(folder, PAIRS)
    check_same(ours, logits_of(model, tokenizer, *map(list, zip(*PAIRS, strict=True))).softmax(-1))
    np.testing.assert_allclose(from_pipeline(model, tokenizer, PAIRS, task.labels), ours, atol=2e-5)


def test_the_two_texts_of_a_pair_are_segments_of_bert():
    reader = make(Pair(("a", "b")), "bert")[1]
    (one,) = encode_pairs([("Down", "the hole")], reader)
    theirs = reader.tokenizer.engine.encode("Down", "the hole")
    assert one.segments is not None
    assert one.segments.tolist() == theirs.type_ids
    assert set(theirs.type_ids) == {0, 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_similarity_is_a_regression_of_one_label(family, tmp_path):
    task = Similarity(("score",))
    folder = save(task, *make(task, family, seed=3), tmp_path / "model")
    model, tokenizer = opened(folder, "SequenceClassification")
    assert (model.config.problem_type, model.config.id2label) == ("regression", {0: "score"})
    ours = said_by_weft(folder, PAIRS)
    check_same(ours, logits_of(model, tokenizer, *map(list, zip(*PAIRS, strict=True)))[:, 0])
    np.testing.assert_allclose(from_pipeline(model, tokenizer, PAIRS, task.labels)[:, 0], ours, atol=2e-5)


def first_pieces(model, tokenizer, words) -> tuple[np.ndarray, np.ndarray]:
    """transformers' logits of the first piece of each word, and of all tokens."""
    encoded = tokenizer(in_text(tokenizer, words), is_split_into_words=True, return_tensors="pt")
    if "爱丽丝" not in words:  # where words touch, a text does not tell where one ends
        assert encoded["input_ids"].tolist() == [tokenizer(" ".join(words))["input_ids"]]
    with torch.inference_mode():
        logits = model(**encoded).logits[0].numpy()
    numbers = encoded.word_ids(0)
    return logits[[numbers.index(word) for word in range(len(words))]], logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_piece_of_a_word_has_its_tag(family, tmp_path):
    task = Tag(TAGS, entities=True)
    folder = save(task, *make(task, family), tmp_path / "model")
    model, tokenizer = opened(folder, "TokenClassification")
    assert model.config.id2label == dict(enumerate(TAGS))
    expected = [
        tuple(model.config.id2label[int(number)] for number in first_pieces(model, tokenizer, words)[0].argmax(-1))
        for words in WORDS
    ]
    assert LoadedModel.load(folder).answers(asked(WORDS)) == expected
    assert len({tag for tags in expected for tag in tags}) > 2


def test_the_pipeline_for_tokens_finds_the_same_tags(tmp_path):
    task = Tag(TAGS, entities=True)
    folder = save(task, *make(task, "bert"), tmp_path / "model")
    pipe = transformers.pipeline("token-classification", model=str(folder), ignore_labels=[])
    words = WORDS[0]
    text, ours = " ".join(words), LoadedModel.load(folder).answers(asked([words]))[0]
    begins = [len(" ".join(words[:number])) + (number > 0) for number in range(len(words))]
    said = {one["start"]: one["entity"] for one in pipe(text)}
    assert tuple(said[begin] for begin in begins) == ours


@pytest.mark.parametrize("family", FAMILIES)
def test_an_intent_is_what_the_token_that_has_read_all_says(family, tmp_path):
    task = Intent((*TAGS[:3], "intent:off", "intent:on"))
    folder = save(task, *make(task, family), tmp_path / "model")
    model, tokenizer = opened(folder, "TokenClassification")
    assert model.config.id2label == dict(enumerate(task.labels))
    for words, (chances, tags) in zip(WORDS, LoadedModel.load(folder).answers(asked(WORDS)), strict=True):
        first, rows = first_pieces(model, tokenizer, words)
        whole = rows[0 if family in ENCODERS else -1, 3:]
        np.testing.assert_allclose(chances, np.exp(whole) / np.exp(whole).sum(), atol=2e-5)
        assert tags == tuple(task.labels[number] for number in first[:, :3].argmax(-1))


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_and_span_logits_are_the_same_token_for_token(family, tmp_path):
    task, limit = Answer(), 80
    folder = save(task, *make(task, family, length=limit), tmp_path / "model")
    model, tokenizer = opened(folder, "QuestionAnswering")
    ours = LoadedModel.load(folder)
    inputs = ours.task.inputs(asked(QUESTIONS), ours.input_spec)
    windows = 0
    for number, (question, context) in enumerate(QUESTIONS):
        mine = [one for one in inputs if one.example == number]
        left = limit - tokenizer.num_special_tokens_to_add(pair=True)
        left -= len(tokenizer(question, add_special_tokens=False).input_ids)
        encoded = tokenizer(
            question,
            context,
            truncation="only_second",
            stride=int(left * OVERLAP_SHARE),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert [one.ids.tolist() for one in mine] == encoded.input_ids
        windows += len(mine)
        for place, one in enumerate(mine):
            fields = {name: torch.tensor([encoded[name][place]]) for name in tokenizer.model_input_names}
            with torch.inference_mode():
                theirs = model(**fields)
            said = logits_of_window(task, ours.task_network, one)
            np.testing.assert_allclose(said[:, 0], theirs.start_logits[0], atol=1e-4)
            np.testing.assert_allclose(said[:, 1], theirs.end_logits[0], atol=1e-4)
            sides = encoded.sequence_ids(place)
            for own, offset, side in zip(one.targets.offsets, encoded["offset_mapping"][place], sides, strict=True):
                assert tuple(own) == (tuple(offset) if side == 1 else (-1, -1))
    assert windows > len(QUESTIONS)


@torch.inference_mode()
def logits_of_window(task: Answer, network, one: Input) -> np.ndarray:
    packed = pack_inputs([one])
    return task.pieces(network, network(packed), packed, [one])[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_none", [False, True])
def test_the_best_answers_are_those_of_trying_every_span(family, seed, with_none):
    task = Answer(with_none=with_none)
    built, reader = make(task, family, length=96, seed=seed)
    examples = asked(QUESTIONS)
    inputs = task.inputs(examples, reader)
    answers, _ = task.answers(built.network, examples, reader)
    for number, (example, found) in enumerate(zip(examples, answers, strict=True)):
        spans, nothing = [], []
        for one in (one for one in inputs if one.example == number):
            logits = logits_of_window(task, built.network, one)
            inside = [place for place, (start, end) in enumerate(one.targets.offsets) if end > start]
            nothing.append(float(logits[0].sum()))
            for begin, end in product(inside, inside):
                if begin <= end < begin + LONGEST_ANSWER:
                    text = example.given[1][one.targets.offsets[begin, 0] : one.targets.offsets[end, 1]]
                    spans.append((float(logits[begin, 0] + logits[end, 1]), text.strip()))
        # Of the best spans some are one text, found twice or with a blank; so many texts are sure.
        sure = {text for _, text in sorted(spans, reverse=True)[:SPANS_PER_WINDOW] if text}
        best = {text: score for score, text in sorted(spans) if text}
        if with_none:
            best[""] = min(nothing)
        expected = sorted(best.items(), key=lambda item: -item[1])[: len(sure)]
        assert [one.text for one in found[: len(sure)]] == [text for text, _ in expected]
        np.testing.assert_allclose(
            [one.score for one in found[: len(sure)]], [score for _, score in expected], atol=1e-4
        )
        for one in found:
            assert example.given[1][one.start : one.end] == one.text or (one.text == "" and one.start == -1)


def test_no_answer_is_as_likely_as_the_window_that_believes_in_it_least():
    """As in SQuAD 2.0's own scoring: an answer in one window is an answer."""
    task = Answer(with_none=True)
    (example,) = asked(QUESTIONS[3:])
    inputs = task.inputs([example], make(task, "bert")[1])
    assert len(inputs) > 1
    logits = [np.zeros((len(one.ids), 2), np.float32) for one in inputs]
    for number, rows in enumerate(logits):
        rows[0] = 5 + number
    pieces = list(zip(inputs, logits, strict=True))
    assert task.join(example, pieces)[0] == AnswerSpan("", -1, -1, 10.0)
    begin, end = np.flatnonzero(inputs[-1].targets.offsets[:, 1] > 0)[[3, 5]]
    logits[-1][begin, 0], logits[-1][end, 1] = 6, 5
    best = task.join(example, pieces)[0]
    assert (best.score, best.start) == (11.0, inputs[-1].targets.offsets[begin, 0])


def make_writer(task: Rewrite, family: str, seed: int = 0) -> tuple[Built, InputSpec]:
    """One some of whose texts end: its end changes places with a token that it writes now and then."""
    apart = {"tied": False} if family != "transformer" else {"tied": False, "shared_embedding": False}
    built, reader = make(task, family, length=128, seed=seed, **apart)
    writer = Writer(prepared(built.network), prompts.PromptReader(built.saved, reader.tokenizer, reader.ends), {})
    rows = [one.ids.tolist() for one in task.inputs(asked(SHORT), reader)]
    written = writer.generate(rows, max_new_tokens=task.most_new, beams=task.beams)
    counts = Counter(token for row in written for token in set(row))
    sometimes, end = max(counts, key=lambda token: (counts[token] < len(rows), counts[token])), reader.ends.end_ids[0]
    with torch.no_grad():
        out = built.network.head(task.head).out.weight
        out[[sometimes, end]] = out[[end, sometimes]]
    return built, reader


@pytest.mark.parametrize("task", [Translate(most_new=12), Summarize(prefix="summarize: ", beams=1, most_new=15)])
@pytest.mark.parametrize("family", WITH_SOURCE)
def test_an_encoder_decoder_writes_the_same_texts(family, task, tmp_path):
    folder = save(task, *make_writer(task, family), tmp_path / "model")
    model, tokenizer = opened(folder, "Seq2SeqLM")
    ours = LoadedModel.load(folder).answers(asked(TEXTS))
    encoded = tokenizer([task.prefix + text for text in TEXTS], truncation=True, padding=True, return_tensors="pt")
    assert model.generation_config.num_beams == task.beams
    written = model.generate(**encoded)
    assert ours == [text.strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)]
    check_different(ours, written[:, 1:], tokenizer.eos_token_id)


def check_different(texts: Sequence[str], written: Sequence[torch.Tensor], end: int) -> None:
    assert len(set(texts)) > 3
    rows = [row.tolist() for row in written]
    assert len({row.index(end) if end in row else len(row) for row in rows}) > 1


@pytest.mark.parametrize("task", [Reply(head="causal", most_new=12), Reply(head="causal", beams=1, separator=" => ")])
@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_writes_the_same_texts(family, task, tmp_path):
    folder = save(task, *make_writer(task, family), tmp_path / "model")
    model, tokenizer = opened(folder, "CausalLM")
    ours, written = LoadedModel.load(folder).answers(asked(SHORT)), []
    for text in SHORT:
        encoded = tokenizer(text + (task.separator or tokenizer.eos_token), return_tensors="pt")
        written.append(model.generate(**encoded)[0, encoded.input_ids.shape[1] :])
    assert ours == [tokenizer.decode(row, skip_special_tokens=True).strip() for row in written]
    check_different(ours, written, tokenizer.eos_token_id)


@pytest.mark.parametrize("family", DECODERS)
def test_the_pipeline_writes_the_same_texts(family, tmp_path):
    task = Reply(head="causal", most_new=10)
    folder = save(task, *make_writer(task, family), tmp_path / "model")
    pipe = transformers.pipeline("text-generation", model=str(folder))
    (ours,) = LoadedModel.load(folder).answers(asked(TEXTS[:1]))
    assert pipe(TEXTS[0] + pipe.tokenizer.eos_token, return_full_text=False)[0]["generated_text"].strip() == ours


def test_what_is_drawn_is_drawn_in_transformers_too(tmp_path):
    task = Reply(head="causal", sample=True)
    folder = save(task, *make(task, "gpt2"), tmp_path / "model")
    config = transformers.GenerationConfig.from_pretrained(folder)
    assert (config.do_sample, config.num_beams, config.top_p, config.top_k) == (True, 1, 0.9, 0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", [12, 25])
def test_what_is_too_long_is_cut_at_the_same_token(family, limit):
    reader = InputSpec(tokenizer_of(family), limit, segments=2)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=reader.tokenizer.engine,
        model_max_length=limit,
        model_input_names=["input_ids", "token_type_ids"],
    )
    given = [*PAIRS, *(pair[::-1] for pair in PAIRS)]
    for ours, row in zip(encode_texts(TEXTS, reader), theirs(TEXTS, truncation=True).input_ids, strict=True):
        assert ours.ids.tolist() == row
    cut = theirs([first for first, _ in given], [second for _, second in given], truncation=True)
    for ours, row, kinds in zip(encode_pairs(given, reader), cut.input_ids, cut.token_type_ids, strict=True):
        assert ours.ids.tolist() == row
        assert ours.segments is not None
        assert ours.segments.tolist() == kinds
    reader.tokenizer.engine.no_truncation()  # transformers leaves it on


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 50))
def test_a_pair_gives_way_as_in_tokenizers(first, second, room):
    engine = tokenizer_of("gpt2").engine
    engine.enable_truncation(room, strategy="longest_first")
    cut = engine.encode(["a"] * first, ["b"] * second, is_pretokenized=True)
    engine.no_truncation()
    assert shortened(first, second, room) == (cut.sequence_ids.count(0), cut.sequence_ids.count(1))
