"""Students that are cut from their teachers: what is cut away without need changes nothing."""

import numpy as np
import pytest
import torch

import weft
from weft.compress.distil.cut import cut_from_teacher, needs_importance
from weft.compress.distil.importance import measure_importance
from weft.compress.distil.shape import student_shape, taken_layers
from weft.errors import RecipeError
from weft.model.network import create_network
from weft.model.packed import pack
from weft.objectives.objective import Batch
from weft.recipe.distil import StudentSection

SHAPES = {
    "bert": {"layers": 4, "width": 32, "heads": 4},
    "gpt2": {"layers": 4, "width": 32, "heads": 4},
    "llama": {"layers": 4, "width": 32, "heads": 4, "key_value_heads": 2, "head_width": 8, "inner": 64},
    "qwen3": {"layers": 4, "width": 32, "heads": 4, "key_value_heads": 2, "head_width": 8, "inner": 64},
    "modernbert": {"layers": 4, "width": 32, "heads": 4},
    "t5": {"layers": 4, "width": 32, "heads": 4, "head_width": 8},
    "transformer": {"layers": 4, "width": 32, "heads": 4},
}
TEXTS = [np.array([1, 5, 9, 12, 3]), np.array([2, 2, 7]), np.array([30, 4, 4, 8, 19, 6])]


def make(family, seed=0, **more):
    model = weft.create(family, vocabulary=50, seed=seed, **{**SHAPES[family], **more})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * 0.3
                parameter.copy_(noise + ("norm" in name and name.endswith("weight")))
    return model


def batch_for(network):
    packed = pack(TEXTS)
    return Batch(packed, decoder=pack(TEXTS[::-1]) if network.architecture.is_encoder_decoder else None)


def student_of(teacher, **settings):
    section = StudentSection(**settings)
    network = teacher.network
    shape = student_shape(section, teacher.description.family, network.architecture, FakeTokenizer())
    student = create_network(shape.family.architecture(teacher.description.head), seed=7)
    importance = None
    if needs_importance(student.architecture, network.architecture):
        importance = measure_importance(network, [batch_for(network)])
    result = cut_from_teacher(student, network, shape.sources, importance)
    return student.eval(), result


class FakeTokenizer:
    def id_of(self, role):
        return None


@torch.no_grad()
def hidden(network):
    batch = batch_for(network)
    return network.eval()(batch.packed, batch.decoder)


@pytest.mark.parametrize("family", SHAPES)
def test_a_student_of_the_same_shape_is_the_teacher(family):
    teacher = make(family)
    student, result = student_of(teacher)
    assert not result.notes
    assert torch.equal(hidden(student), hidden(teacher.network))
    head, batch = teacher.description.head, batch_for(student)
    reader = batch.decoder or batch.packed
    logits = [one.head(head)(hidden(one), reader) for one in (student, teacher.network)]
    assert torch.equal(*logits)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama"])
def test_fewer_layers_are_the_teacher_without_the_others(family):
    teacher = make(family)
    student, _ = student_of(teacher, layers=2, take=[1, 3])
    network = teacher.network
    for stack in (network.encoder, network.decoder):
        if stack is not None:
            stack.blocks = torch.nn.ModuleList([stack.blocks[1], stack.blocks[3]])
    assert torch.equal(hidden(student), hidden(network))


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "transformer", "modernbert"])
@torch.no_grad()
def test_inner_units_that_do_nothing_are_the_ones_that_go(family):
    teacher = make(family)
    keep = torch.arange(0, teacher.network.get_submodule(blocks_of(teacher)[0] + ".feedforward").spec.inner, 2)
    for name in blocks_of(teacher):
        feedforward = teacher.network.get_submodule(name + ".feedforward")
        dead = torch.ones(feedforward.spec.inner, dtype=torch.bool)
        dead[keep] = False
        rows = torch.cat([dead, dead]) if feedforward.spec.gated else dead
        feedforward.up.weight[rows] = 0
        if feedforward.up.bias is not None:
            feedforward.up.bias[rows] = 0
    student, _ = student_of(teacher, inner=len(keep))
    torch.testing.assert_close(hidden(student), hidden(teacher.network), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "t5"])
@torch.no_grad()
def test_heads_that_do_nothing_are_the_ones_that_go(family):
    """In families whose heads need not fill the width. Their heads 2 and 3 write nothing and, in T5, all layers share
    them.
    """
    teacher = make(family)
    for name in blocks_of(teacher):
        block = teacher.network.get_submodule(name)
        spec = block.attention.spec
        groups = spec.key_value_heads * spec.head_width
        block.attention.qkv.weight[-groups // 2 :] = 0  # values of the upper half
        if block.cross is not None:
            block.cross.key_value.weight[-groups // 2 :] = 0
    settings = {"heads": 2}
    student, _ = student_of(teacher, **settings)
    assert student.architecture.layers == teacher.network.architecture.layers
    if family == "t5":
        torch.testing.assert_close(hidden(student), hidden(teacher.network), rtol=1e-4, atol=1e-4)
    else:  # grouped heads: both groups stay, with one head each
        assert student.get_submodule(blocks_of(teacher)[0]).attention.spec.key_value_heads == 2
        assert torch.isfinite(hidden(student)).all()


def blocks_of(teacher):
    names = [name for name, _ in teacher.network.named_modules()]
    return [name for name in names if name.startswith(("encoder.blocks.", "decoder.blocks.")) and name.count(".") == 2]


@pytest.mark.parametrize("family", SHAPES)
def test_a_narrower_student_takes_everything_from_the_teacher(family):
    teacher = make(family)
    student, result = student_of(teacher, layers=2, width=16)
    assert not result.notes
    assert len(result.hidden) == 16
    tokens = teacher.network.embed.tokens.weight[:, result.hidden]
    assert torch.equal(student.embed.tokens.weight, tokens)


def test_narrower_heads_keep_the_size_of_the_scores():
    """TinyBERT's shape: as many heads, each narrower. A dimension that is zero may go without a trace."""
    teacher = make("bert")
    with torch.no_grad():
        for name in blocks_of(teacher):
            qkv = teacher.network.get_submodule(name).attention.qkv
            rows = torch.arange(64).view(2, 4, 8)[:, :, 6:].flatten()  # of queries and keys
            qkv.weight[rows], qkv.bias[rows] = 0, 0
            rows = 64 + torch.arange(32).view(4, 8)[:, 6:].flatten()
            qkv.weight[rows], qkv.bias[rows] = 0, 0
    importance = measure_importance(teacher.network, [batch_for(teacher.network)])
    narrow = weft.create("bert", vocabulary=50, **SHAPES["bert"], head_width=6).network
    sources = {"encoder": (0, 1, 2, 3)}
    cut_from_teacher(narrow, teacher.network, sources, importance)
    torch.testing.assert_close(hidden(narrow), hidden(teacher.network), rtol=1e-4, atol=1e-4)


def test_a_distilbert_starts_as_the_bert_it_was_cut_from():
    """It has no segments; their first vector is in its positions."""
    teacher = make("bert")
    student, result = student_of(teacher, family="distilbert")
    torch.testing.assert_close(hidden(student), hidden(teacher.network), rtol=1e-4, atol=1e-5)
    assert not result.notes


def test_a_family_that_differs_in_kind_takes_the_embeddings_only():
    teacher = make("bert")
    student, result = student_of(teacher, family="modernbert")
    assert torch.equal(student.embed.tokens.weight, teacher.network.embed.tokens.weight)
    assert "encoder blocks" in result.notes[0]


def test_layers_that_are_taken():
    assert taken_layers("uniform", 3, 6) == (0, 2, 5)
    assert taken_layers("lower", 3, 6) == (0, 1, 2)
    assert taken_layers("upper", 3, 6) == (3, 4, 5)
    assert taken_layers([1, 3], 2, 6) == (1, 3)
    assert taken_layers("uniform", 1, 6) == (0,)
    with pytest.raises(RecipeError, match="from 0 to 5"):
        taken_layers([1, 6], 2, 6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"layers": 5}, "student.layers is 5, the teacher's 4"),
        ({"width": 64}, "student.width is 64, the teacher's 32"),
        ({"inner": 1000}, "student.inner is 1,000"),
        ({"width": 30}, "not a multiple of 4 heads"),
        ({"decoder_layers": 2}, "encoder–decoder"),
        ({"family": "gpt2"}, "do not predict the same"),
    ],
)
def test_shapes_that_no_student_can_have(settings, says):
    with pytest.raises(RecipeError, match=says):
        student_of(make("bert"), **settings)
