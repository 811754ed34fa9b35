"""Fewer tokens: texts of the corpus are cut as before and give the same logits; any other text can still be written."""

from pathlib import Path

import numpy as np
import pytest

import weft
from task_models import ALICE, scatter
from weft.compress.prune.vocabulary import count_tokens, prune_tokenizer
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

KINDS = {"wordpiece": "bert", "bpe": "gpt2", "unigram": "t5", "char": "gpt2"}
SHAPE = {"layers": 1, "width": 32, "heads": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first third of the book; the tokenizer knows all of it."""
    text = ALICE.read_text("utf-8")
    file = tmp_path_factory.mktemp("corpus") / "part.txt"
    file.write_text(text[: len(text) // 3], "utf-8")
    return file


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    size = None if request.param == "char" else 1500
    return train_tokenizer([ALICE], request.param, size, family=KINDS[request.param])


def strings(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.engine.encode(text).tokens


def test_texts_of_the_corpus_are_cut_as_before(tokenizer: Tokenizer, corpus: Path):
    text = corpus.read_text("utf-8")
    fewer = prune_tokenizer(tokenizer, count_tokens(tokenizer, [text]))
    is_char = tokenizer.vocabulary < 100
    assert (len(fewer.ids) < tokenizer.vocabulary) != is_char  # single characters stay
    for line in [text, *text.splitlines()[:300]]:
        assert strings(fewer.tokenizer, line) == strings(tokenizer, line)
        assert [fewer.ids[token] for token in fewer.tokenizer.encode(line)] == tokenizer.encode(line)


def test_other_texts_can_still_be_written(tokenizer: Tokenizer, corpus: Path):
    rest = ALICE.read_text("utf-8")[-20_000:]
    fewer = prune_tokenizer(tokenizer, count_tokens(tokenizer, [corpus.read_text("utf-8")])).tokenizer
    before, after = tokenizer.encode(rest), fewer.encode(rest)
    assert len(before) <= len(after) < 2 * len(before)
    assert fewer.decode(after) == tokenizer.decode(before)


def test_a_limit_keeps_the_most_frequent_tokens(corpus: Path):
    tokenizer = train_tokenizer([ALICE], "bpe", 1500, family="gpt2")
    text = corpus.read_text("utf-8")
    whole = prune_tokenizer(tokenizer, count_tokens(tokenizer, [text]))
    fewer = prune_tokenizer(tokenizer, count_tokens(tokenizer, [text]), most=500)
    assert len(fewer.ids) <= 500 < len(whole.ids)
    assert fewer.tokenizer.decode(fewer.tokenizer.encode(text)) == text
    assert "Ġthe" in strings(fewer.tokenizer, text)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "wordpiece"), ("roberta", "bpe"), ("gpt2", "bpe"), ("t5", "unigram"), ("transformer", "bpe")],
)
def test_logits_of_kept_tokens_are_identical(family: str, kind: str, corpus: Path, tmp_path: Path):
    tokenizer = train_tokenizer([ALICE], kind, 1200, family=family)
    model = weft.create(family, tokenizer=tokenizer, **SHAPE)
    scatter(model.network, 0)
    model.save(tmp_path / "whole")
    facts = weft.prune(tmp_path / "whole", tmp_path / "few", vocabulary=corpus)
    few = weft.load(tmp_path / "few")
    kept = prune_tokenizer(tokenizer, count_tokens(tokenizer, [corpus.read_text("utf-8")]), always=range(3)).ids
    assert facts["vocabulary"]["after"] == few.network.architecture.vocabulary == len(kept) < 1200
    text = corpus.read_text("utf-8")[:120]
    targets = {"targets": [[0, 1, 2]]} if model.network.architecture.is_encoder_decoder else {}
    before = model.logits([tokenizer.encode(text)], **targets)[0]
    after = few.logits([few.tokenizer.encode(text)], **targets)[0]
    np.testing.assert_allclose(after, before[:, kept], atol=1e-4)
    config = {key: value for key, value in few.description.config.items() if key.endswith("token_id")}
    assert all(few.tokenizer.id_of(key.removesuffix("_token_id")) in (value, None) for key, value in config.items())


def test_transformers_reads_the_pruned_vocabulary(corpus: Path, tmp_path: Path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tokenizer = train_tokenizer([ALICE], "wordpiece", 1200, family="bert")
    model = weft.create("bert", tokenizer=tokenizer, **SHAPE)
    model.save(tmp_path / "whole")
    weft.prune(tmp_path / "whole", tmp_path / "few", vocabulary=corpus)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "few").eval()
    reader, few = transformers.AutoTokenizer.from_pretrained(tmp_path / "few"), weft.load(tmp_path / "few")
    text = "Alice was beginning to get very tired"
    given = reader(text, return_tensors="pt")
    assert given["input_ids"][0].tolist() == few.tokenizer.encode(text)
    with torch.no_grad():
        logits = theirs(**given).logits[0].numpy()
    np.testing.assert_allclose(few.logits([few.tokenizer.encode(text)])[0], logits, atol=1e-4)
