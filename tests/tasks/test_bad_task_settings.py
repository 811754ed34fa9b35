"""Settings that are not as they should be are named before anything is learnt; unusual ones are no reason to stop."""

import pytest

from small_tasks import SHAPE, finetune, learnt, refused, rows_of, weft, write_recipe, write_rows

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("task", "settings", "reason"), [
    ("classify", {"crf": True}, "finetune.crf has no effect on task classify; it belongs to tag."),
    ("similarity", {"balanced": True}, "finetune.balanced has no effect on task similarity"),
    ("tag", {"crf": True, "balanced": True}, "finetune.balanced has no effect with finetune.crf."),
    ("tag", {"crf": True, "label_smoothing": 0.1}, "finetune.label_smoothing has no effect with finetune.crf."),
    ("answer", {"label_smoothing": 0.1}, "finetune.label_smoothing has no effect on task answer;"),
    ("classify", {"prefix": "classify: "}, "finetune.prefix has no effect on task classify; it belongs to translate,"),
    ("classify", {"beams": 2}, "finetune.beams has no effect on task classify"),
    ("classify", {"sample": True}, "finetune.sample has no effect on task classify"),
    ("classify", {"max_new_tokens": 5}, "finetune.max_new_tokens has no effect on task classify"),
    ("reply", {"sample": True, "beams": 2}, "finetune.beams has no effect with finetune.sample."),
    ("classify", {"metric": "acuracy"}, "finetune.metric: acuracy is not a metric that can select"),
    ("classify", {"metric": "acuracy"}, "(did you mean accuracy?). Metrics: accuracy, f1, f1_weighted, mcc, loss."),
    ("tag", {"metric": "spearman"}, "Metrics: f1, precision, recall, f1_macro, accuracy, loss."),
    ("reply", {"metric": "bleu"}, "Metrics: loss."),
    ("classify", {"lora_rank": 4}, "finetune.lora_rank has no effect with finetune.tune: all; it belongs to lora."),
    ("classify", {"optimizer": "adamw", "matrix_rate": 0.1}, "finetune.matrix_rate has no effect"),
    ("classify", {"tune": "head", "matrix_rate": 0.1}, "it belongs to muon, and the optimizer is adamw"),
    ("tag", {"data": {"train": "x", "separator": ","}}, "finetune.data.separator has no effect on task tag"),
    ("tag", {"data": {"train": "x", "several": True}}, "finetune.data.several has no effect on task tag;"),
    ("classify", {"data": {"train": "x", "several": False, "label": ["a"]}}, "finetune.data.several is false, but"),
    ("pair", {"data": {"train": "x", "label": ["a"]}}, "finetune.data.label is a single column in task pair"),
    ("pair", {"threshold": 0.3}, "finetune.threshold has no effect on task pair; it belongs to classify."),
    ("classify", {"model": {"family": "bert", "head": "masked"}}, "finetune.model.head cannot be set"),
    ("classify", {"model": {"family": "bert", "labels": 7}}, "finetune.model.labels cannot be set"),
])  # fmt: skip
def test_a_setting_that_would_do_nothing_is_an_error_before_anything_is_read(task, settings, reason, tmp_path):
    assert reason in refused(tmp_path, task, **settings)


@pytest.mark.parametrize(("change", "reason"), [
    ("task=clasify", "finetune.task cannot be 'clasify': input should be 'classify', 'pair'"),
    ("batch=0", "finetune.batch cannot be 0"), ("batch=-1", "finetune.batch cannot be -1"),
    ("batch=many", "finetune.batch cannot be 'many'"), ("batch=1.5", "finetune.batch cannot be 1.5"),
    ("bath=8", "finetune.bath is not a setting (did you mean batch?)"),
    ("seed=-1", "finetune.seed cannot be -1"), ("seeds=0", "finetune.seeds cannot be 0"),
    ("learning_rate=0", "finetune.learning_rate cannot be 0"), ("learning_rate=.nan", "cannot be nan"),
    ("dropout=1", "finetune.dropout cannot be 1"), ("warmup=-1", "finetune.warmup cannot be -1"),
    ("balanced=yes", "finetune.balanced cannot be 'yes'"), ("tune=none", "finetune.tune cannot be 'none'"),
    ("sequence_length=4", "finetune.sequence_length cannot be 4"), ("patience=0", "finetune.patience cannot be 0"),
    ("budget=soon", "finetune.budget cannot be 'soon'. Examples: 20m"), ("budget=0 steps", "cannot be '0 steps'"),
    ("budget=-3 steps", "finetune.budget cannot be '-3 steps'"), ("budget=3", "finetune.budget cannot be 3"),
    ("budget=50M", "finetune.budget cannot be '50M'"), ("data=5", "finetune.data cannot be 5: it is a section"),
    ("model=5", "finetune.model cannot be 5"), ("model={}", "finetune.model: give family or path"),
    ("model={size: mini}", "finetune.model: give family or path"), ("model=null", "finetune.model is missing"),
    ("model={familie: bert}", "finetune.model: give family or path (did you mean familie?)"),
    ("model.layers=x", "finetune.model.layers cannot be 'x': input should be a valid integer"),
    ("model.layers=-1", "finetune.model.layers cannot be -1"), ("model.family=brt", "There is no model family 'brt'"),
    ("model={path: somewhere}", "finetune.model: give a folder without path"),
    ("model=nowhere", "nowhere does not exist"), ("model=empty", "empty is not a model folder: it has no config.json"),
    ("model=train.jsonl", "train.jsonl is a file, not a model folder"),
])  # fmt: skip
def test_a_setting_of_the_wrong_kind_is_named(change, reason, tmp_path):
    (tmp_path / "empty").mkdir()
    assert reason in refused(tmp_path, "classify", f"finetune.{change}")


@pytest.mark.parametrize(("task", "settings", "reason"), [
    ("classify", {"budget": "99999999999 steps"}, "finetune.budget is 99,999,999,999 steps; the limit is"),
    ("classify", {"budget": "0.0001s"}, "finetune.budget is too short: one step takes"),
    ("classify", {"model": {"family": "bert", "layerz": 1}}, "bert has no setting 'layerz' (did you mean layers?)"),
    ("classify", {"model": {"family": "bert", **SHAPE, "heads": 3}}, "bert: width 32 is not a multiple of 3 heads"),
    ("classify", {"model": {"family": "bert", **SHAPE, "positions": 20}}, "but the model reads at most 20 tokens"),
    ("classify", {"model": {"family": "bert", **SHAPE, "vocabulary": 10}}, "the model 10: they do not belong together"),
    ("classify", {"model": {"family": "t5", **SHAPE}}, "A t5 is an encoder–decoder. classify needs an encoder"),
    ("translate", {"model": {"family": "bert", **SHAPE}}, "A bert is an encoder, which does not write"),
    ("translate", {"tune": "head"}, "head leaves nothing to train: this head shares its weights with the embeddings"),
    ("classify", {"tune": "lora", "model": {"family": "lstm", "width": 32}}, "lora finds no linear layers to adapt"),
    ("reply", {"max_new_tokens": 1000}, "An answer of up to 1,000 tokens (finetune.max_new_tokens) does not fit"),
    ("translate", {"model": {"family": "transformer", **SHAPE}, "max_new_tokens": 49}, "An answer of up to 49 tokens"),
])  # fmt: skip
def test_what_cannot_be_is_an_error_before_training_and_the_folder_is_free_for_another_try(
    task, settings, reason, tmp_path
):
    assert reason in finetune(tmp_path, task, **settings).sentence
    assert not (tmp_path / "run/checkpoints").exists()
    learnt(tmp_path, task)


def test_a_separator_that_fills_the_context_is_refused(tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of("reply"))), "separator": " and so on" * 20}
    sentence = finetune(tmp_path, "reply", data=data, sequence_length=16).sentence
    assert "even when it is cut, and the model reads 16: finetune.data.separator is too long" in sentence


@pytest.mark.parametrize("settings", [
    {"batch": 1000}, {"accumulation": 100}, {"sequence_length": 8}, {"warmup": 1000}, {"budget": "1 tokens"},
    {"budget": "0.01 epochs"}, {"validate_every": 1000, "checkpoint_every": 1000}, {"clip": 0, "dropout": 0.5},
    {"tune": "lora", "lora_rank": 1}, {"tune": "head"}, {"patience": 1}, {"data": {"train": "train.jsonl", "limit": 3}},
    {"model": {"family": "lstm", "layers": 1, "width": 32}},
], ids=str)  # fmt: skip
def test_unusual_settings_are_no_reason_to_stop(settings, tmp_path):
    write_recipe(tmp_path, "classify")
    learnt(tmp_path, "classify", **settings)
    assert set(weft("predict", tmp_path / "run/model", "good").lines[0]) == {"label", "score"}


@pytest.mark.parametrize("task", ["pair", "tag", "answer", "intent", "similarity", "translate"])
def test_eight_tokens_are_enough_for_every_task(task, tmp_path):
    learnt(tmp_path, task, sequence_length=8)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    assert "run holds other files. Choose a new or empty folder with -o." in finetune(tmp_path, "classify").sentence
    assert "holds other files" in finetune(tmp_path, "classify", "--resume").sentence
    assert [item.name for item in (tmp_path / "run").iterdir()] == ["notes.txt"]
    file = weft("finetune", tmp_path / "recipe.yml", "-o", tmp_path / "train.jsonl")
    assert "train.jsonl is a file; a run needs a folder" in file.sentence


def test_a_model_without_its_tokenizer_cannot_be_taught(tuned, tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "model" / name).write_bytes((tuned("classify") / "model" / name).read_bytes())
    sentence = finetune(tmp_path, "classify", model=str(tmp_path / "model")).sentence
    assert "has no tokenizer: it contains neither tokenizer.json nor a vocabulary file" in sentence
    run = finetune(tmp_path, "classify", model=str(tuned("classify"))).sentence
    assert f"it has no config.json (did you mean {tuned('classify') / 'model'}?)" in run


def test_a_recipe_without_the_section_or_the_file_says_so(tmp_path):
    assert "is not a file" in weft("finetune", tmp_path / "none.yml").sentence
    (tmp_path / "recipe.yml").write_text("name: x\n")
    assert "finetune is missing. Example: finetune:" in weft("finetune", tmp_path / "recipe.yml").sentence
    recipe = write_recipe(tmp_path, "classify")
    assert "tokenizer belongs to a fresh model" in weft(
        "finetune", recipe, "tokenizer={kind: bpe}", "finetune.model=somewhere"
    ).sentence  # fmt: skip
