"""The card of models with a task: differences, agreement, sizes, sentences."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import weft
from small_tasks import rows_of
from small_tasks import weft as run
from task_models import TEXTS, make, save
from weft.compress.card.compare import compare_models
from weft.compress.card.model_facts import disk_bytes, memory_bytes, precision_of, short_names
from weft.compress.card.timing import Clock
from weft.compress.lineage import compression_steps, title_of, with_step
from weft.errors import FolderError
from weft.model.flops import forward_flops
from weft.model.network import count_parameters
from weft.model.packed import pack
from weft.model.quantized import put_quantized, quantize_weight
from weft.tasks.classify import Classify
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag

LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def models(folder: Path) -> list[Path]:
    """Two classifiers with different weights, the second smaller."""
    task = Classify(LABELS)
    first, second = make(task, "bert", seed=0), make(task, "bert", seed=1, layers=1)
    return [save(task, *first, folder / "before/model"), save(task, *second, folder / "after/model")]


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    rows = [{"text": f"{TEXTS[i % len(TEXTS)][:60]} {i}", "label": LABELS[i % 2]} for i in range(40)]
    return jsonl(folder / "test.jsonl", rows)


def jsonl(file: Path, rows: list[dict]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def predicted(model: Path, data: Path) -> tuple[list[str], list[str]]:
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    answers = weft.load(model).predict([row["text"] for row in rows])
    return [one["label"] for one in answers], [row["label"] for row in rows]


def test_the_paired_interval_is_that_of_drawing_texts_for_both_models(models: list[Path], data: Path):
    gap = compare_models(models, data, rounds=1).models[1].against.differences["accuracy"]
    (before, gold), (after, _) = (predicted(model, data) for model in models)
    right = [np.array([a == b for a, b in zip(said, gold, strict=True)], float) for said in (before, after)]
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(1000):
        picked = generator.integers(40, size=40)
        drawn.append(right[1][picked].mean() - right[0][picked].mean())
    assert gap.value == pytest.approx(right[1].mean() - right[0].mean())
    assert (gap.low, gap.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_equal_models_differ_by_exactly_nothing(models: list[Path], data: Path):
    card = compare_models([models[0], models[0]], data, rounds=1)
    gap, agreement = card.models[1].against.differences["accuracy"], card.models[1].against.agreement
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)
    assert agreement.equal == 1 and sum(agreement.counts.values()) == 0 and agreement.shown == ()
    assert "of the same size" in card.verdict and card.verdict.endswith("0.0 points, 0.0 to 0.0: no loss shown)")


def test_flips_are_counted_and_shown_worst_first(models: list[Path], data: Path):
    agreement = compare_models(models, data, rounds=1).models[1].against.agreement
    (before, gold), (after, _) = (predicted(model, data) for model in models)
    flips = [(a == right, b == right) for a, b, right in zip(before, after, gold, strict=True) if a != b]
    assert 0 < len(flips) < 40
    assert agreement.counts["right → wrong"] == flips.count((True, False))
    assert agreement.counts["wrong → right"] == flips.count((False, True))
    assert agreement.equal == pytest.approx(1 - len(flips) / 40)
    changes = [one.change for one in agreement.shown]
    assert changes == sorted(changes) and len(changes) == min(len(flips), 20)  # "right …" comes before "wrong …"


def test_a_slower_clock_halves_the_speed(models: list[Path], data: Path, monkeypatch: pytest.MonkeyPatch):
    """Time passes only in the models: the second computes everything twice."""
    from weft.tasks.loaded import LoadedModel

    now, answer = [0.0], LoadedModel.answers

    def answers(model: LoadedModel, examples):
        cost = 2 if model.folder == models[1] else 1
        now[0] += cost * len(examples)
        return answer(model, examples)

    monkeypatch.setattr(LoadedModel, "answers", answers)
    card = compare_models(models, data, rounds=2, clock=Clock(lambda: now[0], lambda: now[0]))
    before, after = card.models
    assert (before.latency_ms_p50, after.latency_ms_p50) == (1000, 2000)
    assert (before.texts_per_second, after.texts_per_second) == (1, 0.5)
    assert after.cpu_seconds_per_1000 == 2000
    assert after.against.together.value == after.against.alone.value == 0.5
    assert "2.0× slower" in card.verdict


def test_a_regression_is_compared_by_its_numbers(folder: Path):
    task = Similarity(("score",))
    places = [save(task, *make(task, "bert", seed=seed), folder / f"similarity-{seed}") for seed in (0, 1)]
    rows = [{"text": TEXTS[i % 6][:40], "second": TEXTS[i % 5][:40] + str(i), "score": i % 7} for i in range(30)]
    card = compare_models(places, jsonl(folder / "pairs.jsonl", rows), rounds=1)
    agreement = card.models[1].against.agreement
    assert agreement.equal is None and -1 <= agreement.correlation <= 1
    moved = [abs(float(one.before) - float(one.after)) for one in agreement.shown]
    assert moved == sorted(moved, reverse=True)
    assert "Spearman" in card.verdict


def test_tags_and_their_flips(folder: Path):
    task = Tag(("A", "B"), entities=False)
    places = [save(task, *make(task, "bert", seed=seed), folder / f"tag-{seed}") for seed in (0, 1)]
    rows = [{"words": text.split()[:6], "tags": (["A", "B"] * 3)[: len(text.split()[:6])]} for text in TEXTS]
    card = compare_models(places, jsonl(folder / "tags.jsonl", rows), rounds=1)
    assert set(card.models[1].against.agreement.counts) == {"worse", "better", "neither better nor worse"}
    assert card.metric == "accuracy"


def test_a_task_that_writes(folder: Path):
    from weft.tasks.rewrite import Summarize

    task = Summarize(most_new=5, beams=1)
    places = [save(task, *make(task, "t5", seed=seed), folder / f"write-{seed}") for seed in (0, 1)]
    rows = [{"source": text[:50], "target": text[:12]} for text in TEXTS]
    card = compare_models(places, jsonl(folder / "sums.jsonl", rows), rounds=1)
    assert card.models[0].figures["perplexity"] > 1 and card.models[0].flops_per_text > 0
    assert card.unit == "texts" and card.models[1].against.agreement.equal is not None


def test_sizes_count_what_belongs_to_the_model(models: list[Path], tmp_path: Path):
    (tmp_path / "model.safetensors").write_bytes(bytes(100))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(999))
    (tmp_path / "config.json").write_bytes(bytes(10))
    (tmp_path / "weft.json").write_bytes(bytes(5000))
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model.onnx").write_bytes(bytes(7777))
    assert disk_bytes(tmp_path) == 110
    network = weft.load(models[0]).network
    assert memory_bytes(network) == 4 * count_parameters(network)


def test_a_quantized_network_has_the_parameters_and_flops_of_the_original():
    network = weft.create("bert", vocabulary=120, layers=2, width=32, heads=4, head="sequence").network
    batch = pack([range(5, 12), range(20, 24)])
    parameters, flops, held = count_parameters(network), forward_flops(network, batch), memory_bytes(network)
    assert precision_of(network) == "fp32"
    matrices = {name: module.weight for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    matrices = {name: weight for name, weight in matrices.items() if not name.startswith("heads")}
    matrices["embed.tokens"] = network.embed.tokens.weight
    for name, weight in matrices.items():
        put_quantized(network, name, quantize_weight(weight))
    assert precision_of(network) == "int8 (2 of 10 matrices fp32)"
    assert (count_parameters(network), forward_flops(network, batch)) == (parameters, flops)
    saved = sum(3 * weight.numel() - 4 * len(weight) for weight in matrices.values())  # a scale for each row
    assert memory_bytes(network) == held - saved


def test_names_are_short_and_different():
    paths = [Path("/r/a/model"), Path("/r/b/model"), Path("/r/b/quantize/model")]
    assert short_names(paths[:2]) == ["a", "b"]
    assert short_names(paths) == ["a", "b", "quantize"]
    assert short_names([Path("/x/a/model"), Path("/y/a/model")]) == ["x/a", "y/a"]
    assert len(set(short_names([Path("/x"), Path("/x")]))) == 1


def test_the_steps_of_a_chain_are_read_from_weft_json():
    first = with_step({}, "distil", Path("teacher"), layers=3)
    second = with_step({"compressed": first}, "quantize", Path("student"), bits=8)
    assert [title_of(step) for step in compression_steps({"compressed": second})] == ["distil", "int8"]
    assert compression_steps({"compressed": ["nonsense", {"method": 3}]}) == []


def test_the_card_is_kept_in_weft_json_only_when_asked(models: list[Path], data: Path, tmp_path: Path):
    before = (models[1] / "weft.json").read_text()
    said = run("compare", *models, "--data", data, "--rounds", 1, "-o", tmp_path / "card", "--json")
    assert said.code == 0 and (models[1] / "weft.json").read_text() == before
    facts = json.loads(said.out)
    assert facts == json.loads((tmp_path / "card/card.json").read_text())
    assert facts["models"][1]["against"]["differences"]["accuracy"]["figure"] == "accuracy"
    card = weft.compare(models, data=data, rounds=1, keep=True)
    known = json.loads((models[1] / "weft.json").read_text())
    assert known["card"]["verdict"] == card.verdict and known["task"] == json.loads(before)["task"]
    assert "shown" not in known["card"]["models"][1]["against"]["agreement"]
    assert weft.load(models[1]).predict("fine")


@pytest.mark.parametrize("name", ["card.json", "card.html"])
def test_a_card_replaces_a_card_and_nothing_else(name: str, models: list[Path], data: Path, tmp_path: Path):
    mine = tmp_path / "mine" / name
    mine.parent.mkdir()
    mine.write_text('{"contact": "me"}')
    said = run("compare", *models, "--data", data, "-o", mine.parent, "--rounds", 1)
    assert "is not a card" in said.sentence and mine.read_text() == '{"contact": "me"}'
    assert "Timing" not in said.err  # it is said before the work
    card = compare_models(models, data, rounds=1)
    with pytest.raises(FolderError, match="is not a card"):
        card.write(mine.parent)
    for _ in range(2):
        card.write(tmp_path / "card")


def test_labels_that_only_one_model_has_are_named(models: list[Path], data: Path, folder: Path):
    task = Classify(("bad", "great"))
    other = save(task, *make(task, "bert", seed=3), folder / "labels")
    card = compare_models([models[0], other], data, rounds=1)
    assert any("lacks good and adds great" in note for note in card.notes)
    assert card.models[1].figures["accuracy"] <= 0.5


def test_bad_input_is_a_sentence(models: list[Path], data: Path, folder: Path, tmp_path: Path):
    tags = Tag(("A", "B"), entities=False)
    tagger = save(tags, *make(tags, "bert"), folder / "tagger")
    assert "at least two models" in run("compare", models[0], "--data", data).sentence
    assert "tuned for classify" in run("compare", models[0], tagger, "--data", data).sentence
    assert "Compare models of the same task" in run("compare", models[0], tagger, "--data", data).sentence
    other = jsonl(tmp_path / "tags.jsonl", rows_of("tag", 4))
    assert "no column" in run("compare", *models, "--data", other).sentence
    assert "--rounds is at least 1" in run("compare", *models, "--data", data, "--rounds", 0).sentence
    assert "--limit" in run("compare", *models, "--data", data, "--limit", 0).sentence
    assert "none.tsv" in run("compare", *models, "--data", tmp_path / "none.tsv").sentence
    assert "give a file" in run("compare", *models, "--data", "-").sentence
    assert "s3://" in run("compare", *models, "--data", data, "-o", "s3://bucket/card").sentence
    assert "is a file" in run("compare", *models, "--data", data, "-o", data).sentence
    assert "has no config.json" in run("compare", models[0], tmp_path, "--data", data).sentence


def test_a_limit_draws_texts_and_says_so(models: list[Path], data: Path):
    card = compare_models(models, data, rounds=1, limit=10)
    assert card.count == 10 and any("10 of 40 texts" in note for note in card.notes)
