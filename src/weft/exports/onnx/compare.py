"""An export in onnxruntime against weft: logits of several lengths, alone and padded in batches, and greedy texts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from torch import Tensor

from weft.api.arrays import Sequences, arrays_of
from weft.api.model import Model
from weft.exports.onnx.models import SPAN_OUTPUTS, gives_logits, has_cache, output_name
from weft.exports.onnx.runtime import GraphReader, GraphWriter
from weft.exports.onnx.write import GRAPH_FOLDER
from weft.exports.samples import PLAIN_GREEDY, sample_sequences
from weft.exports.target import Comparison
from weft.model.heads import pooled
from weft.model.packed import Packed

_NEW_TOKENS, _PROMPT_TOKENS = 64, 8
_MOST_LOGITS = 30_000_000  # of one sequence: 120 MB
_Pair = tuple[np.ndarray, np.ndarray]  # onnxruntime's and weft's


def compare_onnx(model: Model, folder: Path, precision: str) -> Comparison:
    vocabulary = model.network.architecture.vocabulary
    rows = sample_sequences(model, longest=max(1, _MOST_LOGITS // vocabulary))
    same = None
    if has_cache(model):
        writer = GraphWriter(folder)
        pairs = _written_pairs(model, writer, rows)
        same = _same_tokens(model, writer) if model.network.heads else None
    else:
        pairs = _read_pairs(model, GraphReader(folder / GRAPH_FOLDER / "model.onnx"), rows)
    differences, scales, choices = [], [], list[np.ndarray]()
    for theirs, ours in pairs:
        differences.append(float(np.abs(theirs - ours).max()))
        scales.append(float(np.abs(ours).max()))
        if ours.shape[-1] > 1:
            choices.append((theirs.argmax(-1) == ours.argmax(-1)).reshape(-1))
    return Comparison(
        runtime=f"onnxruntime {onnxruntime.__version__}",
        logits=float(np.max(differences)),  # NaN if one is
        scale=float(np.max(scales)),
        same_tokens=same,
        notes=(_agreement(choices),) if precision == "int8" and choices and gives_logits(model.network) else (),
    )


def _agreement(choices: list[np.ndarray]) -> str:
    """Greedy texts go different ways after one other token, so they say little about a precision."""
    same = np.concatenate(choices)
    return f"The highest logit is the same at {same.mean():.1%} of {len(same):,} places."


def _read_pairs(model: Model, reader: GraphReader, rows: Sequences) -> Iterator[_Pair]:
    """All outputs, each row alone, and all but the longest as one batch."""
    segments = [[int(2 * place >= len(row)) for place in range(len(row))] for row in rows]
    most = model.network.architecture.embedding.segments
    segments = [[min(number, max(most, 1) - 1) for number in row] for row in segments]
    ours = outputs_of_weft(model, rows, segments)
    alone = [reader.read([row], [segment]) for row, segment in zip(rows, segments, strict=True)]
    few = max(1, len(rows) - 1)
    together = reader.read(rows[:few], segments[:few])
    for name, arrays in ours.items():
        yield from zip((found[name][0] for found in alone), arrays, strict=True)
        yield from zip(together[name], arrays[:few], strict=True)


def _written_pairs(model: Model, writer: GraphWriter, rows: Sequences) -> Iterator[_Pair]:
    """Each row alone, and all but the longest as one batch and with a cache that grows."""
    few = max(1, len(rows) - 1)
    if writer.encoder is None:
        ours = model.logits(rows)
        yield from ((writer.read([row])[0], array) for row, array in zip(rows, ours, strict=True))
        yield from zip(writer.read(rows[:few]), ours[:few], strict=True)
        yield from ((writer.read_in_steps(row), array) for row, array in zip(rows[:few], ours[:few], strict=True))
        return
    start = model.start_end.start_id or 0
    targets = [[start, *row[1:]] for row in reversed(rows)]
    ours = (model.logits if model.network.heads else model.hidden)(rows, targets)
    for row, target, array in zip(rows, targets, ours, strict=True):
        yield writer.read([target], [row])[0], array
        yield writer.read_in_steps(target, row), array
    if len(rows) > 1:
        yield from zip(writer.read(targets[1:], rows[1:]), ours[1:], strict=True)
    if not model.network.heads:
        memory = writer.encoder.read(rows)
        for name, arrays in outputs_of_weft(model, rows).items():
            yield from zip(memory[name], arrays, strict=True)


def outputs_of_weft(model: Model, rows: Sequences, segments: Sequences | None = None) -> dict[str, list[np.ndarray]]:
    """What a graph that reads gives, by the names of its outputs, computed by weft: an array per sequence."""
    network, targets = model.network, None
    if network.architecture.is_encoder_decoder and network.heads:
        start = model.start_end.start_id or 0
        targets = [[start, *row[:-1]] for row in rows]

    def arrays(compute: Callable[[Tensor, Packed], Tensor], *, one_row: bool) -> list[np.ndarray]:
        return arrays_of(network, rows, targets, segments, compute, one_row=one_row)

    found: dict[str, list[np.ndarray]] = {}
    for kind in network.heads:
        head = network.head(kind)
        logits = arrays(head, one_row=head.spec.pool != "every")
        if kind == "span":
            found |= {name: [array[:, column] for array in logits] for column, name in enumerate(SPAN_OUTPUTS)}
        else:
            found[output_name(network, kind)] = logits
    if not gives_logits(network):
        vectors = arrays(lambda x, batch: pooled(x, batch, model.pooling.kind), one_row=True)
        if model.pooling.normalize:
            vectors = [vector / np.linalg.norm(vector) for vector in vectors]
        found |= {"last_hidden_state": arrays(lambda x, batch: x, one_row=False), "sentence_embedding": vectors}
    return found


def _same_tokens(model: Model, writer: GraphWriter) -> float | None:
    """The share of equal tokens in a greedy text. End tokens are banned, so that it has its full length."""
    limit, start_end = model.longest, model.start_end
    prompt = sample_sequences(model, (_PROMPT_TOKENS,), longest=_PROMPT_TOKENS)[-1]
    is_seq2seq = writer.encoder is not None
    begin = [start_end.start_id or 0] if is_seq2seq else prompt
    count = _NEW_TOKENS if limit is None else min(_NEW_TOKENS, limit - len(begin) - 1)
    if count < 1:  # the model reads too few tokens
        return None
    # One more than compared: Marian forces the last one to be its end token.
    most = count + 1
    ours = model.generate([prompt], max_new_tokens=most, min_new_tokens=most, **PLAIN_GREEDY)[0][:count]
    banned = (*start_end.end_ids, *start_end.banned_ids)
    theirs = writer.write(begin, count, banned, prompt if is_seq2seq else None)
    return round(sum(a == b for a, b in zip(theirs, ours, strict=True)) / count, 4)
