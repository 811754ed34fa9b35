"""Opens a written file in llama.cpp and compares it with weft: token ids of texts, log-probabilities of next tokens,
greedy text, vectors, scores of a classifier.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.api.model import Model
from weft.exports.gguf.notes import gives_vectors
from weft.exports.gguf.runtime import LlamaServer, RuntimeFailed, library_logits, runtime_name
from weft.exports.gguf.write import write_stand_in
from weft.exports.samples import PLAIN_GREEDY, TEXTS, sample_sequences
from weft.exports.target import Comparison
from weft.tokenizer.tokenizer import Tokenizer

_NEW_TOKENS, _PROMPTS = 64, 3
_MOST_CONTEXT = 512 + 1 + _NEW_TOKENS
_MOST_SOURCE = 200  # tokens: positions further apart than 128 share a bias
_MOST_PROBABILITIES = 20_000  # of a vocabulary: each is a piece of JSON


def compare_gguf(model: Model, file: Path) -> Comparison:
    if model.network.architecture.is_encoder_decoder:
        return _compare_encoder_decoder(model, file)
    longest = model.longest or _MOST_CONTEXT
    writes = bool(model.network.architecture.head("causal"))
    try:
        with LlamaServer(file, embedding=not writes, context=min(longest, _MOST_CONTEXT)) as server:
            notes = tuple(_tokenizer_notes(model.own_tokenizer, server))
            compared = _compare_writing if writes else _compare_vectors
            return compared(model, server, notes)
    except RuntimeFailed as error:
        return Comparison(runtime_name(), notes=(f"The file could not be compared: {error}",))


def _compare_encoder_decoder(model: Model, file: Path) -> Comparison:
    """Same tokens: the share of equal most probable ones, after the same beginnings."""
    notes = tuple(_stand_in_notes(model))
    sources = sample_sequences(model, longest=_MOST_SOURCE)
    start = model.start_end.start_id or 0
    pairs = [(source, [start, *sources[-1][:length]]) for source in sources for length in (0, 7, 33)]
    try:
        logits = library_logits(file, model.network.architecture.vocabulary, pairs)
    except RuntimeFailed as error:
        note = f"Its results were not compared: llama-server does not run encoder–decoders, and {error}"
        return Comparison(runtime_name(), notes=(note, *notes))
    theirs = [_log_softmax(row) for row in logits]
    ours = [_log_softmax(rows[-1]) for rows in model.logits(*map(list, zip(*pairs, strict=True)))]
    differences = [np.abs(mine - other).max() for mine, other in zip(ours, theirs, strict=True)]
    same = [mine.argmax() == other.argmax() for mine, other in zip(ours, theirs, strict=True)]
    scale = max(float(np.abs(mine).max()) for mine in ours)
    return Comparison(runtime_name(), float(max(differences)), scale, float(np.mean(same)), notes)


def _tokenizer_notes(tokenizer: Tokenizer | None, server: LlamaServer) -> Iterator[str]:
    if tokenizer is None:
        return
    differing = [text for text in TEXTS if server.token_ids(text) != tokenizer.encode(text)]
    if differing:
        texts = ", ".join(repr(f"{text[:24]}…" if len(text) > 24 else text) for text in differing)
        yield f"llama.cpp gives other token ids for {len(differing)} of {len(TEXTS)} sample texts: {texts}."


def _stand_in_notes(model: Model) -> Iterator[str]:
    """The tokenizer of a model that the runtime does not run, in a small one that it runs."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "tokenizer.gguf"
        write_stand_in(model, file)
        try:
            with LlamaServer(file) as server:
                yield from _tokenizer_notes(model.own_tokenizer, server)
        except RuntimeFailed as error:
            yield f"Its tokenizer could not be compared: {error}"


def _compare_writing(model: Model, server: LlamaServer, notes: tuple[str, ...]) -> Comparison:
    # A prompt must leave room for a token.
    sequences = sample_sequences(model, longest=None if model.longest is None else model.longest - 1)
    most, harmless = min(model.network.architecture.vocabulary, _MOST_PROBABILITIES), _harmless(model)
    differences, scale = [0.0], 0.0
    for ids, logits in zip(sequences, model.logits(sequences), strict=True):
        ours = _log_softmax(logits[-1])
        theirs = server.next_log_probabilities(ids, most, harmless)
        differences += [abs(ours[token] - value) for token, value in theirs.items()]
        scale = max(scale, float(np.abs(ours).max()))
    same = _same_tokens(model, server, [ids for ids in sequences if len(ids) <= 8][-_PROMPTS:] or sequences[:1])
    return Comparison(runtime_name(), float(np.max(differences)), scale, same, notes)


def _same_tokens(model: Model, server: LlamaServer, prompts: list[list[int]]) -> float:
    equal, total = 0, 0
    ends = set(model.start_end.end_ids)
    for prompt in prompts:
        count = min(_NEW_TOKENS, (model.longest or _MOST_CONTEXT) - len(prompt))
        ours = model.generate(prompt, max_new_tokens=count, **PLAIN_GREEDY)
        theirs = server.greedy(prompt, count, model.start_end.banned_ids)
        ours, theirs = ([token for token in written if token not in ends] for written in (ours, theirs))
        equal += sum(mine == other for mine, other in zip(ours, theirs, strict=False))
        total += max(len(ours), len(theirs))
    return equal / total if total else 1.0


def _compare_vectors(model: Model, server: LlamaServer, notes: tuple[str, ...]) -> Comparison:
    sequences = sample_sequences(model)
    ours = _pooled(model, sequences) if gives_vectors(model) else model.logits(sequences)
    pairs = [(mine, server.vector(ids)[: len(mine)]) for ids, mine in zip(sequences, ours, strict=True)]
    difference = max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs)
    return Comparison(runtime_name(), difference, max(float(np.abs(mine).max()) for mine in ours), notes=notes)


def _pooled(model: Model, sequences: list[list[int]]) -> list[np.ndarray]:
    pick = {"mean": lambda rows: rows.mean(0), "first": lambda rows: rows[0], "last": lambda rows: rows[-1]}
    return [pick[model.pooling.kind](rows) for rows in model.hidden(sequences)]


def _harmless(model: Model) -> int:
    """A token that is a whole character: a letter, or any name if there is no tokenizer."""
    if model.own_tokenizer is None:
        return 0
    special = model.own_tokenizer.special_ids
    found = (number for number in model.own_tokenizer.engine.encode("a", add_special_tokens=False).ids)
    return next((number for number in found if number not in special), 0)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())
