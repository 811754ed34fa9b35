"""Tokens become text as they are written.

A character may be spread over several tokens, and what a token looks like depends on the one before it (a leading
space, a piece of a word). So text is handed on only once it is whole, and what is new in it is told against the
prompt's own end. A stop string ends the text before it; what could still turn into one is held back.
"""

from collections.abc import Sequence

from weft.tokenizer.tokenizer import Tokenizer

_TAIL_TOKENS = 16  # tokens that new ones are read together with
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what bytes that are no character yet are decoded to


class Text:
    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.prompt, self.tokens = list(prompt[-_TAIL_TOKENS:]), list[int]()
        self.known, self.fresh = list(self.prompt), list[int]()  # whose text was taken, and whose was not yet
        self.whole = ""  # what is complete
        self.shown = 0  # characters of it that were handed on
        self.is_stopped = False

    def add(self, token: int) -> None:
        self.tokens.append(token)
        self.fresh.append(token)
        piece = new_text(self.tokenizer, self.known, self.fresh)
        if piece.endswith(_UNFINISHED) and len(self.fresh) < _TAIL_TOKENS:
            return  # perhaps the next token completes the character
        self.known, self.fresh = [*self.known, *self.fresh][-_TAIL_TOKENS:], []
        self._take(piece)

    def _take(self, piece: str) -> None:
        before = len(self.whole)
        self.whole += piece
        found = [self.whole.find(stop, max(0, before - len(stop) + 1)) for stop in self.stops]
        if places := [place for place in found if place >= 0]:
            self.whole, self.is_stopped = self.whole[: min(places)], True

    def ready(self) -> str:
        """What is new and sure to stay."""
        held = 0 if self.is_stopped else self._held()
        piece = self.whole[self.shown : len(self.whole) - held]
        self.shown += len(piece)
        return piece

    def _held(self) -> int:
        """How much of the end could be the beginning of a stop string."""
        most = max((len(stop) - 1 for stop in self.stops), default=0)
        for size in range(min(most, len(self.whole)), 0, -1):
            if any(stop.startswith(self.whole[-size:]) for stop in self.stops):
                return size
        return 0

    def rest(self) -> str:
        """What is left once nothing more is written."""
        if not self.is_stopped:
            whole = new_text(self.tokenizer, self.prompt, self.tokens)
            left = new_text(self.tokenizer, self.known, self.fresh)
            self._take(whole[len(self.whole) :] if whole.startswith(self.whole) else left)
        piece = self.whole[self.shown :]
        self.shown = len(self.whole)
        return piece


def new_text(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """What `tokens` add to the prompt's text."""
    tail = list(prompt[-_TAIL_TOKENS:])
    before, after = tokenizer.decode(tail), tokenizer.decode([*tail, *tokens])
    if not after.startswith(before):
        before = before.rstrip(_UNFINISHED)  # the prompt ends within a character, which is whole by now
    return after[len(before) :] if after.startswith(before) else tokenizer.decode(tokens)


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text
