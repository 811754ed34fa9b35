"""`weft prune` and `weft.prune`: what is written opens everywhere, and what cannot be is a sentence."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import weft as api
from random_models import make_random
from small_tasks import rows_of, weft, write_recipe, write_rows
from task_models import ALICE, scatter
from weft.compress.prune.bounds import Bounds, read_bounds
from weft.compress.prune.timing import LatencyTable, speed_up, table_of
from weft.tokenizer.train import train_tokenizer

SHAPE = {"family": "bert", "layers": 3, "width": 32, "heads": 2}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learnt to classify; its data is beside it."""
    folder = tmp_path_factory.mktemp("tuned")
    recipe = write_recipe(folder, "classify", model=SHAPE, budget="30 steps")
    assert weft("finetune", recipe, "-o", folder / "run").code == 0
    return folder


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writer") / "model"
    tokenizer = train_tokenizer([ALICE], "bpe", 400, family="llama")
    model = api.create("llama", tokenizer=tokenizer, layers=2, width=32, heads=4, key_value_heads=2, positions=32)
    scatter(model.network, 0)
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some pages."""
    file = tmp_path_factory.mktemp("text") / "alice.txt"
    file.write_text(ALICE.read_text("utf-8")[:20_000], "utf-8")
    return file


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (["speedup=2x"], Bounds(speedup=2.0)),
        (["speedup=1.5"], Bounds(speedup=1.5)),
        (["size=20MB"], Bounds(size=20_000_000)),
        (["layers=4", "inner=0.5"], Bounds(layers=4, inner=0.5)),
        (["inner=768", "heads=6"], Bounds(inner=768, heads=6)),
        (["heads=uneven:0.5"], Bounds(uneven_heads=0.5)),
        ({"weights": 0.5, "vocabulary": "x.txt"}, Bounds(weights=0.5, vocabulary=Path("x.txt"))),
    ],
)
def test_bounds_are_read(given, bounds: Bounds):
    assert read_bounds(given) == bounds


def test_a_pruned_classifier_opens_in_transformers_with_equal_logits(tuned: Path, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    said = weft("prune", tuned / "run/model", "layers=2", "inner=0.5", "-o", tmp_path / "new", "--json")
    assert said.code == 0, said.err
    facts = json.loads(said.out)
    assert facts["format"] == "bert" and facts["shape"]["inner"] == [128, 64]
    assert facts["score"]["metric"] == "accuracy" and {"before", "cut", "after"} <= set(facts["loss"])
    model = api.load(tmp_path / "new")
    assert model.network.architecture.encoder.layers == 2
    assert model.predict("a good film")["label"] in ("pos", "neg")
    known = json.loads((tmp_path / "new/weft.json").read_text())
    (step,) = known["compressed"]
    assert step["method"] == "prune" and step["bounds"] == ["layers=2", "inner=0.5"] and step["speedup"]["measured"] > 0
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "new").eval()
    ids = model.tokenizer.encode("a lovely film, number 3")
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(model.logits([ids])[0], logits, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "kind", "more"), [("llama", "bpe", {"key_value_heads": 2}), ("t5", "unigram", {}), ("gpt2", "bpe", {})]
)
def test_a_pruned_language_model_opens_in_transformers(family, kind, more, text: Path, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer([ALICE], kind, 400, family=family)
    if family != "t5":
        more["positions"] = 32
    model = api.create(family, tokenizer=tokenizer, layers=2, width=32, heads=4, **more)
    scatter(model.network, 0)
    model.save(tmp_path / "whole")
    heads = {} if family == "gpt2" else {"heads": 0.5}  # GPT-2's format ties the number of heads to its width
    facts = api.prune(tmp_path / "whole", tmp_path / "new", layers=1, inner=32, data=text, **heads)
    assert facts["format"] == family and facts["shape"]["inner"][1] == 32
    new = api.load(tmp_path / "new")
    kind_of = getattr(transformers, new.description.config["architectures"][0])
    theirs, ids = kind_of.from_pretrained(tmp_path / "new").eval(), new.tokenizer.encode("Alice was tired")
    given, targets = {"input_ids": torch.tensor([ids])}, {}
    if family == "t5":
        targets = {"targets": [[0, 5, 6, 7]]}
        given["decoder_input_ids"] = torch.tensor(targets["targets"])
    with torch.no_grad():
        logits = theirs(**given).logits[0].numpy()
    np.testing.assert_allclose(new.logits([ids], **targets)[0], logits, atol=1e-4)


def test_a_translator_is_pruned_with_its_pairs(tmp_path: Path):
    recipe = write_recipe(tmp_path, "translate", model={"family": "transformer", "layers": 2, "width": 32, "heads": 2})
    assert weft("finetune", recipe, "-o", tmp_path / "run").code == 0
    facts = api.prune(tmp_path / "run/model", tmp_path / "new", layers=1, inner=0.5, minutes=0.02)
    assert facts["format"] == "marian" and facts["shape"]["layers"].keys() == {"encoder", "decoder"}
    assert isinstance(api.load(tmp_path / "new").generate("the cat 3 sees Bob", max_new_tokens=4), str)


def test_the_vocabulary_of_a_tasks_rows_leaves_its_answers_alone(tuned: Path, tmp_path: Path):
    facts = api.prune(tuned / "run/model", tmp_path / "new", vocabulary=tuned / "train.jsonl")
    assert facts["vocabulary"]["used"] < facts["vocabulary"]["after"] <= facts["vocabulary"]["before"]
    texts = [row["text"] for row in rows_of("classify", 6)]
    old, new = (api.load(folder).predict(texts, details=True) for folder in (tuned / "run/model", tmp_path / "new"))
    assert [one["label"] for one in old] == [one["label"] for one in new]


@pytest.mark.parametrize("bound", ["heads=1", "heads=uneven:0.5"])
def test_fewer_heads_than_the_format_knows_are_saved_in_wefts_own(tuned: Path, tmp_path: Path, bound: str):
    said = weft("prune", tuned / "run/model", bound, "-o", tmp_path / "new", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["format"] == "weft"
    model = api.load(tmp_path / "new")
    assert sum(block.attention.heads for block in model.network.architecture.encoder.blocks) == 3
    assert model.predict("a good film")["label"] in ("pos", "neg")


def test_a_size_is_met(writer: Path, text: Path, tmp_path: Path):
    whole = (writer / "model.safetensors").stat().st_size
    asked = round(0.8 * whole / 1000)
    api.prune(writer, tmp_path / "new", size=f"{asked}kB", data=text)
    assert 0.6 * whole < (tmp_path / "new/model.safetensors").stat().st_size <= asked * 1000 + 10_000


def test_recovery_lowers_the_loss(tuned: Path, tmp_path: Path):
    facts = api.prune(tuned / "run/model", tmp_path / "new", inner=8, layers=1, minutes=0.05)
    assert facts["recovery"]["steps"] > 0
    assert facts["loss"]["recovered"] <= facts["loss"]["after"]


def test_unstructured_zeros_are_said_to_save_no_time(tuned: Path, tmp_path: Path):
    facts = api.prune(tuned / "run/model", tmp_path / "new", weights=0.5)
    assert any("save no time" in note for note in facts["notes"])
    assert "speedup" not in facts
    before, after = facts["zeros"]["zipped_bytes"].values()
    assert after < before
    new = api.load(tmp_path / "new").network.encoder.blocks[0].attention.qkv.weight
    assert float((new == 0).float().mean()) == pytest.approx(0.5, abs=0.02)
    old = api.load(tuned / "run/model").network.encoder.blocks[0].attention.qkv.weight
    assert not (old == 0).any()


def test_the_source_stays_and_the_target_is_whole_or_absent(tuned: Path, tmp_path: Path, monkeypatch):
    source = {file: file.read_bytes() for file in (tuned / "run/model").iterdir()}

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("weft.interchange.folder.write_tensors", stop)
    with pytest.raises(KeyboardInterrupt):
        api.prune(tuned / "run/model", tmp_path / "new", layers=1)
    assert not (tmp_path / "new").exists()
    assert source == {file: file.read_bytes() for file in (tuned / "run/model").iterdir()}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["speedup=50x"], r"speedup=50x cannot be reached: one layer of the smallest width would be [\d.]+x"),
        (["size=1kB"], r"size=0.001MB cannot be reached: .* embeddings. See vocabulary="),
        (["layers=9"], "layers=9 is more than there are: the encoder has 3"),
        (["inner=0"], "inner=0 cannot be used: a share is more than 0"),
        (["inner=9999"], "inner=9999 is more than there are: a layer has 128"),
        (["speedup=1x"], "faster than 1x"),
        (["speedup=fast"], "speedup=fast cannot be used. Example: speedup=2x"),
        (["speedpu=2x"], r"There is no bound speedpu \(did you mean speedup\?\)"),
        (["speedup"], "'speedup' is not key=value, such as speedup=2x"),
        (["layers=1", "layers=2"], "layers is given twice"),
        (["layers=1", "--data", "missing.jsonl"], "missing.jsonl does not exist"),
        (["layers=1", "--measure", "size"], "--measure is throughput or latency"),
        (["layers=1", "--minutes", "-1"], "--minutes is a number from 0 on"),
        (["layers=1", "--keep-tokens", "5"], "--keep-tokens goes with vocabulary="),
        (["heads=uneven:0.5", "speedup=2x"], "heads=uneven: saves no time"),
        (["vocabulary=nowhere.txt"], "nowhere.txt does not exist"),
    ],
)
def test_a_mistake_is_a_sentence(tuned: Path, tmp_path: Path, arguments: list[str], why: str):
    said = weft("prune", tuned / "run/model", *arguments, "-o", tmp_path / "new")
    assert re.search(why, said.sentence), said.sentence
    assert not (tmp_path / "new").exists()


def test_data_of_another_task_is_a_sentence(tuned: Path, tmp_path: Path):
    other = write_rows(tmp_path / "tags.jsonl", rows_of("tag"))
    assert (
        "tags.jsonl" in weft("prune", tuned / "run/model", "layers=1", "--data", other, "-o", tmp_path / "n").sentence
    )


@pytest.mark.parametrize("where", [".", "inside", ".."])
def test_the_source_is_not_a_place_to_write(tuned: Path, where: str):
    place = tuned / "run/model" / where
    sentence = weft("prune", tuned / "run/model", "layers=1", "-o", place).sentence
    assert "Choose" in sentence


def test_a_quantized_model_is_refused(tuned: Path, tmp_path: Path):
    assert weft("quantize", tuned / "run/model", "-o", tmp_path / "int8").code == 0
    sentence = weft("prune", tmp_path / "int8", "layers=1", "-o", tmp_path / "new").sentence
    assert "is quantized. Prune the fp32 model" in sentence


@pytest.mark.parametrize("bound", ["layers=1", "heads=uneven:0.5", "weights=0.5"])
def test_an_lstm_is_refused(tmp_path: Path, bound: str):
    make_random("lstm").save(tmp_path / "lstm")
    sentence = weft("prune", tmp_path / "lstm", bound, "-o", tmp_path / "new").sentence
    assert "LSTM" in sentence and "Only vocabulary= works with it" in sentence


def test_seconds_of_a_table_are_interpolated():
    table = LatencyTable(1.0, {"encoder": 2.0}, ((0.25, 0.5), (0.5, 0.6), (1.0, 1.0)), 0.2)
    assert table.seconds({"encoder": 3}, 1.0, 1.0) == pytest.approx(7.0)
    assert table.seconds({"encoder": 3}, 0.75, 1.0) == pytest.approx(1 + 6 * 0.8)
    assert table.seconds({"encoder": 1}, 0.125, 1.0) == pytest.approx(1 + 2 * 0.45)
    assert table.seconds({"encoder": 1}, 1.0, 0.5) == pytest.approx(1 + 2 * 0.9)


def test_a_table_tells_the_seconds_it_was_made_of():
    made_up = LatencyTable(1.0, {"encoder": 2.0, "decoder": 3.0}, ((0.25, 0.5), (0.5, 0.6), (1.0, 1.0)), 0.2)
    counts = {"encoder": 4, "decoder": 2}
    shapes = {
        "whole": (counts, 1.0, 1.0),
        "one encoder layer": ({**counts, "encoder": 1}, 1.0, 1.0),
        "one decoder layer": ({**counts, "decoder": 1}, 1.0, 1.0),
        "inner 0.25": (counts, 0.25, 1.0),
        "inner 0.5": (counts, 0.5, 1.0),
        "heads": (counts, 1.0, 0.5),
    }
    found = table_of({name: made_up.seconds(*shape) for name, shape in shapes.items()}, counts, 0.5)
    for shape in [*shapes.values(), ({"encoder": 3, "decoder": 1}, 0.75, 0.75)]:
        assert found.seconds(*shape) == pytest.approx(made_up.seconds(*shape))


def test_a_speed_up_is_the_median_ratio(monkeypatch):
    """The clock of each network is made up: 3 s and 2 s, but every third turn of the second takes 9 s."""
    networks = [make_random("gpt2").network, make_random("gpt2").network]
    calls = {id(one): 0 for one in networks}

    def seconds(network) -> float:
        calls[id(network)] += 1
        return 3.0 if network is networks[0] else 9.0 if calls[id(network)] % 3 == 0 else 2.0

    monkeypatch.setattr("weft.compress.prune.timing.seconds_of", lambda network, batches: seconds(network))
    found = speed_up(networks[0], networks[1], [])
    assert found.times == pytest.approx(1.5)
