"""ONNX graphs in onnxruntime give weft's numbers: every family and head, every length, padded batches, the cache."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

import weft
from random_models import SHAPES
from weft.exports.onnx import ONNX
from weft.exports.onnx.compare import outputs_of_weft
from weft.exports.onnx.models import has_cache
from weft.exports.onnx.runtime import GraphReader, GraphWriter, padded
from weft.interchange.folder import Description
from weft.model.families import design
from weft.model.network import create_network
from weft.model.norm import NormSpec
from weft.model.stack import LocalSpec

ENCODERS = ("bert", "roberta", "distilbert", "modernbert")
SMALL = {**SHAPES, **{family: {"layers": 2, "width": 32, "heads": 4} for family in ENCODERS}}
LIMIT = 80  # positions
TASKS = ["sequence", "token", "span", "none"]
READERS = {
    "bert": ["masked", "masked+next-sentence", "next-sentence", "pooler", *TASKS],
    "roberta": ["masked", "pooler", *TASKS],
    "distilbert": ["masked", *TASKS],
    "modernbert": ["masked", *TASKS],
    "gpt2": TASKS,
    "llama": TASKS,
    "qwen3": TASKS,
    "lstm": TASKS,
    "t5": ["sequence", "token", "span", "encoder"],
}
WRITERS = ["gpt2", "llama", "qwen3", "lstm", "t5", "transformer"]
OUTPUTS = {
    "masked+next-sentence": {"prediction_logits", "seq_relationship_logits"},
    "span": {"start_logits", "end_logits"},
    "pooler": {"last_hidden_state", "pooler_output", "sentence_embedding"},
    "none": {"last_hidden_state", "sentence_embedding"},
    "encoder": {"last_hidden_state", "sentence_embedding"},
}
WITHIN = 2e-5
LENGTHS = (1, 2, 3, 7, 32, LIMIT)  # 32 is also the width


def make_model(family, head=None, change=lambda architecture: architecture, **settings):
    """Random weights, large enough that every layer matters. `change`: of the architecture."""
    limit = {} if family in ("lstm", "t5") else {"positions": LIMIT + 2 if family == "roberta" else LIMIT}
    window = {"window": 6} if family == "modernbert" else {}
    knobs = {"vocabulary": 70, **SMALL[family], **limit, **window, **settings}
    chosen, architecture = design(family, head=head, **knobs)
    network = create_network(change(architecture)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            scale = 1.3 * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.5)
    return weft.Model(network, Description(chosen, head or chosen.default_head))


def write(model, folder, precision="fp32"):
    assert ONNX.why_not(model, precision) is None
    ONNX.write(model, folder, precision)
    for file in (folder / "onnx").glob("*.onnx"):
        onnx.checker.check_model(str(file), full_check=True)
        onnx.shape_inference.infer_shapes(onnx.load(file), check_type=True, strict_mode=True, data_prop=True)
    return folder


def sequences(lengths=LENGTHS, vocabulary=70):
    chance = np.random.default_rng(1)
    return [chance.integers(0, vocabulary, length).tolist() for length in lengths]


def close(theirs, ours, within=WITHIN):
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=within, rtol=0)


@pytest.mark.parametrize(("family", "head"), [(family, head) for family, heads in READERS.items() for head in heads])
def test_a_graph_reads_as_weft_does_at_every_length_and_with_padding_on_either_side(family, head, tmp_path):
    model = make_model(family, head)
    reader = GraphReader(write(model, tmp_path) / "onnx/model.onnx")
    assert set(reader.outputs) == OUTPUTS.get(head, {"logits"})
    assert ("token_type_ids" in reader.inputs) == (family == "bert")
    rows = sequences()
    segments = [[int(place > len(row) // 2) for place in range(len(row))] for row in rows]
    segments = segments if family == "bert" else None
    ours = outputs_of_weft(model, rows, segments)
    batches = [(reader.read(rows, segments), ours)]
    if family != "lstm":
        batches.append((reader.read(rows, segments, left=True), ours))
    for number in (0, 3):  # without padding
        alone = reader.read([rows[number]], None if segments is None else [segments[number]])
        batches.append((alone, {name: arrays[number : number + 1] for name, arrays in ours.items()}))
    for theirs, expected in batches:
        for name, arrays in expected.items():
            close(theirs[name], arrays)


@pytest.mark.parametrize("family", WRITERS)
def test_a_graph_writes_what_weft_writes_with_its_cache(family, tmp_path):
    model = make_model(family)
    writer, rows = GraphWriter(write(model, tmp_path)), sequences((1, 2, 9, 40))
    is_seq2seq = writer.encoder is not None
    start = model.start_end.start_id or 0
    sources = rows[::-1] if is_seq2seq else None
    rows = [[start, *row] for row in rows] if is_seq2seq else rows
    ours = model.logits(sources, rows) if is_seq2seq else model.logits(rows)
    close(writer.read(rows, sources), ours)
    if family not in ("lstm", "t5", "transformer"):
        close(writer.read(rows, left=True), ours)
    for number, row in enumerate(rows):
        close([writer.read_in_steps(row, sources[number] if sources else None)], ours[number : number + 1])
    for prompt in sequences((1, 12)):
        wanted = model.generate([prompt], strategy="greedy", max_new_tokens=65, min_new_tokens=65)[0][:64]
        banned = model.start_end.end_ids
        begin, source = ([start], prompt) if is_seq2seq else (prompt, None)
        assert writer.write(begin, 64, banned, source) == wanted


@pytest.mark.parametrize(("family", "left"), [("llama", True), ("gpt2", True), ("lstm", False)])
def test_rows_of_a_batch_continue_from_pasts_of_different_lengths(family, left, tmp_path):
    """As programs do that write several texts at once."""
    model = make_model(family)
    writer, rows = GraphWriter(write(model, tmp_path)), sequences((3, 11))
    writer.begin(2)
    writer.step(*padded(rows, left=left))
    for token in (5, 6):
        logits = writer.step(np.full((2, 1), token))
        rows = [[*row, token] for row in rows]
        close([logits[0, -1], logits[1, -1]], [array[-1] for array in model.logits(rows)])


def changed_blocks(side, change):
    """The architecture with each block of a stack changed: `change(layer, block)`."""

    def changed(architecture):
        stack = getattr(architecture, side)
        blocks = tuple(change(layer, block) for layer, block in enumerate(stack.blocks))
        return replace(architecture, **{side: replace(stack, blocks=blocks)})

    return changed


def unequal(layer, block):
    """Every second block has fewer and wider heads, which share keys and values."""
    inner = replace(block.feedforward, inner=16 * (layer + 1))
    wide = replace(block.attention, heads=2, head_width=16, key_value_heads=1)
    return replace(block, feedforward=inner, attention=wide if layer % 2 else block.attention)


def with_head_norm(layer, block):
    return replace(block, attention=replace(block.attention, head_norm=NormSpec("layer")))


def local(architecture):
    return replace(architecture, decoder=replace(architecture.decoder, local=LocalSpec((1,), 5, 100.0)))


MIXTURES = {
    "bert with rotary positions": lambda: make_model("bert", positions="rotary"),
    "bert with relative positions": lambda: make_model("bert", positions="relative", head="sequence"),
    "bert with sinusoidal positions": lambda: make_model("bert", positions="sinusoidal", head="none"),
    "bert with unequal layers": lambda: make_model("bert", change=changed_blocks("encoder", unequal)),
    "modernbert with learned positions": lambda: make_model("modernbert", positions="learned"),
    "gpt2 with relative positions": lambda: make_model("gpt2", positions="relative"),
    "gpt2 with sinusoidal positions": lambda: make_model("gpt2", positions="sinusoidal"),
    "gpt2 with relu squared": lambda: make_model("gpt2", activation="relu-squared"),
    "gpt2 with tanh": lambda: make_model("gpt2", activation="tanh", scaled=False, tied=False),
    "gpt2 with layer norm of heads": lambda: make_model("gpt2", change=changed_blocks("decoder", with_head_norm)),
    "llama with learned positions": lambda: make_model("llama", positions="learned"),
    "llama with unequal layers": lambda: make_model("llama", change=changed_blocks("decoder", unequal)),
    "llama with local attention": lambda: make_model("llama", change=local),
    "t5 with rotary positions": lambda: make_model("t5", positions="rotary"),
    "t5 with learned positions": lambda: make_model("t5", positions="learned"),
    "transformer with rotary positions": lambda: make_model("transformer", positions="rotary"),
    "transformer with relative positions": lambda: make_model("transformer", positions="relative"),
    "transformer with two embeddings": lambda: make_model("transformer", shared_embedding=False, tied=False),
    "transformer without a head": lambda: make_model("transformer", head="none"),
    "t5 without a head": lambda: make_model("t5", head="none"),
    "lstm of one layer": lambda: make_model("lstm", layers=1),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_architectures_of_wefts_own_give_the_same_numbers_and_texts(name, tmp_path):
    model = MIXTURES[name]()
    found = ONNX.compare(model, write(model, tmp_path), "fp32")
    assert found.logits < WITHIN * max(1, found.scale)
    assert found.same_tokens == (1.0 if has_cache(model) and model.network.heads else None)


@pytest.mark.parametrize(("family", "head"), [("bert", "token"), ("gpt2", None), ("t5", None), ("lstm", None)])
def test_no_dimension_of_the_inputs_but_heads_and_widths_is_fixed(family, head, tmp_path):
    for file in (write(make_model(family, head), tmp_path) / "onnx").glob("*.onnx"):
        for given in onnx.load(file).graph.input:
            sizes = [axis.dim_param or axis.dim_value for axis in given.type.tensor_type.shape.dim]
            if given.name.startswith("state_"):
                assert sizes == [2, "batch_size", 32]
            elif given.name.startswith("past_key_values"):
                assert sizes[0] == "batch_size" and isinstance(sizes[2], str)
            else:
                assert sizes[0] == "batch_size" and isinstance(sizes[1], str)


@pytest.mark.parametrize(("pooling", "unit"), [("mean", True), ("first", False), ("last", True)])
def test_sentence_embeddings_are_pooled_as_the_model_says(pooling, unit, tmp_path):
    model = make_model("bert", "none")
    model.pooling = replace(model.pooling, kind=pooling, normalize=unit)
    reader, rows = GraphReader(write(model, tmp_path) / "onnx/model.onnx"), sequences()
    hidden = model.hidden(rows)
    pick = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1]}[pooling]
    wanted = [pick(array) / (np.linalg.norm(pick(array)) if unit else 1) for array in hidden]
    for left in (False, True):
        close(reader.read(rows, left=left)["sentence_embedding"], wanted)
