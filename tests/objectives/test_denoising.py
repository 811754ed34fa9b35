"""BART's noises: sentences are permuted, spans become masks, and the decoder writes the whole text."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import RecipeError
from weft.objectives.catalog import OBJECTIVES
from weft.objectives.denoising import Denoising
from weft.objectives.infilling import infill_spans
from weft.objectives.objective import sample_generator
from weft.objectives.permutation import SentenceMarks, permute_sentences, sentence_marks
from weft.tokenizer.train import train_tokenizer

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
MASK, WORD, STOP, QUOTE, SEPARATOR = 0, 1, 2, 3, 4
MARKS = SentenceMarks(np.arange(100) == STOP, np.arange(100) == QUOTE)
TEXTS = st.lists(st.integers(1, 9), min_size=1, max_size=80).map(np.asarray)
SEEDS = st.integers(0, 2**31 - 1)


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(token in rest for token in part)


def sentences_of(ids):
    """A list of documents, each a list of sentences, and the separators between them as documents of their own."""
    documents, sentence, has_ended = [[]], [], False
    for token in ids.tolist():
        goes_on = token == STOP or (token == QUOTE and has_ended)
        if sentence and (token == SEPARATOR or (has_ended and not goes_on)):
            documents[-1].append(sentence)
            sentence = []
        if token == SEPARATOR:
            documents += [[[SEPARATOR]], []]
            has_ended = False
            continue
        sentence = [*sentence, token]
        has_ended = goes_on
    documents[-1] += [sentence] if sentence else []
    return [document for document in documents if document]


@given(TEXTS, SEEDS, st.sampled_from([0.05, 0.3, 0.9]), st.sampled_from([0.5, 3.0]))
def test_the_share_is_masked_and_the_rest_stays_in_order(ids, seed, share, mean_length):
    source = infill_spans(ids, MASK, np.random.default_rng(seed), share=share, mean_length=mean_length)
    kept = source[source != MASK]
    assert is_subsequence(kept, ids)
    hidden = min(max(round(len(ids) * share), 1), len(ids) - 1)  # one token is kept
    assert len(kept) == len(ids) - hidden
    assert len(source) <= len(ids)
    assert (len(source) > len(kept)) == (len(ids) > 1)


def test_a_plain_loop_puts_the_same_masks():
    ids = np.arange(1, 101)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        left, lengths = 30, []
        for drawn in rng.poisson(3.0, 30).tolist():
            if left:
                lengths.append(min(drawn, left))
                left -= lengths[-1]
        places = set(rng.permutation(70 + len(lengths))[: len(lengths)].tolist())
        expected, token, spans = [], 0, iter(lengths)
        for slot in range(70 + len(lengths)):
            expected.append(MASK if slot in places else int(ids[token]))
            token += next(spans) if slot in places else 1
        assert infill_spans(ids, MASK, np.random.default_rng(seed)).tolist() == expected


def test_lengths_of_spans_are_those_of_a_poisson_distribution():
    """Every kept token names its place, so gaps between neighbours tell the lengths of lone spans."""
    masks, lengths = 0, []
    for seed in range(400):
        ids = np.arange(1, 1001)
        source = infill_spans(ids, MASK, np.random.default_rng(seed))
        masks += int((source == MASK).sum())
        alone = np.flatnonzero((source[1:-1] == MASK) & (source[:-2] != MASK) & (source[2:] != MASK)) + 1
        lengths += (source[alone + 1] - source[alone - 1] - 1).tolist()
    assert 300 * 400 / masks == pytest.approx(3.0, rel=0.02)
    assert np.mean(lengths) == pytest.approx(3.0, rel=0.02)
    assert np.var(lengths) == pytest.approx(3.0, rel=0.05)
    assert np.mean(np.asarray(lengths) == 0) == pytest.approx(np.exp(-3), rel=0.1)  # inserted masks


@given(TEXTS, SEEDS)
def test_documents_keep_their_place_and_their_sentences(ids, seed):
    permuted = permute_sentences(ids, MARKS, SEPARATOR, np.random.default_rng(seed))
    rest = permuted.tolist()
    for document in sentences_of(ids):
        part, rest = rest[: sum(map(len, document))], rest[sum(map(len, document)) :]
        assert can_be_joined(document, part)


def can_be_joined(sentences, whole):
    """Whether the sentences in some order are the whole. Tries each different one as the first."""
    return not sentences or any(
        whole[: len(first)] == list(first)
        and can_be_joined(sentences[: (at := sentences.index(list(first)))] + sentences[at + 1 :], whole[len(first) :])
        for first in set(map(tuple, sentences))
    )


def test_all_orders_are_equally_frequent():
    ids = np.asarray([11, STOP, 12, STOP, QUOTE, 13, SEPARATOR, 14, STOP, 15])
    found = [tuple(permute_sentences(ids, MARKS, SEPARATOR, np.random.default_rng(seed))) for seed in range(2400)]
    assert all(one[6] == SEPARATOR for one in found)
    assert all(one[one.index(12) : one.index(12) + 3] == (12, STOP, QUOTE) for one in found)
    orders, counts = np.unique(found, axis=0, return_counts=True)
    assert len(orders) == 6 * 2
    assert counts.min() > 140 and counts.max() < 260  # 200 each


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_sentences_end_with_punctuation_closing_quotes_or_lines(kind):
    tokenizer = train_tokenizer([ALICE], kind, 500, family="t5")
    text = 'She ran. "Why?" he asked (twice!) again\nOh... no "dear" me'
    ids = np.asarray(tokenizer.encode(text)[:-1])
    sentences = ["She ran.", '"Why?"', "he asked (twice!)", "again", "Oh...", 'no "dear" me']
    marks, end = sentence_marks(tokenizer), tokenizer.id_of("eos")
    orders = set()
    for seed in range(100):
        permuted = tokenizer.decode(permute_sentences(ids, marks, end, np.random.default_rng(seed)))
        places = [permuted.find(sentence) for sentence in sentences]
        assert min(places) >= 0, permuted
        orders.add(tuple(np.argsort(places)))
    assert len(orders) > 70  # of 720


@pytest.fixture(scope="module")
def denoising():
    tape = np.random.default_rng(0).integers(1, 20, 4000)
    return Denoising(tape, 50, MASK, MARKS, end=SEPARATOR, start=99)


def test_the_decoder_writes_the_text_and_reads_it_one_token_late(denoising):
    batch = denoising.batch([0, 7], [0, 2], seed=3)
    targets, reads = batch.targets.split(batch.decoder.lengths), batch.decoder.split(batch.decoder.tokens)
    sources = batch.packed.split(batch.packed.tokens)
    for sample, source, target, read in zip((0, 7), sources, targets, reads, strict=True):
        text = denoising.shards[sample * 50 : (sample + 1) * 50].tolist()
        assert target.tolist() == [*text, SEPARATOR]
        assert read.tolist() == [99, *text]
        assert source[-1] == SEPARATOR
        assert (source[:-1] != MASK).sum() == 35
    assert batch.counts == {"seq2seq": 102}


def test_the_source_is_permuted_then_infilled(denoising):
    rng = sample_generator(3, 2, 7)
    permuted = permute_sentences(denoising.shards[350:400], MARKS, SEPARATOR, rng)
    expected = [*infill_spans(permuted, MASK, rng), SEPARATOR]
    assert denoising.batch([7], [2], seed=3).packed.tokens.tolist() == expected


def test_other_seeds_and_epochs_make_other_noise(denoising):
    found = [denoising.batch([4], [epoch], seed) for epoch, seed in ((0, 1), (0, 1), (1, 1), (0, 2))]
    first, again, *others = [batch.packed.tokens.tolist() for batch in found]
    assert first == again
    assert all(first != other for other in others)
    assert len({tuple(batch.targets.tolist()) for batch in found}) == 1


def test_the_mask_is_the_first_sentinel_or_the_mask_token():
    make = OBJECTIVES["denoise"].make
    masking = OBJECTIVES["denoise"].masking
    t5 = train_tokenizer([ALICE], "char", None, family="t5")
    assert make([], t5, 32, masking).mask == t5.engine.token_to_id("<extra_id_0>")
    assert make([], t5, 32, masking).share == 0.3
    roberta = train_tokenizer([ALICE], "bpe", 400, family="roberta")
    assert make([], roberta, 32, masking).mask == roberta.id_of("mask")
    with pytest.raises(RecipeError, match="no mask token and no <extra_id_0>, one of which denoising needs"):
        make([], train_tokenizer([ALICE], "char", None, family="transformer"), 32, masking)
