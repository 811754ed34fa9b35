"""Prompts, given as texts or token ids, become the token ids that the decoder reads (and the encoder, if there is one).

Raises InputError for a prompt that the model cannot read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.errors import InputError, check_encodable
from weft.generate.framing import Framing, Turn
from weft.generate.settings import DEFAULT_NEW_TOKENS, Settings
from weft.generate.start_end_tokens import StartEndTokens
from weft.model.network import Architecture
from weft.model.positions import longest
from weft.progress import say
from weft.tokenizer.tokenizer import Tokenizer

Prompt = str | Sequence[int]
MOST_PROMPT_CHARACTERS = 1_000_000  # of a prompt
_MOST_BIASES = 2**30  # of a relative model, in numbers; they grow with the square of the source


@dataclass(frozen=True)
class EncodedPrompt:
    """Token ids: `prompt` for the decoder, `source` for the encoder of an encoder–decoder."""

    prompt: list[int]
    source: list[int] | None
    is_text: bool


class PromptReader:
    def __init__(
        self,
        architecture: Architecture,
        tokenizer: Tokenizer | None,
        start_end: StartEndTokens,
        framing: Framing | None = None,
    ) -> None:
        """`framing`: how texts were framed in training, for a model that was tuned to answer."""
        self.framing = framing
        self._tokenizer, self.start_end, self.vocabulary = tokenizer, start_end, architecture.vocabulary
        self.limit = longest(architecture.embedding.positions)  # tokens that the model reads, None: no limit
        self.has_source = architecture.is_encoder_decoder
        heads = max(block.attention.heads for block in architecture.encoder.blocks) if architecture.encoder else 1
        self.longest_source = math.isqrt(_MOST_BIASES // heads)

    @property
    def has_tokenizer(self) -> bool:
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise InputError("This model has no tokenizer, so it takes and writes token ids only.")
        return self._tokenizer

    def read(self, prompt: Prompt, what: str, settings: Settings, history: Sequence[Turn] = ()) -> EncodedPrompt:
        """`what`: its name in an error message, such as "Prompt 3". `history`: earlier turns of the conversation."""
        is_text, framing = isinstance(prompt, str), self.framing
        ids = self.ids_of(framing.source(prompt) if framing and isinstance(prompt, str) else prompt, what)
        if framing and is_text and not self.has_source and self.start_end.end_ids:
            ids = self._framed(framing, ids, history, settings)
        if self.has_source:
            if not ids:
                raise InputError(f"{what} is empty; an encoder–decoder needs a source.")
            most = min(self.limit or len(ids), self.longest_source)
            if len(ids) > most:
                raise InputError(f"{what} has {len(ids)} tokens; this model reads at most {most}.")
            assert self.start_end.start_id is not None  # set for every encoder–decoder
            encoded = EncodedPrompt([self.start_end.start_id], ids, is_text)
        else:
            if not ids and self.start_end.start_id is None:
                raise InputError(f"{what} is empty, and this model has no start token.")
            encoded = EncodedPrompt(ids or [self.start_end.start_id or 0], None, is_text)
        if self.limit is not None and not settings.slide:
            self._check_fits(encoded.prompt, what, settings)
        return encoded

    def _framed(self, framing: Framing, ids: list[int], history: Sequence[Turn], settings: Settings) -> list[int]:
        engine, limits = self.tokenizer.engine, [self.limit, framing.most_tokens]
        opening = framing.opening(engine)
        source = ids[len(opening) :] if ids[: len(opening)] == opening else ids
        new = max(settings.max_new_tokens or 0, settings.min_new_tokens) or DEFAULT_NEW_TOKENS
        most = min((limit for limit in limits if limit is not None), default=MOST_PROMPT_CHARACTERS)
        room = max(most - new, most // 2)
        around = len(opening) + len(framing.separator_ids(engine, self.start_end.end_ids[0]))
        if len(source) > room - around:
            lost = "beginning" if framing.is_reply else "end"
            say(f"The prompt has {len(source):,} tokens; {room - around:,} fit. Its {lost} is cut off.")
        return framing.conversation(source, history, room, engine, self.start_end.end_ids[0])

    def _check_fits(self, ids: list[int], what: str, settings: Settings) -> None:
        assert self.limit is not None
        if len(ids) > self.limit:
            raise InputError(
                f"{what} has {len(ids)} tokens; this model reads at most {self.limit}. Shorten it, or use slide "
                "(--slide)."
            )
        room = self.limit - len(ids) + 1  # the last token is generated without being read
        wanted = max(settings.max_new_tokens or 0, settings.min_new_tokens)
        if wanted > room:
            raise InputError(
                f"{what} has {len(ids)} tokens and {wanted} new ones are wanted; this model reads {self.limit} in "
                f"all. Ask for at most {room} new tokens, or use slide (--slide)."
            )

    def most(self, encoded: EncodedPrompt, settings: Settings) -> int:
        """The most new tokens for this prompt: as set, or what fits."""
        if settings.max_new_tokens is not None:
            return settings.max_new_tokens
        most = max(DEFAULT_NEW_TOKENS, settings.min_new_tokens)
        return most if self.limit is None or settings.slide else min(most, self.limit - len(encoded.prompt) + 1)

    def ids_of(self, prompt: Any, what: str) -> list[int]:
        ids = self._encode(prompt, what) if isinstance(prompt, str) else whole_numbers(prompt, what)
        self.check_ids(ids, what)
        return ids

    def _encode(self, text: str, what: str) -> list[int]:
        tokenizer = self.tokenizer
        _check_text(text, what)
        try:
            encoding = tokenizer.engine.encode(text)
        except Exception as error:  # Rust errors arrive as plain Exception
            raise InputError(f"{what} cannot be tokenized: {error}.") from None
        unknown = tokenizer.id_of("unk")
        strange = [
            text[begin:end]
            for token, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token == unknown and text[begin:end] != tokenizer.special.get("unk")
        ]
        if strange and not self.has_source:
            shown = ", ".join(repr(piece[:20]) for piece in list(dict.fromkeys(strange))[:10])
            raise InputError(f"{what} has characters this model has never seen: {shown}. Remove them.")
        if strange:
            say(f"{what}: {len(strange)} unknown tokens.")
        ids = encoding.ids
        # Some tokenizers add an end token; a prompt that is continued must not have one.
        while (
            not self.has_source
            and ids
            and ids[-1] in self.start_end.end_ids
            and encoding.special_tokens_mask[len(ids) - 1]
        ):
            ids = ids[:-1]
        return ids

    def token_of(self, item: int | str) -> int:
        """The id of a banned token."""
        if isinstance(item, int):
            return item
        _check_text(item, "banned")
        ids = self.tokenizer.engine.encode(item, add_special_tokens=False).ids
        if len(ids) != 1 or (ids[0] == self.tokenizer.id_of("unk") and item != self.tokenizer.special.get("unk")):
            raise InputError(f"banned: {item!r} is not a single token of this model. Only single tokens can be banned.")
        return ids[0]

    def check_ids(self, ids: Sequence[int], what: str) -> None:
        if wrong := [token for token in ids if not 0 <= token < self.vocabulary]:
            raise InputError(f"{what}: there is no token id {wrong[0]}; ids are from 0 to {self.vocabulary - 1}.")


def _check_text(text: str, what: str) -> None:
    if len(text) > MOST_PROMPT_CHARACTERS:
        raise InputError(f"{what} has {len(text):,} characters; the limit is {MOST_PROMPT_CHARACTERS:,}.")
    check_encodable(text, what)


def as_list(prompts: Any) -> tuple[bool, list[Any]]:
    """Whether it is a single prompt; and the prompts as a list."""
    if isinstance(prompts, str):
        return True, [prompts]
    if isinstance(prompts, np.ndarray | torch.Tensor):
        prompts = _listed(prompts)
        if isinstance(prompts, str):
            return True, [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes | bytearray | memoryview):
        raise InputError(f"A prompt is a text or a list of token ids, not {type(prompts).__name__}.")
    listed = list(prompts)
    if listed and all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in listed):
        return True, [listed]
    return False, listed


def _listed(array: np.ndarray | torch.Tensor) -> Any:
    try:
        return array.tolist()
    except (RuntimeError, ValueError, TypeError):  # sparse, nested, meta …
        raise InputError("This tensor does not hold readable token ids.") from None


def whole_numbers(prompt: Any, what: str) -> list[int]:
    try:
        ids = np.asarray(_listed(prompt) if isinstance(prompt, torch.Tensor) else prompt)
    except (ValueError, TypeError):
        ids = np.zeros((0, 0))
    if ids.shape == (0,):
        return []
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"{what} is neither a text nor a list of token ids (integers).")
    return [int(token) for token in ids]
