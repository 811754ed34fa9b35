"""From hidden states to logits. Every head is the same four steps, some of which may be absent:

pick rows -> dense, activation, norm -> dropout -> output layer

    masked LM          the scored rows · dense + GELU + norm · vocabulary (tied to the token embedding)
    causal LM          the scored rows · vocabulary
    next sentence      first token · dense + tanh (BERT's pooler) · 2
    sequence           first, last or mean token · … · labels (1 label: regression)
    token              every row · labels
    span               every row · 2: start and end of an answer

Language-model heads project only the scored rows. With 15 % masked tokens, that saves 85 % of the largest matrix
product of a small BERT.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from weft.model.dropout import Dropout
from weft.model.feedforward import Activation, activate
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import Packed

HeadKind = Literal["masked", "causal", "seq2seq", "next-sentence", "sequence", "token", "span", "pooler"]
PoolKind = Literal["every", "first", "last", "mean"]


@dataclass(frozen=True)
class DenseSpec:
    """The layer before the output layer."""

    activation: Activation
    bias: bool = True
    norm: NormSpec | None = None
    dropout: float = 0.0  # on its input


@dataclass(frozen=True)
class HeadSpec:
    kind: HeadKind
    outputs: int  # vocabulary size or labels; 0: no output layer (BERT's pooler alone)
    pool: PoolKind = "every"
    dense: DenseSpec | None = None
    bias: Literal["trained", "fixed", "none"] = "trained"
    tied: bool = False  # the output matrix is the token embedding
    scale: float | None = None  # of the hidden state before the output layer (T5)
    dropout: float = 0.0


class FastLinear(Protocol):
    """Another way to compute a linear layer, for inference. See `inference.head_kernel`."""

    def __call__(self, linear: nn.Module, x: Tensor) -> Tensor | None:
        """None where the module must compute it."""


class Head(nn.Module):
    fast: FastLinear | None = None

    def __init__(self, spec: HeadSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.dense = nn.Linear(width, width, bias=spec.dense.bias) if spec.dense else None
        self.norm = make_norm(spec.dense.norm, width) if spec.dense and spec.dense.norm else None
        self.dense_dropout = Dropout(spec.dense.dropout if spec.dense else 0.0)
        self.dropout = Dropout(spec.dropout)
        self.out = nn.Linear(width, spec.outputs, bias=spec.bias != "none") if spec.outputs else None
        if self.out is not None and spec.bias == "fixed":
            self.out.bias.requires_grad_(False)

    def forward(self, hidden_TW: Tensor, batch: Packed, rows: Tensor | None = None) -> Tensor:
        """Logits of the tokens in `rows` (default: all), or of each sequence if the head pools."""
        x = self.prepare(hidden_TW, batch, rows)
        return x if self.out is None else self._multiply(self.out, x)

    def prepare(self, hidden_TW: Tensor, batch: Packed, rows: Tensor | None = None) -> Tensor:
        """The input of the output layer. `loss.vocabulary_loss` fuses the output layer with the loss."""
        x = hidden_TW if rows is None else hidden_TW[rows]
        x = pooled(x, batch, self.spec.pool)
        if self.dense is not None:
            x = activate(self._multiply(self.dense, self.dense_dropout(x)), self.spec.dense.activation)
        if self.norm is not None:
            x = self.norm(x)
        if self.spec.scale is not None:
            x = x * self.spec.scale
        return self.dropout(x)

    def _multiply(self, linear: nn.Module, x: Tensor) -> Tensor:
        fast = None if self.fast is None else self.fast(linear, x)
        return linear(x) if fast is None else fast


def pooled(x_TW: Tensor, batch: Packed, kind: PoolKind) -> Tensor:
    """A row per sequence, (S, W); with "every", a row per token as before."""
    match kind:
        case "every":
            return x_TW
        case "first":
            return x_TW[batch.first]
        case "last":
            return x_TW[batch.last]
        case "mean":
            return mean_of_each(x_TW, batch)


def mean_of_each(x_TW: Tensor, batch: Packed) -> Tensor:
    """The mean hidden state of each sequence, (S, W)."""
    total = x_TW.new_zeros(len(batch.lengths), x_TW.shape[-1]).index_add(0, batch.owner, x_TW)
    return total / batch.starts.diff()[:, None]
