"""Constrained output: an answer that is JSON of a schema, matches a regular expression, or is one of several texts.

Before each token the constraint says which tokens may follow, as a bitmask over the vocabulary; the scores of all
others become -inf. `llguidance` keeps the state: it parses the text so far and finds the tokens whose bytes can follow.
Copies of a constraint share what llguidance has worked out about their grammar, so a grammar is compiled once.

JSON is compact, or has one space where white space may be: with free white space a weak model writes it without end.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from weft.errors import InputError, needs
from weft.generate.grammars import choice_grammar, json_grammar, plain_message, regex_grammar
from weft.generate.token_bytes import TokenBytes, read_token_bytes
from weft.tokenizer.tokenizer import Tokenizer

_KEPT_VOCABULARIES, _KEPT_GRAMMARS = 8, 64
_LEXER_STATES = 50_000  # of one grammar; about 1 kB each
_MOST_USES = 500  # of a compiled grammar, whose lexer grows with what is written; then it is compiled again
# Sets of tokens that llguidance works out beforehand: text inside a JSON string, which may have a maxLength.
_LENGTHS = ("{1,2}", "{1,4}", "{1,6}", "{1,8}", "{1,12}", "{1,16}", "{1,24}", "+")
_SLICES = [r'[^"\\\x00-\x1F\x7F]' + length for length in _LENGTHS]
# Texts that are tried, and their most tokens: where every text can be written, and where some cannot.
_TRIALS, _MANY_TRIALS = (4, 8), (24, 64)
_MARKS = frozenset(b'"{}[]:,')


class Constraints:
    """The constraints of one model. `start` may be called from any thread, what it returns is for one thread."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_ids: Sequence[int]) -> None:
        self._tokenizer, self.vocabulary, self.end_ids = tokenizer, vocabulary, frozenset(end_ids)
        self._lock = threading.Lock()
        self._grammars: OrderedDict[str, tuple[Any, int]] = OrderedDict()  # matchers that stay at the beginning; uses

    def start(
        self,
        *,
        json_schema: dict[str, Any] | str | None = None,
        regex: str | None = None,
        choice: Sequence[str] | None = None,
    ) -> "Constraint":
        """A constraint at the beginning of a text. Raises InputError if there can be no such text."""
        if sum(given is not None for given in (json_schema, regex, choice)) != 1:
            raise InputError("Constrained output needs exactly one of json_schema, regex and choice.")
        with self._lock:
            space, characters = self.begins_with_space, self._characters
            if json_schema is not None:
                what, grammar = "json_schema", json_grammar(json_schema, space=space, characters=characters)
            elif regex is not None:
                what, grammar = "regex", regex_grammar(regex, space=space)
            else:
                assert choice is not None
                what, grammar = "choice", choice_grammar(choice, space=space)
                self._check_choices(choice)
            return Constraint(self, self._matcher(grammar, what))

    @property
    def begins_with_space(self) -> bool:
        return self._bytes.starts_with_space

    def text(self, tokens: Sequence[int]) -> str:
        """The answer that a constraint has seen in these tokens. Without the space that some tokenizers begin with."""
        data = b"".join(self._bytes.tokens[token] for token in tokens)
        return data.removeprefix(b" " if self.begins_with_space else b"").decode(errors="replace")

    def new_mask(self) -> np.ndarray:
        return np.empty(-(-self.vocabulary // 32), np.int32)

    @cached_property
    def _bytes(self) -> TokenBytes:
        found = read_token_bytes(self._tokenizer, self.vocabulary)
        tokens = [b"" if number in self.end_ids else token for number, token in enumerate(found.tokens)]
        return TokenBytes(tokens, found.starts_with_space)

    @cached_property
    def _characters(self) -> frozenset[str] | None:
        """The characters of the vocabulary; None if every text can be written."""
        if self._bytes.has_every_byte:
            return None
        return frozenset(b"\n".join(self._bytes.tokens).decode(errors="ignore"))

    @cached_property
    def _guidance(self) -> Any:
        return needs("llguidance", "constrained", "for constrained output")

    @cached_property
    def _llguidance_tokenizer(self) -> Any:
        vocabulary = _Vocabulary(self._bytes.tokens, sorted(self.end_ids))
        return self._guidance.LLTokenizer(vocabulary, eos_token=sorted(self.end_ids) or None, slices=_SLICES)

    @cached_property
    def mask_words(self) -> int:
        """Words of llguidance's masks. A model without an end token gets an additional id for the end."""
        return -(-self._llguidance_tokenizer.vocab_size // 32)

    def _matcher(self, grammar: str, what: str) -> Any:
        """A matcher at the beginning of a text, the least recently used of which are forgotten."""
        matcher, uses = self._grammars.pop(grammar, (None, 0))
        if matcher is None or uses >= _MOST_USES:
            matcher, uses = self._compiled(grammar, what), 0
        self._grammars[grammar] = matcher, uses + 1
        if len(self._grammars) > _KEPT_GRAMMARS:
            self._grammars.popitem(last=False)
        return matcher

    def _compiled(self, grammar: str, what: str) -> Any:
        limits = self._guidance.LLParserLimits(max_lexer_states=_LEXER_STATES, verbose_errors=False)
        matcher = self._guidance.LLMatcher(self._llguidance_tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise InputError(f"This {what} cannot be used: {plain_message(matcher.get_error())}")
        self._check_writable(matcher, what)
        return matcher

    def _check_choices(self, choices: Sequence[str]) -> None:
        if self._characters is None:
            return
        tokens = set(self._bytes.tokens)
        longest = max(map(len, tokens))
        for choice in choices:
            text = (" " if self.begins_with_space else "") + choice
            if (place := _written(text.encode(), tokens, longest)) < len(text.encode()):
                raise InputError(
                    f"The choice {choice!r} cannot be written by this model: its vocabulary has no token for "
                    f"{text.encode()[place:].decode(errors='replace')[0]!r} there."
                )

    def _check_writable(self, matcher: Any, what: str) -> None:
        """Raises InputError if there is no such text. A vocabulary without every byte may begin a text that it cannot
        end: one without }, or one whose words always have spaces around them. Trial texts find it.
        """
        draw = random.Random(0)  # noqa: S311
        texts, most = _TRIALS if self._characters is None else _MANY_TRIALS
        for _ in range(texts):
            trial, tokens = Constraint(self, matcher), list[int]()
            while len(tokens) < most:
                allowed = [number for number in trial.tokens() if number not in self.end_ids]
                if not allowed:
                    break
                marks = [number for number in allowed if not _MARKS.isdisjoint(self._bytes.tokens[number])]
                tokens.append(draw.choice(marks if marks and draw.random() < 0.5 else allowed))
                trial.accept(tokens[-1])
            if trial.is_dead_end or not tokens:
                raise InputError(self._cannot_go_on(what, tokens))
            if trial.failure is not None:
                raise InputError(f"This {what} is too complex: {trial.failure}")

    def _cannot_go_on(self, what: str, tokens: Sequence[int]) -> str:
        if self._characters is None:
            return f"This {what} cannot be used: no text satisfies it, or only the empty one."
        if what == "json_schema" and (missing := [mark for mark in '{}[]":,' if mark not in self._characters]):
            return f"This model cannot write such JSON: its vocabulary has no token for {missing[0]!r}."
        written = f"continue {self.text(tokens)!r}" if tokens else "begin the text"
        return f"This {what} cannot be satisfied by this model: its vocabulary has no token to {written}."


_recent: OrderedDict[tuple[int, int, tuple[int, ...]], Constraints] = OrderedDict()
_recent_lock = threading.Lock()


def constraints_of(tokenizer: Tokenizer, vocabulary: int, end_ids: Sequence[int]) -> Constraints:
    """The constraints of a model. The last ones are kept: it takes a tenth of a second to read a vocabulary."""
    key = id(tokenizer), vocabulary, tuple(end_ids)  # the kept ones hold their tokenizer, so no other has its id
    with _recent_lock:
        found = _recent.pop(key, None) or Constraints(tokenizer, vocabulary, end_ids)
        _recent[key] = found
        if len(_recent) > _KEPT_VOCABULARIES:
            _recent.popitem(last=False)
    return found


class Constraint:
    """The state of one text."""

    def __init__(self, constraints: Constraints, fresh: Any) -> None:
        """`fresh`: a matcher at the beginning of a text, which stays there."""
        self._constraints, self._fresh, self._matcher = constraints, fresh, fresh.deep_copy()
        self._tokens: list[int] = []  # without end tokens, of which llguidance is not told
        self._ends = 0
        self._is_wrong = False  # a token was not allowed
        self._mask: np.ndarray | None = None  # of the next token, if known

    def allowed(self, out: np.ndarray) -> None:
        """Fills int32 words with a bit per token that may be next, the lowest bit first."""
        fill_bitmasks([self], out[None])

    def fill(self, out: np.ndarray, address: int) -> None:
        """As `allowed`, for a caller that knows the address of `out`: asking numpy costs as much as a simple mask."""
        if self._mask is not None:
            out[:] = self._mask
        elif self._constraints.end_ids:
            self._matcher.unsafe_compute_mask_ptr(address, out.nbytes)
        else:
            words, end = np.empty(self._constraints.mask_words, np.int32), self._constraints.vocabulary
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            words.view(np.uint8)[end // 8] &= ~np.uint8(1 << end % 8)
            out[:] = words[: len(out)]

    @property
    def begins_with_space(self) -> bool:
        """Whether a space comes before the answer that is none of its own: see `TokenBytes.starts_with_space`."""
        return self._constraints.begins_with_space

    def tokens(self) -> list[int]:
        """The ids of the tokens that may be next."""
        mask = self._constraints.new_mask()
        self.allowed(mask)
        found: list[int] = np.flatnonzero(_bits(mask, self._constraints.vocabulary)).tolist()
        return found

    def accept(self, token: int) -> None:
        """Adds a token to the text. One that is not allowed makes it a failure: other settings may leave no other."""
        self._mask = None
        if token in self._constraints.end_ids:
            self._ends += 1
            return
        self._tokens.append(token)
        if not self._is_wrong and not self._matcher.try_consume_tokens([token]):
            self._is_wrong = not self._matcher.is_error()

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end may follow."""
        if self._ends or self._is_wrong or self._matcher.is_stopped():
            return True
        if self._constraints.end_ids and not self._matcher.is_accepting():
            return False
        if self._mask is None:
            mask = self._constraints.new_mask()
            self.allowed(mask)
            self._mask = mask
        return int(_bits(self._mask, self._constraints.vocabulary).sum()) <= len(self._constraints.end_ids)

    @property
    def failure(self) -> str | None:
        """Why the text is over before it is complete; None if all is well."""
        if self._is_wrong:
            return "A token was chosen that the constraint does not allow. Other settings ban all that it allows."
        if self.is_dead_end:
            return "The model's vocabulary has no token that may follow."
        return plain_message(self._matcher.get_error()) if self._matcher.is_error() else None

    @property
    def is_dead_end(self) -> bool:
        """Whether more text must follow, but the vocabulary has no token for it. Known once the mask is."""
        return str(self._matcher.get_error()).startswith("NoExtensionBias")

    def rollback(self, tokens: int) -> None:
        """Forgets the last tokens."""
        if tokens > len(self._tokens) + self._ends:
            raise ValueError(f"There are only {len(self._tokens) + self._ends} tokens to forget, not {tokens}.")
        self._mask = None
        ends = min(tokens, self._ends)
        self._ends -= ends
        count = tokens - ends
        del self._tokens[len(self._tokens) - count :]
        if self._is_wrong or self._matcher.is_error():  # llguidance cannot go back from an error
            self._matcher = self._fresh.deep_copy()
            self._is_wrong = self._matcher.try_consume_tokens(self._tokens) < len(self._tokens)
        elif count:
            self._matcher.rollback(count)

    def copy(self) -> "Constraint":
        other = Constraint(self._constraints, self._fresh)
        other._matcher, other._tokens = self._matcher.deep_copy(), list(self._tokens)
        other._ends, other._mask, other._is_wrong = self._ends, self._mask, self._is_wrong
        return other


def fill_bitmasks(constraints: Sequence[Constraint], out: np.ndarray) -> None:
    """The masks of several texts, one per row of `out`. One after the other: copies share a lexer behind a lock, and
    llguidance's threads were slower at 16 rows.
    """
    assert out.flags.c_contiguous and out.dtype == np.int32
    address, step = out.ctypes.data, out.strides[0]
    for row, (constraint, mask) in enumerate(zip(constraints, out, strict=True)):
        constraint.fill(mask, address + row * step)


# The most a score may be: of 8 tokens by the byte that is their mask.
_LIMITS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.inf, -np.inf
).astype(np.float32)


def mask_scores(scores_RV: torch.Tensor, rows: Sequence[int], masks: np.ndarray) -> None:
    """Sets the scores of tokens that are not allowed to -inf, in place. `masks`: one per row of `rows`."""
    vocabulary = scores_RV.shape[1]
    if scores_RV.device.type != "cpu" or scores_RV.dtype != torch.float32:
        for row, mask in zip(rows, masks, strict=True):
            is_out = torch.from_numpy(_bits(mask, vocabulary) == 0).to(scores_RV.device)
            scores_RV[row].masked_fill_(is_out, -torch.inf)
        return
    scores = scores_RV.detach().numpy()
    limits = np.empty((masks.shape[1] * 4, 8), np.float32)
    limits_V = limits.reshape(-1)[:vocabulary]
    # A table and a minimum have no branches: ten times as fast as masked_fill_ where every second token is allowed.
    for row, mask in zip(rows, masks.view(np.uint8), strict=True):
        _LIMITS.take(mask, axis=0, out=limits, mode="clip")  # clip: without a copy of `limits`
        np.minimum(scores[row], limits_V, out=scores[row])


def _bits(mask: np.ndarray, vocabulary: int) -> np.ndarray:
    return np.unpackbits(mask.view(np.uint8), count=vocabulary, bitorder="little")


def _written(text: bytes, tokens: set[bytes], longest: int) -> int:
    """How many bytes of the beginning of a text can be written with tokens."""
    reached = [True] + [False] * len(text)
    for end in range(1, len(text) + 1):
        starts = range(max(0, end - longest), end)
        reached[end] = any(reached[start] and text[start:end] in tokens for start in starts)
    return max(end for end, is_reached in enumerate(reached) if is_reached)


class _Vocabulary:
    """What llguidance asks of a tokenizer. It never encodes: that is for forced tokens, which the grammars turn off."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: list[bytes], end_ids: Sequence[int]) -> None:
        self.tokens, self.eos_token_id = tokens, end_ids[0] if end_ids else None

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError
