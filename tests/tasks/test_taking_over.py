"""What a task's network takes over from a pre-trained folder: what transformers takes over, and no more."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import oracle
import weft
from task_models import TEXTS, asked, save, tokenizer_of
from weft.errors import FolderError, InputError, RecipeError
from weft.interchange.folder import DIALECTS
from weft.interchange.weight_map import plan
from weft.model.dropout import Dropout
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify
from weft.tasks.input_spec import input_spec_for
from weft.tasks.learning.build import from_folder
from weft.tasks.loaded import LoadedModel
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Summarize, Translate
from weft.tasks.tag import Tag
from weft.tasks.task import Task

LABELS = ("bad", "good", "so-so", "none")  # as many as no random model has
CLASSIFY, TAG, ANSWER = Classify(LABELS), Tag(LABELS), Answer()
KINDS = {"classify": "SequenceClassification", "tag": "TokenClassification", "answer": "QuestionAnswering"}
PRETRAINED = (
    *("BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertModel"),
    *("RobertaForMaskedLM", "RobertaModel", "DistilBertForMaskedLM", "DistilBertModel"),
    *("ModernBertForMaskedLM", "ModernBertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"),
)


def tensors_of(folder: Path, task: Task, seed: int) -> dict[str, torch.Tensor]:
    """The network that will learn the task, by transformers' names."""
    built = from_folder(folder, task, None, seed)
    dialect = next(one for one in DIALECTS.values() if type(built.description.family) is one.family)
    head = built.description.head
    return {
        name: part
        for entry in plan(built.network, dialect.links(built.saved, dialect.prefix(head))).entries
        for name, part in zip(entry.theirs, entry.split(built.network.get_parameter(entry.ours).detach()), strict=True)
    }


def opened(folder: Path, task: Task) -> tuple[dict[str, torch.Tensor], set[str]]:
    """transformers' weights for the same task, and those of them that the folder does not have."""
    auto = getattr(transformers, f"AutoModelFor{KINDS[task.name]}")
    model, report = auto.from_pretrained(
        folder, num_labels=task.outputs, ignore_mismatched_sizes=True, output_loading_info=True
    )
    fresh = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    return dict(model.state_dict()), fresh


def test_rows_of_an_output_layer_follow_their_labels(tmp_path):
    model = oracle.build(oracle.Case("BertForSequenceClassification", 0))
    names = ("neutral", "yes", "no")
    model.config.id2label, model.config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    model.classifier = torch.nn.Linear(model.config.hidden_size, 3)
    folder = oracle.save(model, tmp_path)
    rows = dict(zip(names, model.classifier.weight.detach(), strict=True))
    same = tensors_of(folder, Classify(("no", "neutral", "yes")), seed=1)["classifier.weight"]
    assert torch.equal(same, torch.stack([rows["no"], rows["neutral"], rows["yes"]]))
    other = [tensors_of(folder, Classify(("maybe", "yes")), seed=seed)["classifier.weight"] for seed in (1, 2)]
    assert torch.equal(other[0][1], rows["yes"]) and torch.equal(other[1][1], rows["yes"])
    assert not torch.equal(other[0][0], other[1][0])


@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(name, task, id=f"{name}-{task.name}")
        for name in PRETRAINED
        for task in (CLASSIFY, TAG, ANSWER)
        # Their backbones have another name there, and transformers loses them.
        if not (name in ("LlamaForCausalLM", "Qwen3ForCausalLM") and task is ANSWER)
    ],
)
def test_what_is_taken_over_is_what_transformers_takes_over(name, task, tmp_path):
    folder = oracle.save(oracle.build(oracle.Case(name, 0)), tmp_path)
    ours, other = tensors_of(folder, task, seed=1), tensors_of(folder, task, seed=2)
    theirs, fresh = opened(folder, task)
    assert set(ours) >= fresh
    for key, value in ours.items():
        if key in fresh:  # drawn anew: by the seed; biases begin with nothing, norms with 1
            drawn = value.dim() > 1
            assert torch.equal(value, other[key]) != drawn, key
            assert drawn or value.unique().numel() == 1, key
        else:
            assert torch.equal(value, theirs[key]), key


@pytest.mark.parametrize(("name", "task", "fresh"), [
    ("BertForPreTraining", CLASSIFY, {"classifier"}),
    ("BertForNextSentencePrediction", CLASSIFY, {"classifier"}),
    ("BertModel", CLASSIFY, {"classifier"}),
    ("BertForMaskedLM", CLASSIFY, {"classifier", "bert.pooler.dense"}),
    ("RobertaForMaskedLM", CLASSIFY, {"classifier.dense", "classifier.out_proj"}),
    ("DistilBertForMaskedLM", CLASSIFY, {"classifier", "pre_classifier"}),
    ("ModernBertForMaskedLM", CLASSIFY, {"classifier"}),
    ("ModernBertForMaskedLM", TAG, {"classifier"}),
    ("ModernBertForMaskedLM", ANSWER, {"classifier"}),
    ("GPT2LMHeadModel", CLASSIFY, {"score"}),
    ("LlamaForCausalLM", CLASSIFY, {"score"}),
    ("LlamaForCausalLM", ANSWER, {"qa_outputs"}),
])  # fmt: skip
def test_only_what_no_pretrained_layer_can_be_is_fresh(name, task, fresh, tmp_path):
    """BERT's pooler and ModernBERT's dense layer come along; a layer for guessing words is none for classes."""
    folder = oracle.save(oracle.build(oracle.Case(name, 0)), tmp_path)
    ours, other = (tensors_of(folder, task, seed) for seed in (1, 2))
    stored = list(load_file(folder / "model.safetensors").values())
    kept = {key for key, value in ours.items() if any(torch.equal(value, one) for one in stored)}
    assert {key.rpartition(".")[0] for key in ours if key not in kept} == fresh
    assert all(torch.equal(ours[key], other[key]) for key in kept)


def test_a_model_of_the_same_task_goes_on_with_its_output_layer(tmp_path):
    folder = oracle.save(oracle.build(oracle.Case("BertForSequenceClassification", 0, {"num_labels": 3})), tmp_path)
    stored = load_file(folder / "model.safetensors")
    same = tensors_of(folder, Classify(LABELS[:3]), 1)
    assert all(torch.equal(value, stored[key]) for key, value in same.items())
    more = tensors_of(folder, CLASSIFY, 1)
    assert more["classifier.weight"].shape == (4, stored["classifier.weight"].shape[1])
    assert torch.equal(more["bert.pooler.dense.weight"], stored["bert.pooler.dense.weight"])


def test_an_output_layer_of_another_task_is_not_taken_for_this_one(tmp_path):
    """Though it may have the same name in transformers, and the same size."""
    folder = oracle.save(oracle.build(oracle.Case("BertForTokenClassification", 0, {"num_labels": 4})), tmp_path)
    stored = load_file(folder / "model.safetensors")
    ours = tensors_of(folder, CLASSIFY, 1)
    assert ours["classifier.weight"].shape == stored["classifier.weight"].shape
    assert not torch.equal(ours["classifier.weight"], stored["classifier.weight"])
    assert torch.equal(tensors_of(folder, TAG, 1)["classifier.weight"], stored["classifier.weight"])


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "MarianMTModel", "GPT2LMHeadModel", "LlamaForCausalLM"])
def test_what_writes_takes_over_everything(name, tmp_path):
    folder = oracle.save(oracle.build(oracle.Case(name, 0)), tmp_path)
    built = from_folder(folder, Translate(), None, 1)
    before = weft.load(folder).network.state_dict()
    after = built.network.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[key], value) for key, value in before.items())


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pretrained")
    for family in ("bert", "gpt2", "llama"):
        shape = {"layers": 1, "width": 32, "heads": 4, "positions": 64}
        weft.create(family, tokenizer=tokenizer_of(family), **shape).save(place / family)
    return {family: place / family for family in ("bert", "gpt2", "llama")}


def tuned(folder: Path, task: Task, place: Path, dropout: float | None = None) -> Path:
    tokenizer = weft.load(folder).tokenizer
    built = from_folder(folder, task, dropout, 1)
    built.network.eval()
    return save(task, built, input_spec_for(built.saved, built.description, tokenizer, 48), place)


@pytest.mark.parametrize("chain", [(CLASSIFY, ANSWER), (TAG, ANSWER, CLASSIFY), (ANSWER, Classify(LABELS[:2]), TAG)])
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_model_of_one_task_becomes_one_of_another_and_opens_in_transformers(family, chain, pretrained, tmp_path):
    folder = pretrained[family]
    for number, task in enumerate(chain):
        folder = tuned(folder, task, tmp_path / str(number))
        auto = getattr(transformers, f"AutoModelFor{KINDS[task.name]}")
        model, report = auto.from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report
        if task.labels:
            assert model.config.id2label == dict(enumerate(task.labels))
        expected = "single_label_classification" if task.name == "classify" else None
        assert model.config.problem_type == expected
        loaded = LoadedModel.load(folder)
        assert type(loaded.task) is type(task)
        assert loaded.task.labels == task.labels


def test_how_another_task_wrote_is_forgotten_and_its_tokens_are_not(pretrained, tmp_path):
    folder = tuned(pretrained["llama"], Reply(head="causal", sample=True), tmp_path / "reply")
    file = folder / "generation_config.json"
    other = {"temperature": 0.6, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "length_penalty": 2.0}
    file.write_text(json.dumps({**json.loads(file.read_text()), **other, "bad_words_ids": [[7]]}))
    folder = tuned(folder, Summarize(head="causal", beams=3, most_new=7), tmp_path / "summarize")
    said = json.loads((folder / "generation_config.json").read_text())
    assert not set(other) & set(said)
    assert said["bad_words_ids"] == [[7]]
    assert (said["do_sample"], said["num_beams"], said["max_new_tokens"]) == (False, 3, 7)
    tokenizer = tokenizer_of("llama")
    assert said["eos_token_id"] == tokenizer.id_of("eos")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    (ours,) = LoadedModel.load(folder).answers(asked([TEXTS[4]]))
    encoded = theirs(TEXTS[4] + theirs.eos_token, return_tensors="pt")
    written = model.generate(**encoded)[0, encoded.input_ids.shape[1] :]
    assert ours == theirs.decode(written, skip_special_tokens=True).strip()


def test_dropout_that_is_asked_for_is_trained_with_and_the_familys_own_is_saved(pretrained, tmp_path):
    built = from_folder(pretrained["bert"], CLASSIFY, 0.35, 0)
    assert {module.p for module in built.network.modules() if isinstance(module, Dropout)} <= {0.0, 0.35}
    assert built.network.head("sequence").dropout.p == 0.35
    plain = from_folder(pretrained["bert"], CLASSIFY, None, 0)
    assert plain.network.head("sequence").dropout.p == 0.1
    tuned(pretrained["bert"], CLASSIFY, tmp_path / "model", dropout=0.35)
    assert json.loads((tmp_path / "model/config.json").read_text())["hidden_dropout_prob"] == 0.1


def test_what_cannot_do_a_task_is_refused_in_a_sentence(pretrained, tmp_path):
    with pytest.raises(RecipeError, match=r"A bert is an encoder, which does not write: translate needs"):
        from_folder(pretrained["bert"], Translate(), None, 0)
    oracle.save(oracle.build(oracle.Case("T5ForConditionalGeneration", 0)), tmp_path / "t5")
    with pytest.raises(InputError, match=r"classify"):
        from_folder(tmp_path / "t5", CLASSIFY, None, 0)
    weft.create("lstm", vocabulary=50, layers=1, width=16).save(tmp_path / "lstm")
    with pytest.raises(FolderError, match=r"weft's own format"):
        from_folder(tmp_path / "lstm", CLASSIFY, None, 0)
