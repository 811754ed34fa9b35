"""How far a student is from its teacher. Each function returns a sum over rows or sequences; the caller divides by the
number in the whole step.

    soft_kl              T² Σ_rows KL(p_T ‖ q_T),  p_T = softmax(z / T)                 Hinton et al. 2015
    cosine_distance      Σ_tokens 1 − cos(s, t)                                        DistilBERT, Sanh et al. 2019
    attention_distance   Σ_sequences mean (A_s − A_t)², scores before the softmax      TinyBERT, Jiao et al. 2020, eq. 7
    hidden_distance      Σ_sequences mean (H_s W − H_t)²                               TinyBERT, eq. 8 and 9
    relation_kl          Σ_sequences 1/(A |x|) Σ KL of softmax(X Xᵀ / √d), by head     MiniLMv2, Wang et al. 2021, eq. 4

The KL divergence is a sum over classes: dividing by their number as well, as a plain mean does, makes it vanish for a
large vocabulary. T² keeps the size of its gradients independent of the temperature T.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from weft.model.packed import Packed


def soft_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Of logits (…, classes). −∞ in both marks classes that do not exist. A NaN in either makes the sum NaN."""
    p, q = (logits.div(temperature).log_softmax(-1) for logits in (teacher, student))
    exists = p != -torch.inf
    terms = torch.where(exists, p.exp() * (torch.where(exists, p, 0) - torch.where(exists, q, 0)), 0)
    return temperature**2 * terms.sum()


def binary_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """As `soft_kl`, where each class is decided on its own: logits (rows, classes), averaged over the classes."""
    total = student.new_zeros(())
    for sign in (1.0, -1.0):
        p, q = (F.logsigmoid(sign * logits / temperature) for logits in (teacher, student))
        total = total + (p.exp() * (p - q)).sum()
    return temperature**2 * total / student.shape[-1]


def cosine_distance(student_TW: Tensor, teacher_TW: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(student_TW, teacher_TW, dim=-1)).sum()


def hidden_distance(student_TW: Tensor, teacher_TW: Tensor, batch: Packed) -> Tensor:
    of_tokens = (student_TW - teacher_TW).square().mean(-1)
    lengths = batch.starts.diff()
    weights = torch.repeat_interleave(1 / lengths, lengths, output_size=len(of_tokens))
    return (of_tokens * weights).sum()


def attention_distance(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Of scores (H, L, L), a tensor per sequence. Scores that are masked (−∞) count as equal. If the numbers of heads
    differ, the means over the heads are compared.
    """
    total = student[0].new_zeros(())
    for ours, theirs in zip(student, teacher, strict=True):
        if len(ours) != len(theirs):
            ours, theirs = ours.mean(0), theirs.mean(0)
        # Before the square: the gradient of a square of NaN is NaN, even if nothing looks at it.
        gap = torch.where(theirs != -torch.inf, ours - theirs, 0)
        total = total + gap.square().mean()
    return total


def relation_kl(student_THD: Tensor, teacher_THD: Tensor, batch: Packed, heads: int) -> Tensor:
    """Of queries, of keys or of values. The two may differ in the number of heads and in width: all heads are joined
    and split anew into `heads` relation heads, and a relation is of tokens with tokens, (heads, L, L).
    """
    total = student_THD.new_zeros(())
    sizes = [count * length for count, length in batch.runs]
    for ours, theirs, (count, length) in zip(
        student_THD.flatten(1).split(sizes), teacher_THD.flatten(1).split(sizes), batch.runs, strict=True
    ):
        student, teacher = (_relations(x, count, length, heads) for x in (ours, theirs))
        total = total + soft_kl(student, teacher) / (heads * length)
    return total


def _relations(x: Tensor, count: int, length: int, heads: int) -> Tensor:
    dense = x.float().view(count, length, heads, -1).transpose(1, 2)
    return dense @ dense.transpose(-1, -2) * dense.shape[-1] ** -0.5


def relation_heads(student_width: int, teacher_width: int, most: int = 48) -> int:
    """The largest number of relation heads that divides both widths; 48 is the paper's for a BERT-base."""
    return next(count for count in range(most, 0, -1) if student_width % count == 0 == teacher_width % count)
