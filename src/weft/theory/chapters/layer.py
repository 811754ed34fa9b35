"""One layer: residual sums, norms, the feed-forward network, dropout."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.layer import LAYER_PICTURES
from weft.theory.written.layer import (
    affine,
    divided_by_size,
    dropped_out,
    gated_network,
    gelu,
    gelu_by_tanh,
    post_norm_sum,
    pre_norm_sum,
    relu,
    residual_stream,
    root_mean_square,
    silu,
    standardized,
    two_matrices,
)

_TWO_DIMENSIONS = "the tensor has two dimensions, so the last is number 1"


LAYER_CHAPTER = Chapter(
    "layer",
    (
        GuideEntry(
            "feed-forward",
            r"""
\operatorname{FFN}(x) = W_2\, \varphi\left(W_1 x + b_1\right) + b_2
""",
            (
                SourceLines("weft.model.feedforward:FeedForward.__init__", "self.up =", "self.down ="),
                SourceLines("weft.model.feedforward:FeedForward.forward", "return self.down"),
            ),
            (affine, two_matrices),
            "layer-neuron",
            rows=(7, 18),
        ),
        GuideEntry(
            "activations",
            r"""
\operatorname{ReLU}(z) = \max(0, z), \qquad
\operatorname{GELU}(z) = \frac{z}{2} \left(1 + \operatorname{erf} \frac{z}{\sqrt{2}}\right), \qquad
\operatorname{SiLU}(z) = \frac{z}{1 + e^{-z}}
""",
            (SourceLines("weft.model.feedforward:activate"),),
            (relu, gelu, gelu_by_tanh, silu),
            "layer-activations",
            rows=(7,),
        ),
        GuideEntry(
            "gated",
            r"""
\operatorname{GLU}(x) = W_2 \left(\varphi(W_1 x) \odot V x\right)
""",
            (
                SourceLines("weft.model.feedforward:FeedForward.apply_activation"),
                SourceLines("weft.model.fused_layers:gate", "a, b =", "return F.silu"),
            ),
            (gated_network,),
            "layer-gate",
            equivalent={"-1 → 1": _TWO_DIMENSIONS, "-1 → 1 #2": _TWO_DIMENSIONS},
        ),
        GuideEntry(
            "residual-stream",
            r"""
x^{(n)} = x^{(0)} + \sum_{l=1}^{n} \left(a^{(l)} + f^{(l)}\right)
""",
            (
                SourceLines("weft.model.block:Block._wrap", "normal, x =", "return x + drop(sublayer(normal))"),
                SourceLines("weft.model.stack:Stack.forward", "for layer, block in", "return self.dropout"),
            ),
            (residual_stream,),
            "layer-stream",
            rows=(28,),
        ),
        GuideEntry(
            "layer-norm",
            r"""
y_c = \frac{x_c - \mu}{\sqrt{\sigma^2 + \epsilon}}\, g_c + b_c,
\qquad \mu = \frac{1}{W} \sum_{c=1}^{W} x_c,
\qquad \sigma^2 = \frac{1}{W} \sum_{c=1}^{W} (x_c - \mu)^2
""",
            (SourceLines("weft.model.norm:make_norm", "return nn.LayerNorm"),),
            (standardized,),
            "layer-norms",
            rows=(28,),
        ),
        GuideEntry(
            "rms-norm",
            r"""
y_c = \frac{x_c}{\sqrt{\tfrac{1}{W} \sum_{d=1}^{W} x_d^2 + \epsilon}}\, g_c
""",
            (
                SourceLines("weft.model.norm:make_norm", "if spec.kind"),
                SourceLines("weft.model.norm:RMSNorm.forward", "return rms_norm"),
                SourceLines("weft.model.fused_layers:rms_norm", "return F.rms_norm"),
            ),
            (root_mean_square, divided_by_size),
            "layer-norms",
        ),
        GuideEntry(
            "norm-order",
            r"""
x'_{\mathrm{post}} = \operatorname{Norm}\left(x + S(x)\right), \qquad
x'_{\mathrm{pre}} = x + S\left(\operatorname{Norm}(x)\right)
""",
            (
                SourceLines("weft.model.block:Block._wrap"),
                SourceLines("weft.model.fused_layers:norm_of_sum", "return norm(x_TW +"),
            ),
            (post_norm_sum, pre_norm_sum),
            "layer-order",
            rows=(28,),
        ),
        GuideEntry(
            "dropout",
            r"""
y_c = \frac{m_c}{1 - p}\, x_c, \qquad P(m_c = 0) = p, \quad P(m_c = 1) = 1 - p
""",
            (
                SourceLines("weft.model.dropout:Dropout.forward"),
                SourceLines("weft.model.dropout:drop", "return x * dropout_mask"),
                SourceLines("weft.model.dropout:dropout_mask", "size =", "return keep"),
            ),
            (dropped_out,),
            "layer-dropout",
            rows=(28,),
            equivalent={
                "round(p * 2 ** 16) - 2 ** 15 → round(p * 2 ** 16) + 2 ** 15": (
                    "numbers of 16 bits wrap round: adding half of their range is the same as subtracting it"
                )
            },
        ),
    ),
    LAYER_PICTURES,
)
