"""The model before tuning, for comparison with the tuned one: what do its vectors say about the task?

One vector per text, as `Model.embed` computes it (with the folder's own pooling), from the weights that tuning starts
with. Similarity is their cosine, without any training. Classes are predicted by a linear probe: logistic regression on
the vectors. It trains on a sample of the training data, at most half of the tokens that tuning reads. So it costs about
a sixth of tuning's time, which includes the backward pass.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from weft.interchange.pooling import Pooling, read_pooling
from weft.model.heads import pooled
from weft.model.network import Network
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.progress import say
from weft.tasks.batches import ANSWERED_TOKENS
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec
from weft.tasks.labelled.data import some_of
from weft.tasks.scored_task import VectorTask
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer

MOST_PROBE_EXAMPLES, LEAST_PROBE_TOKENS, MOST_PROBE_TOKENS = 10_000, 20_000, 500_000
LEAST_PROBE_EXAMPLES = 10
SHARE_OF_TUNING = 0.5  # of the tokens that tuning reads


@dataclass(frozen=True)
class Untuned:
    name: str
    answers: list[Any]
    training_examples: int  # of the logistic regression
    seconds: float


def ask_untuned(
    task: Task,
    network: Network,
    input_spec: InputSpec,
    folder: Path,
    train: Sequence[Example],
    examples: Sequence[Example],
    tuning_tokens: float,
) -> Untuned | None:
    """None if the task cannot use vectors, or if the model is not an encoder. `tuning_tokens`: what tuning reads."""
    if not isinstance(task, VectorTask) or not input_spec.looks_ahead or input_spec.has_source:
        return None
    say("Evaluating the model before tuning ...")
    began, pooling = time.perf_counter(), read_pooling(folder)
    most = min(input_spec.most_tokens, pooling.most_tokens or input_spec.most_tokens)
    was_training = network.training
    network.eval()

    def embed(texts: Sequence[str]) -> np.ndarray:
        return embed_texts(network, input_spec.tokenizer, pooling, texts, most)

    tokens = min(MOST_PROBE_TOKENS, max(LEAST_PROBE_TOKENS, int(SHARE_OF_TUNING * tuning_tokens)))
    some = _affordable(task, some_of(train, MOST_PROBE_EXAMPLES, 0), input_spec.tokenizer, most, tokens)
    name, answers, training_examples = task.untuned(some, examples, embed)
    network.train(was_training)
    return Untuned(name, answers, training_examples, time.perf_counter() - began)


def embed_texts(
    network: Network, tokenizer: Tokenizer, pooling: Pooling, texts: Sequence[str], most_tokens: int
) -> np.ndarray:
    """(texts, width). Each distinct text goes through the network once."""
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    ids = [sequence or [0] for sequence in tokenizer.encode_many(list(known), most_tokens)]
    device = next(network.parameters()).device
    found = np.zeros((len(ids), network.architecture.width), np.float32)
    order = order_by_length(ids)
    with torch.inference_mode():
        for part in group_by_tokens([len(ids[i]) for i in order], ANSWERED_TOKENS):
            picked = [order[i] for i in part]
            batch = pack([ids[i] for i in picked]).to(device)
            hidden = network(batch)
            found[picked] = pooled(hidden, batch, pooling.kind).float().cpu().numpy()
    if pooling.normalize:
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return found[[known[text] for text in texts]]


def _affordable(task: Task, train: list[Example], tokenizer: Tokenizer, most: int, most_in_all: int) -> list[Example]:
    """An even sample that has about `most_in_all` tokens at most."""
    texts = [" ".join(task.compared_texts(one)) for one in train]
    spent = sum(len(ids) for ids in tokenizer.encode_many(texts, 2 * most))
    return some_of(train, max(LEAST_PROBE_EXAMPLES, int(len(train) * most_in_all / max(int(spent), 1))), 0)
