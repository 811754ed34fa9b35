"""Distillation on plain text: the methods, the cache, the yardsticks."""

import json

import pytest
import yaml

import weft
from small_tasks import weft as command
from task_models import ALICE

FAMILIES = {"bert": "masked", "gpt2": "causal", "t5": "span"}
KINDS = {"bert": "wordpiece", "gpt2": "bpe", "t5": "unigram"}
QUICK = {"budget": "4 steps", "sequence_length": 32, "batch": 8, "precision": "float32", "threads": 1}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    file = tmp_path_factory.mktemp("book") / "book.txt"
    file.write_text(ALICE.read_text("utf-8")[:30_000])
    return file


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, book):
    made = {}

    def make(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            tree = {
                "corpus": {"sources": [{"path": str(book)}], "splits": {"validation": 0.1}},
                "tokenizer": {"kind": KINDS[family], "vocab_size": 400},
                "model": {"family": family, "layers": 2, "width": 32, "heads": 4},
                "pretrain": {
                    "objective": FAMILIES[family], "budget": "10 steps", "sequence_length": 32, "batch_tokens": 256,
                    "precision": "float32", "compile": False, "threads": 1,
                },
            }  # fmt: skip
            made[family] = weft.pretrain(tree, output=folder / "run").model
        return made[family]

    return make


def distil(folder, teacher, book, *arguments, **settings):
    folder.mkdir(exist_ok=True)
    section = {"teacher": str(teacher), "student": {"layers": 1}, "yardsticks": False, **QUICK, **settings}
    tree = {"corpus": {"sources": [{"path": str(book)}], "splits": {"validation": 0.1}}, "distil": section}
    (folder / "recipe.yml").write_text(yaml.safe_dump(tree))
    return command("distil", folder / "recipe.yml", "-o", folder / "run", *arguments)


def weights(folder):
    return (folder / "run/model/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("family", "method"),
    [("bert", None), ("bert", "distilbert"), ("bert", "minilm"), ("bert", "kl"), ("gpt2", None), ("t5", None)],
)
def test_every_kind_of_language_model_can_be_distilled(family, method, teachers, book, tmp_path):
    settings = {} if method is None else {"method": method}
    said = distil(tmp_path, teachers(family), book, "--json", **settings)
    assert said.code == 0, said.err
    results = json.loads(said.out)
    model = weft.load(results["model"])
    assert model.network.architecture.layers == (2 if family == "t5" else 1)
    assert results["validation"]["validation_loss"] > 0
    assert model.tokenizer.engine.get_vocab() == weft.load(teachers(family)).tokenizer.engine.get_vocab()


def test_a_narrow_distilbert_learns_a_projection(teachers, book, tmp_path):
    student = {"layers": 1, "width": 16, "heads": 4}
    said = distil(tmp_path, teachers("bert"), book, method="distilbert", student=student)
    assert said.code == 0, said.err
    network = weft.load(tmp_path / "run/model").network
    assert network.width == 16
    assert not any("projections" in name for name, _ in network.named_parameters())


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_cached_teacher_gives_the_same_bytes_as_a_live_one(family, teachers, book, tmp_path):
    store = tmp_path / "cache"
    assert distil(tmp_path / "live", teachers(family), book, accumulation=2).code == 0
    for name in ("first", "second"):
        assert distil(tmp_path / name, teachers(family), book, accumulation=2, cache=str(store)).code == 0
    assert len(list(store.rglob("*.safetensors"))) == 8
    assert weights(tmp_path / "live") == weights(tmp_path / "first") == weights(tmp_path / "second")


def test_the_yardsticks_have_intervals(teachers, book, tmp_path):
    said = distil(tmp_path, teachers("gpt2"), book, "--json", yardsticks=True)
    assert said.code == 0, said.err
    results = json.loads(said.out)
    assert set(results["yardsticks"]) == {"teacher", "alone", "untrained"}
    for facts in results["yardsticks"].values():
        low, high = facts["intervals"]["perplexity"]
        assert low <= facts["figures"]["perplexity"] <= high
        assert facts["difference"]["figure"] == "loss"
    assert "by_counting" in results
    assert "yardsticks" in (tmp_path / "run/report.html").read_text()
    assert (tmp_path / "run/alone/metrics.jsonl").is_file()


def test_a_student_comes_closer_to_its_teacher(teachers, book, tmp_path):
    """KL alone: the loss is the divergence from the teacher."""
    said = distil(tmp_path, teachers("gpt2"), book, budget="40 steps", log_every=1)
    assert said.code == 0, said.err
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] / 2


def test_mistakes_are_sentences(teachers, book, tmp_path):
    teacher = teachers("gpt2")
    assert "needs an encoder" in distil(tmp_path / "a", teacher, book, method="minilm").sentence
    assert "teacher_layer is 7" in distil(tmp_path / "b", teachers("bert"), book, teacher_layer=7).sentence
    assert "method tinybert needs data" in distil(tmp_path / "c", teacher, book, method="tinybert").sentence
    other = teachers("bert")
    recipe = tmp_path / "d.yml"
    tree = {
        "corpus": {"sources": [{"path": str(book)}]}, "tokenizer": {"path": str(other)},
        "distil": {"teacher": str(teacher), **QUICK},
    }  # fmt: skip
    recipe.write_text(yaml.safe_dump(tree))
    assert "another tokenizer" in command("distil", recipe, "-o", tmp_path / "d").sentence
    assert "smaller than its teacher" in distil(tmp_path / "e", teacher, book, student={"layers": 9}).sentence
