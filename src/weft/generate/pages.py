"""Keys and values in fixed pages, so that rows can join, leave and share at any step.

A page holds the keys and values of 16 neighbouring tokens of a sequence, in all layers. A row has a table of its pages.
A row that leaves gives its pages back. Rows that begin with the same tokens share the pages of that beginning: a full
page is known by its tokens and the page before it, and it is kept after its last user has left, until its memory is
needed. A page is copied before a row writes into it while others use it.

`memory`, in bytes, bounds all pages. It is reserved, not used, until pages are written.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from weft.generate.kernels import PAGE_TOKENS
from weft.model.attention import AttentionSpec
from weft.model.stack import Stack

_NUMPY_TYPES = {torch.float32: np.float32, torch.float16: np.float16}
_Key = tuple[int, tuple[int, ...]]  # the serial number of the page before, and the page's tokens


def pages_for(tokens: int) -> int:
    """How many pages hold this many tokens."""
    return -(-tokens // PAGE_TOKENS)


class PageShape:
    """Where each layer lies in a page: keys (H, D, 16), then values (H, 16, D)."""

    def __init__(self, heads: Sequence[tuple[int, int]]) -> None:
        """`heads`: of each layer, how many and how wide."""
        sizes = [2 * count * width * PAGE_TOKENS for count, width in heads]
        self.heads = list(heads)
        self.begins = [int(at) for at in np.concatenate([[0], np.cumsum(sizes)[:-1]])]
        self.numbers = sum(sizes)

    @classmethod
    def of_tokens(cls, stack: Stack) -> "PageShape":
        attentions = [block.attention for block in stack.spec.blocks]
        return cls([(attention.key_value_heads, attention.head_width) for attention in attentions])

    @classmethod
    def of_source(cls, stack: Stack) -> "PageShape":
        """Keys and values of the encoder's output."""
        attentions: list[AttentionSpec] = [block.attention for block in stack.spec.blocks]
        return cls([(attention.heads, attention.head_width) for attention in attentions])


class PagePool:
    def __init__(self, shape: PageShape, pages: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.pages = shape, pages
        if device.type == "cpu" and dtype in _NUMPY_TYPES:
            # numpy's zeros take memory only where they are written; torch's take all of it at once.
            self.store = torch.from_numpy(np.zeros((pages, shape.numbers), _NUMPY_TYPES[dtype]))
        else:
            self.store = torch.zeros(pages, shape.numbers, dtype=dtype, device=device)
        self._uses = [0] * pages
        self._free = list(range(pages))[::-1]  # the last is taken first, so low pages are used again and again
        self._known: dict[_Key, int] = {}
        self._keys: dict[int, _Key] = {}
        self._serials: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # known pages without a user, longest unused first
        self._serial = 0

    @property
    def used(self) -> int:
        """Pages that rows use. Idle ones are free to take."""
        return self.pages - len(self._free) - len(self._idle)

    def take(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        self._uses[page] = 1
        return page

    def share(self, page: int) -> None:
        if self._uses[page] == 0:
            del self._idle[page]
        self._uses[page] += 1

    def leave(self, page: int) -> None:
        self._uses[page] -= 1
        if self._uses[page] == 0:
            if page in self._keys:
                self._idle[page] = None
            else:
                self._free.append(page)

    def own(self, page: int) -> int:
        """A page with the same content that only the caller uses: itself, or a copy."""
        if self._uses[page] == 1 and page not in self._keys:
            return page
        copy = self.take()
        self.store[copy] = self.store[page]
        self.leave(page)
        return copy

    def publish(self, page: int, before: int | None, tokens: Sequence[int]) -> int:
        """Make a full page known by its tokens and the page before it. Returns the page to use in its place: the one
        that is known already, or itself.
        """
        if page in self._keys:
            return page
        key = (0 if before is None else self._serials[before]), tuple(tokens)
        known = self._known.get(key)
        if known is not None:
            self.share(known)
            self.leave(page)
            return known
        self._serial += 1
        self._known[key], self._keys[page], self._serials[page] = page, key, self._serial
        return page

    def find(self, tokens: Sequence[int]) -> list[int]:
        """The known pages of the longest beginning of these tokens, shared with the caller."""
        found: list[int] = []
        before = 0
        for begin in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
            page = self._known.get((before, tuple(tokens[begin : begin + PAGE_TOKENS])))
            if page is None:
                break
            self.share(page)
            found.append(page)
            before = self._serials[page]
        return found

    def _forget(self, page: int) -> None:
        del self._known[self._keys.pop(page)]
        del self._serials[page]
