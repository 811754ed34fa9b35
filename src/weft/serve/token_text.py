"""The text of single tokens, for log-probabilities: exact bytes, because a token may hold a part of a character."""

from functools import cached_property

from weft.errors import InputError
from weft.generate.token_bytes import read_token_bytes
from weft.tokenizer.tokenizer import Tokenizer


class TokenTexts:
    def __init__(self, tokenizer: Tokenizer | None, vocabulary: int) -> None:
        """Without a tokenizer a token's text is its number."""
        self.tokenizer, self.vocabulary = tokenizer, vocabulary

    def raw(self, token: int) -> bytes:
        """What the token adds to a text in which others precede it. Special tokens: their name."""
        if self.tokenizer is None:
            return f"token_id:{token}".encode()
        if token < len(self._known) and self._known[token]:
            return self._known[token]
        return (self.tokenizer.engine.id_to_token(token) or "").encode()

    def text(self, token: int) -> str:
        """As OpenAI shows it: the text, or bytes:\\xe2\\x80 for a part of a character."""
        raw = self.raw(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def is_special(self, token: int) -> bool:
        return self.tokenizer is not None and token in self.tokenizer.special_ids

    def prepare(self) -> None:
        """Reads the vocabulary, which takes a moment, so that it is not done on the event loop."""
        if self.tokenizer is not None:
            _ = self._known, self.tokenizer.special_ids

    @cached_property
    def _known(self) -> list[bytes]:
        assert self.tokenizer is not None
        try:
            return read_token_bytes(self.tokenizer, self.vocabulary).tokens
        except InputError:  # a tokenizer whose tokens have no text of their own: their names are shown
            return []
