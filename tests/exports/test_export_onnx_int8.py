"""int8 in ONNX: a quarter of the size, close, and the same for a text whatever stands beside it."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from test_export_onnx import WRITERS, close, make_model, sequences, write

from weft.exports.onnx import ONNX
from weft.exports.onnx.graph import OnnxGraph
from weft.exports.onnx.runtime import GraphReader, GraphWriter, open_graph
from weft.exports.onnx.weights import Int8Weights


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2", "llama", "t5", "lstm"])
def test_int8_stays_near_the_logits_of_random_weights(family, tmp_path):
    model = make_model(family, "token")
    found = ONNX.compare(model, write(model, tmp_path, "int8"), "int8")
    assert 0 < found.logits < 0.25 * found.scale
    assert found.notes[0].startswith("The highest logit is the same at ")


@pytest.mark.parametrize("family", ["bert", "modernbert", "roberta"])
def test_neither_neighbours_nor_padding_change_what_a_text_gets_in_int8(family, tmp_path):
    reader, rows = GraphReader(write(make_model(family), tmp_path, "int8") / "onnx/model.onnx"), sequences()
    alone = [reader.read([row])["logits"][0] for row in rows]
    for left in (False, True):
        close(reader.read(rows, left=left)["logits"], alone, within=1e-4)


@pytest.mark.parametrize("family", WRITERS)
def test_the_cache_does_not_change_what_a_text_gets_in_int8(family, tmp_path):
    model = make_model(family)
    writer = GraphWriter(write(model, tmp_path, "int8"))
    source = sequences((17,)) if writer.encoder is not None else None
    row = sequences((12,))[0]
    close([writer.read_in_steps(row, source[0] if source else None)], writer.read([row], source), within=1e-4)


@pytest.mark.parametrize("family", ["bert", "llama", "transformer"])
def test_products_of_int8_fit_into_16_bits_in_pairs(family, tmp_path):
    """Processors without VNNI add two of them in 16 bits. A table that is only looked up has all 8 bits."""
    model = make_model(family)
    for file in (write(model, tmp_path, "int8") / "onnx").glob("*.onnx"):
        arrays = {one.name: numpy_helper.to_array(one) for one in onnx.load(file).graph.initializer}
        tables = {} if model.network.architecture.heads[0].tied else {"embed.tokens.weight"}
        matrices = [array for name, array in arrays.items() if array.dtype == np.int8 and name not in tables]
        assert len(matrices) > 7
        assert max(np.abs(matrix.astype(int)).max() for matrix in matrices) * 255 * 2 < 2**15


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "lstm"])
def test_int8_files_are_about_a_quarter_as_large(family, tmp_path):
    model = make_model(family, width=128, vocabulary=2000)
    sizes = {}
    for precision in ("fp32", "int8"):
        (folder := tmp_path / precision).mkdir()
        files = (write(model, folder, precision) / "onnx").iterdir()
        sizes[precision] = sum(file.stat().st_size for file in files)
    assert sizes["int8"] < 0.3 * sizes["fp32"]


def test_a_product_is_rounded_to_the_nearest_steps_of_both_scales(tmp_path):
    network = make_model("gpt2").network
    layer, x = network.decoder.blocks[0].feedforward.up, np.random.default_rng(0).normal(size=(2, 5, 32)).astype("f4")
    graph = OnnxGraph("product")
    graph.float_output("y", Int8Weights(graph, network).linear(graph.float_input("x", 2, 5, 32), layer), 2, 5, 128)
    graph.save(tmp_path / "product.onnx")
    (found,) = open_graph(tmp_path / "product.onnx").run(None, {"x": x})
    matrix = layer.weight.detach().numpy().T
    columns, tokens = np.abs(matrix).max(0) / 63, np.abs(x).max(-1, keepdims=True) / 127
    wanted = (np.round(x / tokens) @ np.round(matrix / columns)) * tokens * columns + layer.bias.detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_matrix_of_zeros_and_tokens_of_zeros_give_zeros(tmp_path):
    model = make_model("llama")
    for parameter in model.network.parameters():
        parameter.data.zero_()
    rows = sequences((5,))
    assert not np.concatenate(GraphWriter(write(model, tmp_path, "int8")).read(rows)).any()
