"""What a model can read: its tokenizer, the longest input, segments, and whether it is a decoder."""

from dataclasses import dataclass, field

from weft.errors import FolderError, RecipeError
from weft.generate.start_end_tokens import StartEndTokens, read_start_end_tokens
from weft.interchange.folder import Description
from weft.model.network import Architecture
from weft.model.positions import longest
from weft.tokenizer.tokenizer import Tokenizer

_DEFAULT_LENGTH = 512  # tokens


@dataclass(frozen=True)
class InputSpec:
    tokenizer: Tokenizer
    most_tokens: int  # in an input, special tokens included
    segments: int = 0  # segment types that the model distinguishes
    looks_ahead: bool = True  # False for a decoder, whose tokens see only earlier ones
    has_source: bool = False  # an encoder–decoder
    ends: StartEndTokens = field(default_factory=StartEndTokens)  # start and end tokens of generated text
    positions: int | None = None  # the model's own limit in tokens; None: no limit


def input_spec_for(
    architecture: Architecture, description: Description, tokenizer: Tokenizer, wanted: int | None
) -> InputSpec:
    """`wanted`: tokens in an input. Default: the model's limit, at most 512."""
    limit = longest(architecture.embedding.positions)
    length = wanted or min(limit or _DEFAULT_LENGTH, _DEFAULT_LENGTH)
    if limit is not None and length > limit:
        raise RecipeError(f"finetune.sequence_length is {length:,}, but the model reads at most {limit:,} tokens.")
    if tokenizer.vocabulary > architecture.vocabulary:
        raise FolderError(
            f"The tokenizer has {tokenizer.vocabulary:,} tokens, the model {architecture.vocabulary:,}: they do not "
            "belong together."
        )
    has_source = architecture.is_encoder_decoder
    ends = read_start_end_tokens(
        description.config, description.generation, tokenizer, vocabulary=architecture.vocabulary, has_source=has_source
    )
    reads_both_ways = architecture.encoder is not None
    return InputSpec(tokenizer, length, architecture.embedding.segments, reads_both_ways, has_source, ends, limit)
