"""A part of a tensor: along each dimension some ranges of the whole, one after the other.

Rows 0–3 and 8–11 of a matrix of 16 × 5, say: `Part((16, 5), ((range(0, 4), range(8, 12)), (range(5),)))`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from torch import Tensor

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Part:
    whole: tuple[int, ...]  # the shape of the whole tensor
    ranges: tuple[tuple[range, ...], ...]  # by dimension

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(sum(map(len, each)) for each in self.ranges)

    def taken_from(self, whole: Tensor) -> Tensor:
        """A copy of this part of a whole tensor."""
        found = whole.new_empty(self.shape)
        for here, there in overlaps(self, everything(self.whole)):
            found[here] = whole[there]
        return found

    def put_into(self, whole: Tensor, values: Tensor) -> None:
        """Write the part's values to their places."""
        for here, there in overlaps(self, everything(self.whole)):
            whole[there] = values[here]

    def rows(self, chosen: range) -> "Part":
        """Some of its rows, by their places here."""
        kept, begin = [], 0
        for each in self.ranges[0]:
            first, last = max(chosen.start - begin, 0), min(chosen.stop - begin, len(each))
            if first < last:
                kept.append(each[first:last])
            begin += len(each)
        return Part(self.whole, (tuple(kept), *self.ranges[1:]))


def everything(shape: Sequence[int]) -> Part:
    return Part(tuple(shape), tuple((range(length),) for length in shape))


def overlaps(one: Part, other: Part) -> Iterator[tuple[Slices, Slices]]:
    """What two parts share, in rectangles: the slices of one, and those of the other."""
    for pairs in product(*map(shared_slices, one.ranges, other.ranges)):
        yield tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def shared_slices(one: Sequence[range], other: Sequence[range]) -> list[tuple[slice, slice]]:
    """Where the numbers that both have are in one and in the other."""
    found = []
    begin = 0
    for a in one:
        place = 0
        for b in other:
            first, last = max(a.start, b.start), min(a.stop, b.stop)
            if first < last:
                here = slice(begin + first - a.start, begin + last - a.start)
                found.append((here, slice(place + first - b.start, place + last - b.start)))
            place += len(b)
        begin += len(a)
    return found
