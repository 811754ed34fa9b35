"""What one process has of a tensor that may be sharded over several.

The class of sharded tensors takes a second to import, so it is recognised by its methods.
"""

from typing import Any

from torch import Tensor


def is_shard(x: Tensor) -> bool:
    return hasattr(x, "to_local")


def local_part(x: Any) -> Tensor:
    """The shard of this process, or the tensor itself if it is whole."""
    return x.to_local() if is_shard(x) else x


def whole_of(x: Any) -> Tensor:
    """The whole tensor. Every process must ask for it."""
    return x.full_tensor() if is_shard(x) else x


def own_rows(x: Any) -> range:
    """The rows of this process, of all."""
    if not is_shard(x):
        return range(len(x))
    return shared_rows(len(x), x.device_mesh.get_local_rank(), x.device_mesh.size())


def shared_rows(rows: int, rank: int, world: int) -> range:
    """Of `rows` in all, those of one process."""
    most = -(-rows // world)
    return range(min(rank * most, rows), min((rank + 1) * most, rows))
