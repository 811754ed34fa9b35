"""The chapter on generation: each formula as written gives what weft chooses. Double precision, small vocabularies."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.generate.beam import LOST, BeamSearch, advance_searches
from weft.generate.next_token import TokenRules, choose_tokens, draw_tokens, filtered_probabilities
from weft.generate.settings import settings_of
from weft.generate.start_end_tokens import StartEndTokens
from weft.theory.written import generation as written

seeds = st.integers(0, 2**31)
rows = st.integers(1, 3)
vocabularies = st.integers(1, 6)


def random_scores(rows, vocabulary, seed):
    return np.random.default_rng(seed).normal(size=(rows, vocabulary)) * 3


def probabilities_of(scores, *given):
    """What the filters leave of each row, by token, with total 1."""
    found = np.zeros(np.shape(scores))
    asked = [settings_of({"strategy": "sample", **one}) for one in given]
    for places, probabilities, tokens in filtered_probabilities(torch.tensor(scores), asked):
        for place, (row, p) in enumerate(zip(places, probabilities.double().numpy(), strict=True)):
            found[row, range(len(p)) if tokens is None else tokens[place].numpy()] = p / p.sum()
    return found


@given(rows, vocabularies, seeds)
def test_greedy(rows, vocabulary, seed):
    scores = random_scores(rows, vocabulary, seed)
    greedy, sample = settings_of({}), settings_of({"strategy": "sample", "top_k": vocabulary})
    expected = [written.most_probable(z) for z in scores]
    assert choose_tokens(torch.tensor(scores), [greedy] * rows, [0.0] * rows) == expected
    alternating = [sample if row % 2 else greedy for row in range(rows)]
    drawn = choose_tokens(torch.tensor(scores), alternating, [1 - 1e-12] * rows)
    assert drawn[::2] == expected[::2]
    if rows > 1 and vocabulary > 1:
        assert drawn[1] == vocabulary - 1  # with a number near 1: the last one, whatever its probability


@given(rows, vocabularies, st.lists(st.sampled_from([None, 0.125, 0.5, 1.0, 3.0]), min_size=3, max_size=3), seeds)
def test_temperature(rows, vocabulary, taus, seed):
    scores = random_scores(rows, vocabulary, seed)
    found = probabilities_of(scores, *({"temperature": tau} for tau in taus[:rows]))
    expected = [written.with_temperature(z, tau or 1.0) for z, tau in zip(scores, taus, strict=False)]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    huge = probabilities_of(np.array([[1e306, 0.0, 1e306]]), {"temperature": 2.0**-13})
    np.testing.assert_allclose(huge, [[0.5, 0.0, 0.5]])


@given(rows, vocabularies, st.integers(1, 7), st.sampled_from([0.5, 1.0, 2.0]), seeds)
def test_top_k(rows, vocabulary, k, tau, seed):
    scores = random_scores(rows, vocabulary, seed)
    expected = []
    for z in scores:
        p = written.with_temperature(z, tau)
        expected.append(written.renormalized(p, written.top_k_set(p, k)))
    found = probabilities_of(scores, *[{"top_k": k, "temperature": tau}] * rows)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(rows, vocabularies, st.lists(st.sampled_from([1e-50, 0.25, 0.5, 0.875, 1.0]), min_size=3, max_size=3), seeds)
def test_top_p(rows, vocabulary, shares, seed):
    scores = random_scores(rows, vocabulary, seed)
    found = probabilities_of(scores, *({"top_p": P} for P in shares[:rows]))
    expected = []
    for z, P in zip(scores, shares, strict=False):
        p = written.with_temperature(z, 1.0)
        expected.append(written.renormalized(p, written.nucleus(p, P)))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    equal = probabilities_of(np.zeros((4, 4)), *({"top_p": P} for P in (0.25, 0.5, 0.625, 1.0)))
    assert (equal > 0).sum(axis=1).tolist() == [1, 2, 3, 4]  # reached exactly, or passed
    assert probabilities_of(scores, *[{"min_p": 1e-9}] * rows).min() > 0  # without p, none is left out


@given(rows, vocabularies, st.floats(0, 1, exclude_max=True), seeds)
def test_draw(rows, vocabulary, u, seed):
    generator = np.random.default_rng(seed)
    p = np.floor(generator.random((rows, vocabulary)) * 4)
    p[np.arange(rows), generator.integers(vocabulary, size=rows)] += 1
    tokens = np.array([generator.permutation(vocabulary) for _ in range(rows)])
    for chance in (u, 0.0, 0.5, 0.25):
        expected = [written.drawn_token(one, chance) for one in p]
        chances = torch.full((rows,), chance, dtype=torch.double)
        assert draw_tokens(torch.tensor(p), None, chances).tolist() == expected
        ids = draw_tokens(torch.tensor(p), torch.tensor(tokens), chances)
        assert ids.tolist() == tokens[range(rows), expected].tolist()
    last = draw_tokens(torch.tensor(p), None, torch.ones(rows, dtype=torch.double))  # as rounding might
    assert last.tolist() == [max(np.flatnonzero(one)) for one in p]


@given(vocabularies, st.sampled_from([0.5, 1.0, 1.25, 2.0]), seeds)
def test_repetition(vocabulary, theta, seed):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=vocabulary)
    prompt, text = (generator.integers(vocabulary, size=2).tolist() for _ in range(2))
    rules = TokenRules(settings_of({"repetition_penalty": theta}), StartEndTokens(), prompt, vocabulary)
    before, scores = z.copy(), z.copy()
    rules.apply(before, [], 9)
    np.testing.assert_allclose(before, written.repetition_penalized(z, prompt, theta), atol=1e-12)
    for token in text:
        rules.note(token)
    rules.apply(scores, text, 9)
    np.testing.assert_allclose(scores, written.repetition_penalized(z, {*prompt, *text}, theta), atol=1e-12)


class Race:
    """A beam search in weft and one as written, over the same random model, step by step."""

    def __init__(self, vocabulary, beams, most, a, seed, early=False, scale=2.0):
        self.most, self.beams, self.a, self.early = most, beams, a, early
        generator = np.random.default_rng(seed)
        self.end_ids = (0, 1)[: generator.integers(1, 3)]
        table = generator.normal(size=(vocabulary + 1, vocabulary)) * scale
        table[:, 0] += scale  # texts often end before they are at their longest
        self.log_p = torch.tensor(table).log_softmax(-1).numpy()  # the row of the last token; the last row: none yet
        asked = settings_of({"beams": beams, "length_penalty": a, "early_stopping": early})
        start_end = StartEndTokens(self.end_ids)
        self.search = BeamSearch(asked, start_end, most, TokenRules(asked, start_end, [0], vocabulary), None)
        self.going, self.finished = [(0.0, ())], []

    def ends(self, w):
        return w[-1] in self.end_ids or len(w) == self.most

    def advance(self):
        rows = np.array([self.log_p[text[-1] if text else -1] for text in self.search.texts])
        advance_searches([self.search], torch.tensor(rows))

    def step(self):
        self.advance()
        extended = written.extended_beams(self.going, lambda w: self.log_p[w[-1] if w else -1])
        found = written.finished_beams(extended, self.beams, self.a, self.ends)
        self.finished = sorted([*self.finished, *found], key=lambda beam: -beam[0])[: self.beams]
        self.going = written.going_on(extended, self.beams, self.ends)

    def real_beams(self):
        (group,) = self.search.groups
        pairs = zip(group.scores, map(tuple, group.tokens.tolist()), group.log_probs, strict=True)
        return [(score, tokens, numbers) for score, tokens, numbers in pairs if score > LOST / 2]

    def stops(self):
        going, finished = self.real_beams(), [one.score for one in self.search.ranked()]
        if not going or (self.early is True and len(finished) == self.beams):
            return True
        m = self.most if self.early == "never" and self.a > 0 else len(going[0][1])
        return written.cannot_improve(going[0][0], m, self.a, finished, self.beams)


races = (st.integers(2, 5), st.integers(2, 4), st.integers(1, 4), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]), seeds)


@settings(max_examples=40)
@given(*races)
def test_beam_step(vocabulary, beams, most, a, seed):
    race = Race(vocabulary, beams, most, a, seed)
    while not race.search.is_over:
        race.step()
        found = race.real_beams()
        assert [tokens for _, tokens, _ in found] == [tokens for _, tokens in race.going]
        np.testing.assert_allclose([s for s, _, _ in found], [s for s, _ in race.going], atol=1e-5)
        np.testing.assert_allclose([numbers.sum() for *_, numbers in found], [s for s, _ in race.going], atol=1e-5)


@settings(max_examples=40)
@given(*races)
def test_beam_score(vocabulary, beams, most, a, seed):
    race = Race(vocabulary, beams, most, a, seed)
    while not race.search.is_over:
        race.step()
        found = race.search.ranked()
        assert [tuple(one.tokens) for one in found] == [tokens for _, tokens in race.finished]
        np.testing.assert_allclose([one.score for one in found], [score for score, _ in race.finished], rtol=1e-5)
    again = race.search.ranked()
    if race.going:  # over by its rule: what comes later is not looked at
        race.step()
        assert race.search.ranked() == again


@settings(max_examples=60)
@given(*races, st.sampled_from([True, False, "never"]), st.sampled_from([0.0, 2.0]))
def test_beam_end(vocabulary, beams, most, a, seed, early, scale):
    race = Race(vocabulary, beams, most + 3, a, seed, early, scale)
    while not race.search.is_over:
        race.advance()
        assert race.search.is_over == race.stops()
