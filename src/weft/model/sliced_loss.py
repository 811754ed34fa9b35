"""Cross-entropy over a vocabulary that is cut: each peer has the logits of its own tokens and never sees the others'.

Three numbers per row are exchanged: the largest logit, the sum of exponentials, and the logit of the target, which
one peer has.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.model.peers import Peers


class VocabularySlice(nn.Linear):
    """The rows of an output matrix that belong to one peer's tokens."""

    peers: Peers
    tokens: range
    vocabulary: int  # of all peers

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("One peer cannot compute the logits of all tokens. Gather the network first.")

    @property
    def most_tokens(self) -> int:
        """Of any peer."""
        return -(-self.vocabulary // self.peers.world)

    def places(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the tokens are here, and the row of each (any row for the others)."""
        here = (tokens >= self.tokens.start) & (tokens < self.tokens.stop)
        return here, (tokens - self.tokens.start).clamp(0, len(self.tokens) - 1)


def sum_of_losses(out: VocabularySlice, logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """As loss._sum_of_losses, from this peer's logits (rows, own tokens)."""
    here, place = out.places(right)
    wanted = logits.gather(1, place).masked_fill(~here, 0.0)
    if smoothing:
        wanted = (1 - smoothing) * wanted + smoothing / out.vocabulary * logits.sum(1, keepdim=True)
    largest = logits.amax(1, keepdim=True)
    out.peers.max_([largest])
    both = torch.cat([logits.sub_(largest).exp_().sum(1, keepdim=True), wanted], dim=1)
    out.peers.sum_([both])
    sums, wanted = both[:, :1].contiguous(), both[:, 1:]
    return (largest + sums.log() - wanted).sum(), sums


def gradient_in_place(
    out: VocabularySlice, exponentials: Tensor, sums: Tensor, right: Tensor, scale: float, smoothing: float
) -> Tensor:
    """As loss._gradient_in_place."""
    grad = exponentials.mul_(scale / sums)
    if smoothing:
        grad -= scale * smoothing / out.vocabulary
    here, place = out.places(right)
    return grad.scatter_add_(1, place, here.to(grad.dtype) * (scale * (smoothing - 1)))


def sliced_scores(out: VocabularySlice, prepared_NW: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss, and the number of rows whose largest logit is the target's."""
    logits = F.linear(prepared_NW, out.weight, out.bias).float()
    best, place = logits.max(1)
    largest = best.clone()
    out.peers.max_([largest])
    # The first of equal logits, as argmax has it: the smallest token among the peers that have the largest logit.
    guess = torch.where(best == largest, -(place + out.tokens.start), -out.vocabulary)
    out.peers.max_([guess])
    loss, _ = sum_of_losses(out, logits, targets_N[:, None], 0.0)
    return loss, (-guess == targets_N).sum()
