"""A conditional random field over the tags of a sentence (Lafferty et al. 2001; on a network, Lample et al. 2016).

    score(y | x) = start[y₁] + Σ z_t[y_t] + Σ transition[y_t−1, y_t] + end[y_n]
    −log p(y | x) = log Σ_y' exp score(y' | x) − score(y | x)

The forward algorithm sums over all tag sequences, Viterbi's finds the best one, forward–backward gives the probability
of a part of it. Transitions that never occur in well-formed tags (O to I-PER, B-PER to I-LOC) are forbidden in all of
them, so predictions are always well-formed.
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
from weft.objectives.distil_losses import soft_kl

FORBIDDEN = -1e4  # log-score
CRF_FILE = "crf.safetensors"  # beside the model; other programs open the model without it


class Crf(nn.Module):
    bar: Tensor  # (L, L) FORBIDDEN or 0, added to the transitions
    bar_start: Tensor  # (L,) added to the start scores
    continues: Tensor  # (L,) whether the tag continues an entity (I-)

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        count = len(labels)
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.start = nn.Parameter(torch.zeros(count))
        self.end = nn.Parameter(torch.zeros(count))
        allowed, begins = allowed_transitions(labels)
        inside = torch.tensor([label.startswith("I-") for label in labels])
        self.register_buffer("bar", torch.where(torch.from_numpy(allowed), 0.0, FORBIDDEN), persistent=False)
        self.register_buffer("bar_start", torch.where(torch.from_numpy(begins), 0.0, FORBIDDEN), persistent=False)
        self.register_buffer("continues", inside, persistent=False)

    def loss(self, logits_SNL: Tensor, tags_SN: Tensor, lengths_S: Tensor) -> Tensor:
        """−log p of the tags, summed over the sentences."""
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
        """The most probable well-formed tags of one sentence."""
        start, moves = self.start + self.bar_start, self.transitions + self.bar
        return viterbi(logits_NL.numpy(), moves.numpy(), start.numpy(), self.end.numpy())

    def on_cpu(self, sentences: Sequence[Tensor]) -> "tuple[Crf, Sequence[Tensor]]":
        """Itself and the logits of some sentences, where decoding is faster: it is many small operations."""
        if self.end.device.type == "cpu":
            return self, sentences
        logits = torch.cat(list(sentences)).cpu()  # one copy
        return copy.deepcopy(self).cpu(), logits.split([len(one) for one in sentences])

    @torch.no_grad()
    def decode(self, sentences: Sequence[Tensor]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The best tags of each sentence, and a probability per word, from logits of shape (N, L) with N > 0.

        It is p(y_t), or p(y_t | y_t−1) where the tag continues an entity. The posterior is a Markov chain, so the
        product over the words of an entity is the probability that all of them have these tags.
        """
        if not sentences:
            return []
        crf, sentences = self.on_cpu(sentences)
        paths = [torch.tensor(crf.best(logits)) for logits in sentences]
        lengths = torch.tensor([len(path) for path in paths])
        logits_SNL = pad_sequence(list(sentences), batch_first=True).double()
        found = crf._path_probabilities(logits_SNL, pad_sequence(paths, batch_first=True), lengths).numpy()
        return [(path.numpy(), row[: len(path)]) for path, row in zip(paths, found, strict=True)]

    def _path_probabilities(self, logits: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """(S, N), as in `decode`. By forward–backward."""
        moves = (self.transitions + self.bar).double()
        steps = logits.shape[1]
        forward = [self.start.double() + self.bar_start + logits[:, 0]]
        for place in range(1, steps):
            forward.append(_log_matmul(forward[-1], moves) + logits[:, place])
        end = self.end.double().expand_as(logits[:, 0])
        backward = [end]
        for place in range(steps - 1, 0, -1):
            further = _log_matmul(logits[:, place] + backward[0], moves.T)
            backward.insert(0, torch.where((place < lengths)[:, None], further, end))
        picked = [torch.stack(rows, 1).gather(2, tags[:, :, None])[:, :, 0] for rows in (forward, backward)]
        before, after = picked[0], picked[1]
        total = (forward[0] + backward[0]).logsumexp(1)[:, None]
        alone = before + after - total  # log p(y_t)
        both = before[:, :-1] + moves[tags[:, :-1], tags[:, 1:]] + logits.gather(2, tags[:, :, None])[:, 1:, 0]
        given = both + after[:, 1:] - total - alone[:, :-1]  # log p(y_t | y_t−1)
        found = torch.cat([alone[:, :1], torch.where(self.continues[tags[:, 1:]], given, alone[:, 1:])], 1)
        return found.exp().clamp(max=1.0)


def _log_matmul(scores_SL: Tensor, moves_LL: Tensor) -> Tensor:
    """log Σ_i exp(scores[s, i] + moves[i, j]): a matrix product unless its numbers would underflow."""
    top = scores_SL.max(1, keepdim=True).values
    if bool((top - scores_SL).max() > 500):
        return (scores_SL[:, :, None] + moves_LL).logsumexp(1)
    return ((scores_SL - top).exp() @ moves_LL.exp()).log() + top


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
    """Which tag may follow which (L, L), and which may come first (L,). An I- only follows a tag of its own kind.

    Tags that do not mark entities are not restricted.
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
    """The gold tags of whole sentences: the `Answers` of a batch."""

    head: str
    values: Tensor  # (N,) gold tags of all words, sentence after sentence
    rows: Tensor  # (N,) the first token of each word
    lengths: tuple[int, ...]  # words of each sentence
    counts: Tensor  # the same, beside the other tensors

    def logits(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        return network.head(self.head)(hidden, reader, self.rows).float()

    def loss(self, network: Network, hidden: Tensor, reader: Packed, smoothing: float) -> Tensor:
        rows = self.logits(network, hidden, reader).split(self.lengths)
        if not rows:  # no word of this batch has a token
            return hidden.new_zeros(())
        tags = pad_sequence(list(self.values.split(self.lengths)), batch_first=True)
        return crf_of(network).loss(pad_sequence(list(rows), batch_first=True), tags, self.counts)

    def distance(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Word by word; the transitions are learned from the labels."""
        return soft_kl(logits, teacher, temperature)

    def correct(self, network: Network, hidden: Tensor, reader: Packed) -> Tensor:
        rows = self.logits(network, hidden, reader).split(self.lengths)
        if not rows:
            return self.values.new_zeros(())
        crf, on_cpu = crf_of(network).on_cpu(rows)
        found = [number for row in on_cpu for number in crf.best(row)]
        return (torch.tensor(found, device=self.values.device) == self.values).sum()


def crf_of(network: Network) -> Crf:
    crf = network.get_submodule("crf")
    assert isinstance(crf, Crf)
    return crf


def crf_bytes(network: Network) -> bytes:
    """The weights of the network's CRF as a safetensors file."""
    return save({name: weight.detach().cpu() for name, weight in crf_of(network).named_parameters()})


def with_crf(network: Network, folder: Path | None, labels: Sequence[str]) -> Network:
    """The network with the CRF from the model's folder. The given network stays a plain model that can be saved."""
    if "crf" in dict(network.named_children()):
        return network
    if folder is None or not (folder / CRF_FILE).is_file():
        raise FolderError(f"{CRF_FILE} is missing: this model predicts tags with a CRF, and that file has its weights.")
    file, crf = folder / CRF_FILE, Crf(labels)
    try:
        crf.load_state_dict(load_file(file))
    except (RuntimeError, SafetensorError) as error:
        raise FolderError(f"{file} does not fit this model: {str(error).splitlines()[0]}.") from None
    joined = copy.copy(network)
    joined._modules = {**network._modules, "crf": crf.to(next(network.parameters()).device)}
    return joined
