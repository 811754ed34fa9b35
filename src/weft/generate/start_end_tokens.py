"""The tokens that begin and end a text, from the model's config, its generation config and its tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.progress import say
from weft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class StartEndTokens:
    end_ids: tuple[int, ...] = ()  # each of them ends a text
    start_id: int | None = None  # the decoder's first token; of a model without an encoder, the prompt if it is empty
    forced_end_id: int | None = None  # the last token of a text that reaches max_new_tokens (Marian)
    banned_ids: tuple[int, ...] = ()


def read_start_end_tokens(
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    *,
    vocabulary: int,
    has_source: bool,
) -> StartEndTokens:
    """generation_config.json takes precedence over config.json, and that over the tokenizer. Ids outside the vocabulary
    are ignored: many configs of small models have GPT-2's 50256.
    """

    def ids(name: str) -> tuple[int, ...]:
        value = _numbers(generation, name, "generation_config.json") or _numbers(config, name, "config.json")
        if value is None and tokenizer is not None and name in ("bos_token_id", "eos_token_id"):
            known = tokenizer.id_of("bos" if name == "bos_token_id" else "eos")
            value = None if known is None else [known]
        return tuple(one for one in value or () if 0 <= one < vocabulary)

    def first(*names: str) -> int | None:
        return next((one for name in names for one in ids(name)), None)

    rules = generation or config  # a generation config counts even for what it leaves out
    words = rules.get("bad_words_ids")
    words = words if isinstance(words, list) else []
    single = [word[0] for word in words if isinstance(word, list) and len(word) == 1 and isinstance(word[0], int)]
    return StartEndTokens(
        end_ids=ids("eos_token_id"),
        start_id=_decoder_start(first("decoder_start_token_id", "pad_token_id"))
        if has_source
        else first("bos_token_id"),
        forced_end_id=first("forced_eos_token_id") if "forced_eos_token_id" in rules else None,
        banned_ids=tuple(token for token in single if 0 <= token < vocabulary),
    )


def _numbers(settings: Mapping[str, Any], name: str, file: str) -> list[int] | None:
    value = settings.get(name)
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    if all(type(one) is int for one in listed):
        return listed
    say(f"{file}: {name} cannot be {value!r}; it is ignored.")
    return None


def _decoder_start(said: int | None) -> int:
    """T5-like decoders begin with the padding token, 0 by default."""
    return 0 if said is None else said
