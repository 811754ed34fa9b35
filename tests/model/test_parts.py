"""Parts of tensors, against masks of what they hold."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.model.parts import Part, everything, overlaps


@st.composite
def ranges(draw, length):
    """Some ranges, rising or not, that share nothing."""
    ends = sorted(draw(st.sets(st.integers(0, length), max_size=6)))
    return tuple(draw(st.permutations([range(a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)])))


@st.composite
def parts(draw, shape=(9, 5)):
    return Part(shape, tuple(draw(ranges(length)) for length in shape))


def indices(part):
    """The numbers of the elements, as the part has them."""
    rows, columns = ([number for one in each for number in one] for each in part.ranges)
    return torch.tensor([[row * part.whole[1] + column for column in columns] for row in rows]).view(part.shape)


def whole():
    return torch.arange(45).view(9, 5)


@given(parts())
def test_a_part_is_taken_out_and_put_back(part):
    taken = part.taken_from(whole())
    assert torch.equal(taken, indices(part))
    empty = torch.full((9, 5), -1)
    part.put_into(empty, taken)
    held = torch.isin(whole(), taken)
    assert torch.equal(empty, torch.where(held, whole(), -1))


@given(parts(), parts())
def test_overlaps_are_the_same_elements_and_all_of_them(one, other):
    a, b = indices(one), indices(other)
    found = [(a[here], b[there]) for here, there in overlaps(one, other)]
    assert all(torch.equal(mine, theirs) for mine, theirs in found)
    shared = sorted(number for mine, _ in found for number in mine.flatten().tolist())
    assert shared == sorted(set(a.flatten().tolist()) & set(b.flatten().tolist()))


@given(parts(), st.integers(0, 9), st.integers(0, 9))
def test_some_rows_of_a_part(part, first, last):
    assert torch.equal(indices(part.rows(range(first, max(first, last)))), indices(part)[first : max(first, last)])


def test_everything_is_one_range_per_dimension():
    assert everything((2, 3)) == Part((2, 3), ((range(2),), (range(3),)))
