"""Everything that can be wrong with a pre-training recipe or its text is said in a sentence."""

import pytest
from small_recipes import SHAPE, recipe

from weft.errors import InputError
from weft.train.pretrain import pretrain


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pretrain": {"budget": "banana"}}, "pretrain.budget cannot be 'banana'"),
        ({"pretrain": {"optimizer": "adamw", "matrix_rate": 0.1}}, "pretrain.matrix_rate is Muon's"),
        ({"pretrain": {"schedule": "cosine", "decay": 0.1}}, "pretrain.decay goes with schedule wsd"),
        ({"pretrain": {"mask_share": 0.3}}, "pretrain.mask_share does not go with objective causal"),
        ({"pretrain": {"mask_unit": "word"}}, "pretrain.mask_unit does not go with objective causal"),
        (
            {"pretrain": {"sequence_length": 64}, "model": {"family": "gpt2", "positions": 32, **SHAPE}},
            "at most 32 tokens",
        ),
        (
            {"model": {"family": "t5", **SHAPE}, "pretrain": {"objective": "denoise", "mask_unit": "word"}},
            "pretrain.mask_unit does not go with objective denoise",
        ),
        ({"pretrain": {"objective": "denoise"}}, "Fitting: causal"),
        ({"pretrain": {"objective": "masked"}}, "objective masked does not fit a model with a causal head"),
        ({"tokenizer": {"kind": "bpe", "vocab_size": 60_000}}, r"supports a vocabulary of [\d,]+ tokens, not 60,000"),
        ({"model": {"family": "gpt2", "vocabulary": 5, **SHAPE}}, "they do not belong together"),
        ({"model": {"family": "gpt2", "layers": 2, "width": 33, "heads": 2}}, "not a multiple of 2 heads"),
        ({"model": {"family": "gpt", **SHAPE}}, "no model family 'gpt'"),
        ({"model": {"path": "nowhere"}}, "does not exist"),
        ({"tokenizer": {"path": "nowhere"}}, "does not exist"),
        ({"corpus": {"sources": [{"path": "nowhere.txt"}]}}, "does not exist"),
        ({"corpus": {"sources": [{"path": "book.txt"}, {"path": "./book.txt"}]}}, "is the same as book.txt"),
        ({"corpus": {"splits": {"validation": 0.6, "test": 0.5}}}, "leave nothing to train on"),
        ({"corpus": {"splits": {"validation": 0.0001}}}, "fewer than one sequence"),
    ],
)
def test_impossible_settings_are_refused_with_a_sentence(changes, says, place, tmp_path):
    with pytest.raises(InputError, match=says):
        pretrain(recipe(place, "bad.yml", **changes), place, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.txt", b"", "no text"),
        ("blank.txt", b" \n\n ", "no text"),
        ("binary.txt", b"\x00\x01\x02" * 100, "binary"),
        ("latin.txt", "café ".encode("latin1") * 100, "not UTF-8"),
        ("half.jsonl", b'{"text": "a \\ud800 b"}\n', "surrogate"),
        ("tiny.txt", b"too short", "fewer than one sequence"),
    ],
)
def test_unusable_text_is_refused(name, data, says, place, tmp_path):
    (place / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        pretrain(recipe(place, "bad.yml", corpus={"sources": [{"path": name}]}), place, tmp_path / "run")
