import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, pre_tokenizers

import oracle
import weft
from weft.errors import FolderError, InputError
from weft.tokenizer.read import read_tokenizer

SHAPE = {"layers": 2, "width": 16, "heads": 2}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "a", "dog", "##s", "."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT with a vocabulary of its own, as a folder."""
    folder = tmp_path_factory.mktemp("bert") / "model"
    weft.create("bert", vocabulary=len(WORDS), **SHAPE, seed=3).save(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return folder


def test_fill_gives_the_best_words_as_the_pipeline_of_transformers_does(folder):
    ours = weft.load(folder).fill("the [MASK] sat on a mat.", top=4)
    model = transformers.BertForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
    pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    theirs = pipeline("the [MASK] sat on a mat.", top_k=4)
    assert [guess.word for guess in ours] == [guess["token_str"].replace(" ", "") for guess in theirs]
    np.testing.assert_allclose([guess.probability for guess in ours], [guess["score"] for guess in theirs], atol=1e-5)


def test_fill_answers_every_mask(folder):
    filled = weft.load(folder).fill("[MASK] cat [MASK].", top=2)
    assert [len(row) for row in filled] == [2, 2]
    (first, *_), (second, *_) = filled
    assert first.text == f"{first.word} cat [MASK]." and second.text == f"[MASK] cat {second.word}."


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.fill("the cat."), "no .MASK. to fill"),
        (lambda model: model.fill("the [MASK].", top=0), "at least 1"),
        (lambda model: model.fill("the [MASK] " * 600), "at most 512"),
        (lambda model: model.logits([[1, 99]]), "token id 99; ids are from 0 to 13"),
        (lambda model: model.logits([[-1]]), "token id -1"),
        (lambda model: model.logits([[]]), "Sequence 0 is empty"),
        (lambda model: model.logits([[1], [0.5]]), "Sequence 1 does not hold token ids"),
        (lambda model: model.logits([[1] * 513]), "513 tokens; this model reads at most 512"),
        (lambda model: model.logits(["the cat"]), "texts, not token ids"),
        (lambda model: model.logits([1, 2]), "Sequence 0 is not a row"),
        (lambda model: model.logits([[1, 2]], [[1]]), "Targets go with an encoder–decoder"),
        (lambda model: model.logits([[1, 2]], segments=[[0]]), "a number for each token"),
        (lambda model: model.logits([[1, 2]], segments=np.array([[0, 5]])), "segments from 0 to 1"),
        (lambda model: model.logits([[1, 2]], segments=5), "segments is a list, not int"),
        (lambda model: model.logits([[1, 2]], segments=[5]), "a number for each token"),
        (lambda model: model.logits(5), "is a list, not int"),
        (lambda model: model.logits([[1, [2]]]), "Sequence 0 is not a row"),
        (lambda model: model.hidden([[1]], layers=5), "layers is a list, not int"),
        (lambda model: model.hidden([[1]], layers=[]), "at least one number"),
        (lambda model: model.attentions([[1]], layers="x"), "at least one number"),
        (lambda model: model.embed(None), "is a list, not NoneType"),
        (lambda model: model.embed(["a", "\ud800"]), "Text 1 is not valid text"),
        (lambda model: model.fill("\udcff [MASK]"), "half of a surrogate pair"),
        (lambda model: model.fill("a [MASK]", top=True), "top must be at least 1"),
        (lambda model: model.save(5), "The folder is a path, not int"),
        (lambda model: weft.load(None), "folder is a path, not NoneType"),
        (lambda model: weft.create(5), "There is no model family 5"),
        (lambda model: weft.create("bert", 5), "5"),
        (lambda model: weft.create("bert", head=5, **SHAPE), "5"),
        (lambda model: weft.create("bert", labels="two", **SHAPE), "labels must be a number"),
        (lambda model: weft.create("bert", tokenizer="folder", **SHAPE), "tokenizer is that of a model"),
        (lambda model: weft.pretrain({"name": "x"}, 5), "overrides is a list, not int"),
        (lambda model: weft.pretrain({"name": "x"}, [5]), "not a setting"),
        (lambda model: weft.evaluate(5, "a.txt"), "folder is a path, not int"),
        (lambda model: weft.evaluate(model, None), "What to read is a list, not NoneType"),
        (lambda model: weft.evaluate(model, [5]), "What to read is a path, not int"),
        (lambda model: weft.evaluate(model, ["-", "-"]), "can be read only once"),
        (lambda model: weft.evaluate(model, "a.txt", columns=5), "columns is a list, not int"),
        (lambda model: weft.evaluate(model, "a.txt", limit_bytes="9"), "number of bytes, at least 1"),
        (lambda model: weft.evaluate(model, "a.txt", limit_bytes=0), "number of bytes, at least 1"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_sentence(folder, call, says):
    with pytest.raises(InputError, match=says):
        call(weft.load(folder))


def test_a_model_without_a_tokenizer_works_on_ids_and_says_so_when_text_is_asked(tmp_path):
    weft.create("bert", vocabulary=20, **SHAPE).save(tmp_path)
    model = weft.load(tmp_path)
    assert model.logits([[1, 2]])[0].shape == (2, 20)
    for verb in (lambda: model.embed(["text"]), lambda: model.fill("[MASK]"), lambda: model.tokenizer):
        with pytest.raises(FolderError, match="no tokenizer, so it takes token ids only"):
            verb()


def test_an_encoder_without_a_language_head_says_what_to_try(tmp_path):
    model = weft.create("bert", vocabulary=20, **SHAPE, head="pooler")
    with pytest.raises(InputError, match="Try hidden or embed"):
        model.logits([[1, 2]])
    with pytest.raises(InputError, match=r"model\.logits\(sources, targets\)"):
        weft.create("t5", vocabulary=20, **SHAPE).logits([[1, 2]])
    with pytest.raises(InputError, match="1 sources but 2 targets"):
        weft.create("t5", vocabulary=20, **SHAPE).logits([[1, 2]], [[1], [2]])


def test_nothing_in_is_nothing_out(folder):
    model = weft.load(folder)
    assert model.logits([]) == []
    assert model.embed([]).shape == (0, 16)


def test_numpy_and_torch_sequences_are_as_good_as_lists(folder):
    model = weft.load(folder)
    wanted = model.logits([[1, 2, 3]])[0]
    np.testing.assert_array_equal(model.logits([np.array([1, 2, 3])])[0], wanted)
    np.testing.assert_array_equal(model.logits([torch.tensor([1, 2, 3])])[0], wanted)
    np.testing.assert_array_equal(model.logits([(1, 2, 3)])[0], wanted)


def test_a_byte_level_folder_without_tokenizer_json_reads_as_gpt2_does(tmp_path):
    vocabulary = {chr(i): i for i in range(33, 127)} | {"Ġ": 200, "th": 201, "he": 202, "<|endoftext|>": 203}
    weft.create("gpt2", vocabulary=204, **SHAPE).save(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nh e\n")
    ours = read_tokenizer(tmp_path)
    theirs = transformers.GPT2Tokenizer(vocab=vocabulary, merges=[("t", "h"), ("h", "e")])
    for text in ("the other <|endoftext|> end", "", " a  b"):
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert ours.decode(ours.encode(text)) == text.replace("<|endoftext|>", "")


def test_stored_padding_is_not_applied(tmp_path):
    engine = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    engine.enable_padding(length=10)
    engine.enable_truncation(2)
    engine.save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(tmp_path).encode("a a a") == [1, 1, 1]


def test_segments_reach_the_network():
    model = weft.create("bert", vocabulary=20, **SHAPE, seed=1)
    plain, first, mixed = (model.hidden([[5, 6, 7]], segments=rows)[0] for rows in (None, [[0, 0, 0]], [[0, 1, 1]]))
    np.testing.assert_array_equal(plain, first)
    assert not np.allclose(plain, mixed)


def test_importing_weft_does_not_import_torch():
    code = "import sys, weft; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_does_not_import_torch():
    code = "import sys; sys.argv = ['weft', '--help']\nfrom weft.cli import main\nmain()\n"
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "turns text into language models" in done.stdout


def test_a_public_name_is_there_and_others_are_not():
    assert all(getattr(weft, name) is not None for name in weft.__all__)
    with pytest.raises(AttributeError):
        _ = weft.lode


def test_oracle_cases_cover_every_class_weft_writes():
    from weft.interchange.folder import DIALECTS

    ours = {name for dialect in DIALECTS.values() for name in dialect.classes.values()}
    assert ours == {case.class_name for case in oracle.CASES}
