"""An export in CTranslate2 against the model in weft: logits on sample inputs, and what both write.

Decoders: logits of whole sequences. Encoder–decoders: logits along the text that CTranslate2 writes. Encoders: the
heads' logits, computed from the export's files as its README does, or the vectors if there is no head.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import safetensors.numpy
import torch

from weft.api.arrays import arrays_of
from weft.api.model import Model
from weft.exports.ctranslate2.head_recipe import head_logits
from weft.exports.ctranslate2.heads import HEAD_WEIGHTS_FILE, HEADS_FILE, pooler_of
from weft.exports.ctranslate2.vocabulary import TokenStrings, token_strings
from weft.exports.samples import MOST_LENGTH, PLAIN_GREEDY, sample_sequences
from weft.exports.target import Comparison
from weft.model.heads import Head

GREEDY_TOKENS = 64
_MOST_LOGITS = 2**26  # numbers in the logits of one sequence
_PROMPT_LENGTHS = (1, 7, 33)
_ROUNDING = 1e-3  # of the largest logit, more than which is not explained by the order of sums


class _Differences:
    """The largest difference, and the largest value."""

    def __init__(self) -> None:
        self.difference, self.scale, self.equal, self.count = 0.0, 0.0, 0, 0

    def add(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        if ours.shape != theirs.shape:
            raise RuntimeError(f"CTranslate2 returned an array of shape {theirs.shape} instead of {ours.shape}.")
        far = np.abs(ours - theirs).max(initial=0.0)
        self.difference = max(self.difference, float(far) if np.isfinite(far) else np.inf)
        self.scale = max(self.scale, float(np.abs(ours).max(initial=0.0)))

    def add_tokens(self, ours: Sequence[int], theirs: Sequence[int]) -> None:
        self.equal += sum(a == b for a, b in zip(ours, theirs, strict=False))
        self.count += max(len(ours), len(theirs))


def compare_ctranslate2(model: Model, folder: Path, precision: str) -> Comparison:
    architecture, found = model.network.architecture, _Differences()
    # 16-bit floats are converted on a CPU anyway; by name, CTranslate2 does not warn about it.
    options: dict[str, Any] = {"inter_threads": 1, "intra_threads": min(2, torch.get_num_threads())}
    options |= {"compute_type": "float32"} if precision == "f16" else {}
    if architecture.decoder is None:
        _compare_encoder(model, ctranslate2.Encoder(str(folder), **options), folder, found)
    elif architecture.encoder is None:
        _compare_decoder(model, ctranslate2.Generator(str(folder), **options), found)
    else:
        _compare_encoder_decoder(model, ctranslate2.Translator(str(folder), **options), found)
    share = found.equal / found.count if found.count else None
    return Comparison(
        f"ctranslate2 {ctranslate2.__version__}", found.difference, found.scale, share, _doubts(found, precision)
    )


def _doubts(found: _Differences, precision: str) -> tuple[str, ...]:
    if precision != "fp32" or found.difference <= _ROUNDING * max(1.0, found.scale):
        return ()
    return (
        f"CTranslate2's logits differ by {found.difference:.2g}, more than rounding explains: do not rely on them.",
    )


def _samples(model: Model) -> list[list[int]]:
    longest = max(1, min(MOST_LENGTH, _MOST_LOGITS // model.network.architecture.vocabulary))
    return sample_sequences(model, longest=longest)


def _allowed(model: Model, strings: TokenStrings) -> np.ndarray:
    """The columns of logits that both have as they are."""
    return np.setdiff1d(np.arange(model.network.architecture.vocabulary), strings.banned)


def _compare_decoder(model: Model, generator: Any, found: _Differences) -> None:
    strings = token_strings(model)
    columns = _allowed(model, strings)
    for ids in _samples(model):
        theirs = np.array(generator.forward_batch([ids]))[0]
        found.add(model.logits([ids])[0][:, columns], theirs[:, columns])
    for ids in _prompts(model):
        most = GREEDY_TOKENS if model.longest is None else min(GREEDY_TOKENS, model.longest - len(ids) + 1)
        written = generator.generate_batch(
            [[strings.tokens[number] for number in ids]],
            max_length=most,
            include_prompt_in_result=False,
            end_token=list(strings.ends),
            return_end_token=True,
        )[0]
        found.add_tokens(_ours(model, ids, most), written.sequences_ids[0])


def _compare_encoder_decoder(model: Model, translator: Any, found: _Differences) -> None:
    strings = token_strings(model)
    columns, numbers = _allowed(model, strings), {token: number for number, token in enumerate(strings.tokens)}
    most = GREEDY_TOKENS if model.longest is None else max(1, min(GREEDY_TOKENS, model.longest - 1))
    for ids in _samples(model):
        written = translator.translate_batch(
            [[strings.tokens[number] for number in ids]],
            beam_size=1,
            max_decoding_length=most,
            min_decoding_length=0,
            max_input_length=0,
            end_token=list(strings.ends),
            return_end_token=True,
            return_logits_vocab=True,
        )[0]
        theirs = np.stack([np.array(row).reshape(-1) for row in written.logits[0]])
        answer = [numbers[token] for token in written.hypotheses[0]]
        target = [model.start_end.start_id or 0, *answer[: len(theirs) - 1]]
        found.add(model.logits([ids], [target])[0][:, columns], theirs[:, columns])
        found.add_tokens(_ours(model, ids, most), answer)


def _prompts(model: Model) -> list[list[int]]:
    return [ids for ids in _samples(model) if len(ids) in _PROMPT_LENGTHS]


def _ours(model: Model, ids: list[int], most: int) -> list[int]:
    """What weft writes, with the end token if it was chosen: Marian's is forced on a text that becomes too long."""
    is_forced = model.start_end.forced_end_id is not None
    answer: list[int] = model.generate(ids, max_new_tokens=most + is_forced, **PLAIN_GREEDY)
    return answer[:most]


def _compare_encoder(model: Model, encoder: Any, folder: Path, found: _Differences) -> None:
    network, sequences = model.network, _samples(model)
    kinds = network.architecture.embedding.segments
    segments = [[place * kinds // len(ids) for place in range(len(ids))] for ids in sequences] if kinds > 1 else None
    outputs = [
        encoder.forward_batch([ids], token_type_ids=None if segments is None else [segments[number]])
        for number, ids in enumerate(sequences)
    ]
    heads = json.loads((folder / HEADS_FILE).read_text("utf-8")) if (folder / HEADS_FILE).is_file() else []
    for head in heads:
        arrays = safetensors.numpy.load_file(folder / HEAD_WEIGHTS_FILE)
        weights = {name: array.astype(np.float32) for name, array in arrays.items()}
        ours = _with_head(model, network.head(head["name"]), sequences, segments)
        for expected, output in zip(ours, outputs, strict=True):
            found.add(expected, head_logits(np.array(getattr(output, head["input"]))[0], head, weights))
    if heads:
        return
    pooler = pooler_of(network)
    if pooler is not None:
        for expected, output in zip(_with_head(model, pooler, sequences, segments), outputs, strict=True):
            found.add(expected, np.array(output.pooler_output)[0])
    for expected, output in zip(model.hidden(sequences, segments=segments), outputs, strict=True):
        found.add(expected, np.array(output.last_hidden_state)[0])


def _with_head(model: Model, head: Head, sequences: Any, segments: Any) -> list[np.ndarray]:
    return arrays_of(model.network, sequences, None, segments, head, one_row=head.spec.pool != "every")
