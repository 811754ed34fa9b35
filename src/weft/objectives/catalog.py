"""Pre-training objectives by the name a recipe uses: the head each needs, and how to make one from token shards."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tokenizers import models

from weft.errors import RecipeError
from weft.objectives.causal import Causal
from weft.objectives.denoising import Denoising
from weft.objectives.masked import Masked
from weft.objectives.masked_pairs import MaskedPairs
from weft.objectives.masking import MaskSpec, Vocabulary
from weft.objectives.permutation import sentence_marks
from weft.objectives.sentence_pairs import SentencePairs
from weft.objectives.span_corruption import SpanCorruption
from weft.recipe.pretrain import DENOISED_SHARE, MASK_SHARE
from weft.tokenizer.special import SENTINELS
from weft.tokenizer.tokenizer import SpecialRole, Tokenizer
from weft.tokens.shards import TokenShards

# The language head of a family -> the objective it is pre-trained with by default.
DEFAULT_OBJECTIVE = {"masked": "masked", "causal": "causal", "seq2seq": "span"}


PretrainObjective = Causal | Masked | MaskedPairs | SpanCorruption | Denoising


@dataclass(frozen=True)
class ObjectiveKind:
    head: str  # as in `Family.architecture`
    ends: tuple[SpecialRole, ...]  # roles of the token that closes a document; the first that the tokenizer has is used
    make: Callable[[TokenShards, Tokenizer, int, MaskSpec], PretrainObjective]
    pairs: bool = False  # needs sentence boundaries
    uniform: bool = True  # all batches have the same shape
    mask_share: float = MASK_SHARE  # by default

    @property
    def language_head(self) -> str:
        """The head that predicts tokens."""
        return self.head.split("+")[0]

    @property
    def masking(self) -> MaskSpec:
        """How it masks by default."""
        return MaskSpec(self.mask_share)


def find_objective_kind(name: str, head: str) -> ObjectiveKind:
    """Raises RecipeError if the objective does not fit the family's language head (masked, causal, seq2seq)."""
    kind = OBJECTIVES[name]
    if kind.language_head != head:
        fitting = [other for other, known in OBJECTIVES.items() if known.language_head == head]
        raise RecipeError(
            f"pretrain.objective {name} does not fit a model with a {head} head. Fitting: {', '.join(fitting)}."
        )
    return kind


def text_objective(head: str, trained_with: object) -> str:
    """The objective that a model with this language head is measured by on text: the one it was trained with, as its
    folder says. The head's default if that is unknown, or has a second head.
    """
    if isinstance(trained_with, str) and trained_with in OBJECTIVES and OBJECTIVES[trained_with].head == head:
        return trained_with
    return DEFAULT_OBJECTIVE[head]


def end_of_document(tokenizer: Tokenizer, kind: ObjectiveKind) -> int:
    return _token(tokenizer, *kind.ends)


def _causal(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    return Causal(shards, length)


def _masked(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    return Masked(shards, length, vocabulary_of(tokenizer), _frame(tokenizer), mask)


def _next_sentence(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    return _pairs(SentencePairs(shards, "next"), tokenizer, length, mask)


def _sentence_order(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    return _pairs(SentencePairs(shards, "order"), tokenizer, length, mask)


def _pairs(pairs: SentencePairs, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    if mask.unit == "cover":
        raise RecipeError(
            "pretrain.mask_unit cover works with objective masked only: a pair has a new text in each epoch."
        )
    return MaskedPairs(pairs, length, vocabulary_of(tokenizer), _frame(tokenizer), mask)


def _span(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    found = [tokenizer.engine.token_to_id(sentinel) for sentinel in SENTINELS]
    sentinels = tuple(token for token in found if token is not None)
    if len(sentinels) < 2:
        raise RecipeError(
            "The tokenizer has no <extra_id_0>, <extra_id_1> …, which span corruption needs. Train one for t5."
        )
    start, end = _token(tokenizer, "pad", "bos"), _token(tokenizer, "eos")
    return SpanCorruption(shards, length - 1, sentinels, end=end, start=start, share=mask.share)


def _denoise(shards: TokenShards, tokenizer: Tokenizer, length: int, mask: MaskSpec) -> PretrainObjective:
    """T5's tokenizers have no mask token; their first sentinel serves as one."""
    known = (tokenizer.id_of("mask"), tokenizer.engine.token_to_id(SENTINELS[0]))
    hidden = next((token for token in known if token is not None), None)
    if hidden is None:
        raise RecipeError(
            f"The tokenizer has no mask token and no {SENTINELS[0]}, one of which denoising needs. Train one for t5."
        )
    start, end = _token(tokenizer, "pad", "bos"), _token(tokenizer, "eos")
    marks = sentence_marks(tokenizer)
    return Denoising(shards, length - 1, hidden, marks, end=end, start=start, share=mask.share)


OBJECTIVES = {
    "causal": ObjectiveKind("causal", ("eos", "bos", "sep"), _causal),
    "masked": ObjectiveKind("masked", ("sep", "eos"), _masked),
    "masked+next-sentence": ObjectiveKind(
        "masked+next-sentence", ("sep", "eos"), _next_sentence, pairs=True, uniform=False
    ),
    "masked+sentence-order": ObjectiveKind(
        "masked+next-sentence", ("sep", "eos"), _sentence_order, pairs=True, uniform=False
    ),
    "span": ObjectiveKind("seq2seq", ("eos",), _span, uniform=False),
    "denoise": ObjectiveKind("seq2seq", ("eos",), _denoise, uniform=False, mask_share=DENOISED_SHARE),
}


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What masking needs to know of a tokenizer: special tokens, and which pieces continue a word."""
    engine = tokenizer.engine
    pieces = sorted((number, piece) for piece, number in engine.get_vocab().items())
    is_wordpiece = isinstance(engine.model, models.WordPiece)
    inner = _inner_pieces([piece for _, piece in pieces], is_wordpiece)
    continues = None
    if inner is not None:
        continues = np.zeros(tokenizer.vocabulary, bool)
        continues[[number for number, _ in pieces]] = inner
    return Vocabulary(tokenizer.vocabulary, _token(tokenizer, "mask"), tokenizer.special_ids, continues)


def _inner_pieces(pieces: list[str], is_wordpiece: bool) -> list[bool] | None:
    """Whether each piece continues a word. In WordPiece these begin with ##. In byte-level BPE and Unigram they are
    letters without the mark of a preceding space. None if there is no such mark (characters): every token is a word.
    """
    if is_wordpiece:
        return [piece.startswith("##") for piece in pieces]
    mark = next((mark for mark in "Ġ▁" if sum(piece.startswith(mark) for piece in pieces) > 1), None)
    return (
        None if mark is None else [piece[:1] != mark and piece[:1].isalpha() and piece[:1] != "Ċ" for piece in pieces]
    )


def _frame(tokenizer: Tokenizer) -> tuple[int, int]:
    return _token(tokenizer, "cls", "bos"), _token(tokenizer, "sep", "eos")


def _token(tokenizer: Tokenizer, *roles: SpecialRole) -> int:
    for role in roles:
        if (token := tokenizer.id_of(role)) is not None:
            return token
    raise RecipeError(f"The tokenizer has no {roles[0]} token, which this objective needs. Train one for the family.")
