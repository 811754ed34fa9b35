"""A broken folder is refused by one sentence that names the problem; nothing is partly loaded."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import oracle
import weft
import weft.commands.info
from weft.errors import FolderError


@pytest.fixture
def folder(tmp_path):
    weft.create("bert", vocabulary=50, layers=2, width=16, heads=2).save(tmp_path / "model")
    return tmp_path / "model"


def change(folder, **changes):
    """Rewrite the weights: a tensor for a name replaces it, None removes it."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in changes.items():
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def configure(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def missing(folder):
    change(folder, **{QUERY: None})
    return f"lack {QUERY}"


def renamed(folder):
    change(folder, **{QUERY: None, QUERY.replace("query", "quary"): torch.zeros(16, 16)})
    return f"lack {QUERY} .did you mean {QUERY.replace('query', 'quary')}"


def surplus(folder):
    change(folder, **{"bert.encoder.layer.2.output.dense.weight": torch.zeros(3)})
    return "hold bert.encoder.layer.2.output.dense.weight"


def misshapen(folder):
    change(folder, **{QUERY: torch.zeros(16, 15)})
    return rf"{QUERY} has shape \(16, 15\); config.json makes it \(16, 16\)"


def integers(folder):
    change(folder, **{QUERY: torch.zeros(16, 16, dtype=torch.int64)})
    return f"{QUERY} is stored as I64"


def truncated(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    return "model.safetensors is not a complete safetensors file"


def empty_weights(folder):
    (folder / "model.safetensors").write_bytes(b"")
    return "model.safetensors is not a complete safetensors file"


def noise(folder):
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 10)
    return "model.safetensors is not a complete safetensors file"


def unknown_family(folder):
    configure(folder, model_type="berrt")
    return "model_type 'berrt' is not supported .did you mean bert"


def no_family(folder):
    (folder / "config.json").write_text("{}")
    return "model_type None"


def empty_config(folder):
    (folder / "config.json").write_text("")
    return "config.json is empty"


def broken_config(folder):
    (folder / "config.json").write_text('{"model_type": ')
    return "config.json is not JSON"


def list_config(folder):
    (folder / "config.json").write_text("[1]")
    return "not a JSON object"


def no_config(folder):
    (folder / "config.json").unlink()
    return "it has no config.json"


def no_width(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    return "has no hidden_size"


def wrong_type(folder):
    configure(folder, num_hidden_layers="two")
    return "num_hidden_layers is 'two', which is not an integer"


def huge(folder):
    configure(folder, num_hidden_layers=10**9)
    return "layers 1,000,000,000 is more than"


def uneven(folder):
    configure(folder, num_attention_heads=3)
    return "width 16 is not a multiple of 3 heads"


def wrong_size(folder):
    configure(folder, vocab_size=51)
    return r"word_embeddings.weight has shape \(50, 16\); config.json makes it \(51, 16\)"


def unknown_class(folder):
    configure(folder, architectures=["BertForDancing"])
    return "class 'BertForDancing' is not supported"


def unknown_activation(folder):
    configure(folder, hidden_act="mish")
    return "hidden_act 'mish' is not supported"


def a_decoder(folder):
    configure(folder, is_decoder=True)
    return "is_decoder = True is not supported"


def pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "pickle .pytorch_model.bin.*safe_serialization"


def no_weights(folder):
    (folder / "model.safetensors").unlink()
    return "has no weights"


def outside_shard(folder):
    index = {"weight_map": {QUERY: "../../etc/passwd"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return "not a file name of a shard"


def absent_shard(folder):
    index = {"weight_map": {QUERY: "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return "model-1.safetensors is missing"


def broken_index(folder):
    (folder / "model.safetensors.index.json").write_text("{}")
    return "not an index of shards"


def broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    return "tokenizer.json is not a tokenizer"


def a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("")
    return "is a file"


def nothing(folder):
    shutil.rmtree(folder)
    return "does not exist"


BREAKS = [
    missing, renamed, surplus, misshapen, integers, truncated, empty_weights, noise, unknown_family, no_family,
    empty_config, broken_config, list_config, no_config, no_width, wrong_type, huge, uneven, wrong_size, unknown_class,
    unknown_activation, a_decoder, pickled, no_weights, outside_shard, absent_shard, broken_index, broken_tokenizer,
    a_file, nothing,
]  # fmt: skip


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
def test_a_broken_folder_is_refused_in_a_sentence_that_names_what_is_wrong(folder, spoil):
    says = spoil(folder)
    with pytest.raises(FolderError, match=says) as caught:
        weft.load(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_the_command_line_says_it_too_and_exits_with_2(folder):
    says = missing(folder)
    done = subprocess.run([sys.executable, "-m", "weft", "info", folder], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1


def test_shards_load_like_one_file(tmp_path):
    theirs = oracle.build(oracle.Case("GPT2LMHeadModel", 0))
    oracle.save(theirs, tmp_path / "one")
    oracle.save(theirs, tmp_path / "many", max_shard_size="5KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = (weft.load(tmp_path / name).network.state_dict() for name in ("one", "many"))
    assert all(torch.equal(one[name], many[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loads_as_float32(tmp_path, dtype):
    theirs = oracle.build(oracle.Case("LlamaForCausalLM", 0)).to(dtype)
    ours = weft.load(oracle.save(theirs, tmp_path))
    assert ours.network.embed.tokens.weight.dtype == torch.float32
    assert torch.equal(ours.network.embed.tokens.weight, theirs.model.embed_tokens.weight.float())


def test_names_without_the_backbones_prefix_load(tmp_path):
    """GPT-2's own checkpoint says GPT2LMHeadModel and names its tensors `h.0…`, with masks among them."""
    theirs = oracle.build(oracle.Case("GPT2LMHeadModel", 0))
    oracle.save(theirs, tmp_path)
    tensors = {
        name.removeprefix("transformer."): value for name, value in load_file(tmp_path / "model.safetensors").items()
    }
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(tensors, tmp_path / "model.safetensors")
    ours = weft.load(tmp_path)
    assert ours.description.head == "causal"
    assert torch.equal(ours.network.embed.tokens.weight, theirs.transformer.wte.weight)


def test_a_file_with_more_heads_than_its_config_says_loads_with_all_of_them(tmp_path):
    """BERT's own checkpoint says BertForMaskedLM, holds BertForPreTraining, and calls LayerNorm's weight gamma."""
    theirs = oracle.build(oracle.Case("BertForPreTraining", 0))
    oracle.save(theirs, tmp_path)
    configure(tmp_path, architectures=["BertForMaskedLM"])
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = load_file(tmp_path / "model.safetensors")
    for new_name, old_name in old.items():
        tensors = {name.replace(new_name, old_name): value for name, value in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    ours = weft.load(tmp_path)
    assert set(ours.network.heads) == {"masked", "next-sentence"}
    assert "BertForPreTraining" in ours.description.notes[0]


def test_a_tied_matrix_stored_twice_with_other_values_is_untied_as_in_transformers(tmp_path):
    theirs = oracle.build(oracle.Case("T5ForConditionalGeneration", 0))
    oracle.save(theirs, tmp_path)
    other = torch.randn_like(theirs.lm_head.weight)
    change(tmp_path, **{"lm_head.weight": other})
    ours = weft.load(tmp_path)
    assert torch.equal(ours.network.heads["seq2seq"].out.weight, other)
    assert not torch.equal(ours.network.embed.tokens.weight, other)


def test_an_equal_copy_that_differs_is_refused(tmp_path):
    oracle.save(theirs := oracle.build(oracle.Case("T5ForConditionalGeneration", 0)), tmp_path)
    change(tmp_path, **{"decoder.embed_tokens.weight": torch.randn_like(theirs.shared.weight)})
    with pytest.raises(FolderError, match=r"decoder\.embed_tokens\.weight"):
        weft.load(tmp_path)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "RobertaForMaskedLM"])
def test_an_untied_masked_head_without_its_second_bias_loads(name, tmp_path):
    """A checkpoint with an untied output matrix: one bias, two matrices."""
    theirs = oracle.build(oracle.Case(name, 0))
    oracle.save(theirs, tmp_path)
    module = "cls.predictions" if name.startswith("Bert") else "lm_head"
    other = torch.randn_like(theirs.get_input_embeddings().weight)
    change(tmp_path, **{f"{module}.decoder.weight": other})
    head = weft.load(tmp_path).network.heads["masked"]
    assert torch.equal(head.out.weight, other)
    assert torch.equal(head.out.bias, load_file(tmp_path / "model.safetensors")[f"{module}.bias"])


def test_one_tensor_under_its_old_and_its_new_name_is_refused(folder):
    change(folder, **{"bert.embeddings.LayerNorm.gamma": torch.ones(16)})
    with pytest.raises(FolderError, match=r"both .*LayerNorm"):
        weft.load(folder)


def test_an_encoder_without_a_pooler_loads_and_is_saved_as_one(tmp_path):
    weft.create("bert", vocabulary=50, layers=1, width=16, heads=2, head="none").save(tmp_path)
    assert weft.load(tmp_path).format == "bert"
    assert weft.load(tmp_path).description.head == "none"


GARBAGE = [None, -1, 0, 10**12, 1.5, "x", [], [None], {}, {"a": [1]}, True, float("nan")]


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "distilbert", "gpt2", "t5", "transformer", "llama", "qwen3", "modernbert", "lstm"]
)
def test_no_value_in_a_config_reaches_the_user_as_a_traceback(family, tmp_path):
    shape = {"vocabulary": 50, "layers": 2, "width": 16, **({} if family == "lstm" else {"heads": 2})}
    weft.create(family, **shape).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    extra = ["rope_parameters", "rope_scaling", "layer_types", "id2label", "num_labels", "classifier_dropout", "head"]
    for key in [*config, *extra]:
        for value in GARBAGE:
            (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
            try:
                weft.commands.info.describe(tmp_path)
            except FolderError as error:
                assert "\n" not in str(error)
