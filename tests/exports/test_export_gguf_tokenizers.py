"""Tokenizers in llama.cpp give weft's ids: all kinds that weft trains, and those of published models."""

import json
import random
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

import weft
from weft.exports.gguf.charsmap import nfkc_charsmap
from weft.exports.gguf.pre_tokenizers import _KNOWN, find_pre_tokenizer, known_pre_tokenizer
from weft.exports.gguf.read import import_gguf
from weft.exports.gguf.refusals import why_not_gguf
from weft.exports.gguf.runtime import LlamaServer
from weft.exports.gguf.write import write_gguf_file
from weft.exports.run import export_model
from weft.exports.samples import TEXTS
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"
ALICE, TANG = EXAMPLES / "alice.txt", EXAMPLES / "tang.txt"
ODD = (
    "aAbBzZ'  \n\r\t12345.,;:!?()[]{}äßéñ中文字。、ｆＷ😀👩‍👧½²Ⅷ٣\u00a0\u3000"
    "'sS'll'RE don't we'Ve_-=+/\\<>|~`@#$%^&*Здрthe"
)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The beginnings of two: vocabularies of a few thousand tokens are trained in no time."""
    place = tmp_path_factory.mktemp("books")
    files = {name: place / f"{name}.txt" for name in ("English", "Chinese")}
    for file, whole, length in ((files["English"], ALICE, 40_000), (files["Chinese"], TANG, 12_000)):
        file.write_text(whole.read_text("utf-8")[:length], "utf-8")
    return files


@cache
def trained_on_alice(kind: Any, size: int | None, family: str | None = None) -> Tokenizer:
    return train_tokenizer([ALICE], kind, size, family=family)


def model_with(tokenizer: Tokenizer) -> weft.Model:
    return weft.create("llama", layers=1, width=32, heads=1, inner=32, tokenizer=tokenizer)


def differing(tokenizer: Tokenizer, texts: list[str], place: Path) -> list[str]:
    """Texts of which llama.cpp has other ids."""
    write_gguf_file(model_with(tokenizer), place / "model.gguf", "f16")
    with LlamaServer(place / "model.gguf") as server:
        return [text for text in texts if server.token_ids(text) != tokenizer.encode(text)]


def excerpts(file: Path, count: int = 40) -> list[str]:
    """Parts of a text that begin with a letter, as Unigram's begin."""
    text, draw = file.read_text("utf-8"), random.Random(0)
    starts = [draw.randrange(len(text) - 300) for _ in range(count)]
    return [part for start in starts if (part := text[start : start + draw.randrange(1, 300)].lstrip())]


def odd_texts(count: int = 150) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choices(ODD, k=draw.randrange(1, 40))) for _ in range(count)]


@pytest.mark.parametrize("language", ["English", "Chinese"])
@pytest.mark.parametrize(
    ("kind", "family"),
    [("bpe", "gpt2"), ("bpe", "llama"), ("bpe", "roberta"), ("wordpiece", "bert")],
)
def test_vocabularies_of_weft_give_the_same_ids_for_any_text(
    kind: Any, family: str, language: str, books: dict[str, Path], tmp_path: Path
):
    size, file = 1930 if kind == "wordpiece" and language == "Chinese" else 600, books[language]
    tokenizer = train_tokenizer([file], kind, size, family=family)
    assert differing(tokenizer, [*TEXTS, *excerpts(file), *odd_texts()], tmp_path) == []


def test_a_cased_wordpiece_gives_the_same_ids(tmp_path: Path):
    tokenizer = train_tokenizer([ALICE], "wordpiece", 600, lowercase=False)
    assert differing(tokenizer, [*TEXTS, *excerpts(ALICE)], tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "family", "language", "size"),
    [
        ("unigram", "t5", "English", 600),
        ("unigram", "llama", "Chinese", 2300),
        ("char", "gpt2", "English", None),
        ("char", "bert", "Chinese", None),
    ],
)
def test_unigram_and_characters_give_the_same_ids_for_known_text(
    kind: Any, family: str, language: str, size: int | None, books: dict[str, Path], tmp_path: Path
):
    file = books[language]
    tokenizer = train_tokenizer([file], kind, size, family=family)
    assert differing(tokenizer, excerpts(file, 80), tmp_path) == []
    assert "Unknown characters in a row are one unknown token" in " ".join(
        write_gguf_file(model_with(tokenizer), tmp_path / "again.gguf", "f16")
    )


def test_full_width_characters_and_accents_are_normalized_as_nfkc_does(tmp_path: Path):
    """Of which llama.cpp knows nothing but the table in the file."""
    tokenizer = trained_on_alice("unigram", 600)
    texts = ["Ａｌｉｃｅ，　ｓａｉｄ：（ｎｏ）！", "ﬁve ﬂowers", "Alice\u00a0said… ｏｆ"]
    assert differing(tokenizer, texts, tmp_path) == []
    assert len(nfkc_charsmap()) < 100_000


def bpe(step: dict[str, Any], ignore_merges: bool, files: Iterable[Path]) -> Tokenizer:
    written = json.loads(tokenizers.Tokenizer(models.BPE()).to_str())
    written["pre_tokenizer"] = step
    engine = tokenizers.Tokenizer.from_str(json.dumps(written))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    engine.train([str(file) for file in files], trainer)
    written = json.loads(engine.to_str())
    written["model"]["ignore_merges"] = ignore_merges
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(written)), {"bos": "<s>", "eos": "</s>"})


@pytest.mark.parametrize("name", list(_KNOWN))
def test_regular_expressions_by_name_split_as_tokenizers_splits(name: str, books: dict[str, Path], tmp_path: Path):
    step, ignore_merges = known_pre_tokenizer(name)
    assert find_pre_tokenizer(step, ignore_merges=ignore_merges) == name
    assert differing(bpe(step, ignore_merges, books.values()), [*TEXTS, *odd_texts(250)], tmp_path) == []


def llama2(**changes: Any) -> Tokenizer:
    """A SentencePiece BPE as transformers converts Llama 2's: every way to make a token is a merge."""
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    special, hexadecimal = ["<unk>", "<s>", "</s>"], [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=[*special, *hexadecimal], show_progress=False)
    engine.train([str(ALICE)], trainer)
    written = json.loads(engine.to_str())
    tokens, rank = written["model"]["vocab"], {}
    for number, (left, right) in enumerate(written["model"]["merges"]):
        rank.setdefault(left + right, number)
    ways = [(one[:cut], one[cut:]) for one in sorted(rank, key=rank.get) for cut in range(1, len(one))]
    merges = [list(pair) for pair in ways if pair[0] in tokens and pair[1] in tokens]
    written["model"] |= {"merges": merges, "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    steps = [{"type": "Prepend", "prepend": "▁"}, replace]
    written |= {"normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    written["added_tokens"] = [{"id": number, "content": one, **flags} for number, one in enumerate(special)]
    written |= changes
    engine = tokenizers.Tokenizer.from_str(json.dumps(written))
    return Tokenizer(engine, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"})


def test_a_bpe_of_llama_2_gives_the_same_ids_and_comes_back(tmp_path: Path):
    tokenizer = llama2()
    texts = [*TEXTS, *excerpts(ALICE), *odd_texts()]
    assert differing(tokenizer, texts, tmp_path) == []
    import_gguf(tmp_path / "model.gguf", tmp_path / "again")
    again = weft.load(tmp_path / "again").tokenizer
    assert [again.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]


def test_differences_are_named_in_the_comparison(tmp_path: Path):
    model = model_with(trained_on_alice("unigram", 600))
    found = export_model(model, "gguf", tmp_path / "export")
    (note,) = found.comparison.notes
    assert note.startswith("llama.cpp gives other token ids for 4 of 7 sample texts: '床前")
    assert "'  leading and trailing  '" in note
    assert "also before one that begins with a space" in " ".join(found.facts["notes"])


def changed(tokenizer: Tokenizer, change: Callable[[dict[str, Any]], None]) -> Tokenizer:
    written = json.loads(tokenizer.engine.to_str())
    change(written)
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(written)), tokenizer.special)


def odd_regex(written: dict[str, Any]) -> None:
    split = {"type": "Split", "pattern": {"Regex": r"\d\d|\D+"}, "behavior": "Isolated", "invert": False}
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    written["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, last]}


def two_before(written: dict[str, Any]) -> None:
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    written["post_processor"]["single"] = [start, start, {"Sequence": {"id": "A", "type_id": 0}}]


REFUSED: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("bpe", odd_regex, "regular expressions that it knows by name"),
    ("bpe", lambda one: one["pre_tokenizer"].update(add_prefix_space=True), "puts a space before a text"),
    ("bpe", lambda one: one.update(normalizer={"type": "Lowercase"}), "normalizes texts by Lowercase"),
    ("bpe", lambda one: one["model"].update(dropout=0.1), "BPE with dropout"),
    ("bpe", two_before, "puts 2 special tokens before a text and 0 after it"),
    ("bpe", lambda one: one.update(pre_tokenizer=None), "BPE without bytes as a fallback"),
    ("wordpiece", lambda one: one.update(pre_tokenizer={"type": "Whitespace"}), "in another way than BERT's"),
    ("unigram", lambda one: one.update(pre_tokenizer={"type": "Whitespace"}), "splits texts by Whitespace"),
    ("unigram", lambda one: one.update(normalizer={"type": "Lowercase"}), "normalizes texts by Lowercase"),
    ("unigram", lambda one: one["model"].update(byte_fallback=True), "writes unknown characters as bytes"),
    ("char", lambda one: one.update(pre_tokenizer={"type": "Whitespace"}), "vocabulary is of whole words"),
]


@pytest.mark.parametrize(("kind", "change", "reason"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_llama_cpp_cannot_express_is_refused(kind: Any, change: Any, reason: str):
    tokenizer = trained_on_alice(kind, None if kind == "char" else 500, "llama" if kind == "bpe" else None)
    said = why_not_gguf(model_with(changed(tokenizer, change)), "fp32")
    assert reason in said
    assert said.endswith(".")


def test_merges_in_an_order_that_scores_cannot_give_are_refused():
    tokenizer = llama2()
    assert why_not_gguf(model_with(tokenizer), "fp32") is None
    first_only = changed(tokenizer, lambda one: one["model"].update(merges=one["model"]["merges"][::2]))
    assert "merges in an order that llama.cpp cannot follow" in why_not_gguf(model_with(first_only), "fp32")


def test_a_tokenizer_larger_than_the_model_is_refused():
    tokenizer = trained_on_alice("bpe", 500, "llama")
    model = weft.create("llama", layers=1, width=32, heads=1, vocabulary=400)
    model._tokenizer = tokenizer
    assert why_not_gguf(model, "fp32") == "its tokenizer has 500 tokens, the model 400."


def test_rows_without_a_token_have_names(tmp_path: Path):
    tokenizer = trained_on_alice("bpe", 500, "llama")
    model = weft.create("llama", layers=1, width=32, heads=1, vocabulary=512)
    model._tokenizer = tokenizer
    write_gguf_file(model, tmp_path / "model.gguf", "fp32")
    with LlamaServer(tmp_path / "model.gguf") as server:
        assert server.token_ids("Alice was") == tokenizer.encode("Alice was")
