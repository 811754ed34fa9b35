"""Attention: from the dot product to many heads."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.attention import ATTENTION_PICTURES
from weft.theory.written.attention import (
    attention_head,
    attention_weights,
    causal_head,
    dot_product,
    many_heads,
    project,
    rms_normalized,
    sees,
    weighted_sum,
)

_BOTH = "queries and keys are normalised both or neither"
_FORMULA_LINES = "weft.model.attention:_attend_by_formula"


ATTENTION_CHAPTER = Chapter(
    "attention",
    (
        GuideEntry(
            "projections",
            r"""
q_i = W_Q\, x_i + b_Q, \qquad k_i = W_K\, x_i + b_K, \qquad v_i = W_V\, x_i + b_V
""",
            (
                SourceLines("weft.model.attention:Attention.forward", "heads = self.qkv", "counts ="),
                SourceLines("weft.model.fused_layers:prepare_heads", "q, k, v = heads_THD.split"),
            ),
            (project,),
            "attention-steps",
            rows=(13, 21),
        ),
        GuideEntry(
            "score",
            r"""
e_{ij} = q_i \cdot k_j = \sum_{c=1}^{D} q_{ic}\, k_{jc}
""",
            (SourceLines(_FORMULA_LINES, "scores = (q * scale)"),),
            (dot_product,),
            "attention-steps",
            rows=(14,),
            equivalent={"-2 → 2": "the tensor has four dimensions, so the second last is number 2"},
        ),
        GuideEntry(
            "weights",
            r"""
\alpha_{ij} = \frac{\exp\left(e_{ij} / \sqrt{D}\right)}{\sum_{m=1}^{n} \exp\left(e_{im} / \sqrt{D}\right)}
""",
            (
                SourceLines("weft.model.attention:attend_with_maps", "scale ="),
                SourceLines(_FORMULA_LINES, "weights = scores.softmax"),
            ),
            (attention_weights,),
            "attention-scale",
            rows=(15, 22),
        ),
        GuideEntry(
            "output",
            r"""
z_i = \sum_{j=1}^{n} \alpha_{ij}\, v_j
""",
            (SourceLines(_FORMULA_LINES, "return (drop"),),
            (weighted_sum,),
            "attention-steps",
            rows=(16, 23),
            equivalent={
                "drop(weights, dropout) if dropout else weights → weights if dropout else drop(weights, dropout)": (
                    "without dropout, drop gives back the weights; the chapter on layers tests dropout"
                )
            },
        ),
        GuideEntry(
            "attention",
            r"""
\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{D}}\right) V
""",
            (
                SourceLines("weft.model.attention:attend", "scale ="),
                SourceLines("weft.model.attention:_to_dense"),
                SourceLines("weft.model.attention:_attend_dense", "out = F.scaled", "return out"),
            ),
            (attention_head,),
            "attention-map",
            rows=(6, 8, 12),
        ),
        GuideEntry(
            "causal-mask",
            r"""
z_i = \sum_{j \in S_i} \frac{\exp(q_i \cdot k_j / \sqrt{D})}{\sum_{m \in S_i} \exp(q_i \cdot k_m / \sqrt{D})}\, v_j,
\qquad S_i = \{\, j : i - w \le j \le i \,\}
""",
            (
                SourceLines("weft.model.attention:visibility_mask", "reach =", "return (distance"),
                SourceLines(_FORMULA_LINES, "if view.causal"),
            ),
            (sees, causal_head),
            "attention-masks",
            rows=(31,),
        ),
        GuideEntry(
            "multi-head",
            r"""
\operatorname{MultiHead}(X) = \operatorname{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, W_O + b_O,
\qquad \mathrm{head}_h = \operatorname{Attention}(Q_h, K_h, V_h)
""",
            (SourceLines("weft.model.attention:Attention.forward", "out = attend(", "return self.out(out.flatten"),),
            (many_heads,),
            "attention-heads",
            rows=(6, 17),
        ),
        GuideEntry(
            "qk-norm",
            r"""
e_{ij} = \frac{\hat q_i \cdot \hat k_j}{\sqrt{D}},
\qquad \hat q = \frac{q}{\sqrt{\tfrac{1}{D} \sum_c q_c^2 + \epsilon}} \odot g
""",
            (
                SourceLines("weft.model.fused_layers:prepare_heads", "if norms[0] is not None and norms[1]"),
                SourceLines("weft.model.fused_layers:rms_norm", "return F.rms_norm"),
            ),
            (rms_normalized,),
            "attention-cosine",
            rows=(9,),
            equivalent={
                "norms[0] is not None and norms[1] is not None → norms[0] is not None or norms[1] is not None": _BOTH,
                "0 → 1": _BOTH,
            },
        ),
    ),
    ATTENTION_PICTURES,
)
