"""`weft prune` with every family and every task."""

import json
from pathlib import Path

import pytest

import weft as api
from small_tasks import TASKS, learnt, weft
from task_models import ALICE, KINDS, scatter
from weft.tokenizer.train import train_tokenizer

MORE = {"llama": {"key_value_heads": 2}, "qwen3": {"key_value_heads": 2}}
POSITIONS = {"positions": 32}


def language_model(folder: Path, family: str) -> Path:
    """Three layers of four heads; 32 is no multiple of three heads."""
    tokenizer = train_tokenizer([ALICE], KINDS.get(family, "bpe"), 400, family=family)
    more = MORE.get(family, {}) | ({} if family == "t5" else POSITIONS)
    model = api.create(family, tokenizer=tokenizer, layers=3, width=32, heads=4, **more)
    scatter(model.network, 0)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "alice.txt"
    file.write_text(ALICE.read_text("utf-8")[:10_000], "utf-8")
    return file


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "gpt2", "llama", "qwen3", "t5"])
def test_every_family_loses_layers_and_stays_in_its_format(family: str, text: Path, tmp_path: Path):
    whole = language_model(tmp_path / "whole", family)
    said = weft("prune", whole, "layers=1", "--data", text, "-o", tmp_path / "new", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["format"] == family
    assert {len(layers) for layers in json.loads(said.out)["shape"]["layers"].values()} == {1}


def test_heads_that_do_not_divide_the_width_are_saved_in_wefts_own_format(text: Path, tmp_path: Path):
    whole = language_model(tmp_path / "whole", "modernbert")
    assert api.prune(whole, tmp_path / "new", heads=3, data=text)["format"] == "weft"
    blocks = api.load(tmp_path / "new").network.architecture.encoder.blocks
    assert [block.attention.heads for block in blocks] == [3, 3, 3]


@pytest.mark.parametrize("task", TASKS)
def test_latency_is_measured_with_every_task(task: str, tmp_path: Path):
    learnt(tmp_path, task)
    facts = api.prune(tmp_path / "run/model", tmp_path / "new", inner=0.5, measure="latency")
    assert facts["speedup"]["of"] == "latency" and facts["speedup"]["measured"] > 0


def test_uneven_heads_are_cut_last(text: Path, tmp_path: Path):
    whole = language_model(tmp_path / "whole", "bert")
    facts = api.prune(whole, tmp_path / "uneven", layers=2, heads="uneven:0.6", data=text)
    assert len(set(facts["heads"]["encoder"])) == 2  # 5 of 8 heads: the layers differ
    for bound in ("heads=0.5", "speedup=1.2x", "layers=1"):
        sentence = weft("prune", tmp_path / "uneven", bound, "--data", text, "-o", tmp_path / "new").sentence
        assert "differ in heads or neurons" in sentence and "Prune the model that it was made from" in sentence
    again = api.prune(tmp_path / "uneven", tmp_path / "new", heads="uneven:0.5", data=text)
    assert sum(again["heads"]["encoder"]) == 2
