"""Tokens to text while they are generated.

A character may span several tokens, and a token's text depends on the one before it (a leading space, a piece of a
word). So new tokens are decoded together with the last known ones, and a character is returned once it is complete. A
stop string ends the text before it; an end that may become a stop string is held back.
"""

from collections.abc import Sequence

from weft.tokenizer.tokenizer import Tokenizer

_TAIL_TOKENS = 16  # known tokens that new ones are decoded with
_CONTEXT_TOKENS = 6  # the fewest of them, while a text grows: a character has at most four bytes
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what the bytes of an incomplete character decode to


class Text:
    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = (), *, drops_space: bool = False
    ) -> None:
        """`drops_space`: a space at the beginning is not part of the text."""
        self.tokenizer, self.stops, self.drops_space = tokenizer, stops, drops_space
        self.prompt, self.tokens = list(prompt[-_TAIL_TOKENS:]), list[int]()
        # Tokens whose text is in `whole`, their text, and tokens whose text is not yet.
        self.known, self.known_text, self.fresh = list(self.prompt), tokenizer.decode(self.prompt), list[int]()
        self.undecoded = list[int]()  # tokens that nobody has asked for the text of
        self.whole = ""  # complete characters
        self.shown = 0  # characters of it that were returned
        self.is_stopped = False

    def add(self, token: int) -> None:
        self.tokens.append(token)
        self.undecoded.append(token)
        if self.stops:
            self._decode()

    def _decode(self) -> None:
        """All undecoded tokens at once. If they end inside a character, one by one: those before it are complete."""
        tokens, self.undecoded = self.undecoded, []
        if not tokens or self._grow(tokens):
            return
        for token in tokens:
            # The next token may complete the character, but not for ever.
            if not self._grow([token], anyway=len(self.fresh) + 1 >= _TAIL_TOKENS):
                self.fresh.append(token)

    def _grow(self, tokens: Sequence[int], *, anyway: bool = False) -> bool:
        """Whether the text with these tokens ends with a complete character; then it is taken."""
        fresh = [*self.fresh, *tokens]
        after = self.tokenizer.decode([*self.known, *fresh])
        piece = _added(self.tokenizer, self.known_text, after, fresh)
        if piece.endswith(_UNFINISHED) and not anyway:
            return False
        self.known, self.known_text, self.fresh = [*self.known, *fresh], after, []
        if len(self.known) > 2 * _CONTEXT_TOKENS:  # not at every token: decoding again costs time
            self.known = self.known[-_CONTEXT_TOKENS:]
            self.known_text = self.tokenizer.decode(self.known)
        self._take(piece)
        return True

    def _take(self, piece: str) -> None:
        if self.drops_space and piece:
            piece, self.drops_space = piece.removeprefix(" "), False
        before = len(self.whole)
        self.whole += piece
        found = [self.whole.find(stop, max(0, before - len(stop) + 1)) for stop in self.stops]
        if places := [place for place in found if place >= 0]:
            self.whole, self.is_stopped = self.whole[: min(places)], True

    def ready(self) -> str:
        """New text that no later token can change."""
        self._decode()
        held = 0 if self.is_stopped else self._held()
        piece = self.whole[self.shown : len(self.whole) - held]
        self.shown += len(piece)
        return piece

    def _held(self) -> int:
        """How many characters at the end may begin a stop string."""
        most = max((len(stop) - 1 for stop in self.stops), default=0)
        for size in range(min(most, len(self.whole)), 0, -1):
            if any(stop.startswith(self.whole[-size:]) for stop in self.stops):
                return size
        return 0

    def rest(self) -> str:
        """The remaining text, after the last token."""
        self._decode()
        if not self.is_stopped:
            whole = new_text(self.tokenizer, self.prompt, self.tokens)
            left = new_text(self.tokenizer, self.known, self.fresh)
            self._take(whole[len(self.whole) :] if whole.startswith(self.whole) else left)
        piece = self.whole[self.shown :]
        self.shown = len(self.whole)
        return piece


class AnswerTexts:
    """The texts of a prompt's answers. `before`: the prompt whose text is continued. `drops_space`: as in `Text`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        before: Sequence[int],
        stops: Sequence[str],
        ends: Sequence[int],
        *,
        drops_space: bool = False,
    ) -> None:
        self.tokenizer, self.before, self.stops, self.ends = tokenizer, before, stops, ends
        self.drops_space = drops_space

    def begin(self) -> Text:
        """A text that grows with its tokens."""
        return Text(self.tokenizer, self.before, self.stops, drops_space=self.drops_space)

    def whole(self, tokens: Sequence[int]) -> str:
        kept = tokens[:-1] if tokens and tokens[-1] in self.ends else tokens
        text = new_text(self.tokenizer, self.before, kept)
        return before_stop(text.removeprefix(" ") if self.drops_space else text, self.stops)

    def holds_stop(self, tokens: Sequence[int]) -> bool:
        """Whether the last tokens complete a stop string."""
        most = 4 * max(map(len, self.stops), default=0) + 8  # tokens at the end in which a new stop string must lie
        text = new_text(self.tokenizer, [*self.before, *tokens[:-most]], tokens[-most:])
        return any(stop in text for stop in self.stops)


def new_text(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that `tokens` add to the prompt's."""
    tail = list(prompt[-_TAIL_TOKENS:])
    return _added(tokenizer, tokenizer.decode(tail), tokenizer.decode([*tail, *tokens]), tokens)


def _added(tokenizer: Tokenizer, before: str, after: str, tokens: Sequence[int]) -> str:
    """What `tokens` have added to a text that was `before` and is `after` now."""
    if not after.startswith(before):
        before = before.rstrip(_UNFINISHED)  # the prompt ended inside a character, which is complete now
    return after[len(before) :] if after.startswith(before) else tokenizer.decode(tokens)


def before_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text
