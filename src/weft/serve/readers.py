"""What a model can read from a text: a vector, labels, tags, an answer, the words for a mask.

Each reader has two sides. `inputs` turns what a request gives into token sequences and raises InputError for what the
model cannot read; it runs on any thread. `read` makes a result per sequence from the hidden states of a batch; it runs
on the compute thread. A text that is too long is refused, unless the request asks for it to be truncated; tags and
answers are found in windows of a long text.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from tokenizers import Encoding
from torch import Tensor

from weft.api.arrays import check_sequence
from weft.api.fill import filled_in, read_masks
from weft.api.model import Model
from weft.errors import InputError
from weft.metrics.retrieval import unit_vectors
from weft.model.heads import pooled
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.answers import mean_of_windows
from weft.serve.rewriting import Rewriter
from weft.tasks.batches import windows_in
from weft.tasks.catalog import TASKS
from weft.tasks.example import Example, Input, Unusable
from weft.tasks.loaded import LoadedModel
from weft.tasks.scored_task import ScoredTask
from weft.tokenizer.tokenizer import Tokenizer

MOST_SEQUENCE_TOKENS = 8192  # tokens of a sequence, for models without a limit of their own
MOST_SUGGESTIONS = 1000  # masks of a text × suggestions for each
_MASKS_AT_ONCE = 128
Side = Literal["left", "right"]
TextOrIds = str | Sequence[int]


class BatchReader(Protocol):
    """One kind of reading. Calls with the same reader share batches."""

    @property
    def network(self) -> Network: ...

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        """One result per input. `hidden` has a row per token."""


class PreparedInputs(NamedTuple):
    inputs: list[Input]
    truncated: int = 0  # texts that lost a part

    @property
    def tokens(self) -> int:
        return sum(len(one.ids) for one in self.inputs)


class VectorReader:
    """A vector per text, pooled from its hidden states as the model's folder says."""

    def __init__(self, model: Model) -> None:
        self.model, self.network, self.pooling = model, model.network, model.pooling
        self.most_tokens = min(
            limit for limit in (model.longest, model.pooling.most_tokens, MOST_SEQUENCE_TOKENS) if limit
        )

    def inputs(self, given: Sequence[TextOrIds], *, truncate: bool = False, side: Side = "right") -> PreparedInputs:
        """Of texts, or of token ids, which are read as they are, without special tokens around them."""
        texts = [one for one in given if isinstance(one, str)]
        encodings = iter(encode_all(self.model.tokenizer, texts) if texts else ())
        found, truncated = [], 0
        for number, one in enumerate(given):
            ids = next(encodings).ids if isinstance(one, str) else list(one)
            if not ids:
                raise InputError(f"Input {number} has no tokens, so it has no vector.")
            if len(ids) > self.most_tokens:
                if not truncate:
                    raise length_error(number, self.most_tokens, len(ids))
                truncated += 1
                ids = self._truncated(one, side)
            check_sequence(self.network, ids, number)
            found.append(Input(number, np.asarray(ids, np.int32)))
        return PreparedInputs(found, truncated)

    def _truncated(self, given: TextOrIds, side: Side) -> list[int]:
        most = self.most_tokens
        if not isinstance(given, str):
            return list(given[:most] if side == "right" else given[-most:])
        engine = self.model.tokenizer.engine
        encoding = engine.encode(given, add_special_tokens=False)
        encoding.truncate(max(0, most - engine.num_special_tokens_to_add(is_pair=False)), direction=side)
        return list(engine.post_process(encoding).ids)

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        vectors = pooled(hidden, packed, self.pooling.kind).float().cpu().numpy()
        return list(unit_vectors(vectors) if self.pooling.normalize else vectors)


class TokenVectorReader(VectorReader):
    """The hidden states of a text, a vector per token."""

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[np.ndarray]:
        return [rows.float().cpu().numpy() for rows in packed.split(hidden)]


class TaskReader:
    """The answers of a task that reads them from one forward pass."""

    def __init__(self, model: LoadedModel) -> None:
        task = model.required_task
        assert isinstance(task, ScoredTask)
        self.task, self.spec = task, model.input_spec
        self.network = model.task_network.eval()

    def examples(self, rows: Sequence[Mapping[str, Any]]) -> list[Example]:
        """From texts by role: text, second, words, question, context."""
        found = []
        for number, row in enumerate(rows):
            try:
                found.append(self.task.example(row, with_gold=False))
            except Unusable as reason:
                raise InputError(f"Input {number} {reason}.") from None
        return found

    def inputs(self, examples: Sequence[Example], *, truncate: bool = False) -> PreparedInputs:
        inputs = self.task.inputs(examples, self.spec)
        cut = [] if self.task.reads_whole_texts else [one.example for one in inputs if one.was_cut]
        if cut and not truncate:
            raise length_error(cut[0], self.task.most_tokens(self.spec))
        return PreparedInputs(inputs, len(cut))

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        return self.task.pieces(self.network, hidden, packed, inputs)

    def answers(self, examples: Sequence[Example], inputs: Sequence[Input], pieces: Sequence[Any]) -> list[Any]:
        """One answer per example, from the results of its windows."""
        of_each: list[list[tuple[Input, Any]]] = [[] for _ in examples]
        for one, piece in zip(inputs, pieces, strict=True):
            of_each[one.example].append((one, piece))
        return [self.task.join(example, found) for example, found in zip(examples, of_each, strict=True)]


class LogitReader(TaskReader):
    """The raw scores of a text or a pair, before softmax or sigmoid."""

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[Any]:
        logits = self.network.head(self.task.head)(hidden, packed).float()
        return list(mean_of_windows(logits, windows_in(inputs)).cpu().numpy())


@dataclass(frozen=True)
class MaskTargets:
    places: list[int]
    top: int
    among: list[int] | None  # the token ids that may be suggested; None: all


class Suggestion(NamedTuple):
    token: int
    probability: float


class MaskReader:
    """The most probable tokens for each mask of a text."""

    def __init__(self, model: Model) -> None:
        self.model, self.network = model, model.network

    def inputs(self, texts: Sequence[str], top: int, among: Sequence[str] | None = None) -> PreparedInputs:
        tokenizer = self.model.tokenizer
        tokens = None if among is None else self._first_tokens(among)
        found = []
        for number, text in enumerate(texts):
            ids, places = read_masks(self.network, tokenizer, text)
            if len(places) * top > MOST_SUGGESTIONS:
                raise InputError(
                    f"Input {number} has {len(places)} masks; with {top} suggestions for each, at most "
                    f"{MOST_SUGGESTIONS // top} are possible."
                )
            found.append(Input(number, np.asarray(ids, np.int32), targets=MaskTargets(places, top, tokens)))
        return PreparedInputs(found)

    def _first_tokens(self, words: Sequence[str]) -> list[int]:
        """Of words that are several tokens, the first, as in `transformers`."""
        encodings = self.model.tokenizer.engine.encode_batch_fast(list(words), add_special_tokens=False)
        if empty := [word for word, encoding in zip(words, encodings, strict=True) if not encoding.ids]:
            raise InputError(f"targets: {empty[0][:40]!r} has no token.")
        return list(dict.fromkeys(encoding.ids[0] for encoding in encodings))

    def read(self, hidden: Tensor, packed: Packed, inputs: Sequence[Input]) -> list[list[list[Suggestion]]]:
        starts = packed.starts.tolist()
        masks = [(n, start + place) for n, start in enumerate(starts[:-1]) for place in inputs[n].targets.places]
        found: list[list[list[Suggestion]]] = [[] for _ in inputs]
        # Some at a time: each has a probability for every token of the vocabulary.
        for begin in range(0, len(masks), _MASKS_AT_ONCE):
            part = masks[begin : begin + _MASKS_AT_ONCE]
            rows = torch.tensor([row for _, row in part], device=hidden.device)
            probabilities = self.network.head("masked")(hidden, packed, rows).float().softmax(-1)
            for (number, _), row in zip(part, probabilities, strict=True):
                found[number].append(_best(row, inputs[number].targets))
        return found

    def filled(self, one: Input, mask: int, token: int) -> tuple[str, str]:
        """The token as text, and the text with it in place of a mask."""
        return filled_in(self.model.tokenizer, one.ids.tolist(), one.targets.places[mask], token)


def _best(probabilities: Tensor, targets: MaskTargets) -> list[Suggestion]:
    among = None if targets.among is None else torch.tensor(targets.among, device=probabilities.device)
    values = probabilities if among is None else probabilities[among]
    best = values.topk(min(targets.top, len(values)))
    tokens = best.indices if among is None else among[best.indices]
    return [Suggestion(*pair) for pair in zip(tokens.tolist(), best.values.tolist(), strict=True)]


class ModelReaders:
    """The readers of one model, made when first asked for. Thread-safe."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.vectors, self.token_vectors, self.masks = VectorReader(model), TokenVectorReader(model), MaskReader(model)
        self._tasks: dict[tuple[str, type], Any] = {}
        self._lock = threading.Lock()
        self.own_task = None if model.task is None else model.task.name
        self.abilities = _abilities(model)
        if self.own_task is not None:  # reads files of its folder now, which may be gone later
            self.rewriter(self.own_task) if TASKS[self.own_task].writes else self.task(self.own_task)

    def task(self, name: str) -> TaskReader:
        """Raises InputError if the model cannot do the task."""
        return self._of_task(name, TaskReader)

    def logits(self, name: str) -> LogitReader:
        return self._of_task(name, LogitReader)

    def rewriter(self, name: str) -> Rewriter:
        return self._of_task(name, Rewriter)

    def check(self, ability: str) -> None:
        """Raises InputError if the model cannot do this: a task, or fill, generate or embed."""
        if ability not in self.abilities:
            raise InputError(f"This model cannot do {ability}. It can do: {', '.join(self.abilities)}.")

    def _of_task(self, name: str, kind: type) -> Any:
        self.check(name)
        with self._lock:
            if (name, kind) not in self._tasks:
                self._tasks[name, kind] = kind(self.model.for_task(name))
            return self._tasks[name, kind]


def _abilities(model: Model) -> tuple[str, ...]:
    network = model.network
    fitting = [name for name, kind in TASKS.items() if kind.from_head(network, model.description) is not None]
    own = [] if model.task is None or model.task.name in fitting else [model.task.name]
    others = {
        "fill": "masked" in network.heads,
        "generate": bool({"causal", "seq2seq"} & set(network.heads)),
        "embed": True,
    }
    return (*own, *fitting, *(name for name, can in others.items() if can))


def encode_all(tokenizer: Tokenizer, texts: Sequence[str], *, special: bool = True) -> list[Encoding]:
    try:
        return tokenizer.engine.encode_batch(list(texts), add_special_tokens=special)
    except Exception as error:  # Rust errors arrive as plain Exception
        raise InputError(f"The input cannot be tokenized: {error}.") from None


def length_error(number: int, most: int, count: int | None = None) -> InputError:
    has = "is too long" if count is None else f"has {count:,} tokens"
    return InputError(
        f"Input {number} {has}; this model reads at most {most:,} tokens. Shorten it, or set truncate to true."
    )
