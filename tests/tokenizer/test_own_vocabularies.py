"""BERT's and GPT-2's own vocabularies give exactly the ids that transformers gives."""

import json
from pathlib import Path

import pytest
import transformers

from weft.errors import FolderError
from weft.tokenizer.read import load_tokenizer, read_tokenizer

VOCAB = Path(__file__).parents[3] / "shared/data/vocab"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.", "", " ", "  two  spaces ", "naïve café ½ ﬁ Å é",
    "don't, can't; won't!",
    "今天天气很好，我们去公园。", "混合 mixed 文本 text", "🙂👩‍👩‍👧‍👦🇨🇳", "\x00\x07\u200b\u200d\ufeff\ufffd",
    "tabs\tnew\nlines\r\n",
    "[CLS] and [MASK] inside", "<|endoftext|> inside", "a" * 250, "http://example.org/?q=1&r=2", "١٢٣ ⅷ 12,345.67",
    "İstanbul ẞ",
    "한국어 と 日本語", "عربى", "e\u0301 combining",
]  # fmt: skip
pytestmark = pytest.mark.skipif(not VOCAB.is_dir(), reason="the vocabularies are not here")


@pytest.mark.parametrize(("name", "lowercase"), [("uncased", True), ("chinese", False), ("chinese", True)])
def test_bert(name, lowercase):
    file = VOCAB / f"bert-base-{name}-vocab.txt"
    ours = load_tokenizer(file, lowercase=lowercase)
    theirs = transformers.BertTokenizer(vocab=str(file), do_lower_case=lowercase)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text
    assert ours.encode_many(TEXTS) == theirs(TEXTS)["input_ids"]
    assert ours.engine.encode("one", "two").ids == theirs("one", "two")["input_ids"]
    assert ours.id_of("mask") == theirs.mask_token_id


def test_gpt2():
    ours = load_tokenizer(VOCAB / "gpt2-encoder.json")
    theirs = transformers.GPT2Tokenizer(vocab=str(VOCAB / "gpt2-encoder.json"), merges=str(VOCAB / "gpt2-vocab.bpe"))
    assert ours.vocabulary == 50257
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text)) == text.replace("<|endoftext|>", "")
    assert ours.id_of("eos") == 50256


def test_what_is_no_vocabulary_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(FolderError, match=r"no \[UNK\]"):
        load_tokenizer(tmp_path / "vocab.txt")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(FolderError, match="byte-pair"):
        load_tokenizer(tmp_path / "vocab.json")
    (tmp_path / "empty").mkdir()
    for path, says in (("none", "does not exist"), ("empty", "no tokenizer"), ("x.csv", "not a tokenizer")):
        (tmp_path / "x.csv").touch()
        with pytest.raises(FolderError, match=says):
            load_tokenizer(tmp_path / path)


def test_robertas_own_files_are_framed_as_roberta(tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {token: number for number, token in enumerate([*tokens, *map(chr, range(33, 127)), "Ġ", "th"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\n")
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    ours = read_tokenizer(tmp_path)
    theirs = transformers.RobertaTokenizer(vocab=vocabulary, merges=[("t", "h")])
    for text in ("the <mask> sat", "", "a b"):
        assert ours.encode(text) == theirs(text)["input_ids"]
    assert ours.id_of("mask") == 4
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    assert read_tokenizer(tmp_path) is None  # cut by rules of its own, which these files do not say
