"""Tuning less than everything: adapters of low rank, the head alone, lower layers slower."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import weft
from task_models import DECODERS, ENCODERS, TEXTS, WITH_SOURCE, WORDS, asked, make, save, scatter, tokenizer_of
from weft.errors import RecipeError
from weft.objectives.objective import Batch, scaled_loss
from weft.recipe.finetune import DataSection, FinetuneSection
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.classify import Classify
from weft.tasks.example import Example
from weft.tasks.labelled.data import LabelledSplit, Problems
from weft.tasks.learning.build import plain_network
from weft.tasks.learning.finetune import finetune
from weft.tasks.learning.finetune_inputs import FinetuneInputs
from weft.tasks.learning.lora import LORA_SCALE, Adapted, adapt, freeze_backbone, plain_state
from weft.tasks.learning.splits import Splits
from weft.tasks.loaded import LoadedModel
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Translate
from weft.tasks.tag import Tag
from weft.tasks.task import Task, TaskObjective, batch_of
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.build import Built
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec, make_optimizers
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

FAMILIES = (*ENCODERS, *DECODERS, *WITH_SOURCE)
CLASSIFY = Classify(("bad", "good", "so-so"))
LABELLED = [Example(text, CLASSIFY.labels[number % 3]) for number, text in enumerate(TEXTS)]
TAG = Tag(("O", "B-PER", "I-PER"), entities=True, crf=True)
TAGGED = [Example(words, ("B-PER",) * len(words)) for words in WORDS]


def task_for(family: str) -> tuple[Task, list[Example]]:
    if family in WITH_SOURCE:
        return Translate(), [Example(text, text[:20]) for text in TEXTS]
    return CLASSIFY, LABELLED


def built_for(family: str) -> tuple[Built, Batch]:
    task, examples = task_for(family)
    built, reader = make(task, family, length=64)
    return built, batch_of(task, task.inputs(examples, reader))


@torch.no_grad()
def move(network) -> None:
    """As training does: no adapter is nothing any more."""
    generator = torch.Generator().manual_seed(2)
    for module in network.modules():
        if isinstance(module, Adapted):
            module.up.copy_(torch.randn(module.up.shape, generator=generator) * 0.1)


@torch.no_grad()
def outputs(network, batch) -> torch.Tensor:
    (kind,) = network.heads
    return network.head(kind)(network(batch.packed, batch.decoder), batch.decoder or batch.packed)


@pytest.fixture
def in_double():
    """So that what differs is not rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_merged_adapters_say_the_same_as_adapters(family, in_double):
    built, batch = built_for(family)
    before = outputs(built.network, batch)
    adapt(built.network, 4, seed=1)
    move(built.network)
    apart = outputs(built.network, batch)
    merged = outputs(plain_network(built.saved, plain_state(built.network)), batch)
    assert (apart - before).abs().max() > 1e-2
    torch.testing.assert_close(merged, apart, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_adapter_changes_nothing_and_every_matrix_of_the_blocks_has_one(family):
    built, batch = built_for(family)
    before, stacks = outputs(built.network, batch), [built.network.encoder, built.network.decoder]
    matrices = sum(type(module) is torch.nn.Linear for stack in stacks if stack for module in stack.modules())
    adapt(built.network, 8, seed=0)
    assert torch.equal(outputs(built.network, batch), before)
    assert sum(isinstance(module, Adapted) for module in built.network.modules()) == matrices > 0


def test_an_adapter_is_the_formula_of_its_paper():
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 5)
    one = Adapted(layer, 2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        one.up.normal_()
    x = torch.randn(7, 6)
    expected = layer(x) + LORA_SCALE * x @ one.down.T @ one.up.T
    torch.testing.assert_close(one(x), expected)
    torch.testing.assert_close(x @ one.merged().T + layer.bias, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_adapters_and_heads_get_gradients(family):
    built, batch = built_for(family)
    adapt(built.network, 4, seed=1)
    move(built.network)
    scaled_loss(built.network, batch, batch.counts).backward()
    tables = {id(parameter) for parameter in built.network.embed.parameters()}
    for name, parameter in built.network.named_parameters():
        learns = name.endswith((".down", ".up")) or (name.startswith("heads.") and id(parameter) not in tables)
        fixed = family == "transformer" and name.endswith("out.bias")  # Marian's, which nobody trains
        assert parameter.requires_grad == (learns and not fixed), name
        assert (parameter.grad is not None and bool(parameter.grad.any())) == parameter.requires_grad, name


def steps(network, task: Task, examples: list[Example], reader, kind: str = "adamw", count: int = 4) -> None:
    inputs = task.inputs(examples, reader)
    spec = TrainSpec(count, 3, Schedule(count, "linear"), OptimizerSpec(kind, 1e-2, weight_decay=0.1))
    objective = TaskObjective(task, inputs)
    batches_of = StepBatches([objective], Order((len(inputs),), (1.0,), 0), spec)
    engine = Engine(Step(network.train(), objective), spec.optimizer)
    for step in range(count):
        engine.take_step(batches_of(step), step, spec.schedule(step))
    network.eval()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", [*ENCODERS, *DECODERS])
def test_with_the_head_alone_the_backbone_stays_as_it_was_to_the_bit(family, kind):
    built, reader = make(CLASSIFY, family, length=64)
    freeze_backbone(built.network)
    before = {name: value.clone() for name, value in built.network.state_dict().items()}
    steps(built.network, CLASSIFY, LABELLED, reader, kind)
    for name, value in built.network.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("heads."), name


def test_a_crf_learns_with_the_head_and_with_adapters():
    for tune in (freeze_backbone, lambda network: adapt(network, 4, 0)):
        built, reader = make(TAG, "bert", length=64)
        TAG.prepare(built.network, TAGGED)
        tune(built.network)
        steps(built.network, TAG, TAGGED, reader)
        crf = dict(built.network.get_submodule("crf").named_parameters())
        assert all(bool(parameter.any()) for parameter in crf.values())


@pytest.mark.parametrize(("family", "more"), [
    ("gpt2", {}), ("t5", {}), ("transformer", {}), ("transformer", {"shared_embedding": False}),
])  # fmt: skip
def test_a_vocabulary_layer_that_is_the_embedding_stands_still(family, more):
    task = Reply(head="causal") if family == "gpt2" else Translate()
    built, _ = make(task, family, tied=True, **more)
    freeze_backbone(built.network)
    assert not any(parameter.requires_grad for parameter in built.network.parameters())


def test_a_head_that_cannot_learn_alone_is_refused():
    examples = [Example("a", "b"), Example("b", "c")]
    split = LabelledSplit("train", examples, Problems())
    section = FinetuneSection(
        task="reply",
        data=DataSection(train="train.tsv"),
        tune="head",
        model=ModelSection(family="gpt2", layers=1, width=16, heads=2),
    )
    task = Reply(head="causal")
    with pytest.raises(RecipeError, match=r"finetune.tune.*leaves nothing to train"):
        FinetuneInputs(section, Path(), task, Splits(split, split, None), tokenizer_of("gpt2")).build(0)


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2", "llama"])
def test_what_is_saved_of_adapters_is_a_plain_model_that_transformers_opens(family, tmp_path):
    built, reader = make(CLASSIFY, family, length=64)
    adapt(built.network, 4, seed=0)
    steps(built.network, CLASSIFY, LABELLED, reader)
    expected = np.asarray(CLASSIFY.answers(built.network, LABELLED, reader)[0])
    folder = save(CLASSIFY, built, reader, tmp_path / "model")
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, chances in zip(TEXTS, expected, strict=True):
        with torch.no_grad():
            theirs = model.eval()(**tokenizer(text, truncation=True, return_tensors="pt")).logits.softmax(-1)[0]
        np.testing.assert_allclose(theirs, chances, atol=1e-5)
    again = np.asarray(LoadedModel.load(folder).answers(asked(TEXTS)))
    np.testing.assert_allclose(again, expected, atol=1e-5)


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_a_run_changes_what_it_tunes_and_nothing_else(tune, tmp_path):
    """Against the folder that it began with: with rank 2, no matrix differs by more than rank 2."""
    tokenizer = tokenizer_of("bert")
    shape = {"layers": 2, "width": 32, "heads": 4, "positions": 64}
    weft.create("bert", tokenizer=tokenizer, head="pooler", **shape, seed=3).save(tmp_path / "before")
    rows = [json.dumps({"text": text, "label": f"L{number % 2}"}) for number, text in enumerate(TEXTS * 3)]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    more = {"lora_rank": 2} if tune == "lora" else {}
    data = DataSection(train="train.jsonl", validation="train.jsonl")
    section = FinetuneSection(
        model="before",
        task="classify",
        data=data,
        tune=tune,
        budget="4 steps",
        learning_rate=0.01,
        baseline=False,
        **more,
    )
    finetune(Recipe(finetune=section), tmp_path, tmp_path / "run")
    before, after = (weft.load(tmp_path / place).network.state_dict() for place in ("before", "run/model"))
    for name, value in before.items():
        if name.startswith("heads."):
            continue  # the pooler is part of the head
        difference = after[name] - value
        is_matrix = ".blocks." in name and value.dim() == 2
        if tune == "all":
            assert bool(difference.any()) or name == "embed.segments.weight", name
        elif tune == "lora" and is_matrix:
            assert torch.linalg.matrix_rank(difference, rtol=1e-4) == 2, name
        else:
            assert not difference.any(), name


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", [*FAMILIES, "lstm"])
def test_each_layer_learns_slower_than_the_one_above_it(family, kind):
    shape = {"layers": 3, "width": 32} if family == "lstm" else {"layers": 3, "width": 32, "heads": 4}
    network = weft.create(family, vocabulary=50, **shape).network
    spec = OptimizerSpec(kind, learning_rate=1e-3, matrix_rate=1e-2, layer_decay=0.7)
    peaks = {
        id(parameter): group["peak"]
        for optimizer in make_optimizers(network, spec)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    both = family in WITH_SOURCE
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        is_matrix = kind == "muon" and parameter.dim() == 2 and ".blocks." in name
        below_head = 0
        if ".blocks." in name:
            below_head = 3 - int(name.split(".blocks.")[1].split(".")[0])
        elif name.startswith(("embed.", "decoder_embed.")):
            below_head = 7 if both else 4
        expected = (1e-2 if is_matrix else 1e-3) * 0.7**below_head
        if family == "t5" and name == "embed.tokens.weight":
            expected *= 32**0.5  # it is so much larger
        assert peaks[id(parameter)] == pytest.approx(expected), name


def test_without_decay_all_learn_alike():
    network = weft.create("bert", vocabulary=50, layers=2, width=32, heads=4).network
    groups = make_optimizers(network, OptimizerSpec(learning_rate=1e-3))[0].param_groups
    assert {group["peak"] for group in groups} == {1e-3}


def test_the_same_seed_gives_the_same_adapters():
    found = []
    for seed in (1, 1, 2):
        built, _ = make(CLASSIFY, "bert")
        scatter(built.network, 0)
        adapt(built.network, 4, seed)
        found.append({name: value for name, value in built.network.named_parameters() if name.endswith("down")})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert not any(torch.equal(found[0][name], found[2][name]) for name in found[0])
