"""`weft pretrain` from a recipe to a folder: every family, continued training, several sources."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from small_recipes import SHAPE, read_corpus, recipe

import weft
from weft.errors import InputError
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain
from weft.train.training_log import read_metrics

RECIPES = Path(__file__).parents[2] / "recipes"
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


@pytest.mark.parametrize("family", ["t5", "transformer"])
def test_denoising_validates_as_transformers_does_with_three_tenths_masked(family, place, tmp_path):
    made = variant(place, family, objective="denoise", precision="float32")
    results = pretrain(made, place, tmp_path / "run")
    assert read_recipe(tmp_path / "run/recipe.yml").pretrain.mask_share == 0.3
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
    objective = OBJECTIVES[plan.objective].make(shards, tokenizer, plan.sequence_length, MaskSpec(plan.mask_share))
    return some_batches([objective], plan.validation_tokens, plan.sequence_length)


def test_training_continues_from_a_folder_with_its_tokenizer_and_weights(place, tmp_path):
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


def test_one_endless_line_is_usable_text_but_has_no_pairs(place, tmp_path):
    (place / "endless.txt").write_text("ab" * 100_000)
    line = {"sources": [{"path": "endless.txt"}]}
    assert pretrain(recipe(place, corpus=line), place, tmp_path / "run")["steps"] == 6
    with pytest.raises(InputError, match="No document has two sentences"):
        pretrain(variant(place, "bert").model_copy(update={"corpus": read_corpus(place, line["sources"]),
                 "tokenizer": recipe(place).tokenizer}), place, tmp_path / "pairs")  # fmt: skip
