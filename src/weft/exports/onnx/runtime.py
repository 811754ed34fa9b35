"""An export in onnxruntime: whole sequences in padded batches, and texts written token by token with the cache."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from weft.api.arrays import Sequences
from weft.exports.onnx.write import GRAPH_FOLDER

_THREADS = 2
_ERRORS_ONLY = 3


def open_graph(file: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.enable_cpu_mem_arena = False  # memory is given back between the shapes that are tried
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def padded(rows: Sequences, *, left: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask (B, S). Any id will do for padding: the mask alone hides it."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for number, row in enumerate(rows):
        place = slice(ids.shape[1] - len(row), None) if left else slice(len(row))
        ids[number, place], mask[number, place] = row, 1
    return ids, mask


def unpadded(array: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """(B, S, …) as an array per sequence, of its tokens only."""
    return [rows[tokens > 0] for rows, tokens in zip(array, mask, strict=True)]


class GraphReader:
    """`model.onnx` of a model that reads, or `encoder_model.onnx`."""

    def __init__(self, file: Path) -> None:
        self.session = open_graph(file)
        self.inputs = [given.name for given in self.session.get_inputs()]
        self.outputs = [given.name for given in self.session.get_outputs()]
        # Outputs with a row per token: their second dimension varies.
        self.by_token = {given.name for given in self.session.get_outputs() if isinstance(given.shape[1], str)}

    def read(
        self, rows: Sequences, segments: Sequences | None = None, *, left: bool = False
    ) -> dict[str, list[np.ndarray]]:
        """Each output, as an array per sequence."""
        ids, mask = padded(rows, left=left)
        found = self.run(ids, mask, None if segments is None else padded(segments, left=left)[0])
        return {name: unpadded(array, mask) if name in self.by_token else list(array) for name, array in found.items()}

    def run(self, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray | None = None) -> dict[str, np.ndarray]:
        feeds = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self.inputs:
            feeds["token_type_ids"] = np.zeros_like(ids) if segments is None else segments
        return dict(zip(self.outputs, self.session.run(None, feeds), strict=True))


class GraphWriter:
    """A graph that writes, with its cache: a decoder, an LSTM, or an encoder–decoder."""

    def __init__(self, folder: Path) -> None:
        graphs = folder / GRAPH_FOLDER
        self.encoder = None
        if (graphs / "encoder_model.onnx").is_file():
            self.encoder = GraphReader(graphs / "encoder_model.onnx")
        name = "model.onnx" if self.encoder is None else "decoder_model_merged.onnx"
        self.session = open_graph(graphs / name)
        self.inputs = {given.name: given.shape for given in self.session.get_inputs()}
        self.outputs = [given.name for given in self.session.get_outputs()]
        self.cache: dict[str, np.ndarray] = {}
        self.mask = np.zeros((0, 0), np.int64)
        self.source: dict[str, np.ndarray] = {}

    def begin(self, batch: int, sources: Sequences | None = None) -> None:
        """Forget all texts. `sources`: what an encoder–decoder reads."""
        self.mask, self.source, self.cache = np.zeros((batch, 0), np.int64), {}, {}
        if self.encoder is not None and sources is not None:
            ids, mask = padded(sources)
            hidden = self.encoder.run(ids, mask)["last_hidden_state"]
            self.source = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        for name, shape in self.inputs.items():
            if name.startswith(("past_key_values.", "state_")):
                sizes = [size if isinstance(size, int) else batch if size == "batch_size" else 0 for size in shape]
                self.cache[name] = np.zeros(sizes, np.float32)

    def step(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """The first output, logits, for new tokens (B, S). They join the cache."""
        new = np.ones_like(ids) if mask is None else mask
        self.mask = np.concatenate([self.mask, new], axis=1)
        feeds = {"input_ids": ids, **self.cache, **self.source}
        if "attention_mask" in self.inputs:
            feeds["attention_mask"] = new if "state_h" in self.inputs else self.mask
        if "position_ids" in self.inputs:
            feeds["position_ids"] = np.maximum(self.mask.cumsum(1) - 1, 0)[:, -ids.shape[1] :]
        found = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
        for name, array in found.items():
            if name.startswith("present"):
                self.cache[name.replace("present_", "").replace("present.", "past_key_values.")] = array
        return found[self.outputs[0]]

    def read(self, rows: Sequences, sources: Sequences | None = None, *, left: bool = False) -> list[np.ndarray]:
        """Logits of whole texts at once, an array per text."""
        ids, mask = padded(rows, left=left)
        self.begin(len(rows), sources)
        return unpadded(self.step(ids, mask), mask)

    def read_in_steps(self, row: Sequence[int], source: Sequence[int] | None = None) -> np.ndarray:
        """Logits of one text in three steps: its first token, its second, the others."""
        self.begin(1, None if source is None else [source])
        parts = [part for part in (row[:1], row[1:2], row[2:]) if part]
        return np.concatenate([self.step(np.asarray([part], np.int64))[0] for part in parts])

    def write(
        self, prompt: Sequence[int], count: int, banned: Sequence[int] = (), source: Sequence[int] | None = None
    ) -> list[int]:
        """The most probable tokens, one after the other."""
        self.begin(1, None if source is None else [source])
        ids, written = np.asarray([prompt], np.int64), list[int]()
        for _ in range(count):
            scores = self.step(ids)[0, -1]
            scores[list(banned)] = -np.inf
            written.append(int(scores.argmax()))
            ids = np.asarray([written[-1:]], np.int64)
        return written
