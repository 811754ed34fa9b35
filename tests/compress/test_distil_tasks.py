"""Distillation of tuned models: every task, exact caches, yardsticks, and sentences for mistakes."""

import json
from functools import cache

import pytest
import torch
import yaml
from distilling import distil, teacher_of, weights, write_distil

import small_tasks
import weft
from small_tasks import refused, rows_of, write_rows  # noqa: F401
from small_tasks import weft as command


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    @cache
    def make(task, **settings):
        return teacher_of(tmp_path_factory.mktemp(task), task, **settings)

    return make


@pytest.mark.parametrize(("epochs", "drops"), [(2, False), (4, True)])
def test_students_drop_out_where_texts_repeat(epochs, drops, teacher, tmp_path):
    """And the teacher answers each text once."""
    settings = {"method": "kl", "budget": f"{epochs} epochs", "augment": False}
    for name, more in (("usual", {}), ("without", {"dropout": 0.0})):
        said = distil(tmp_path / name, teacher("tag"), "tag", **settings, **more)
        assert said.code == 0, said.err
    assert (weights(tmp_path / "usual") != weights(tmp_path / "without")) == drops


@pytest.mark.parametrize(
    "task", ["classify", "several", "similarity", "tag", "answer", "intent", "translate", "reply", "embed"]
)
def test_every_task_can_be_distilled(task, teacher, tmp_path):
    said = distil(tmp_path, teacher(task), task, "--json")
    assert said.code == 0, said.err
    results = json.loads(said.out)
    model = weft.load(results["model"])
    assert model.network.architecture.layers == (2 if task == "translate" else 1)
    assert model.task.name == weft.load(teacher(task)).task.name
    assert model.labels == weft.load(teacher(task)).labels
    assert not any("projections" in name for name, _ in model.network.named_parameters())
    stages = set(results["stages"])
    assert stages == ({"prediction"} if task in ("translate", "reply") else {"intermediate", "prediction"})


def test_a_crf_starts_as_the_teachers(teacher, tmp_path):
    tuned = teacher("tag", crf=True)
    said = distil(tmp_path, tuned, "tag", label_share=0.5)
    assert said.code == 0, said.err
    assert (tmp_path / "student/model/crf.safetensors").is_file()


def test_the_yardsticks_are_in_the_results_and_on_the_page(teacher, tmp_path):
    said = distil(tmp_path, teacher("classify"), "classify", "--json", yardsticks=True)
    assert said.code == 0, said.err
    results = json.loads(said.out)
    assert set(results["yardsticks"]) == {"teacher", "alone", "untrained"}
    for facts in results["yardsticks"].values():
        low, high = facts["intervals"]["accuracy"]
        assert low <= facts["figures"]["accuracy"] <= high
        assert {"value", "low", "high"} <= set(facts["difference"])
    alone = results["yardsticks"]["alone"]
    assert alone["parameters"] == results["parameters"] < results["yardsticks"]["teacher"]["parameters"]
    assert "baseline" in results
    assert results["kept"] == pytest.approx(
        results["figures"]["accuracy"] / results["yardsticks"]["teacher"]["figures"]["accuracy"]
    )
    page = (tmp_path / "student/report.html").read_text()
    assert "the same student trained alone" in page
    report = json.loads((tmp_path / "student/report.json").read_text())
    assert report["training"]["yardsticks"] == results["yardsticks"]
    saved = json.loads((tmp_path / "student/weft.json").read_text())
    assert saved["results"]["yardsticks"] == results["yardsticks"]


def test_the_student_alone_gets_some_time_however_short_the_distillation(teacher, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.compress.distil.tasks._seconds", lambda run: 0.0)
    said = distil(tmp_path, teacher("classify"), "classify", "--json", yardsticks=True, budget="1 steps", method="kl")
    assert said.code == 0, said.err
    assert json.loads(said.out)["yardsticks"]["alone"]["steps"] > 0


@pytest.mark.parametrize("task", ["classify", "translate"])
def test_a_cached_teacher_gives_the_same_bytes_as_a_live_one(task, teacher, tmp_path):
    tuned = teacher(task)
    store = str(tmp_path / "cache")
    live = distil(tmp_path / "live", tuned, task)
    first = distil(tmp_path / "first", tuned, task, cache=store)
    assert "outputs take about" in first.err
    files = sorted((tmp_path / "cache").rglob("*.safetensors"))
    changed = [file.stat().st_mtime_ns for file in files]
    second = distil(tmp_path / "second", tuned, task, cache=store)
    assert [file.stat().st_mtime_ns for file in files] == changed  # read, not written
    assert len(files) == 6
    assert (live.code, first.code, second.code) == (0, 0, 0)
    assert weights(tmp_path / "live") == weights(tmp_path / "first") == weights(tmp_path / "second")


def test_a_damaged_output_is_computed_again(teacher, tmp_path):
    tuned, store = teacher("classify"), tmp_path / "cache"
    distil(tmp_path / "first", tuned, "classify", cache=str(store))
    broken, cut = sorted(store.rglob("*.safetensors"))[:2]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-3] + b"\x00\x01\x02")
    cut.write_bytes(b"short")
    said = distil(tmp_path / "second", tuned, "classify", cache=str(store))
    assert said.err.count("is damaged: its outputs are computed again") == 2
    assert broken.read_bytes() == whole
    assert weights(tmp_path / "first") == weights(tmp_path / "second")


def test_outputs_beyond_the_limit_are_not_stored(teacher, tmp_path):
    store = tmp_path / "cache"
    said = distil(tmp_path, teacher("classify"), "classify", cache=str(store), cache_limit=1e-9)
    assert said.code == 0
    assert "more than distil.cache_limit" in said.err
    assert not list(tmp_path.rglob("cache/**/*.safetensors"))


def test_the_teachers_texts_are_written_once(teacher, tmp_path):
    tuned, store = teacher("translate"), tmp_path / "cache"
    first = distil(tmp_path / "a", tuned, "translate", cache=str(store))
    assert "The teacher writes" in first.err
    second = distil(tmp_path / "b", tuned, "translate", cache=str(store))
    assert "The teacher writes 3" not in second.err
    (texts,) = store.glob("teacher-texts-*.jsonl")
    lines = texts.read_text().splitlines()
    texts.write_text("\n".join(lines[:-2]) + "\n" + lines[-2][:3])  # a kill cut off the end
    third = distil(tmp_path / "c", tuned, "translate", cache=str(store))
    assert "The teacher writes 2 texts" in third.err
    assert texts.read_text().splitlines() == lines


def test_a_narrow_student_learns_projections_that_go_away(teacher, tmp_path):
    said = distil(
        tmp_path, teacher("classify"), "classify", student={"layers": 2, "width": 16, "heads": 4, "inner": 40}
    )
    assert said.code == 0, said.err
    (checkpoint,) = (tmp_path / "student/intermediate/checkpoints").glob("step-*")
    from safetensors.torch import load_file

    saved = load_file(checkpoint / "network.safetensors")
    assert {name for name in saved if name.startswith("projections.")} == {
        "projections.embedding",
        "projections.hidden",
    }
    moved = load_file(checkpoint / "optimizer.safetensors")
    assert "exp_avg/projections.hidden" in moved
    model = weft.load(tmp_path / "student/model")
    assert model.network.architecture.width == 16
    assert model.network.head("sequence").spec.outputs == 2


def test_a_model_folder_can_be_the_student(teacher, tmp_path):
    distil(tmp_path / "a", teacher("classify"), "classify")
    small = tmp_path / "a/student/model"
    said = distil(tmp_path / "b", teacher("classify"), "classify", student=str(small), method="kl")
    assert said.code == 0, said.err
    assert weft.load(tmp_path / "b/student/model").network.architecture.layers == 1


def test_python_has_the_same_command(teacher, tmp_path):
    recipe = write_distil(tmp_path, teacher("classify"), "classify")
    result = weft.distil(recipe, {"distil.budget": "2 steps"}, output=tmp_path / "run")
    assert weft.load(result.model).task.name == "classify"
    assert yaml.safe_load((tmp_path / "run/recipe.yml").read_text())["distil"]["budget"] == "2 steps"
    again = weft.distil(tmp_path / "run", resume=True)
    assert again["figures"] == result["figures"]


def test_learning_from_a_teacher_brings_the_student_closer_to_it(teacher, tmp_path):
    tuned = weft.load(teacher("classify"))
    texts = [row["text"] for row in rows_of("classify")]

    def gap(folder):
        ours = weft.load(folder)
        tables = [model.predict(texts, details=True) for model in (ours, tuned)]
        pairs = zip(*tables, strict=True)
        return sum(abs(a["scores"]["pos"] - b["scores"]["pos"]) for a, b in pairs)

    few = distil(tmp_path / "few", teacher("classify"), "classify", budget="2 steps")
    many = distil(
        tmp_path / "many", teacher("classify"), "classify", budget="120 steps", validate_every=60, checkpoint_every=60
    )
    assert few.code == many.code == 0
    assert gap(tmp_path / "many/student/model") < gap(tmp_path / "few/student/model") / 2


def refusal(folder, teacher, task="classify", **settings):
    sentence = distil(folder, teacher, task, **settings).sentence
    assert not (folder / "student").exists()
    return sentence


def test_mistakes_are_sentences(teacher, tmp_path):
    tuned = teacher("classify")
    other = write_rows(tmp_path / "tags.jsonl", rows_of("tag"))
    wrong_labels = write_rows(
        tmp_path / "labels.jsonl", [{"text": f"number {n}", "label": "xy"[n % 2]} for n in range(20)]
    )
    assert "student.layers is 3" in refusal(tmp_path / "a", tuned, student={"layers": 3})
    assert "does not exist" in refusal(tmp_path / "b", tmp_path / "nowhere")
    assert "distil.data." in refusal(tmp_path / "c", tuned, data={"train": str(other)})
    assert "Known labels: neg, pos" in refusal(tmp_path / "d", tuned, data={"train": str(wrong_labels)})
    assert "data.train is missing" in refusal(tmp_path / "e", tuned, data={"test": str(other)})
    assert "is for plain text" in refusal(tmp_path / "f", tuned, method="minilm")
    assert "distil.budget cannot be" in refusal(tmp_path / "g", tuned, budget="soon")
    assert "Nothing to learn from" in refusal(tmp_path / "h", tuned, data=None, method=None)
    assert "not for answer" in refusal(tmp_path / "i", teacher("answer"), "answer", augment={"copies": 2})
    assert "24 is not a multiple of 5 heads" in refusal(tmp_path / "j", tuned, student={"width": 24, "heads": 5})
    assert "does not exist" in refusal(tmp_path / "k", tuned, augment={"model": str(tmp_path / "nowhere")})
    assert "is a file" in refusal(tmp_path / "l", tuned, cache=str(other))
    recipe = write_distil(tmp_path, tuned, "classify")
    recipe.write_text(recipe.read_text().replace("teacher:", "# teacher:"))
    assert "teacher is missing" in command("distil", recipe, "-o", tmp_path / "m").sentence


def test_a_language_model_cannot_teach_a_task(tmp_path):
    folder = tmp_path / "gpt"
    weft.create("bert", vocabulary=60, layers=2, width=16, heads=2).save(folder)
    sentence = refusal(tmp_path / "a", folder)
    assert "tokenizer" in sentence or "no task" in sentence


def test_the_teacher_is_not_the_output(teacher, tmp_path):
    run = teacher("classify").parent
    recipe = write_distil(tmp_path, teacher("classify"), "classify")
    before = (run / "model/model.safetensors").read_bytes()
    assert "contains the model" in command("distil", recipe, "-o", run).sentence
    assert "is the model" in command("distil", recipe, "-o", run / "model").sentence
    assert (run / "model/model.safetensors").read_bytes() == before


def test_another_tokenizer_is_refused(teacher, tmp_path):
    other = teacher_of(tmp_path / "other", "pair")
    assert "another tokenizer" in refusal(
        tmp_path / "a", teacher("classify"), student=str(_as_classifier(other, tmp_path))
    )


def _as_classifier(folder, place):
    """The same weights as a model of the labels neg and pos."""
    network, description = weft.load(folder).network, weft.load(folder).description
    from dataclasses import replace

    from weft.interchange.folder import write_model

    files = {name: (folder / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    write_model(network, replace(description, labels=("neg", "pos")), place / "classifier", files=files)
    return place / "classifier"


def test_the_seed_decides_everything(teacher, tmp_path):
    tuned = teacher("classify")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert distil(tmp_path / name, tuned, "classify", seed=seed).code == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")
    assert torch.get_num_threads() >= 1
    assert small_tasks.report_of(tmp_path / "a/student")["training"]["seed"] == 1


def test_an_int8_teacher_can_teach(teacher, tmp_path):
    said = command("quantize", teacher("classify"), "-o", tmp_path / "int8")
    assert said.code == 0, said.err
    said = distil(tmp_path, tmp_path / "int8", "classify", student={"layers": 1, "width": 16, "heads": 4, "inner": 40})
    assert said.code == 0, said.err
    network = weft.load(tmp_path / "student/model").network
    assert "cannot be trained" in refusal(tmp_path / "other", teacher("classify"), student=str(tmp_path / "int8"))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
