"""Which of the page's languages a model can read, as far as its tokenizer tells: examples in another would be noise."""

from weft.tokenizer.tokenizer import Tokenizer

_COMMON = {  # frequent words, new and old, and the most tokens per character of a vocabulary that was made for them
    "en": ("the and of to in that is was he for it with as his on be at by had not", 1.0),
    "zh": ("人一不有上中大天下日月山水心年生出来看去回是了他到要用起走以好多知能如", 2.0),
}
_MOST_UNKNOWN = 0.2  # of the tokens


def languages_of(tokenizer: Tokenizer | None) -> tuple[str, ...]:
    """Empty without a tokenizer."""
    return () if tokenizer is None else tuple(name for name in _COMMON if _reads(tokenizer, name))


def _reads(tokenizer: Tokenizer, language: str) -> bool:
    text, most = _COMMON[language]
    ids = tokenizer.engine.encode(text, add_special_tokens=False).ids
    unknown = tokenizer.id_of("unk")
    strange = 0 if unknown is None else ids.count(unknown)
    return strange <= _MOST_UNKNOWN * len(ids) and len(ids) <= most * len(text)
