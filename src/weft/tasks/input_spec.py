"""How much of a text a model reads for a task: its own limit, or the length it was tuned with."""

from weft.errors import FolderError, RecipeError
from weft.generate.start_end_tokens import read_start_end_tokens
from weft.interchange.folder import Description
from weft.model.network import Architecture
from weft.model.positions import longest
from weft.tasks.task import InputSpec
from weft.tokenizer.tokenizer import Tokenizer

USUAL_LENGTH = 512


def input_spec_for(
    architecture: Architecture, description: Description, tokenizer: Tokenizer, wanted: int | None
) -> InputSpec:
    limit = longest(architecture.embedding.positions)
    length = wanted or min(limit or USUAL_LENGTH, USUAL_LENGTH)
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
    return InputSpec(
        tokenizer, length, architecture.embedding.segments, architecture.encoder is not None, has_source, ends
    )
