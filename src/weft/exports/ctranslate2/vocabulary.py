"""The token strings of an export. CTranslate2 takes and returns strings, so each row of the embedding matrix needs one
of its own. Its config names an unknown token and an end token, and both must be rows: for a missing one it would read
beyond the matrix.
"""

from dataclasses import dataclass

from weft.api.model import Model
from weft.tokenizer.tokenizer import SpecialRole, Tokenizer

NEVER_WRITTEN = -1e4  # logit, representable in float16


@dataclass(frozen=True)
class TokenStrings:
    tokens: list[str]  # one per row
    unknown: str
    begin: str
    ends: tuple[str, ...]  # each of them ends a text
    start: str | None  # the decoder's first token, of an encoder–decoder
    banned: tuple[int, ...]  # rows that are never written
    has_added_row: bool  # an end token that is never written, for a model that writes without end


def token_strings(model: Model) -> TokenStrings:
    vocabulary, tokenizer, ids = model.network.architecture.vocabulary, model.own_tokenizer, model.start_end
    tokens = _numbered(vocabulary) if tokenizer is None else _of_tokenizer(tokenizer, vocabulary)
    writes = model.network.architecture.decoder is not None
    banned, ends = ids.banned_ids if writes else (), tuple(tokens[one] for one in ids.end_ids)
    has_added_row = writes and not ends
    if has_added_row:
        ends = (_unique("<no-end>", set(tokens)),)
        banned = (*banned, len(tokens))
        tokens.append(ends[0])
    unknown = _role(tokenizer, "unk", tokens) or (ends[0] if ends else tokens[0])
    begin = _role(tokenizer, "bos", tokens) or unknown
    if not model.network.architecture.is_encoder_decoder:
        return TokenStrings(tokens, unknown, begin, ends or (unknown,), None, banned, has_added_row)
    return TokenStrings(tokens, unknown, begin, ends, tokens[ids.start_id or 0], banned, has_added_row)


def _numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _of_tokenizer(tokenizer: Tokenizer, count: int) -> list[str]:
    """Rows without a token, or with the string of another row, get a name that no token has."""
    engine = tokenizer.engine
    found = [engine.id_to_token(number) for number in range(count)]
    taken = {token for token in found if token is not None}
    tokens = []
    for number, token in enumerate(found):
        if token is None or engine.token_to_id(token) != number:
            token = _unique(f"<unused_{number}>", taken)
        tokens.append(token)
    return tokens


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"<{name}>"
    return name


def _role(tokenizer: Tokenizer | None, role: SpecialRole, tokens: list[str]) -> str | None:
    number = None if tokenizer is None else tokenizer.id_of(role)
    return tokens[number] if number is not None and number < len(tokens) else None
