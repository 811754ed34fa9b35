"""The folder of a CTranslate2 export: its README's program, its token strings, and what is refused."""

import ast
import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import tokenizers

import small_tasks
import weft
from random_models import make_random
from task_models import make, save, scatter, tokenizer_of
from weft.api.model import Model
from weft.errors import InputError
from weft.exports.ctranslate2 import CTRANSLATE2
from weft.exports.run import export_model
from weft.interchange.folder import Description
from weft.interchange.pooling import Pooling
from weft.model.network import Architecture, create_network
from weft.model.norm import NormSpec
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.intent import Intent
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Summarize
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SHAPE = {"layers": 2, "width": 32, "heads": 4}


def exported(model: Model, folder: Path, **settings: Any) -> Path:
    return export_model(model, "ctranslate2", folder, compare=False, **settings).folder


def code_in(folder: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    return code


AWAY = dict.fromkeys(("torch", "transformers", "weft"))


def run_readme(folder: Path) -> str:
    """What the README's program prints, where torch, transformers and weft cannot be imported."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.chdir(folder)
        for name, nothing in AWAY.items():
            patch.setitem(sys.modules, name, nothing)
        with suppress(SystemExit):
            exec(compile(code_in(folder), "README.md", "exec"), {"__name__": "__main__"})
    return said.getvalue().removesuffix("\n")


def with_tokenizer(family: str, **more: Any) -> Model:
    model = weft.create(family, tokenizer=tokenizer_of(family), **SHAPE, **more)
    scatter(model.network, seed=2)
    return model


def tuned(task: Task, family: str, folder: Path) -> Model:
    built, spec = make(task, family)
    if getattr(task, "crf", False):
        task.prepare(built.network, [])
        scatter(built.network, seed=0)
    return weft.load(save(task, built, spec, folder), "cpu")


def test_the_readme_runs_in_a_process_of_its_own(tmp_path: Path):
    folder = exported(with_tokenizer("bert", head="masked"), tmp_path / "export")
    code = f"import sys\nsys.modules.update({AWAY})\n{code_in(folder)}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, encoding="utf-8", timeout=120, check=True
    )
    assert done.stdout.removesuffix("\n") == run_readme(folder)


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "transformer"])
def test_the_readme_writes_what_weft_writes(family: str, tmp_path: Path):
    model = with_tokenizer(family)
    said = run_readme(exported(model, tmp_path / "export"))
    assert said == model.generate("Once upon a time", strategy="greedy", max_new_tokens=64) != ""


def test_the_readme_does_not_continue_after_an_end_token(tmp_path: Path):
    engine = tokenizers.Tokenizer.from_str(tokenizer_of("llama").engine.to_str())
    ids = [(token, engine.token_to_id(token)) for token in ("<s>", "</s>")]
    engine.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", special_tokens=ids)
    model = weft.create("llama", tokenizer=replace(tokenizer_of("llama"), engine=engine, files={}), **SHAPE)
    scatter(model.network, seed=2)
    said = run_readme(exported(model, tmp_path / "export"))
    assert said == model.generate("Once upon a time", strategy="greedy", max_new_tokens=64) != ""


@pytest.mark.parametrize(("task", "family"), [(Reply(), "gpt2"), (Reply(prefix="Q: ", separator=" A:"), "llama"),
                                              (Summarize(prefix="summarize: "), "t5")])  # fmt: skip
def test_the_readme_frames_prompts_as_in_training(task: Task, family: str, tmp_path: Path):
    head = "seq2seq" if family == "t5" else "causal"
    model = tuned(replace(task, head=head), family, tmp_path / "model")
    folder = exported(model, tmp_path / "export")
    new = int(re.search(r"max_(?:decoding_)?length=(\d+)", code_in(folder))[1])
    assert new > 10
    assert run_readme(folder) == model.generate("Once upon a time", strategy="greedy", max_new_tokens=new)


TEXT, PAIR = "This is a good film.", ("A cat sat.", "It slept on the mat.")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("task", [Classify(("neg", "pos", "so-so")), Pair(("no", "yes"))])
def test_the_readme_gives_the_label_of_a_text(task: Task, family: str, tmp_path: Path):
    model = tuned(task, family, tmp_path / "model")
    label, probability = run_readme(exported(model, tmp_path / "export")).rsplit(" ", 1)
    expected = model.predict(PAIR if isinstance(task, Pair) else TEXT)
    assert label == expected["label"] and float(probability) == pytest.approx(expected["score"], abs=1e-5)


@pytest.mark.parametrize("threshold", [0.4, (0.4, 0.99, 0.3, 0.5)])
def test_the_readme_gives_several_labels_and_numbers(threshold: float | tuple[float, ...], tmp_path: Path):
    several = tuned(MultiLabel(("a", "b", "c", "d"), threshold=threshold), "bert", tmp_path / "several")
    labels = ast.literal_eval(run_readme(exported(several, tmp_path / "labels")))
    assert labels == [label for label in several.labels if label in several.predict(TEXT)["labels"]] != []
    alike = tuned(Similarity(("score",)), "roberta", tmp_path / "alike")
    number = float(run_readme(exported(alike, tmp_path / "number")))
    assert number == pytest.approx(alike.predict(PAIR)["score"], abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("crf", [False, True])
def test_the_readme_tags_words(family: str, crf: bool, tmp_path: Path):
    model = tuned(Tag(TAGS, entities=True, crf=crf), family, tmp_path / "model")
    words = "Alice lives in New York".split()
    found = ast.literal_eval(run_readme(exported(model, tmp_path / "export")))
    assert found == list(zip(words, model.predict([words])[0]["tags"], strict=True))


def test_the_readme_gives_intent_and_slots(tmp_path: Path):
    labels = ("O", "B-room", "I-room", "intent:light", "intent:music")
    model = tuned(Intent(labels), "bert", tmp_path / "model")
    words = "Alice lives in New York".split()
    intent, slots = run_readme(exported(model, tmp_path / "export")).splitlines()
    expected = model.predict([words])[0]
    assert intent == "intent:" + expected["intent"]
    assert ast.literal_eval(slots) == list(zip(words, expected["tags"], strict=True))


def test_the_readme_answers_a_question(tmp_path: Path):
    question, context = "Who sat on the mat?", "The cat sat on the mat while the dog slept."
    model = tuned(Answer(), "bert", tmp_path / "model")
    assert run_readme(exported(model, tmp_path / "export")) == model.predict((question, context))["answer"] != ""
    careful = tuned(Answer(with_none=True), "distilbert", tmp_path / "careful")
    assert run_readme(exported(careful, tmp_path / "none")) == careful.predict((question, context))["answer"]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_the_readme_fills_a_mask(family: str, tmp_path: Path):
    model = with_tokenizer(family, head="masked")
    found = ast.literal_eval(run_readme(exported(model, tmp_path / "export")))
    expected = [one.word for one in model.fill("The cat [MASK] on the mat.")]
    assert [
        model.tokenizer.engine.decode([model.tokenizer.engine.token_to_id(one)]).strip() for one in found
    ] == expected


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_the_readme_makes_vectors_as_the_folder_pools(kind: Any, tmp_path: Path):
    plain = with_tokenizer("bert", head="none")
    pooling = Pooling(kind, normalize=kind != "last", files={"modules.json": b"[]", "1_Pooling/config.json": b"{}"})
    model = Model(plain.network, plain.description, plain.tokenizer, pooling)
    folder = exported(model, tmp_path / "export")
    assert np.allclose(ast.literal_eval(run_readme(folder)), model.embed([TEXT])[0], atol=1e-5)
    assert (folder / "1_Pooling/config.json").read_bytes() == b"{}"


def test_a_checkpoint_that_somebody_else_trained(minilm: Path, tmp_path: Path):
    model = weft.load(minilm, "cpu")
    result = export_model(model, "ctranslate2", tmp_path / "export")
    assert result.comparison.logits < 1e-4
    assert np.allclose(ast.literal_eval(run_readme(result.folder)), model.embed([TEXT])[0], atol=1e-5)


def test_the_readme_of_a_model_without_a_tokenizer_runs(tmp_path: Path):
    writer = make_random("llama")
    said = run_readme(exported(writer, tmp_path / "writer"))
    assert ast.literal_eval(said) == writer.generate([1, 2, 3], strategy="greedy", max_new_tokens=64)
    reader = weft.create("bert", head="sequence", labels=3, vocabulary=50, **SHAPE)
    said = run_readme(exported(reader, tmp_path / "reader"))
    numbers = [float(one) for one in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", said)]
    assert np.allclose(numbers, reader.logits([[1, 2, 3]])[0], atol=1e-5)


def test_a_folder_holds_what_its_list_says_and_no_leftovers(tmp_path: Path):
    folder = exported(with_tokenizer("bert", head="masked"), tmp_path / "export")
    (folder / "mine.txt").write_text("kept")
    first = {"README.md", "config.json", "heads.json", "heads.safetensors", "model.bin", "tokenizer.json"}
    assert {file.name for file in folder.iterdir()} >= first | {"vocabulary.json", "weft.json"}
    exported(make_random("t5"), folder, precision="int8")
    files = {file.name for file in folder.iterdir()}
    second = {"README.md", "config.json", "generation_config.json", "model.bin", "shared_vocabulary.json", "weft.json"}
    assert files == second | {"mine.txt"}
    facts = json.loads((folder / "weft.json").read_text("utf-8"))
    assert set(facts["files"]) == files - {"weft.json", "mine.txt"} and facts["precision"] == "int8"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["export"]


def test_token_strings_are_unique_and_as_many_as_rows(tmp_path: Path):
    """Rows without a token, two rows with the same one, and tokens with the names that such rows would get."""
    pieces = [("[UNK]", 0.0), ("a", -1.0), ("b", -1.0), ("a", -2.0), ("<unused_6>", -3.0), ("<no-end>", -3.0)]
    engine = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0))
    assert engine.id_to_token(1) == engine.id_to_token(3)
    model = weft.create("gpt2", tokenizer=Tokenizer(engine, {"unk": "[UNK]"}), **SHAPE | {"vocabulary": 8})
    folder = exported(model, tmp_path / "export")
    tokens = json.loads((folder / "vocabulary.json").read_text("utf-8"))
    assert tokens[engine.token_to_id("a")] == "a"
    assert [tokens[0], tokens[2], *tokens[4:6]] == ["[UNK]", "b", "<unused_6>", "<no-end>"]
    assert len(set(tokens)) == len(tokens) == 9  # and one for the end token that this model does not have
    generator = ctranslate2.Generator(str(folder), intra_threads=1)
    by_id, by_string, strange = (
        np.array(generator.forward_batch(one))[0]
        for one in ([[3, 0]], [[tokens[3], "[UNK]"]], [[tokens[3], "strange"]])
    )
    assert np.array_equal(by_id, by_string) and np.array_equal(by_id, strange)


def test_end_tokens_end_and_banned_tokens_are_not_written(tmp_path: Path):
    model = make_random("t5", seed=1, tied=False)
    source, options = [5, 9, 14, 3], {"strategy": "greedy", "max_new_tokens": 30}
    free = model.generate(source, **options)
    first = free[0]
    model.description = replace(model.description, generation={"bad_words_ids": [[first]], "eos_token_id": [69]})
    other = model.generate(source, **options)
    assert first not in other and len(other) > 3
    ends = [69, next(token for token in other if token != other[0])]
    model.description = replace(model.description, generation={"bad_words_ids": [[first]], "eos_token_id": ends})
    ended = model.generate(source, **options)
    assert ended[-1] == ends[1] and len(ended) < len(other)
    result = export_model(model, "ctranslate2", tmp_path / "export")
    assert result.comparison.same_tokens == 1.0 and result.comparison.logits < 1e-4
    assert any("end_token" in note for note in result.facts["notes"])
    tokens = json.loads((result.folder / "shared_vocabulary.json").read_text("utf-8"))
    translator = ctranslate2.Translator(str(result.folder), intra_threads=1)
    written = translator.translate_batch(
        [[tokens[i] for i in source]], beam_size=1, min_decoding_length=0, end_token=[tokens[i] for i in ends]
    )
    assert [tokens.index(token) for token in written[0].hypotheses[0]] == ended[:-1]
    assert json.loads((result.folder / "generation_config.json").read_text("utf-8"))["eos_token_id"] == ends


def test_an_end_that_is_forced_on_long_texts_is_no_difference(tmp_path: Path):
    model = make_random("transformer", seed=1)
    model.description = replace(model.description, generation={"forced_eos_token_id": 0, "eos_token_id": 0})
    assert export_model(model, "ctranslate2", tmp_path / "export").comparison.same_tokens == 1.0


def test_the_chat_template_and_tokenizer_files_go_along(tmp_path: Path):
    plain = with_tokenizer("llama")
    files = {"vocab.json": b"{}", "merges.txt": b"", "chat_template.jinja": b"{{ messages }}"}
    model = Model(plain.network, plain.description, replace(plain.tokenizer, files=files))
    folder = exported(model, tmp_path / "export")
    assert all((folder / name).read_bytes() == data for name, data in files.items())
    engine = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert engine.encode("Once upon a time").ids == plain.tokenizer.encode("Once upon a time")


def changed(family: str, change: Any, **more: Any) -> Model:
    architecture: Architecture = make_random(family, **more).network.architecture
    return Model(create_network(change(architecture)), Description(None, "causal"))


def with_block(architecture: Architecture, layer: int | None = None, **changes: Any) -> Architecture:
    blocks = [
        replace(block, **changes) if layer in (None, number) else block
        for number, block in enumerate(architecture.decoder.blocks)
    ]
    return replace(architecture, decoder=replace(architecture.decoder, blocks=tuple(blocks)))


def with_attention(architecture: Architecture, **changes: Any) -> Architecture:
    return with_block(architecture, attention=replace(architecture.decoder.blocks[0].attention, **changes))


def in_decoder(**changes: Any) -> Any:
    return lambda one: replace(one, decoder=replace(one.decoder, **changes))


def in_embedding(**changes: Any) -> Any:
    return lambda one: replace(one, embedding=replace(one.embedding, **changes))


LAYER, OTHER = NormSpec("layer", 1e-5), NormSpec("layer", 1e-6)
REFUSED = {
    "this is an LSTM": lambda: make_random("lstm"),
    "a window of neighbours": lambda: weft.create("modernbert", vocabulary=50, layers=3, width=32, heads=4),
    "first layer has no norm": lambda: weft.create("modernbert", vocabulary=50, local_layers=[], **SHAPE),
    "needs a language-model head (its head: sequence)": lambda: make_random("llama", head="sequence"),
    "needs a language-model head (its head: none)": lambda: make_random("gpt2", head="none"),
    "Translator only writes text": lambda: make_random("t5", head="sequence"),
    "relative position biases wrongly": lambda: make_random("gpt2", positions="relative"),
    "relu-squared": lambda: make_random("gpt2", activation="relu-squared"),
    "layers differ": lambda: changed("gpt2", lambda one: with_block(one, layer=1, order="post")),
    "besides that layer's own": lambda: changed("gpt2", lambda one: with_block(one, order="post")),
    "different epsilons (1e-06 and 1e-05)": lambda: changed("gpt2", in_embedding(norm=OTHER)),
    "of another kind": lambda: changed("llama", in_embedding(norm=replace(LAYER, epsilon=1e-6))),
    "only by RMSNorm": lambda: changed("gpt2", lambda one: with_attention(one, head_norm=LAYER)),
    "cross-attention differ": lambda: changed("t5", lambda one: with_attention(one, key_value_heads=2)),
    "it has segments": lambda: changed("gpt2", in_embedding(segments=2)),
    "no position encoding": lambda: changed("gpt2", in_embedding(positions=None)),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_expressed_is_refused_with_one_sentence(words: str, tmp_path: Path):
    with pytest.raises(InputError) as refusal:
        export_model(REFUSED[words](), "ctranslate2", tmp_path / "export")
    sentence = str(refusal.value)
    assert words in sentence and "cannot be exported to CTranslate2: " in sentence
    assert sentence.endswith("; use --to onnx.") and sentence.count(". ") == 0
    assert not list(tmp_path.iterdir())


def test_models_are_refused_and_accepted_where_the_package_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weft.exports, "ctranslate2", weft.exports.ctranslate2)  # to be put back afterwards
    for name in [name for name in sys.modules if name.startswith("weft.exports.ctranslate2")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    target = importlib.import_module("weft.exports.ctranslate2").CTRANSLATE2
    assert target is not CTRANSLATE2
    assert target.why_not(make_random("lstm"), "fp32") == CTRANSLATE2.why_not(make_random("lstm"), "fp32")
    assert target.why_not(make_random("gpt2"), "fp32") is None


def test_the_command_exports_and_names_a_next_step(tmp_path: Path):
    make_random("qwen3").save(tmp_path / "model")
    said = small_tasks.weft(
        "export", tmp_path / "model", "--to", "ctranslate2", "--int8", "-o", tmp_path / "e", "--json"
    )
    assert said.code == 0, said.err
    (facts,) = said.lines
    assert facts["precision"] == "int8" and 0 < facts["compared"]["logits"] < facts["compared"]["scale"]
    assert facts["runs_in"] == "ctranslate2.Generator"
    result = export_model(weft.load(tmp_path / "model", "cpu"), "ctranslate2", tmp_path / "e", precision="f16")
    python, option, code = shlex.split(result.next_step)
    assert (python, option) == ("python", "-c")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (tokens,) = ast.literal_eval(done.stdout)
    assert len(tokens) == 33 and tokens[0] == "1"  # the prompt and 32 more
