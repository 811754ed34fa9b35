"""A conditional random field over the tags of a sentence (Lafferty et al. 2001; on a network, Lample et al. 2016).

    score(y | x) = start[y₁] + Σ z_t[y_t] + Σ transition[y_t−1, y_t] + end[y_n]
    −log p(y | x) = log Σ_y' exp score(y' | x) − score(y | x)

The sum over all taggings is the forward algorithm, the best one Viterbi's. Transitions that no well-formed tagging has
(O to I-PER, B-PER to I-LOC) are forbidden in both, so what comes out is always well-formed.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from weft.errors import FolderError
from weft.model.network import Network
from weft.model.packed import Packed

FORBIDDEN = -1e4
CRF_FILE = "crf.safetensors"  # beside the model, which opens without it


class Crf(nn.Module):
    bar: Tensor  # (L, L) of transitions that are forbidden
    bar_start: Tensor  # (L,)

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        count = len(labels)
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.start = nn.Parameter(torch.zeros(count))
        self.end = nn.Parameter(torch.zeros(count))
        allowed, begins = allowed_transitions(labels)
        self.register_buffer("bar", torch.where(torch.from_numpy(allowed), 0.0, FORBIDDEN), persistent=False)
        self.register_buffer("bar_start", torch.where(torch.from_numpy(begins), 0.0, FORBIDDEN), persistent=False)

    def loss(self, logits_SNL: Tensor, tags_SN: Tensor, lengths_S: Tensor) -> Tensor:
        """Summed over the sentences."""
        return (self._log_partition(logits_SNL, lengths_S) - self._score(logits_SNL, tags_SN, lengths_S)).sum()

    def _log_partition(self, logits: Tensor, lengths: Tensor) -> Tensor:
        total = self.start + self.bar_start + logits[:, 0]
        moves = self.transitions + self.bar
        for place in range(1, logits.shape[1]):
            further = (total[:, :, None] + moves).logsumexp(1) + logits[:, place]
            total = torch.where((place < lengths)[:, None], further, total)
        return (total + self.end).logsumexp(1)

    def _score(self, logits: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(logits.shape[1], device=logits.device) < lengths[:, None]
        emitted = (logits.gather(2, tags[:, :, None])[:, :, 0] * inside).sum(1)
        moves = self.transitions + self.bar
        moved = (moves[tags[:, :-1], tags[:, 1:]] * inside[:, 1:]).sum(1)
        last = tags.gather(1, (lengths - 1)[:, None])[:, 0]
        return (self.start + self.bar_start)[tags[:, 0]] + emitted + moved + self.end[last]

    @torch.no_grad()
    def best(self, logits_NL: Tensor) -> list[int]:
        """The likeliest well-formed tagging of one sentence."""
        start = (self.start + self.bar_start).cpu().numpy()
        return viterbi(
            logits_NL.cpu().numpy(), (self.transitions + self.bar).cpu().numpy(), start, self.end.cpu().numpy()
        )


def viterbi(logits: np.ndarray, moves: np.ndarray, start: np.ndarray, end: np.ndarray) -> list[int]:
    best, came_from = start + logits[0], []
    for row in logits[1:]:
        reached = best[:, None] + moves
        came_from.append(reached.argmax(0))
        best = reached.max(0) + row
    path = [int((best + end).argmax())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    return path[::-1]


def allowed_transitions(labels: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which tag may follow which (L, L), and which may come first: an I- only behind its own kind. Tags that are no
    parts of entities may do as they like.
    """
    if not all(label == "O" or label.startswith(("B-", "I-")) for label in labels):
        return np.ones((len(labels),) * 2, bool), np.ones(len(labels), bool)
    parts = [label.partition("-") for label in labels]
    inside = [prefix == "I" for prefix, _, _ in parts]
    kinds = [kind for _, _, kind in parts]
    opens = [prefix in ("B", "I") for prefix, _, _ in parts]
    allowed = np.asarray(
        [
            [not i or (o and a == b) for i, b in zip(inside, kinds, strict=True)]
            for o, a in zip(opens, kinds, strict=True)
        ]
    )
    return allowed, ~np.asarray(inside)


@dataclass(frozen=True)
class Tagging:
    """The tags of whole sentences as a question to the network (an `Answers` of a batch)."""

    head: str
    values: Tensor  # (N,) of all words, sentence after sentence
    rows: Tensor  # (N,) their tokens
    lengths: tuple[int, ...]  # words of each sentence

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return network.head(self.head)(hidden, reader, self.rows).float()

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        rows = self.logits(network, hidden, reader).split(self.lengths)
        if not rows:  # no word of this batch has a piece
            return hidden.new_zeros(())
        tags = pad_sequence(list(self.values.split(self.lengths)), batch_first=True)
        lengths = torch.tensor(self.lengths, device=hidden.device)
        return crf_of(network).loss(pad_sequence(list(rows), batch_first=True), tags, lengths)

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        rows = self.logits(network, hidden, reader).split(self.lengths)
        crf = crf_of(network)
        found = [number for row in rows for number in crf.best(row)]
        return (torch.tensor(found, device=self.values.device) == self.values).sum()


def crf_of(network: Network) -> Crf:
    crf = network.get_submodule("crf")
    assert isinstance(crf, Crf)
    return crf


def crf_bytes(network: Network) -> bytes:
    """The weights of the network's CRF as a safetensors file."""
    return save({name: weight.detach().cpu() for name, weight in crf_of(network).named_parameters()})


def with_crf(network: Network, folder: Path | None, labels: Sequence[str]) -> Network:
    """The same network, and on it what was saved beside the model. The one that was given stays as it is, a plain model
    that can be saved.
    """
    if "crf" in dict(network.named_children()):
        return network
    if folder is None or not (folder / CRF_FILE).is_file():
        raise FolderError(f"{CRF_FILE} is missing: this model decides its tags with a CRF, which is kept there.")
    file, crf = folder / CRF_FILE, Crf(labels)
    try:
        crf.load_state_dict(load_file(file))
    except (RuntimeError, SafetensorError) as error:
        raise FolderError(f"{file} does not fit this model: {str(error).splitlines()[0]}.") from None
    joined = copy.copy(network)
    joined._modules = {**network._modules, "crf": crf.to(next(network.parameters()).device)}
    return joined
