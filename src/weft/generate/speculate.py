"""Speculative decoding: guess several tokens, read them in one step, and keep those that would have been chosen anyway.

A row's logits do not depend on how many tokens are read together, so the text is exactly that of plain decoding,
greedy or sampled. Two ways to guess: the longest n-gram at the end of the text that occurred before, and what followed
it (prompt lookup; Saxena 2023), or a smaller model with the same vocabulary (Leviathan et al. 2023).
"""

from collections.abc import Sequence

from weft.errors import InputError
from weft.generate.decoder import Decoder, Row, TokenChunk
from weft.generate.job import ActiveAnswer
from weft.generate.pages import pages_for
from weft.generate.prepare import Prepared
from weft.model.positions import longest

_LONGEST_NGRAM = 3  # tokens


class NGramIndex:
    """Where each n-gram of a text occurred last, but for the one at its end."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.places: dict[tuple[int, ...], int] = {}  # of the token after it

    def add(self, token: int) -> None:
        for size in range(1, min(_LONGEST_NGRAM, len(self.tokens)) + 1):
            self.places[tuple(self.tokens[-size:])] = len(self.tokens)
        self.tokens.append(token)

    def guess(self, most: int) -> list[int]:
        """What followed the last earlier occurrence of the longest n-gram at the end."""
        for size in range(min(_LONGEST_NGRAM, len(self.tokens) - 1), 0, -1):
            place = self.places.get(tuple(self.tokens[-size:]))
            if place is not None:
                return self.tokens[place : place + most]
        return []


class Guesser:
    """Guesses by n-grams of prompt and text."""

    def __init__(self) -> None:
        self.indexes: dict[ActiveAnswer, NGramIndex] = {}

    def guess(self, answers: Sequence[ActiveAnswer]) -> None:
        """Sets `guesses` of each."""
        for answer in answers:
            index = self.indexes.setdefault(answer, NGramIndex())
            known = len(answer.job.prompt_ids)
            for token in answer.job.prompt_ids[len(index.tokens) :]:
                index.add(token)
            for token in answer.tokens[len(index.tokens) - known :]:
                index.add(token)
            answer.guesses = index.guess(most_guesses(answer))

    def forget(self, answer: ActiveAnswer) -> None:
        """An answer has finished."""
        self.indexes.pop(answer, None)


def most_guesses(answer: ActiveAnswer) -> int:
    """The token after the last guess must still be wanted, and fit into the context."""
    room = answer.job.most - len(answer.tokens) - 1
    if answer.job.limit is not None:
        room = min(room, answer.job.limit - len(answer.job.prompt) - len(answer.tokens) + answer.begin)
    return max(0, min(answer.job.settings.speculate, room))


class DraftGuesser(Guesser):
    """Guesses by a smaller model."""

    def __init__(self, draft: Prepared, memory: int, vocabulary: int) -> None:
        if draft.network.architecture.vocabulary != vocabulary:
            raise InputError(
                f"The draft model has a vocabulary of {draft.network.architecture.vocabulary:,} tokens, the model "
                f"{vocabulary:,}. Both need the same tokenizer."
            )
        if draft.network.decoder is None or draft.network.architecture.is_encoder_decoder:
            raise InputError("A draft model is a Transformer decoder, such as GPT-2 or Llama.")
        super().__init__()
        self.decoder = Decoder(draft, memory)
        self.rows: dict[ActiveAnswer, Row] = {}
        self.pages: dict[ActiveAnswer, int] = {}  # reserved for their longest texts
        self.reserved = 0
        self.limit = longest(draft.network.architecture.embedding.positions)  # tokens that it reads

    def guess(self, answers: Sequence[ActiveAnswer]) -> None:
        texts = {answer: answer.context() for answer in answers}
        left = {answer: self._most(answer, len(texts[answer])) for answer in answers}
        for answer in answers:
            answer.guesses = []
            if left[answer]:
                self._back_to(answer, texts[answer])
        while going := [answer for answer in answers if len(answer.guesses) < left[answer]]:
            chunks = []
            for answer in going:
                row = self.rows[answer]
                chunks.append(TokenChunk(row, [*texts[answer], *answer.guesses][len(row.tokens) :], 1))
            logits = self.decoder.read(chunks)
            for answer, token in zip(going, logits.numpy().argmax(-1).tolist(), strict=True):
                answer.guesses.append(token)

    def _most(self, answer: ActiveAnswer, length: int) -> int:
        """0 if the draft cannot read that much, or has no pages for another text."""
        most = most_guesses(answer)
        if self.limit is not None:
            most = min(most, self.limit - length + 1)
        if most <= 0 or answer in self.rows:
            return max(most, 0)
        size = answer.job.longest + answer.job.settings.speculate
        pages = pages_for(size if self.limit is None else min(size, self.limit)) + 1
        if self.reserved + pages > self.decoder.pages:
            return 0
        self.reserved += pages
        self.pages[answer] = pages
        return most

    def _back_to(self, answer: ActiveAnswer, text: list[int]) -> None:
        """The row without the guesses that were wrong. At least one token of the text is read again."""
        row = self.rows.get(answer)
        if row is None:
            row = self.rows[answer] = self.decoder.open_row(None, text)
        pairs = zip(row.tokens, text[:-1], strict=False)
        same = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(row.tokens), len(text) - 1))
        self.decoder.shorten(row, same)

    def forget(self, answer: ActiveAnswer) -> None:
        row = self.rows.pop(answer, None)
        self.reserved -= self.pages.pop(answer, 0)
        if row is not None:
            self.decoder.close(row)
