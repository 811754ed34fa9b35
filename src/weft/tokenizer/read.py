"""A tokenizer out of a model folder.

`tokenizer.json` is the whole thing. Older folders have only a vocabulary: BERT's `vocab.txt`, or GPT-2's
`vocab.json` and `merges.txt`; these are rebuilt so that the ids are exactly those of the original.
"""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from weft.errors import FolderError
from weft.folders import read_json
from weft.tokenizer.tokenizer import Role, Tokenizer

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
ROLES: tuple[Role, ...] = ("unk", "pad", "cls", "sep", "mask", "bos", "eos")
BERT_SPECIAL: dict[Role, str] = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer; none if it has no tokenizer files."""
    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    special = _special_tokens(settings)
    if (folder / "tokenizer.json").is_file():
        engine = _from_json(folder / "tokenizer.json")
    elif (folder / "vocab.txt").is_file():
        engine, special = _bert(folder / "vocab.txt", settings), {**BERT_SPECIAL, **special}
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        engine, special = _gpt2(folder), {"bos": "<|endoftext|>", "eos": "<|endoftext|>", **special}
    else:
        return None
    special = {role: token for role, token in special.items() if engine.token_to_id(token) is not None}
    files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
    return Tokenizer(engine, special, files)


def _from_json(file: Path) -> tokenizers.Tokenizer:
    try:
        engine = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust side raises bare Exception
        raise FolderError(f"{file} is not a tokenizer: {error}.") from None
    # Some folders store the padding of their training batches; a batch here has none.
    engine.no_padding()
    engine.no_truncation()
    return engine


def _special_tokens(settings: dict[str, Any]) -> dict[Role, str]:
    found: dict[Role, str] = {}
    for role in ROLES:
        token = settings.get(f"{role}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[role] = token
    return found


def _bert(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    words = [line.rstrip("\n") for line in file.read_text("utf-8").splitlines(keepends=True)]
    vocabulary = {word: index for index, word in enumerate(words)}
    for token in BERT_SPECIAL.values():
        if token not in vocabulary:
            raise FolderError(f"{file} is not a BERT vocabulary: it has no {token}.")
    engine = tokenizers.Tokenizer(
        models.WordPiece(vocabulary, unk_token=BERT_SPECIAL["unk"], max_input_chars_per_word=100)
    )
    engine.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    engine.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    engine.add_special_tokens([AddedToken(token, special=True) for token in BERT_SPECIAL.values()])
    return engine


def _gpt2(folder: Path) -> tokenizers.Tokenizer:
    try:
        model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    except Exception as error:  # as above
        raise FolderError(f"{folder}: vocab.json and merges.txt are not a byte-pair vocabulary: {error}.") from None
    engine = tokenizers.Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    if "<|endoftext|>" in vocabulary:
        engine.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return engine
