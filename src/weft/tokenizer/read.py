"""Loads a tokenizer from a model folder.

`tokenizer.json` is complete. Older folders have only a vocabulary: BERT's `vocab.txt`, or GPT-2's `vocab.json` and
`merges.txt`. From these a tokenizer is rebuilt that gives exactly the original ids.
"""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from weft.errors import FolderError, not_found
from weft.folders import read_json
from weft.tokenizer.tokenizer import SpecialRole, Tokenizer

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    # Not read, but copied: other libraries may need them.
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
)
SPECIAL_ROLES: tuple[SpecialRole, ...] = ("unk", "pad", "cls", "sep", "mask", "bos", "eos")
_BPE_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # Hugging Face's names, and OpenAI's
_GPT2_SPECIAL: dict[SpecialRole, str] = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
_ROBERTA_SPECIAL: dict[SpecialRole, str] = {
    "bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>", "cls": "<s>", "sep": "</s>",
}  # fmt: skip
_BERT_SPECIAL: dict[SpecialRole, str] = {
    "unk": "[UNK]",
    "pad": "[PAD]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}


def load_tokenizer(path: Path, *, lowercase: bool = True) -> Tokenizer:
    """Loads a tokenizer folder, or a vocabulary of BERT (`vocab.txt`) or GPT-2 (`encoder.json` and `vocab.bpe`).

    `lowercase` applies to a single `vocab.txt`, which does not say whether it is cased.
    """
    if path.is_dir():
        found = read_tokenizer(path)
        if found is None:
            raise FolderError(f"{path} has no tokenizer: it contains neither tokenizer.json nor a vocabulary file.")
        return found
    if not path.is_file():
        raise FolderError(not_found(path))
    if path.suffix == ".txt":
        return Tokenizer(
            _bert(path, {"do_lower_case": lowercase}), dict(_BERT_SPECIAL), {"vocab.txt": path.read_bytes()}
        )
    for vocabulary, merges in _BPE_FILES:
        if path.name.endswith(vocabulary):
            beside = path.with_name(path.name.removesuffix(vocabulary) + merges)
            files = {"vocab.json": path.read_bytes(), "merges.txt": beside.read_bytes() if beside.is_file() else b""}
            return Tokenizer(_gpt2(path, beside), dict(_GPT2_SPECIAL), files)
    raise FolderError(f"{path} is not a tokenizer. Give a tokenizer folder, a vocab.txt or a vocab.json.")


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of the folder; None if it has no tokenizer files."""
    settings, kind = _read_optional(folder / "tokenizer_config.json"), _kind(folder)
    defaults = _ROBERTA_SPECIAL if kind == "roberta" else _GPT2_SPECIAL
    if (folder / "tokenizer.json").is_file():
        engine = _from_json(folder / "tokenizer.json")
        # A short tokenizer_config.json may omit the usual tokens of BERT.
        defaults = _BERT_SPECIAL if isinstance(engine.model, models.WordPiece) else defaults
    elif (folder / "vocab.txt").is_file():
        engine, defaults = _bert(folder / "vocab.txt", settings), _BERT_SPECIAL
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file() and kind in ("gpt2", "roberta"):
        engine = _gpt2(folder / "vocab.json", folder / "merges.txt")
        if kind == "roberta":
            _frame_as_roberta(engine)
    else:
        return None
    special = {**defaults, **_special_tokens(_read_optional(folder / "special_tokens_map.json"))}
    special |= _special_tokens(settings)
    special = {role: token for role, token in special.items() if engine.token_to_id(token) is not None}
    files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    return Tokenizer(engine, special, files)


def _kind(folder: Path) -> str:
    """The family of byte-pair files. They look alike but differ in pre-tokenization and special tokens."""
    named = str(_read_optional(folder / "tokenizer_config.json").get("tokenizer_class", "")).lower()
    named = named or str(_read_optional(folder / "config.json").get("model_type", "gpt2")).lower()
    return next((kind for kind in ("roberta", "gpt2") if kind in named), named)


def _read_optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _frame_as_roberta(engine: tokenizers.Tokenizer) -> None:
    start, end = (engine.token_to_id(token) for token in ("<s>", "</s>"))
    if start is None or end is None:
        raise FolderError("vocab.json is not RoBERTa's: it has no <s> and </s>.")
    engine.post_processor = processors.RobertaProcessing(("</s>", end), ("<s>", start), add_prefix_space=False)
    engine.add_special_tokens([AddedToken(token, special=True) for token in _ROBERTA_SPECIAL.values()])


def _from_json(file: Path) -> tokenizers.Tokenizer:
    try:
        engine = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust side raises bare Exception
        raise FolderError(f"{file} is not a tokenizer: {error}.") from None
    # Some folders store the padding of their training batches; weft never pads.
    engine.no_padding()
    engine.no_truncation()
    return engine


def _special_tokens(settings: dict[str, Any]) -> dict[SpecialRole, str]:
    found: dict[SpecialRole, str] = {}
    for role in SPECIAL_ROLES:
        token = settings.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[role] = token
    return found


def _bert(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    try:
        # Not splitlines(): a token of BERT's Chinese vocabulary contains a character that counts as a line end.
        words = file.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise FolderError(f"{file} is not a BERT vocabulary: it is not UTF-8.") from None
    vocabulary = {word: index for index, word in enumerate(words)}
    for token in _BERT_SPECIAL.values():
        if token not in vocabulary:
            raise FolderError(f"{file} is not a BERT vocabulary: it has no {token}.")
    engine = tokenizers.Tokenizer(
        models.WordPiece(vocabulary, unk_token=_BERT_SPECIAL["unk"], max_input_chars_per_word=100)
    )
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=settings.get("strip_accents") if isinstance(settings.get("strip_accents"), bool) else None,
        lowercase=settings.get("do_lower_case") is not False,
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    engine.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    engine.add_special_tokens([AddedToken(token, special=True) for token in _BERT_SPECIAL.values()])
    return engine


def _gpt2(vocabulary_file: Path, merges: Path) -> tokenizers.Tokenizer:
    try:
        model = models.BPE.from_file(str(vocabulary_file), str(merges))
    except Exception as error:  # bare Exception again
        raise FolderError(f"{vocabulary_file} and {merges.name} are not a byte-pair vocabulary: {error}.") from None
    engine = tokenizers.Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    if engine.token_to_id("<|endoftext|>") is not None:
        engine.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return engine
