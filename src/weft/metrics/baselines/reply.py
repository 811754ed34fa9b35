"""The classical methods beside a model that replies: a conditional n-gram model, and TF-IDF to pick a reply.

The n-gram model counts bytes of prompts and replies, one after the other with a mark between them, so that the first
bytes of a reply are guessed from the end of the prompt. TF-IDF picks the candidate with the highest cosine to the
prompt.
"""

from collections.abc import Sequence

import numpy as np

from weft.metrics.ngram import NGram

from .vectors import WordVectors

_ORDER = 6
_REPLY_START, _REPLY_END = 256, 257  # marks: the reply begins; it has ended
_MOST_BYTES = 20_000_000  # that are counted


def reply_losses(train: Sequence[tuple[str, str]], pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """−log p of each reply given its prompt, in nats."""
    model = NGram(_stream(train, _MOST_BYTES)[0], _REPLY_END + 1, _ORDER)
    stream, owners = _stream(pairs)
    losses = model.losses(stream)
    owners = owners[_ORDER - 1 :]
    return np.bincount(owners[owners >= 0], losses[owners >= 0], len(pairs))


def _stream(pairs: Sequence[tuple[str, str]], most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and marks, and whose reply each is a part of; −1 for prompts."""
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
    """Of each prompt with each of its candidates."""
    vectors = WordVectors.fit([text for pair in train for text in pair])
    return [
        np.asarray((vectors.of([prompt]) @ vectors.of(list(candidates)).T).toarray())[0] for prompt, candidates in asked
    ]
