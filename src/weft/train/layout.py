"""Which part of each weight a process has: the one place that knows how weights are cut.

Tensor parallel peers cut a weight along one dimension. Of what a peer has, fully sharded training gives each process
of the peer some neighbouring rows. Gradients and optimizer states are cut like their weights.
"""

import torch
from torch import Tensor

from weft.model.network import Network
from weft.model.parts import Part, everything
from weft.train.local import is_shard, own_rows, whole_of


class WeightLayout:
    def __init__(self, network: Network) -> None:
        self.shared = network.tensor_parallel

    def part(self, name: str, x: Tensor) -> Part:
        """What this process has of the weight `name`; `x` is that weight, its gradient or a state of its optimizer."""
        part = self._of_peer(name, x)
        return part.rows(own_rows(x)) if is_shard(x) else part

    def _of_peer(self, name: str, x: Tensor, rank: int | None = None) -> Part:
        cut = None if self.shared is None else self.shared.cuts.get(name)
        return everything(x.shape) if cut is None else cut.part(x.shape, self.shared.peers, rank)

    def counts(self, name: str) -> bool:
        """Whether this process stands for a weight that all tensor parallel peers have whole, or it is cut."""
        return self.shared is None or self.shared.peers.rank == 0 or name in self.shared.cuts

    def is_partial(self, name: str) -> bool:
        """Whether a weight's gradient must be added over the peers."""
        return self.shared is not None and name in self.shared.partial

    def whole(self, name: str, x: Tensor) -> Tensor:
        """The whole tensor. Every process must ask for it."""
        x = whole_of(x).detach()
        if self.shared is None or name not in self.shared.cuts:
            return x
        peers = self.shared.peers
        parts = [self._of_peer(name, x, rank) for rank in range(peers.world)]
        share = x.new_zeros(max(torch.Size(part.shape).numel() for part in parts))
        share[: x.numel()] = x.flatten()
        whole = x.new_empty(parts[0].whole)
        for part, values in zip(parts, peers.collect(share).chunk(peers.world), strict=True):
            part.put_into(whole, values[: torch.Size(part.shape).numel()].view(part.shape))
        return whole


def whole_state(network: Network, *, kept: bool = True) -> dict[str, Tensor]:
    """The network's weights in full, by all of their names. Every process must call it. Empty where not `kept`."""
    layout, found, gathered = WeightLayout(network), dict[str, Tensor](), dict[Tensor, str]()
    for name, weight in network.named_parameters(remove_duplicate=False):
        first = gathered.setdefault(weight, name)
        if first != name:  # tied weights are sent once
            found |= {name: found[first]} if kept else {}
            continue
        whole = layout.whole(name, weight)
        if kept:
            found[name] = whole
    return found
