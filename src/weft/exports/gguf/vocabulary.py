"""A tokenizer in the terms of GGUF. llama.cpp has four tokenizers that are of use here:

    gpt2    byte-level BPE; splits texts by regular expressions that it knows by name
    llama   SentencePiece's BPE with bytes as a fallback (Llama 2): merges by the score of what they make
    bert    WordPiece; ▁ marks what begins a word, where `tokenizers` marks with ## what does not
    t5      SentencePiece's Unigram; also takes vocabularies of single characters

What they cannot express is refused with a sentence. What they treat differently in rare cases is noted; `compare`
tokenizes sample texts in llama.cpp and names those that differ.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from weft.api.model import Model
from weft.exports.gguf.charsmap import nfkc_charsmap
from weft.exports.gguf.pre_tokenizers import find_pre_tokenizer, flattened
from weft.exports.gguf.token_table import (
    SPACE,
    CannotExpress,
    GgufVocabulary,
    TokenKind,
    frame_of,
    list_tokens,
    special_ids,
)
from weft.tokenizer.tokenizer import Tokenizer

_ONNX = "Use --to onnx."
# What weft's own Unigram tokenizers split at, after Metaspace: no token of theirs contains such a place.
_NO_TOKEN_CROSSES = ({"String": "\n"}, {"Regex": r"[^\p{L}\p{M}\p{N}▁]"})
_LEADING_SPACE = "llama.cpp puts a space before every text, also before one that begins with a space."
_UNKNOWN_RUNS = "Unknown characters in a row are one unknown token in llama.cpp."
_NO_MERGE = "ĀĀ ĀĀ"  # merges must not be empty; texts begin as single characters, so this one never happens


def gguf_vocabulary(model: Model) -> GgufVocabulary:
    """Raises CannotExpress if llama.cpp has no tokenizer like the model's."""
    size, end_ids = model.network.architecture.vocabulary, model.start_end.end_ids
    return (
        _without_text(size, end_ids) if model.own_tokenizer is None else _expressed(model.own_tokenizer, size, end_ids)
    )


def _without_text(size: int, end_ids: tuple[int, ...]) -> GgufVocabulary:
    """Names for the tokens of a model without a tokenizer. llama-server ends at the first request if there are none."""
    tokens = [f"<{number}>" for number in range(size)]
    kinds = [TokenKind.NORMAL] * size
    last = end_ids[0] if end_ids else size - 1
    notes = ("The model has no tokenizer: llama.cpp takes prompts as token ids only, and writes <17> for token 17.",)
    ids, flags = {"bos_token_id": last, "eos_token_id": last}, {"add_bos_token": False, "add_eos_token": False}
    return GgufVocabulary("gpt2", tokens, kinds, None, [_NO_MERGE], "gpt-2", ids, flags, notes=notes)


def _expressed(tokenizer: Tokenizer, size: int, end_ids: tuple[int, ...]) -> GgufVocabulary:
    """`size`: rows of the embedding. `end_ids`: tokens that end a generated text."""
    if tokenizer.vocabulary > size:
        raise CannotExpress(f"its tokenizer has {tokenizer.vocabulary:,} tokens, the model {size:,}.")
    said = json.loads(tokenizer.engine.to_str())
    frame = frame_of(tokenizer)
    match said["model"]["type"]:
        case "BPE" if any(one["type"] == "ByteLevel" for one in flattened(said["pre_tokenizer"])):
            found = _byte_level(said, tokenizer, size)
        case "BPE":
            found = _sentencepiece_bpe(said, tokenizer, size)
        case "WordPiece":
            found = _wordpiece(said, tokenizer, size)
        case "Unigram":
            found = _unigram(said, tokenizer, size)
        case "WordLevel":
            found = _characters(said, tokenizer, size)
    flags = {"add_bos_token": frame.before is not None, "add_eos_token": frame.after is not None}
    is_framed = frame.before is not None and frame.after is not None  # pairs: first, separator, second
    notes = found.notes
    if len({*end_ids, *([] if frame.after is None else [frame.after])}) > 2:
        notes += ("The model has more than two end tokens; the file names the first two.",)
    ids = {**found.ids, **special_ids(tokenizer, frame, end_ids, found.kinds)}
    flags["add_sep_token"] = is_framed and "seperator_token_id" in ids
    return replace(found, ids=ids, flags={**flags, **found.flags}, notes=notes)


def _byte_level(said: dict[str, Any], tokenizer: Tokenizer, size: int) -> GgufVocabulary:
    model, notes = said["model"], []
    for one in flattened(said["normalizer"]):
        if one["type"] != "NFC":
            raise CannotExpress(f"its tokenizer normalizes texts by {one['type']}, which llama.cpp's BPE does not.")
        notes.append("llama.cpp does not normalize texts to NFC as the tokenizer does: give it normalized texts.")
    _refuse_bpe_options(model)
    for one in flattened(said["pre_tokenizer"]):
        if one["type"] == "ByteLevel" and one.get("add_prefix_space"):
            raise CannotExpress(f"its tokenizer puts a space before a text, which llama.cpp's BPE does not. {_ONNX}")
    pre = find_pre_tokenizer(said["pre_tokenizer"], ignore_merges=bool(model.get("ignore_merges")))
    if pre is None:
        raise CannotExpress(
            "llama.cpp splits texts by regular expressions that it knows by name, and that of this tokenizer is not "
            f"among them. {_ONNX}"
        )
    tokens, kinds = list_tokens(tokenizer, size)
    return GgufVocabulary("gpt2", tokens, kinds, merges=_merges(model), pre=pre, notes=tuple(notes))


def _refuse_bpe_options(model: Mapping[str, Any]) -> None:
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(option):
            raise CannotExpress(f"its tokenizer is a BPE with {option}, which llama.cpp does not have. {_ONNX}")


def _merges(model: Mapping[str, Any]) -> list[str]:
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]] or [_NO_MERGE]


def _sentencepiece_bpe(said: dict[str, Any], tokenizer: Tokenizer, size: int) -> GgufVocabulary:
    model = said["model"]
    _refuse_bpe_options(model)
    if not model.get("byte_fallback"):
        raise CannotExpress(f"its tokenizer is a BPE without bytes as a fallback, which llama.cpp lacks. {_ONNX}")
    prefix = _prefix_of_spaces(said)
    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]]
    rank: dict[str, int] = {}
    for number, (left, right) in enumerate(pairs):
        rank.setdefault(left + right, number)
    if not _merges_by_score(pairs, rank, model["vocab"]):
        raise CannotExpress(f"its BPE merges in an order that llama.cpp cannot follow: not by what they make. {_ONNX}")
    tokens, kinds = list_tokens(tokenizer, size)
    for number, token in enumerate(tokens):
        if kinds[number] == TokenKind.NORMAL and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            kinds[number] = TokenKind.BYTE
    scores = [-float(rank.get(token, 0)) for token in tokens]
    splits = any(step["type"] == "Metaspace" for step in flattened(said["pre_tokenizer"]))
    notes = (_LEADING_SPACE,) if prefix and splits else ()
    return GgufVocabulary("llama", tokens, kinds, scores, flags={"add_space_prefix": prefix}, notes=notes)


def _prefix_of_spaces(said: dict[str, Any]) -> bool:
    """Whether a ▁ is put before a text. Raises CannotExpress if spaces are not written as ▁ throughout."""
    steps = [*flattened(said["normalizer"]), *flattened(said["pre_tokenizer"])]
    prefix, replaces = False, False
    for step in steps:
        match step:
            case {"type": "Prepend", "prepend": "▁"}:
                prefix = True
            case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
                replaces = True
            case {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}:
                prefix, replaces = prefix or scheme != "never", True
            case _:
                raise CannotExpress(f"its BPE prepares texts by {step['type']}, which llama.cpp does not. {_ONNX}")
    if not replaces:
        raise CannotExpress(f"its BPE does not write spaces as ▁, as llama.cpp's does. {_ONNX}")
    return prefix


def _merges_by_score(pairs: Sequence[tuple[str, ...]], rank: Mapping[str, int], tokens: Mapping[str, int]) -> bool:
    """Whether the order of merges follows from what they make, as in SentencePiece: every way to make a token of two
    others is a merge, and merges that make the same token are neighbours.
    """
    made = [left + right for left, right in pairs]
    changes = sum(before != after for before, after in pairwise(made))
    known = set(pairs)
    return changes == max(len(rank) - 1, 0) and all(
        (token[:cut], token[cut:]) in known
        for token in rank
        for cut in range(1, len(token))
        if token[:cut] in tokens and token[cut:] in tokens
    )


def _wordpiece(said: dict[str, Any], tokenizer: Tokenizer, size: int) -> GgufVocabulary:
    model, normalizer, splitter = said["model"], said["normalizer"], said["pre_tokenizer"]
    if (
        not normalizer
        or normalizer["type"] != "BertNormalizer"
        or not splitter
        or splitter["type"] != ("BertPreTokenizer")
    ):
        raise CannotExpress(f"its WordPiece splits texts in another way than BERT's, which llama.cpp has. {_ONNX}")
    inner, notes = model["continuing_subword_prefix"], []

    def rename(token: str) -> str:
        return token.removeprefix(inner) if token.startswith(inner) and token != inner else SPACE + token

    lowercase, strips = normalizer["lowercase"], normalizer["strip_accents"]
    if not normalizer["handle_chinese_chars"]:
        notes.append("llama.cpp makes each Chinese character a word, as the tokenizer does not.")
    if not lowercase:
        notes.append("The vocabulary is cased: older versions of llama.cpp put texts into lower case all the same.")
    flags = {"normalizer.lowercase": lowercase, "normalizer.strip_accents": lowercase if strips is None else strips}
    tokens, kinds = list_tokens(tokenizer, size, rename)
    return GgufVocabulary("bert", tokens, kinds, ids=_unknown(model), flags=flags, notes=tuple(notes))


def _unknown(model: Mapping[str, Any]) -> dict[str, int]:
    if (number := model["vocab"].get(model["unk_token"])) is None:
        raise CannotExpress(f"its vocabulary lacks the unknown token {model['unk_token']!r}. {_ONNX}")
    return {"unknown_token_id": number}


def _unigram(said: dict[str, Any], tokenizer: Tokenizer, size: int) -> GgufVocabulary:
    model = said["model"]
    if model.get("byte_fallback"):
        raise CannotExpress(f"its Unigram writes unknown characters as bytes, which llama.cpp's does not. {_ONNX}")
    charsmap, flags = _unigram_charsmap(said), {"add_space_prefix": False, "remove_extra_whitespaces": False}
    for step in flattened(said["pre_tokenizer"]):
        match step:
            case {"type": "WhitespaceSplit"}:
                flags["remove_extra_whitespaces"] = True
            case {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme}:
                flags["add_space_prefix"] = scheme != "never"
            case {"type": "Split", "pattern": pattern} if pattern in _NO_TOKEN_CROSSES:
                pass
            case _:
                raise CannotExpress(f"its tokenizer splits texts by {step['type']}, which llama.cpp does not. {_ONNX}")
    tokens, kinds = list_tokens(tokenizer, size)
    scores = [float(score) for _, score in model["vocab"]]
    scores += [min(scores, default=0.0)] * (size - len(scores))
    notes: tuple[str, ...] = (_UNKNOWN_RUNS,)
    if flags["add_space_prefix"] and not flags["remove_extra_whitespaces"]:
        notes += (_LEADING_SPACE,)
    if (unknown := model.get("unk_id")) is None:
        raise CannotExpress(f"its Unigram has no unknown token, and llama.cpp's needs one. {_ONNX}")
    ids = {"unknown_token_id": unknown}
    return GgufVocabulary("t5", tokens, kinds, scores[:size], ids=ids, flags=flags, charsmap=charsmap, notes=notes)


def _unigram_charsmap(said: dict[str, Any]) -> bytes | None:
    steps = flattened(said["normalizer"])
    if len(steps) > 1:
        names = ", ".join(step["type"] for step in steps)
        raise CannotExpress(f"its tokenizer normalizes texts in several steps ({names}), llama.cpp in one. {_ONNX}")
    match steps:
        case []:
            return None
        case [{"type": "NFKC"}]:
            return nfkc_charsmap()
        case [{"type": "Precompiled", "precompiled_charsmap": encoded}]:
            return base64.b64decode(encoded)
    raise CannotExpress(f"its tokenizer normalizes texts by {steps[0]['type']}, which llama.cpp does not. {_ONNX}")


def _characters(said: dict[str, Any], tokenizer: Tokenizer, size: int) -> GgufVocabulary:
    """Of single characters there is one segmentation only, whatever their scores."""
    split = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
    if said["pre_tokenizer"] != split or said["normalizer"] is not None:
        raise CannotExpress(f"its vocabulary is of whole words, which llama.cpp's tokenizers are not. {_ONNX}")
    tokens, kinds = list_tokens(tokenizer, size, lambda name: SPACE if name == " " else name)
    flags = {"add_space_prefix": False, "remove_extra_whitespaces": False}
    notes = (_UNKNOWN_RUNS,)
    return GgufVocabulary("t5", tokens, kinds, [-1.0] * size, ids=_unknown(said["model"]), flags=flags, notes=notes)
