"""The best words for the masks of a text, by a masked language model."""

from typing import NamedTuple

import torch

from weft.api.arrays import check_sequence
from weft.errors import InputError, check_encodable
from weft.model.network import Network
from weft.model.packed import pack
from weft.tokenizer.tokenizer import Tokenizer


class Filled(NamedTuple):
    """One suggestion for a mask."""

    word: str
    probability: float
    text: str  # with the word in its place; other masks stay


def fill_masks(network: Network, tokenizer: Tokenizer, text: str, top: int) -> list[list[Filled]]:
    """For each mask, `top` suggestions, most probable first. `[MASK]` and the tokenizer's own mask token both work."""
    if not isinstance(text, str):
        raise InputError("fill takes one text at a time.")
    check_encodable(text, "The text")
    if not isinstance(top, int) or isinstance(top, bool) or top < 1:
        raise InputError(f"top must be at least 1, not {top}.")
    ids, places = read_masks(network, tokenizer, text)
    device = next(network.parameters()).device
    batch = pack([ids]).to(device)
    with torch.inference_mode():
        logits = network.head("masked")(network(batch), batch, torch.tensor(places, device=device))
        best = logits.softmax(-1).topk(min(top, logits.shape[-1]))
    return [
        [_filled(tokenizer, ids, place, token, probability) for probability, token in zip(*row, strict=True)]
        for place, *row in zip(places, best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def read_masks(network: Network, tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """The text's token ids, and which of them are masks. Raises InputError if there is nothing to fill."""
    if "masked" not in network.heads:
        has = ", ".join(network.heads) or "none"
        raise InputError(
            f"fill needs a masked language model (BERT and its kin); this {network.architecture.family} is none (its "
            f"head: {has}). Try generate or predict."
        )
    mask = tokenizer.special.get("mask")
    if mask is None:
        raise InputError("This model's tokenizer has no mask token, so there is nothing to fill.")
    ids = tokenizer.encode(text.replace("[MASK]", mask))
    check_sequence(network, ids, 0)
    places = [place for place, token in enumerate(ids) if token == tokenizer.id_of("mask")]
    if not places:
        raise InputError(f"The text has no {mask} to fill. Write {mask} where a word is missing.")
    return ids, places


def filled_in(tokenizer: Tokenizer, ids: list[int], place: int, token: int) -> tuple[str, str]:
    """The token as text, and the whole text with it in place of the mask; other masks stay."""
    hidden = tokenizer.special_ids - {tokenizer.id_of("mask")}
    before, after = ([one for one in part if one not in hidden] for part in (ids[:place], ids[place + 1 :]))
    pieces = [token], [*before, token, *after]
    word, text = (tokenizer.engine.decode(piece, skip_special_tokens=False) for piece in pieces)
    return word, text


def _filled(tokenizer: Tokenizer, ids: list[int], place: int, token: int, probability: float) -> Filled:
    word, text = filled_in(tokenizer, ids, place, token)
    return Filled(word.strip(), probability, text)
