"""Baselines for replies: a conditional n-gram model, and TF-IDF to rank candidates.

The n-gram model is trained on the bytes of prompt, separator and reply, so it predicts the first bytes of a reply from
the end of the prompt. TF-IDF picks the candidate with the highest cosine to the prompt.
"""

from collections.abc import Sequence

import numpy as np

from weft.metrics.ngram import NGram

from .vectors import WordVectors

_ORDER = 6
_REPLY_START, _REPLY_END = 256, 257  # symbols after the 256 bytes
_MOST_BYTES = 20_000_000  # of training text


def reply_losses(train: Sequence[tuple[str, str]], pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """−ln p of each reply given its prompt."""
    model = NGram(_stream(train, _MOST_BYTES)[0], _REPLY_END + 1, _ORDER)
    stream, owners = _stream(pairs)
    losses = model.losses(stream)
    owners = owners[_ORDER - 1 :]
    return np.bincount(owners[owners >= 0], losses[owners >= 0], len(pairs))


def _stream(pairs: Sequence[tuple[str, str]], most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """All symbols, and the number of the reply each belongs to; −1 for prompts."""
    parts, owners, size = [np.full(_ORDER - 1, _REPLY_END)], [np.full(_ORDER - 1, -1)], 0
    for number, (prompt, reply) in enumerate(pairs):
        said, answer = (np.frombuffer(text.encode(), np.uint8).astype(np.int64) for text in (prompt, reply))
        parts += [said, np.asarray([_REPLY_START]), answer, np.asarray([_REPLY_END])]
        owners += [np.full(len(said) + 1, -1), np.full(len(answer) + 1, number)]
        size += len(said) + len(answer)
        if most is not None and size > most:
            break
    return np.concatenate(parts), np.concatenate(owners)


def candidate_cosines(train: Sequence[tuple[str, str]], asked: Sequence[tuple[str, Sequence[str]]]) -> list[np.ndarray]:
    """The cosines of each prompt with each of its candidates."""
    vectors = WordVectors.fit([text for pair in train for text in pair])
    return [
        np.asarray((vectors.of([prompt]) @ vectors.of(list(candidates)).T).toarray())[0] for prompt, candidates in asked
    ]
