"""The tokenizer of a GGUF file as a tokenizer.json, with the special tokens, the chat template and sampling settings.

Three of llama.cpp's tokenizers are read: gpt2 (byte-level BPE), llama (SentencePiece's BPE; its merges follow from the
scores of tokens) and t5 (Unigram, as weft writes it). A file with another one, or with regular expressions that are
known to llama.cpp only, becomes a model without a tokenizer.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from weft.exports.gguf.charsmap import nfkc_charsmap
from weft.exports.gguf.file import GgufSource
from weft.exports.gguf.pre_tokenizers import known_pre_tokenizer
from weft.exports.gguf.token_table import ID_KEYS, SPACE, TokenKind
from weft.folders import to_json

_PLACE = "tokenizer.ggml."
_MOST_TOKEN = 1_000  # characters: the ways to split a longer one are too many
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_SAMPLING |= {"penalty_repeat": "repetition_penalty"}
_MOST = {"temperature": 1e4, "top_k": 2**31 - 1, "top_p": 1.0, "min_p": 1.0, "repetition_penalty": 100.0}
# Whether a start token is put before a text, if the file does not say.
_ADDS_START = ("llama-bpe", "llama3", "llama-v3", "tekken", "chameleon")


@dataclass(frozen=True)
class ImportedVocabulary:
    kind: str  # for the user
    files: dict[str, bytes] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # ids of special tokens, for config.json
    generation: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_vocabulary(source: GgufSource, size: int) -> ImportedVocabulary:
    """`size`: rows of the embedding. Raises FolderError if the tokens do not fit it or each other."""
    said = _Said(source, size)
    ids, generation = said.special_ids(), _generation(source)
    end = [ids[key] for key in ("eos_token_id", "eot_token_id") if key in ids]
    generation |= {"eos_token_id": end if len(end) > 1 else end[0]} if end else {}
    config: dict[str, Any] = {key: ids[key] for key in ("bos_token_id", "eos_token_id") if key in ids}
    config["pad_token_id"] = ids.get("padding_token_id")
    if said.note is not None:
        return ImportedVocabulary("none", {}, config, generation, (said.note,))
    engine = _engine(source, said.tokenizer_json(ids))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    roles = {role: ids[key] for role, key in ID_KEYS.items() if key in ids}
    settings |= {f"{role}_token": said.tokens[number] for role, number in roles.items()}
    files = {"tokenizer.json": engine.to_str(pretty=True).encode(), "tokenizer_config.json": to_json(settings)}
    template = source.values.get("tokenizer.chat_template")
    if isinstance(template, str):
        files["chat_template.jinja"] = template.encode()
    return ImportedVocabulary(said.model, files, config, generation)


def _engine(source: GgufSource, written: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(written))
    except BaseException as error:  # the Rust side raises bare Exception, or panics, which is none
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        source.refuse(f"its tokenizer is damaged: {error}.")


def _generation(source: GgufSource) -> dict[str, Any]:
    """Those that can be followed: llama.cpp writes 0 for none, and a file may hold anything."""
    found: dict[str, Any] = {theirs: source.values.get(f"general.sampling.{key}") for key, theirs in _SAMPLING.items()}
    kept = {key: value for key, value in found.items() if type(value) in (int, float) and 0 < value <= _MOST[key]}
    if type(kept.get("top_k", 1)) is not int:
        kept.pop("top_k")
    return {**kept, "do_sample": True} if kept else {}


class _Said:
    """What the file says about its tokenizer, with the types checked. `note`: why it cannot be read, if it cannot."""

    def __init__(self, source: GgufSource, size: int) -> None:
        self.source, self.size = source, size
        self.model, self.pre = self._text("model", "none"), self._text("pre", "default")
        self.tokens: list[str] = []
        self.note = self._note()
        if self.note is None:
            self.tokens = self._list("tokens", str, size)
            self.kinds = self._list("token_type", int, size, default=[TokenKind.NORMAL] * size)
            self._check_unique()

    def _note(self) -> str | None:
        """A table of replacements is read if it is weft's own: `tokenizers` does not survive a damaged one."""
        charsmap = self._get("precompiled_charsmap", None)
        known = {
            "gpt2": known_pre_tokenizer(self.pre) is not None,
            "llama": True,
            "t5": charsmap is None or charsmap == list(nfkc_charsmap()),
        }
        if known.get(self.model):
            return None
        name = self.model if self.model != "gpt2" else f"gpt2 with {self.pre}"
        return f"The tokenizer of the file ({name}) cannot be read: add a tokenizer.json to the folder."

    def _get(self, key: str, default: Any) -> Any:
        return self.source.values.get(_PLACE + key, default)

    def _text(self, key: str, default: str) -> str:
        if not isinstance(found := self._get(key, default), str):
            self.source.refuse(f"{_PLACE}{key} is not a text.")
        return found

    def _list(self, key: str, kind: type, size: int | None, default: list[Any] | None = None) -> list[Any]:
        found = self._get(key, default)
        if not isinstance(found, list) or any(type(one) is not kind for one in found):
            self.source.refuse(f"{_PLACE}{key} is not a list of the right kind.")
        if size is not None and len(found) != size:
            self.source.refuse(f"{_PLACE}{key} has {len(found):,} items; the embedding has {size:,} rows.")
        return found

    def _flag(self, key: str, default: bool) -> bool:
        if type(found := self._get(key, default)) is not bool:
            self.source.refuse(f"{_PLACE}{key} is neither true nor false.")
        return found

    def _check_unique(self) -> None:
        if len(set(self.tokens)) != len(self.tokens):
            twice = Counter(self.tokens).most_common(1)[0][0]
            self.source.refuse(f"its tokenizer has the token {twice[:50]!r} twice.")

    def special_ids(self) -> dict[str, int]:
        """By key. Ids that the file leaves out are not guessed."""
        found = {}
        for key in (*ID_KEYS.values(), "eot_token_id"):
            number = self._get(key, None)
            if number is not None and (type(number) is not int or not 0 <= number < self.size):
                self.source.refuse(f"{_PLACE}{key} is {number!r}; ids are from 0 to {self.size - 1}.")
            if number is not None:
                found[key] = number
        return found

    def tokenizer_json(self, ids: dict[str, int]) -> dict[str, Any]:
        """As `tokenizers` writes it."""
        read = {"gpt2": self._byte_level, "llama": self._sentencepiece, "t5": self._unigram}[self.model]
        written: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
        written |= {"added_tokens": self._added(), **read(ids)}
        before = self.model == "llama" or (self.model == "gpt2" and self.pre in _ADDS_START)
        around = [
            ids.get("bos_token_id") if self._flag("add_bos_token", before) else None,
            ids.get("eos_token_id") if self._flag("add_eos_token", self.model == "t5") else None,
        ]
        return {**written, "post_processor": self._template(*around)}

    def _added(self) -> list[dict[str, Any]]:
        special = (TokenKind.CONTROL, TokenKind.UNKNOWN)
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": number, "content": token, **flags, "special": kind in special}
            for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in (*special, TokenKind.USER_DEFINED)
        ]

    def _template(self, before: int | None, after: int | None) -> dict[str, Any] | None:
        if before is None and after is None:
            return (
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
                if (self.model == "gpt2")
                else None
            )

        def token(number: int | None, segment: int) -> list[dict[str, Any]]:
            return [] if number is None else [{"SpecialToken": {"id": self.tokens[number], "type_id": segment}}]

        def text(name: str, segment: int) -> list[dict[str, Any]]:
            parts = token(before, segment), [{"Sequence": {"id": name, "type_id": segment}}], token(after, segment)
            return [part for one in parts for part in one]

        used = {number for number in (before, after) if number is not None}
        names = {self.tokens[one]: {"id": self.tokens[one], "ids": [one], "tokens": [self.tokens[one]]} for one in used}
        pair = [*text("A", 0), *text("B", 1)]
        return {"type": "TemplateProcessing", "single": text("A", 0), "pair": pair, "special_tokens": names}

    def _used(self) -> dict[str, int]:
        """Tokens with their ids; names of empty rows are left out."""
        kinds = zip(self.tokens, self.kinds, strict=True)
        return {token: number for number, (token, kind) in enumerate(kinds) if kind != TokenKind.UNUSED}

    def _byte_level(self, ids: dict[str, int]) -> dict[str, Any]:
        known = known_pre_tokenizer(self.pre)
        assert known is not None
        step, ignore_merges = known
        vocabulary = self._used()
        pairs = [(pair[: (cut := pair.find(" ", 1))], pair[cut + 1 :]) for pair in self._list("merges", str, None)]
        merges = [list(pair) for pair in pairs if pair[0] + pair[1] in vocabulary]
        model = {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": ignore_merges}
        model |= {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
        decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        return {
            "pre_tokenizer": step,
            "decoder": decoder,
            "model": {**model, "fuse_unk": False, "byte_fallback": False},
        }

    def _sentencepiece(self, ids: dict[str, int]) -> dict[str, Any]:
        scores = self._list("scores", float, self.size)
        steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
        if self._flag("add_space_prefix", True):
            steps.insert(0, {"type": "Prepend", "prepend": SPACE})
        unknown = self.tokens[ids["unknown_token_id"]] if "unknown_token_id" in ids else None
        model = {"type": "BPE", "vocab": self._used(), "merges": self._merges(scores), "unk_token": unknown}
        model |= {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
        back: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if len(steps) > 1:
            back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {
            "normalizer": {"type": "Sequence", "normalizers": steps},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": back},
            "model": {**model, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False},
        }

    def _merges(self, scores: list[float]) -> list[list[str]]:
        """Every way to make a token of two others, the tokens with the highest score first."""
        normal = {
            token: number
            for number, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind == TokenKind.NORMAL
        }
        if long := next((token for token in normal if len(token) > _MOST_TOKEN), None):
            self.source.refuse(f"its tokenizer has a token of {len(long):,} characters; the limit is {_MOST_TOKEN:,}.")
        ordered = sorted(normal, key=lambda token: (-scores[normal[token]], normal[token]))
        return [
            [token[:cut], token[cut:]]
            for token in ordered
            for cut in range(1, len(token))
            if token[:cut] in normal and token[cut:] in normal
        ]

    def _unigram(self, ids: dict[str, int]) -> dict[str, Any]:
        scores = self._list("scores", float, self.size)
        scheme = "first" if self._flag("add_space_prefix", True) else "never"
        spaces = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
        step = {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, {**spaces, "prepend_scheme": "always"}],
        }
        pieces = [[token, score] for token, score in zip(self.tokens, scores, strict=True)]
        unknown = ids.get("unknown_token_id", 0)
        return {
            "normalizer": None if self._get("precompiled_charsmap", None) is None else {"type": "NFKC"},
            "pre_tokenizer": step if self._flag("remove_extra_whitespaces", False) else spaces,
            "decoder": spaces,
            "model": {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": False},
        }
