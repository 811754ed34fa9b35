"""Trains a tokenizer on a corpus.

    wordpiece   as BERT: words split into pieces, ## inside a word; lower case; each Chinese character is a word
    bpe         as GPT-2: byte-pair merges over bytes, so no text is unknown (Sennrich et al. 2016)
    unigram     as T5: the pieces that maximize the likelihood of the corpus (Kudo 2018); ▁ stands for a space
    char        one token per character

The text is streamed in pieces of bounded size. Of a corpus larger than the limit, an even sample is read.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from weft.errors import InputError
from weft.folders import to_json
from weft.sources.documents import Readings, files_of, read_documents
from weft.sources.files import text_size
from weft.sources.reading import Reading
from weft.tokenizer.special import FAMILY_SPECIALS, SpecialTokens
from weft.tokenizer.tokenizer import Tokenizer

TokenizerKind = Literal["wordpiece", "bpe", "unigram", "char"]
DEFAULT_FAMILY: dict[TokenizerKind, str] = {"wordpiece": "bert", "bpe": "gpt2", "unigram": "t5", "char": "gpt2"}
MOST_TRAINING_BYTES = {
    "wordpiece": 2**30,
    "bpe": 2**30,
    "unigram": 2**27,
    "char": 2**40,
}  # Unigram holds its text in memory
_PIECE_CHARACTERS = 2**16  # of text given to the trainer at once


def train_tokenizer(
    sources: Sequence[Path],
    kind: TokenizerKind,
    vocabulary: int | None = None,
    *,
    family: str | None = None,
    lowercase: bool = True,
    most_bytes: int | None = None,
    readings: Reading | Readings | None = None,
) -> Tokenizer:
    """Trains a tokenizer. `vocabulary` includes the special tokens; default: up to 8,000, for char all characters."""
    specials = _specials(kind, family or DEFAULT_FAMILY[kind])
    asked = vocabulary
    if vocabulary is None:
        vocabulary = 2**31 - 1 if kind == "char" else 8000
    if vocabulary <= len(specials.tokens):
        raise InputError(
            f"A vocabulary of {vocabulary} is too small: it needs more than its {len(specials.tokens)} special tokens."
        )
    texts = _Stream(sources, MOST_TRAINING_BYTES[kind] if most_bytes is None else most_bytes, readings or {})
    engine = _TRAIN[kind](texts, vocabulary, specials, lowercase)
    if not texts.characters:
        raise InputError(f"{', '.join(map(str, sources))}: there is no text to train a tokenizer on.")
    found = engine.get_vocab_size()
    if kind != "char" and asked is not None and found < asked:
        raise InputError(
            f"This text supports a vocabulary of {found:,} tokens, not {asked:,}. Ask for at most {found:,}."
        )
    engine.post_processor = _template(specials, engine)
    return Tokenizer(engine, dict(specials.roles), _folder_files(engine, specials, family or DEFAULT_FAMILY[kind]))


def _folder_files(engine: tokenizers.Tokenizer, specials: SpecialTokens, family: str) -> dict[str, bytes]:
    """The files of a Hugging Face tokenizer folder."""
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings |= {f"{role}_token": token for role, token in specials.roles.items()}
    if specials.extra:
        settings["extra_special_tokens"] = list(specials.extra)
    segments = ["token_type_ids"] if family == "bert" else []
    settings["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    return {"tokenizer.json": engine.to_str(pretty=True).encode(), "tokenizer_config.json": to_json(settings)}


class _Stream:
    """The corpus as pieces of text. If it is larger than the limit, pieces are sampled evenly."""

    def __init__(self, sources: Sequence[Path], most_bytes: int, readings: Reading | Readings) -> None:
        self.sources, self.readings, self.characters = sources, readings, 0
        self.share = min(1.0, most_bytes / max(text_size(files_of(sources, readings)), 1))

    def __iter__(self) -> Iterator[str]:
        self.characters = 0
        due = 0.0
        for document in read_documents(self.sources, self.readings):
            for start in range(0, len(document.text), _PIECE_CHARACTERS):
                due += self.share
                if due >= 1.0:
                    due -= 1.0
                    piece = document.text[start : start + _PIECE_CHARACTERS]
                    self.characters += len(piece)
                    yield piece


def _specials(kind: TokenizerKind, family: str) -> SpecialTokens:
    if family not in FAMILY_SPECIALS:
        raise InputError(f"There is no model family {family!r}. Families: {', '.join(FAMILY_SPECIALS)}.")
    specials = FAMILY_SPECIALS[family]
    if kind != "bpe" and specials.roles.get("unk") == specials.roles.get("eos"):
        # GPT-2 uses its end-of-text token as the unknown token, because bytes are never unknown. Characters can be.
        return SpecialTokens({**specials.roles, "unk": "<unk>"}, specials.extra, specials.before, specials.after)
    return specials


def _train_wordpiece(texts: _Stream, size: int, specials: SpecialTokens, lowercase: bool) -> tokenizers.Tokenizer:
    """Trains in two passes to be deterministic. The trainer numbers the inner characters (##a) in the random order of a
    hash table, and breaks ties between merges by number. The first pass finds them; the second has fixed numbers.
    """

    def train(size: int, first: list[str]) -> dict[str, int]:
        engine = _wordpiece({unknown: 0}, unknown, lowercase)
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        engine.train_from_iterator(texts, trainer)
        return engine.get_vocab()

    unknown = specials.roles["unk"]
    inner = sorted(token for token in train(0, specials.tokens) if len(token) == 3 and token.startswith("##"))
    engine = _wordpiece(train(size, [*specials.tokens, *inner]), unknown, lowercase)
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials.tokens])
    return engine


def _wordpiece(vocabulary: dict[str, int], unknown: str, lowercase: bool) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    return engine


def _train_bpe(texts: _Stream, size: int, specials: SpecialTokens, lowercase: bool) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if size < len(alphabet) + len(specials.tokens):
        raise InputError(
            f"A byte-level vocabulary needs at least {len(alphabet) + len(specials.tokens)} tokens, not {size}."
        )
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials.tokens, initial_alphabet=sorted(alphabet), show_progress=False
    )
    engine.train_from_iterator(texts, trainer)
    return engine


def _train_unigram(texts: _Stream, size: int, specials: SpecialTokens, lowercase: bool) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.Unigram())
    engine.normalizer = normalizers.NFKC()
    # No token crosses a line, a space or punctuation. Without the last rule, Chinese clauses become single tokens.
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
            pre_tokenizers.Split(Regex(r"[^\p{L}\p{M}\p{N}▁]"), "isolated"),
        ]
    )
    engine.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=specials.tokens, unk_token=specials.roles["unk"], show_progress=False
    )
    engine.train_from_iterator(texts, trainer)
    # Scores are summed in parallel in random order. Rounding removes the digits that vary.
    pieces = json.loads(engine.to_str())["model"]["vocab"]
    first, rest = pieces[: len(specials.tokens)], pieces[len(specials.tokens) :]
    # Pruned characters return at the lowest score + 0.0001 each, in the random order of a set.
    lowest = min((score for _, score in rest), default=0.0)
    near = lowest + 0.0001 * len(rest)
    scored = ((token, lowest if len(token) == 1 and score < near else score) for token, score in rest)
    rest = sorted(((token, round(score, 5)) for token, score in scored), key=lambda piece: (-piece[1], piece[0]))
    unknown = specials.tokens.index(specials.roles["unk"])
    engine.model = models.Unigram([*map(tuple, first), *rest], unk_id=unknown, byte_fallback=False)
    return engine


def _train_char(texts: _Stream, size: int, specials: SpecialTokens, lowercase: bool) -> tokenizers.Tokenizer:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    # The most frequent characters stay; the rest are unknown. Ids are in code point order, so that a small change of
    # the corpus changes few of them.
    kept = sorted(character for character, _ in counts.most_common(size - len(specials.tokens)))
    vocabulary = {token: number for number, token in enumerate([*specials.tokens, *kept])}
    engine = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=specials.roles["unk"]))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials.tokens])
    return engine


_TRAIN = {"wordpiece": _train_wordpiece, "bpe": _train_bpe, "unigram": _train_unigram, "char": _train_char}


def _template(specials: SpecialTokens, engine: tokenizers.Tokenizer) -> processors.PostProcessor | None:
    """Adds special tokens: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with B as segment 1 in families with segments."""
    if not specials.before and not specials.after:
        return processors.ByteLevel(trim_offsets=False) if isinstance(engine.model, models.BPE) else None
    names = {role: specials.roles[role] for role in {*specials.before, *specials.after, *specials.between}}
    before, after, between = (
        [names[role] for role in roles] for roles in (specials.before, specials.after, specials.between)
    )
    segment = int("cls" in specials.before)
    second = ["$B", *after]
    return processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]),
        pair=" ".join([*before, "$A", *between, *(f"{part}:{segment}" for part in second)]),
        special_tokens=[(token, engine.token_to_id(token)) for token in sorted(set(names.values()))],
    )
