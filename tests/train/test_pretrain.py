"""`weft pretrain` from a recipe to a folder: every family, continued training, resuming, and all that can be wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import weft
from weft.errors import FolderError, InputError, RecipeError
from weft.recipe.file import read_recipe
from weft.train import pretrain as pretrain_module
from weft.train.budget import read_budget
from weft.train.pretrain import pretrain
from weft.train.run_folder import locked_run
from weft.train.training_log import read_metrics

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
RECIPES = Path(__file__).parents[2] / "recipes"
WORDS = {"kind": "wordpiece", "vocab_size": 400}
SHAPE = {"layers": 2, "width": 32, "heads": 2}
QUICK = {"budget": "6 steps", "sequence_length": 32, "batch_tokens": 256, "validation_tokens": 500, "seed": 1}
VARIANTS = {
    "gpt2": ("causal", {"kind": "char"}, "AutoModelForCausalLM"),
    "llama": ("causal", {"kind": "bpe", "vocab_size": 400}, "AutoModelForCausalLM"),
    "qwen3": ("causal", {"kind": "char"}, "AutoModelForCausalLM"),
    "bert": ("masked+next-sentence", {"kind": "wordpiece", "vocab_size": 400}, "BertForPreTraining"),
    "roberta": ("masked", {"kind": "bpe", "vocab_size": 400}, "AutoModelForMaskedLM"),
    "distilbert": ("masked", {"kind": "wordpiece", "vocab_size": 400}, "AutoModelForMaskedLM"),
    "modernbert": ("masked", {"kind": "char"}, "AutoModelForMaskedLM"),
    "t5": ("span", {"kind": "unigram", "vocab_size": 500}, "T5ForConditionalGeneration"),
    "transformer": ("span", {"kind": "unigram", "vocab_size": 500}, "MarianMTModel"),
    "lstm": ("causal", {"kind": "char"}, None),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    (place / "book.txt").write_text(ALICE.read_text("utf-8")[:40_000])
    return place


def recipe(place, name="r.yml", **sections):
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2", **SHAPE},
        "pretrain": {"objective": "causal", **QUICK},
    }
    for section, values in sections.items():
        tree[section] = values if section in ("name", "tokenizer", "model") else {**tree[section], **values}
    (place / name).write_text(yaml.safe_dump(tree))
    return read_recipe(place / name)


def variant(place, family, **changes):
    objective, tokenizer, _ = VARIANTS[family]
    model = {"family": family, **SHAPE}
    if family == "lstm":
        model = {"family": "lstm", "layers": 1, "width": 32}
    return recipe(
        place, f"{family}.yml", tokenizer=tokenizer, model=model, pretrain={"objective": objective, **changes}
    )


@pytest.mark.parametrize("family", VARIANTS)
def test_every_family_trains_and_transformers_finds_the_same_validation_loss(family, place, tmp_path):
    # On a busy machine bfloat16 may seem the faster one, and its losses are not the same to four digits.
    results = pretrain(variant(place, family, precision="float32"), place, tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    assert lines[-1]["step"] == 6
    assert np.isfinite([line["loss"] for line in lines]).all()
    for name in ("recipe.yml", "train.log", "report.html", "weft.json", "model/weft.json", "checkpoints/step-000006"):
        assert (tmp_path / "run" / name).exists(), name
    assert weft.load(tmp_path / "run/model").tokenizer.vocabulary > 10
    if VARIANTS[family][2] is None:
        assert results["format"] == "weft"
        return
    assert theirs(family, tmp_path / "run") == pytest.approx(results["validation"]["validation_loss"], abs=1e-4)


def theirs(family, run):
    """The validation loss as transformers computes it: the same batches, one sequence at a time."""
    import transformers

    model = getattr(transformers, VARIANTS[family][2]).from_pretrained(run / "model").eval()
    sums, counts = {}, {}
    for batch in validation_batches(run):
        rows = torch.full((len(batch.packed.tokens),), -100)
        if batch.decoder is None:
            rows[torch.arange(len(rows)) if batch.rows is None else batch.rows] = batch.targets
        for number, ids in enumerate(batch.packed.split(batch.packed.tokens)):
            inputs = {"input_ids": ids[None]}
            wanted = batch.packed.split(rows)[number]
            if batch.packed.segments is not None:
                inputs["token_type_ids"] = batch.packed.split(batch.packed.segments)[number][None]
            if batch.decoder is not None:
                inputs["decoder_input_ids"] = batch.decoder.split(batch.decoder.tokens)[number][None]
                wanted = batch.decoder.split(batch.targets)[number]
            with torch.no_grad():
                answer = model(**inputs)
            logits = answer.prediction_logits if family == "bert" else answer.logits
            sums["tokens"] = sums.get("tokens", 0.0) + float(
                torch.nn.functional.cross_entropy(logits[0], wanted, reduction="sum", ignore_index=-100)
            )
            counts["tokens"] = counts.get("tokens", 0) + int((wanted != -100).sum())
            if "next-sentence" in batch.answers:
                right = batch.answers["next-sentence"].values[number : number + 1]
                pair = torch.nn.functional.cross_entropy(answer.seq_relationship_logits, right)
                sums["pairs"] = sums.get("pairs", 0.0) + float(pair)
                counts["pairs"] = counts.get("pairs", 0) + 1
    return sum(sums[key] / counts[key] for key in sums)


def validation_batches(run):
    from weft.objectives.catalog import OBJECTIVES
    from weft.objectives.masking import MaskSpec
    from weft.tokenizer.read import load_tokenizer
    from weft.tokens.shards import open_shards
    from weft.train.validation import some_batches

    plan = read_recipe(run / "recipe.yml").pretrain
    shards, tokenizer = open_shards(run / "tokens/validation/0"), load_tokenizer(run / "model")
    objective = OBJECTIVES[plan.objective].make(shards, tokenizer, plan.sequence_length, MaskSpec())
    return some_batches([objective], plan.validation_tokens, plan.sequence_length)


def test_training_goes_on_from_a_folder_with_its_tokenizer_and_weights(place, tmp_path):
    pretrain(variant(place, "bert", objective="masked+next-sentence"), place, tmp_path / "first")
    shutil.copytree(tmp_path / "first/model", place / "first", dirs_exist_ok=True)
    more = recipe(place, "more.yml", model={"path": "first"}, pretrain={"objective": "masked", "learning_rate": 1e-9})
    tree = yaml.safe_load((place / "more.yml").read_text())
    del tree["tokenizer"]
    (place / "more.yml").write_text(yaml.safe_dump(tree))
    more = read_recipe(place / "more.yml", ["pretrain.optimizer=adamw", "pretrain.weight_decay=0.0"])
    pretrain(more, place, tmp_path / "second")
    before = (tmp_path / "second/model/model.safetensors").read_bytes()
    pretrain(more, place, tmp_path / "second", resume=True)
    assert (tmp_path / "second/model/model.safetensors").read_bytes() == before
    first, second = weft.load(tmp_path / "first/model"), weft.load(tmp_path / "second/model")
    assert second.description.head == "masked"
    weights = dict(second.network.named_parameters())
    for name, weight in first.network.named_parameters():
        if "next-sentence" not in name:
            assert torch.allclose(weights[name], weight, atol=1e-5), name


def test_a_folder_without_the_head_gets_a_fresh_one(place, minilm, tmp_path, capsys):
    made = recipe(place, model={"path": str(minilm)}, pretrain={"objective": "masked", "budget": "1 steps"})
    made = made.model_copy(update={"tokenizer": None})
    results = pretrain(made, place, tmp_path / "run")
    assert results["format"] == "bert"
    assert "it gets a fresh one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("model.family=bert", "pretrain.objective=masked+next-sentence", "tokenizer.kind=wordpiece"),
        ("model.family=roberta", "pretrain.objective=masked"),
        ("model.family=t5", "pretrain.objective=span"),
        ("model.family=llama",),
        ("model.family=modernbert", "pretrain.objective=masked"),
        ("model.family=lstm",),
    ],
    ids=lambda changes: changes[0].partition("=")[2] if changes else "as it stands",
)
def test_the_shakespeare_recipe_runs_with_every_family(changes, tmp_path):
    (tmp_path / "shakespeare.txt").write_text((RECIPES / "shakespeare.txt").read_text("utf-8")[:100_000])
    made = read_recipe(RECIPES / "shakespeare.yml", [*changes, "pretrain.budget=2 steps"])
    assert pretrain(made, tmp_path, tmp_path / "run")["steps"] == 2
    assert weft.load(tmp_path / "run/model").parameters_count > 10_000


def test_the_plan_is_written_down_and_can_be_run_itself(place, tmp_path):
    made = recipe(place, model={"family": "qwen3"}, pretrain={"objective": "causal", "budget": "2 steps"})
    pretrain(made, place, tmp_path / "run")
    plan = read_recipe(tmp_path / "run/recipe.yml")
    assert plan.model.layers is not None
    assert plan.pretrain.learning_rate is not None
    pretrain(plan, Path("/nowhere"), tmp_path / "again")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("asked", [{}, {"threads": 2}])
def test_a_run_goes_on_with_the_threads_it_began_with(asked, place, tmp_path, monkeypatch, threads):
    """The last bits of a product depend on their number."""
    made, seen = recipe(place, pretrain=asked), []
    train = pretrain_module.train

    def seeing(*arguments, **settings):
        seen.append(torch.get_num_threads())
        return train(*arguments, **settings)

    monkeypatch.setattr(pretrain_module, "train", seeing)
    threads(1 if asked else 2)
    pretrain(made, place, tmp_path / "run")
    threads(1)
    pretrain(made, place, tmp_path / "run", resume=True)
    assert seen == [2, 2]
    assert read_recipe(tmp_path / "run/recipe.yml").pretrain.threads == 2
    assert torch.get_num_threads() == 1


def test_a_run_that_was_prepared_first_is_the_same_run(place, tmp_path):
    made = recipe(place, pretrain={"precision": "float32"})
    assert pretrain_module.prepare(made, place, tmp_path / "prepared") > 0
    assert not list((tmp_path / "prepared").glob("checkpoints/*"))
    pretrain(made, place, tmp_path / "prepared", resume=True)
    pretrain(made, place, tmp_path / "direct")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("prepared", "direct")]
    assert weights[0] == weights[1]


def test_a_budget_in_time_becomes_steps_and_a_size(place, tmp_path):
    made = recipe(place, model={"family": "qwen3"}, pretrain={"budget": "15s"})
    results = pretrain(made, place, tmp_path / "run")
    plan = read_recipe(tmp_path / "run/recipe.yml")
    assert plan.pretrain.budget == f"{results['steps']} steps"
    assert plan.model.width in range(64, 1024)
    # The number of steps was corrected on the way; as it is written down now, it gives the same model without a clock.
    pretrain(plan, place, tmp_path / "again")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


def test_a_masked_run_with_too_little_time_says_so_and_is_not_cut_further(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("weft.train.plan.run_plan.MASKED_STEPS", 10**6)
    monkeypatch.setattr(pretrain_module, "_steps_until", lambda left, step, seconds, plan: step + 1)  # suddenly slow
    shape = {"batch_tokens": 2048, "objective": "masked", "budget": "6s"}
    made = recipe(place, model={"family": "modernbert", **SHAPE}, tokenizer=WORDS, pretrain=shape)
    results = pretrain(made, place, tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    planned = re.search(r"Plan: .*? ([\d,]+) steps", said)
    assert planned is not None and results["steps"] == int(planned[1].replace(",", ""))
    assert "A masked model needs about 1,000,000" in said
    assert "has become slower" in said


def test_a_budget_that_is_spent_before_training_begins_is_said_so(place, tmp_path):
    with pytest.raises(RecipeError, match=r"the time (was|is) up"):
        pretrain(recipe(place, pretrain={"budget": "0.001s"}), place, tmp_path / "run")


def test_a_run_that_failed_early_leaves_nothing_to_a_later_one(place, tmp_path):
    (place / "growing.txt").write_text("short")
    made = recipe(place, "growing.yml", corpus={"sources": [{"path": "growing.txt"}]})
    with pytest.raises(InputError, match="fewer than one sequence"):
        pretrain(made, place, tmp_path / "run")
    (place / "growing.txt").write_text("long enough now, and with other letters: xyz. " * 100)
    assert pretrain(made, place, tmp_path / "run")["steps"] == 6


def test_a_model_folder_is_not_taken_for_a_run(place, tmp_path):
    pretrain(recipe(place), place, tmp_path / "run")
    with pytest.raises(FolderError, match="holds a model, not a run"):
        pretrain(recipe(place), place, tmp_path / "run/model")


def test_a_second_run_in_the_same_folder_is_refused_and_a_resumed_one_must_be_the_same(place, tmp_path):
    made = recipe(place)
    pretrain(made, place, tmp_path / "run")
    with pytest.raises(FolderError, match="holds a run already at step 6: --resume"):
        pretrain(made, place, tmp_path / "run")
    other = recipe(place, pretrain={"seed": 2})
    with pytest.raises(RecipeError, match=r"pretrain\.seed was 1 and is 2"):
        pretrain(other, place, tmp_path / "run", resume=True)
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    pretrain(made, place, tmp_path / "run", resume=True)
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before


def test_a_folder_that_another_run_is_at_work_in_is_refused(place, tmp_path):
    made = recipe(place)
    pretrain(made, place, tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.is_file()}
    told = rf"run is in use by another run\. It is process {os.getpid()} on .*, since "
    with locked_run(tmp_path / "run"), pytest.raises(FolderError, match=told):
        pretrain(made, place, tmp_path / "run", resume=True)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.is_file()} == before
    assert pretrain(made, place, tmp_path / "run", resume=True)["steps"] == 6


def test_a_damaged_checkpoint_is_passed_over_and_said_so(place, tmp_path, capsys):
    made = recipe(place, pretrain={"checkpoint_every": 2, "keep": 3})
    pretrain(made, place, tmp_path / "run")
    before = (tmp_path / "run/model/model.safetensors").read_bytes()
    newest = tmp_path / "run/checkpoints/step-000006/network.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    pretrain(made, place, tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert "network.safetensors is damaged. Skipping" in said
    assert "Resuming from step 4" in said
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == before


def test_sources_are_mixed_and_a_built_corpus_is_read_by_its_splits(place, tmp_path):
    text = (place / "book.txt").read_text()
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "train.txt").write_text(text[:20_000])
    (corpus / "validation.jsonl").write_text(json.dumps({"text": text[20_000:25_000]}))
    made = recipe(place)
    mixed = made.model_copy(
        update={"corpus": read_corpus(place, [{"path": "book.txt", "weight": 3}, {"path": str(corpus), "weight": 1}])}
    )
    assert pretrain(mixed, place, tmp_path / "mixed")["steps"] == 6
    built = made.model_copy(update={"corpus": made.corpus.model_copy(update={"path": str(corpus), "sources": None})})
    pretrain(built, place, tmp_path / "built")
    counts = [
        json.loads((tmp_path / f"built/tokens/{part}/0/00000.json").read_text()) for part in ("train", "validation")
    ]
    assert [count["characters"] for count in counts] == [20_000, 5_000]


def read_corpus(place, sources):
    (place / "c.yml").write_text(yaml.safe_dump({"corpus": {"sources": sources}}))
    return read_recipe(place / "c.yml").corpus


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
def test_what_cannot_be_is_said_in_a_sentence(changes, says, place, tmp_path):
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
def test_text_that_is_none_is_refused(name, data, says, place, tmp_path):
    (place / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        pretrain(recipe(place, "bad.yml", corpus={"sources": [{"path": name}]}), place, tmp_path / "run")


def test_one_endless_line_is_text_like_any_other_but_has_no_pairs(place, tmp_path):
    (place / "endless.txt").write_text("ab" * 100_000)
    line = {"sources": [{"path": "endless.txt"}]}
    assert pretrain(recipe(place, corpus=line), place, tmp_path / "run")["steps"] == 6
    with pytest.raises(InputError, match="No document has two sentences"):
        pretrain(variant(place, "bert").model_copy(update={"corpus": read_corpus(place, line["sources"]),
                 "tokenizer": recipe(place).tokenizer}), place, tmp_path / "pairs")  # fmt: skip


def weft_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)], capture_output=True, text=True, **options
    )


FILLS_UP = """
import resource, sys
import weft.cli, weft.train.engine as engine
real = engine.save_checkpoint
def save_and_fill(*arguments, **options):
    place = real(*arguments, **options)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # from now on no file may grow larger
    return place
engine.save_checkpoint = save_and_fill
weft.cli.main()
"""


def test_a_disk_that_fills_up_loses_no_earlier_checkpoint(place, tmp_path):
    recipe(place, "full.yml", pretrain={"checkpoint_every": 2, "validate_every": 6, "precision": "float32"})
    command = [sys.executable, "-c", FILLS_UP, "pretrain", str(place / "full.yml"), "-o", str(tmp_path / "full")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert re.search(r"No space left on the disk while writing \S+step-000004", done.stderr)
    assert [item.name for item in (tmp_path / "full/checkpoints").iterdir()] == ["step-000002"]
    assert weft_command("pretrain", place / "full.yml", "-o", tmp_path / "full", "--resume").returncode == 0
    pretrain(read_recipe(place / "full.yml"), place, tmp_path / "unbroken")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("full", "unbroken")]
    assert weights[0] == weights[1]


def test_the_command_prints_json_and_says_how_to_go_on(place, tmp_path):
    recipe(place, "json.yml", pretrain={"budget": "2 steps"})
    done = weft_command("pretrain", place / "json.yml", "-o", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2
    again = weft_command("pretrain", place / "json.yml", "-o", tmp_path / "run")
    assert again.returncode == 2
    assert "--resume continues it" in again.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(place, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderError, match="cannot be written"):
        pretrain(recipe(place), place, tmp_path / "run")


def test_a_place_that_cannot_be_written_is_refused(place):
    with pytest.raises(FolderError, match="cannot be written"):
        pretrain(recipe(place), place, Path("/proc/weft-run"))


def test_other_peoples_folders_are_left_alone(place, tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(FolderError, match="holds other files"):
        pretrain(recipe(place), place, tmp_path)


def test_budgets_in_tokens_and_epochs_become_steps(place, tmp_path):
    for budget, steps in (("600 tokens", 3), ("0.05 epochs", 8)):
        results = pretrain(recipe(place, pretrain={"budget": budget}), place, tmp_path / budget.replace(" ", "-"))
        assert results["steps"] == pytest.approx(steps, abs=1)
        assert (
            read_budget(read_recipe(tmp_path / budget.replace(" ", "-") / "recipe.yml").pretrain.budget).kind == "steps"
        )
