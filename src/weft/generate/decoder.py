"""Rows of text being generated: tokens in, the next token's logits out.

The same for every family. A Transformer's row has pages of keys and values, an LSTM's its state; an encoder–decoder's
also has those of its source. Rows open, close, fork and read any number of tokens at any step. All tokens of a step go
through the network together; with the C kernels, what a row gets does not depend on the others, to the bit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from weft.generate.kernels import PAGE_TOKENS
from weft.generate.layer_kernel import Entries, RowTables
from weft.generate.paged_attention import PagedPast, store_source
from weft.generate.pages import PagePool, PageShape, pages_for
from weft.generate.prepare import Prepared
from weft.generate.recurrent_rows import RecurrentRows
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.model.positions import Sinusoidal, sinusoid_table
from weft.model.transfer import moved

Ids = Sequence[int]
_FEWEST_ROWS, _FEWEST_PAGES = 8, 8  # of a table at first
_TABLE_ROWS = 1024  # sinusoids computed at a time: always the same ones together


@contextmanager
def plain_inference(network: Network) -> Iterator[None]:
    """Without gradients and without the caller's autocast: the C kernels need the dtype they were given."""
    device = next(network.parameters()).device.type
    with torch.inference_mode(), torch.autocast(device, enabled=False):
        yield


class Source:
    """What an encoder has read, in pages that the rows of one prompt share."""

    def __init__(self, pages: list[int], length: int) -> None:
        self.pages, self.length, self.users = pages, length, 0


class Row:
    """One text. `tokens`: those whose keys and values are stored."""

    __slots__ = ("pages", "published", "slot", "source", "tokens")

    def __init__(self, slot: int, source: Source | None) -> None:
        self.slot, self.source = slot, source
        self.tokens: list[int] = []
        self.pages: list[int] = []
        self.published = 0  # pages of it that are known to the pool


class TokenChunk(NamedTuple):
    """Tokens that a row reads in a step. `wanted`: of how many of the last ones the logits are computed."""

    row: Row
    tokens: Ids
    wanted: int


@dataclass(frozen=True)
class _Read:
    """Moved to the device in one copy."""

    batch: Packed
    picks: Tensor  # the tokens whose logits are wanted


class Decoder:
    def __init__(self, ready: Prepared, memory: int) -> None:
        """`memory`: bytes for keys and values."""
        self.ready, self.network = ready, ready.network
        parameter = next(self.network.parameters())
        self.device, dtype = parameter.device, parameter.dtype
        self.has_source = self.network.architecture.is_encoder_decoder
        self.head = self.network.head("seq2seq" if self.has_source else "causal")
        self.stack = self.network.decoder
        self.recurrent: RecurrentRows | None = None
        self.pool: PagePool | None = None
        self.source_pool: PagePool | None = None
        if self.stack is None:
            self.recurrent = RecurrentRows(self.network)
        else:
            if ready.stack is not None and ready.stack.is_quantized:
                dtype = torch.float16  # a step with many rows spends most of its time reading keys and values
            size = torch.empty((), dtype=dtype).element_size()
            own = PageShape.of_tokens(self.stack)
            shapes = [own, PageShape.of_source(self.stack)] if self.has_source else [own]
            # Sources and texts get equal numbers of pages.
            count = max(1, memory // (size * sum(shape.numbers for shape in shapes)))
            pools = [PagePool(shape, count, dtype, self.device) for shape in shapes]
            self.pool, self.source_pool = pools[0], pools[1] if self.has_source else None
        self._free_slots = list(range(_FEWEST_ROWS))[::-1]
        self._tables = np.zeros((_FEWEST_ROWS, _FEWEST_PAGES), np.int32)
        self._source_tables = np.zeros((_FEWEST_ROWS, _FEWEST_PAGES), np.int32)
        self._source_lengths = torch.zeros(_FEWEST_ROWS, dtype=torch.int64)
        self._sinusoids: Tensor | None = None

    @property
    def pages(self) -> int:
        """Pages in all; for an LSTM, which needs none, 0."""
        return 0 if self.pool is None else self.pool.pages

    def read_source(self, tokens: Ids) -> Source:
        """Encodes one source, alone: so what is computed does not depend on other sources."""
        assert self.source_pool is not None
        batch = pack([tokens]).to(self.device)
        memory = self.network.encode(batch)
        pages = [self.source_pool.take() for _ in range(pages_for(len(tokens)))]
        table = np.asarray(pages, np.int32)
        if self.ready.stack is not None:
            self.ready.stack.store_source(memory, self.source_pool, table)
        else:
            assert self.stack is not None
            store_source(self.stack, memory, self.source_pool, table)
        return Source(pages, len(tokens))

    def open_row(self, source: Source | None = None, prompt: Ids = ()) -> Row:
        """A new row. If its `prompt` begins as one that was read before, it starts with that one's pages."""
        row = Row(self._slot(), source)
        if source is not None:
            source.users += 1
            self._source_tables = _set_row(self._source_tables, row.slot, source.pages)
            self._source_lengths[row.slot] = source.length
        elif self.pool is not None and prompt:
            row.pages = self.pool.find(prompt[:-1])  # the last token is read, for its logits
            row.published = len(row.pages)
            row.tokens = list(prompt[: PAGE_TOKENS * len(row.pages)])
            self._tables = _set_row(self._tables, row.slot, row.pages)
        if self.recurrent is not None:
            self.recurrent.open_row(row.slot)
        return row

    def fork(self, row: Row) -> Row:
        """Another row with the same tokens, which shares their pages."""
        if self.pool is not None:
            self._publish(row)  # before they are shared: what is published may be replaced by a page that is known
        other = self.open_row(row.source)
        other.tokens, other.pages, other.published = list(row.tokens), list(row.pages), row.published
        if self.pool is not None:
            for page in row.pages:
                self.pool.share(page)
            self._tables = _set_row(self._tables, other.slot, other.pages)
        if self.recurrent is not None:
            self.recurrent.copy(row.slot, other.slot)
        return other

    def close(self, row: Row) -> None:
        if self.pool is not None:
            self._publish(row)
            for page in row.pages:
                self.pool.leave(page)
        if row.source is not None:
            row.source.users -= 1
            if row.source.users == 0 and self.source_pool is not None:
                for page in row.source.pages:
                    self.source_pool.leave(page)
        self._free_slots.append(row.slot)

    def shorten(self, row: Row, length: int) -> None:
        """Forget all tokens after the first `length`: guesses that were wrong."""
        assert self.pool is not None, "an LSTM cannot forget"
        del row.tokens[length:]
        keep = pages_for(length)
        for page in row.pages[keep:]:
            self.pool.leave(page)
        del row.pages[keep:]
        row.published = min(row.published, length // PAGE_TOKENS)

    def read(self, chunks: Sequence[TokenChunk]) -> Tensor:
        """The logits (wanted tokens, vocabulary) of all chunks, in fp32 on the CPU."""
        counts = [len(chunk.tokens) for chunk in chunks]
        begins = [len(chunk.row.tokens) for chunk in chunks]
        flat = [token for chunk in chunks for token in chunk.tokens]
        tokens = torch.tensor(flat)
        if max(counts) == 1:
            positions = np.array(begins, np.int64)
        else:
            positions = np.concatenate([np.arange(a, a + n) for a, n in zip(begins, counts, strict=True)])
        picks = self._picked(chunks, counts)
        if self.recurrent is not None:
            slots = [chunk.row.slot for chunk in chunks]
            hidden = self.recurrent.read(self._embedded(tokens, positions), slots, counts)
            hidden = hidden[torch.as_tensor(picks, device=self.device)]
        else:
            for chunk in chunks:
                self._make_room(chunk.row, len(chunk.tokens))
            hidden = self._run(tokens, positions, chunks, begins, counts, picks)
        for chunk in chunks:
            chunk.row.tokens += chunk.tokens
        is_done = self.ready.stack is not None and self.ready.stack.head is not None
        return hidden if is_done else self._logits(hidden)

    def _run(
        self,
        tokens: Tensor,
        positions: np.ndarray,
        chunks: Sequence[TokenChunk],
        begins: list[int],
        counts: list[int],
        picks: np.ndarray,
    ) -> Tensor:
        """Logits of the tokens `picks`, or their hidden states where the head is not part of the C kernels."""
        assert self.pool is not None
        own, source = RowTables(self.pool, self._tables), None
        if self.source_pool is not None:
            source = RowTables(self.source_pool, self._source_tables)
        slots = [chunk.row.slot for chunk in chunks]
        if self.ready.stack is not None:
            rows = np.array(slots, np.int32)
            rows = rows if len(rows) == len(positions) else np.repeat(rows, counts)
            longest = int(positions.max()) + 1
            if source is not None:
                longest = max(longest, *(chunk.row.source.length for chunk in chunks if chunk.row.source is not None))
            entries = Entries(rows, positions, longest)
            x_TW = self._embedded(tokens, positions)
            with self.ready.stack.lock:
                return self.ready.stack.run(x_TW, entries, own, source, self._source_lengths, picks)
        lengths = [0 if chunk.row.source is None else chunk.row.source.length for chunk in chunks]
        assert self.stack is not None
        past = PagedPast(self.stack, own, source, slots, begins, counts, lengths)
        starts = np.concatenate([[0], np.cumsum(counts)])
        runs = tuple((1, count) for count in counts)
        batch = Packed(tokens, torch.as_tensor(positions), torch.as_tensor(starts), tuple(counts), runs)
        read = moved(_Read(batch, torch.as_tensor(picks)), self.device)
        return self.network.forward_with_past(read.batch, past)[read.picks]

    def _embedded(self, tokens: Tensor, positions: np.ndarray) -> Tensor:
        """(T, W). As `Embeddings`, but sinusoids come from a table: computed in batches of changing size, their last
        bits would change as well.
        """
        embed = self.network.decoder_embed or self.network.embed
        tokens, at = moved({"tokens": tokens, "at": torch.from_numpy(positions)}, self.device).values()
        if not isinstance(embed.spec.positions, Sinusoidal):
            return embed(Packed(tokens, at, at[:0], (), ()))
        x = embed.tokens(tokens)
        x = x * embed.spec.width**0.5 if embed.spec.scaled else x
        longest = int(positions.max()) + 1
        if self._sinusoids is None or len(self._sinusoids) < longest:
            blocks = range(0, -(-longest // _TABLE_ROWS) * _TABLE_ROWS, _TABLE_ROWS)
            ranges = [torch.arange(begin, begin + _TABLE_ROWS, device=self.device) for begin in blocks]
            self._sinusoids = torch.cat([sinusoid_table(one, embed.spec.width, x.dtype) for one in ranges])
        x = x + self._sinusoids[at]
        return x if embed.norm is None else embed.norm(x)

    def _logits(self, hidden: Tensor) -> Tensor:
        if not len(hidden):
            return hidden.new_empty(0, self.network.architecture.vocabulary).float().cpu()
        return self.head(hidden.contiguous(), None).float().cpu()

    @staticmethod
    def _picked(chunks: Sequence[TokenChunk], counts: list[int]) -> np.ndarray:
        """The indices of the tokens whose logits are wanted."""
        ends = np.cumsum(counts)
        if max(counts) == 1 and all(chunk.wanted for chunk in chunks):
            return ends - 1
        return np.concatenate([np.arange(end - chunk.wanted, end) for end, chunk in zip(ends, chunks, strict=True)])

    def _make_room(self, row: Row, count: int) -> None:
        """Pages for `count` more tokens, which no other row sees."""
        assert self.pool is not None
        length = len(row.tokens)
        if length // PAGE_TOKENS > row.published:
            self._publish(row)
        first = length // PAGE_TOKENS
        if first < len(row.pages):
            mine = self.pool.own(row.pages[first])
            if mine != row.pages[first]:
                row.pages[first] = mine
                self._tables[row.slot, first] = mine
        while len(row.pages) < pages_for(length + count):
            row.pages.append(self.pool.take())
            self._put(row)

    def _put(self, row: Row) -> None:
        at = len(row.pages) - 1
        if at >= self._tables.shape[1]:
            self._tables = _widened(self._tables, at)
        self._tables[row.slot, at] = row.pages[at]

    def _publish(self, row: Row) -> None:
        """Make full pages known, so that other rows can share them. Those after a source depend on it."""
        if row.source is not None:
            return
        assert self.pool is not None
        while (row.published + 1) * PAGE_TOKENS <= len(row.tokens):
            at = row.published
            tokens = row.tokens[at * PAGE_TOKENS : (at + 1) * PAGE_TOKENS]
            page = self.pool.publish(row.pages[at], row.pages[at - 1] if at else None, tokens)
            row.pages[at] = self._tables[row.slot, at] = page
            row.published += 1

    def _slot(self) -> int:
        if not self._free_slots:
            count = len(self._tables)
            self._free_slots = list(range(count, 2 * count))[::-1]
            self._tables = np.concatenate([self._tables, np.zeros_like(self._tables)])
            self._source_tables = np.concatenate([self._source_tables, np.zeros_like(self._source_tables)])
            self._source_lengths = torch.cat([self._source_lengths, torch.zeros_like(self._source_lengths)])
        return self._free_slots.pop()


def _widened(tables: np.ndarray, at: int) -> np.ndarray:
    """With room for page number `at`."""
    more = max(tables.shape[1], at + 1 - tables.shape[1])
    return np.concatenate([tables, np.zeros((len(tables), more), np.int32)], axis=1)


def _set_row(tables: np.ndarray, slot: int, pages: Sequence[int]) -> np.ndarray:
    tables = tables if len(pages) <= tables.shape[1] else _widened(tables, len(pages) - 1)
    tables[slot, : len(pages)] = pages
    return tables
