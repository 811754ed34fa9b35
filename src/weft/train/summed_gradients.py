"""Gradients added over all processes the usual way: in buckets, while the backward pass still computes the rest.

Each process computes its share of a step at once, and nothing is added piece by piece. That is faster than the exact
sums of `PieceGradients`. But the order of addition, and so the last bits, depend on the number of processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft.train.processes import Processes

_BUCKET = 25 * 2**20 // 4  # numbers: large enough for the network, small enough to begin early


@dataclass
class _Bucket:
    """Weights whose gradients are sent together, in one long row."""

    weights: list[nn.Parameter]
    row: Tensor
    ready: int = 0  # weights whose gradient is complete
    wait: Callable[[], None] | None = field(default=None)  # for the sum, once it is on its way

    def views(self) -> list[Tensor]:
        sizes = [weight.numel() for weight in self.weights]
        return [part.view_as(weight) for part, weight in zip(self.row.split(sizes), self.weights, strict=True)]


class SummedGradients:
    """`begin` before the last backward pass of a step, `finish` after it."""

    def __init__(self, weights: Sequence[nn.Parameter], processes: Processes) -> None:
        self.weights, self.processes, self.is_last = list(weights), processes, False
        self.buckets: list[_Bucket] = []
        bucket_of: dict[nn.Parameter, _Bucket] = {}
        for weight in reversed(self.weights):  # the backward pass begins with the last ones
            if not self.buckets or len(self.buckets[-1].row) + weight.numel() > _BUCKET:
                self.buckets.append(_Bucket([], weight.new_empty(0)))
            bucket = bucket_of[weight] = self.buckets[-1]
            bucket.weights.append(weight)
            bucket.row = weight.new_empty(len(bucket.row) + weight.numel(), device="meta")
        for bucket in self.buckets:
            bucket.row = torch.empty_like(bucket.row, device=self.weights[0].device)
        for weight, bucket in bucket_of.items():
            weight.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._count(bucket))  # type: ignore[misc]

    def begin(self) -> None:
        self.is_last = True

    def _count(self, bucket: _Bucket) -> None:
        """One more gradient is complete. All processes must send the buckets in one order."""
        if not self.is_last:
            return
        bucket.ready += 1
        for one in self.buckets:
            if one.wait is None:
                if one.ready < len(one.weights):
                    break
                self._send(one)

    @torch.no_grad()
    def _send(self, bucket: _Bucket) -> None:
        for view, weight in zip(bucket.views(), bucket.weights, strict=True):
            if weight.grad is None:
                view.zero_()
            else:
                view.copy_(weight.grad)
        bucket.wait = self.processes.begin_sum(bucket.row)

    def finish(self) -> None:
        """Give every weight the sum of its gradients. A weight that no process used has none."""
        used = torch.tensor([float(weight.grad is not None) for weight in self.weights])
        for bucket in self.buckets:
            if bucket.wait is None:  # some of its weights were not used here
                self._send(bucket)
        self.processes.sum_([used])
        is_used = dict(zip(self.weights, used.tolist(), strict=True))
        for bucket in self.buckets:
            assert bucket.wait is not None
            bucket.wait()
            for view, weight in zip(bucket.views(), bucket.weights, strict=True):
                weight.grad = view if is_used[weight] else None
            bucket.ready, bucket.wait = 0, None
        self.is_last = False
