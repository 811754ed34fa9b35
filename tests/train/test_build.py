"""The network that a recipe asks for: its dropout and its positions."""

from dataclasses import replace
from pathlib import Path

import weft
from weft.model.dropout import Dropout
from weft.model.positions import longest
from weft.recipe.model import ModelSection
from weft.tokenizer.train import train_tokenizer
from weft.train.build import build_network

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
SHAPE = {"layers": 2, "width": 32, "heads": 2}


def test_a_folder_in_wefts_own_format_is_trained_with_the_dropout_asked_for_and_keeps_its_own(tmp_path):
    tokenizer = train_tokenizer([ALICE], "char")
    shape = {"vocabulary": tokenizer.vocabulary, "positions": "rotary", "head": "masked", "dropout": 0.25, **SHAPE}
    weft.create("bert", **shape).save(tmp_path / "own")
    built = [
        build_network(ModelSection(path="own"), tmp_path, "masked", tokenizer, 32, rate, 0) for rate in (None, 0.5)
    ]
    for one, rate in zip(built, (0.0, 0.5), strict=True):
        assert {module.p for module in one.network.modules() if isinstance(module, Dropout)} == {0.0, rate}
        assert one.network.encoder.blocks[0].feedforward_dropout.p == rate
        assert one.network.encoder.blocks[0].attention.spec.dropout == rate
        assert one.to_save().encoder.blocks[0].feedforward_dropout.p == 0.25


def test_roberta_counts_positions_from_behind_its_padding(tmp_path):
    tokenizer = train_tokenizer([ALICE], "char", family="roberta")
    for role in ("pad", "sep"):  # at another place each
        moved = replace(tokenizer, special={**tokenizer.special, "pad": tokenizer.special[role]})
        built = build_network(ModelSection(family="roberta", **SHAPE), tmp_path, "masked", moved, 32, None, 0)
        assert longest(built.saved.embedding.positions) == 32
