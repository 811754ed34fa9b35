"""Compression: distillation, pruning, integers."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.compression import COMPRESSION_PICTURES
from weft.theory.written.compression import (
    bytes_of_matrix,
    divergence_gradient,
    hidden_gap,
    integer_product,
    layer_influence,
    least_error_scale,
    mask_information,
    matched_layer,
    refitted,
    rounded_with_feedback,
    rounding_error,
    taught_loss,
    teacher_divergence,
    to_integer,
    warm_softmax,
    without_small_weights,
)

_ROUNDED = "round_with(grouped, scales, bits) * scales"
_ERRORS = f"((grouped - {_ROUNDED}).square() * importance)"
_TWO = "the tensor has two dimensions, so the last is number 1"
_DROPPED = "the outer torch.where drops these terms anyway"
_SQUARE = "a square does not depend on the sign"
_ALL_LABELS = "with a share of 1 the distance is multiplied by 0"


COMPRESSION_CHAPTER = Chapter(
    "compression",
    (
        GuideEntry(
            "soft-targets",
            r"""
L = T^2 \sum_{i} p_i \log \frac{p_i}{q_i}, \qquad
p_i = \frac{\exp(u_i / T)}{\sum_j \exp(u_j / T)}, \qquad q_i = \frac{\exp(z_i / T)}{\sum_j \exp(z_j / T)}
""",
            (SourceLines("weft.objectives.distil_losses:soft_kl", "p, q =", "return temperature"),),
            (warm_softmax, teacher_divergence),
            "compression-temperature",
            rows=(35, 48),
            equivalent={
                "0 → 1": _DROPPED,
                "0 → 1 #2": _DROPPED,
            },
        ),
        GuideEntry(
            "soft-gradient",
            r"""
\frac{\partial L}{\partial z_i} = T\, (q_i - p_i)
""",
            (SourceLines("weft.objectives.distil_vocabulary:_block_loss", "if soft:"),),
            (divergence_gradient,),
            "compression-gradient",
            equivalent={
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "label-share",
            r"""
L = \frac{1}{N} \sum_{n=1}^{N} \left( (1 - \lambda)\, T^2 \operatorname{KL}(p_n \Vert q_n)
    - \lambda \log q_n(y_n) \right)
""",
            (
                SourceLines(
                    "weft.objectives.distil_tasks:PredictionDistillation.loss", "for kind, answers in", "return loss"
                ),
            ),
            (taught_loss,),
            "compression-temperature",
            rows=(35,),
            equivalent={
                "self.label_share < 1 → self.label_share <= 1": _ALL_LABELS,
                "1 → 2 #3": _ALL_LABELS,
            },
        ),
        GuideEntry(
            "layer-match",
            r"""
L = \sum_{m=1}^{M} \frac{1}{n d} \sum_{t=1}^{n} \left\lVert P\, s^{(m)}_t - h^{(g(m))}_t \right\rVert^2,
\qquad g(m) = \operatorname{round}\left(\frac{m N}{M}\right)
""",
            (
                SourceLines("weft.objectives.distil_tasks:uniform_mapping", "return tuple"),
                SourceLines("weft.objectives.distil_projections:in_teacher_width", "return hidden_TW"),
                SourceLines("weft.objectives.distil_losses:hidden_distance", "of_tokens =", "return (of_tokens"),
            ),
            (matched_layer, hidden_gap),
            "compression-layers",
            rows=(48,),
            equivalent={
                "student_TW - teacher_TW → teacher_TW - student_TW": _SQUARE,
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "mask-information",
            r"""
F_h = \sum_{s} \left( \frac{\partial L_s}{\partial m_h} \right)^2, \qquad
\frac{\partial L_s}{\partial m_h} = \sum_{t \in s} \sum_{c \in h} x_{tc}\, \frac{\partial L_s}{\partial x_{tc}}
""",
            (
                SourceLines("weft.compress.prune.fisher:fisher_scores", "products =", "found[name] ="),
                SourceLines("weft.compress.prune.fisher:sums_of_each", "owner =", "return rows"),
            ),
            (mask_information,),
            "compression-heads",
            rows=(48,),
        ),
        GuideEntry(
            "block-influence",
            r"""
B_l = 1 - \frac{1}{n} \sum_{t=1}^{n}
    \frac{h^{(l)}_t \cdot h^{(l+1)}_t}{\lVert h^{(l)}_t \rVert\, \lVert h^{(l+1)}_t \rVert}
""",
            (SourceLines("weft.compress.prune.depth:block_influence", "change =", "found[side, layer] ="),),
            (layer_influence,),
            "compression-influence",
            rows=(48,),
            equivalent={
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "zeroed-weights",
            r"""
a_{ij} = \lvert W_{ij} \rvert \sqrt{\sum_{t} x_{tj}^2}
""",
            (
                SourceLines("weft.compress.prune.sparse:zero_weights", "found = given[0]"),
                SourceLines("weft.compress.prune.sparse:zero_weights", "scores =", "matrix.weight.scatter_"),
            ),
            (without_small_weights,),
            "compression-zeros",
            rows=(48,),
            equivalent={
                "True → False": "it only says which of equal scores goes first, and random ones are not equal",
            },
        ),
        GuideEntry(
            "compensation",
            r"""
\min_W \left( \lVert Y - X W \rVert^2 + \mu \lVert W - W_0 \rVert^2 \right) \;\Rightarrow\;
W = W_0 + \left( X^\top X + \mu I \right)^{-1} X^\top (Y - X W_0)
""",
            (
                SourceLines("weft.compress.prune.compensate:LeastSquares.add", "if self.bias", "self.xy +="),
                SourceLines("weft.compress.prune.compensate:LeastSquares.solve", "penalty =", "return start"),
            ),
            (refitted,),
            "compression-repair",
        ),
        GuideEntry(
            "integer-weights",
            r"""
v_i = \operatorname{clamp}\left(\operatorname{round}\left(\frac{w_i}{s}\right), -c', c\right), \qquad
s = \operatorname*{arg\,min}_{s = r \max \lvert w \rvert / c}\; \sum_i m_i\, (w_i - s\, v_i)^2
""",
            (
                SourceLines("weft.compress.quantize.rounding:limits", "return"),
                SourceLines("weft.compress.quantize.rounding:search_scales", "for share in"),
                SourceLines("weft.compress.quantize.rounding:round_with", "return"),
            ),
            (to_integer, rounding_error, least_error_scale),
            "compression-grid",
            equivalent={
                f"{_ERRORS}.sum(-1, keepdim=True) → {_ERRORS}.mean(-1, keepdim=True)": (
                    "the mean over a group is smallest where the sum is"
                ),
                f"grouped - {_ROUNDED} → {_ROUNDED} - grouped": _SQUARE,
                "errors < least → errors <= least": (
                    "only a group of zeros has the same error with two scales, and there every scale is 0"
                ),
            },
        ),
        GuideEntry(
            "integer-product",
            r"""
y = s_x \sum_{g} s_g \sum_{i \in g} q_i v_i + b, \qquad
q_i = \operatorname{round}\left(\frac{x_i}{s_x}\right), \qquad s_x = \frac{\max_i \lvert x_i \rvert}{127}
""",
            (
                SourceLines("weft.model.quantized:quantize_rows", "largest =", "return"),
                SourceLines("weft.model.quantized:QuantizedLinear.forward", "q, row_scales =", "return (out"),
            ),
            (integer_product,),
            "compression-grid",
        ),
        GuideEntry(
            "error-feedback",
            r"""
e_j = \frac{w_j - s_j v_j}{U_{jj}}, \qquad w_k \leftarrow w_k - e_j\, U_{jk} \quad (k > j), \qquad
U^\top U = \left( X^\top X \right)^{-1}
""",
            (
                SourceLines("weft.compress.quantize.gptq:_round_columns", "for begin in", "return values"),
                SourceLines("weft.compress.quantize.gptq:_factor", "return torch"),
            ),
            (rounded_with_feedback,),
            "compression-bits",
            equivalent={
                "min(begin + _BLOCK, remaining.shape[1]) → remaining.shape[1]": (
                    "all columns are one block then; the next rounds find them rounded, with no error left to spread"
                ),
            },
        ),
        GuideEntry(
            "stored-bytes",
            r"""
\mathrm{bytes} = R\, C\, \frac{b}{8} + 4\, R\, \frac{C}{G}
""",
            (SourceLines("weft.model.quantized:weight_bytes", "shared =", "return integers"),),
            (bytes_of_matrix,),
            "compression-bytes",
        ),
    ),
    COMPRESSION_PICTURES,
)
