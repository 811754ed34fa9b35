"""T5: cut spans out of a text and write them."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.t5 import T5_PICTURES
from weft.theory.written.t5 import (
    all_cuts,
    chance_of_a_cut,
    decoder_reads,
    denoising_loss,
    first_query_weight,
    first_tied_weight,
    joined_text,
    source_and_target,
    spans_cut,
    tied_logits,
    tokens_cut,
    unscaled_score,
)

_NOISE = "weft.objectives.spans:_noise"

T5_CHAPTER = Chapter(
    "t5",
    (
        GuideEntry(
            "sentinels",
            r"""
\tilde{x} = k_0\, s_0\, k_1\, s_1 \cdots k_{m-1}\, s_{m-1}\, k_m, \qquad
y = s_0\, c_0\, s_1\, c_1 \cdots s_{m-1}\, c_{m-1}\, s_m
""",
            (
                SourceLines("weft.objectives.spans:corrupt_spans", "starts =", "return"),
                SourceLines("weft.objectives.spans:_with_sentinels"),
                SourceLines("weft.objectives.spans:_target"),
            ),
            (source_and_target,),
            "t5-example",
        ),
        GuideEntry(
            "restored",
            r"""
x = k_0\, c_0\, k_1\, c_1 \cdots k_{m-1}\, c_{m-1}\, k_m
""",
            (SourceLines("weft.objectives.spans:restore_spans", "order =", "return"),),
            (joined_text,),
            "t5-example",
        ),
        GuideEntry(
            "how-many-spans",
            r"""
n = \min\left(\max\left(\lfloor L r \rceil,\; 1\right),\; L - 1\right), \qquad
m = \min\left(\max\left(\lfloor n / \mu \rceil,\; 1\right),\; n,\; L - n,\; S - 1\right)
""",
            (
                SourceLines(_NOISE, "cut =", "spans ="),
                SourceLines("weft.objectives.spans:corrupt_spans", "noise ="),
            ),
            (tokens_cut, spans_cut),
            "t5-lengths",
        ),
        GuideEntry(
            "which-spans",
            r"""
p = \frac{1}{\dbinom{n-1}{m-1} \dbinom{L-n+1}{m}}
""",
            (
                SourceLines(_NOISE, "kept =", "return np.repeat"),
                SourceLines("weft.objectives.spans:_parts", "cuts =", "return"),
            ),
            (all_cuts, chance_of_a_cut),
            "t5-cuts",
        ),
        GuideEntry(
            "denoising-loss",
            r"""
\ell = -\frac{1}{T} \sum_{t=1}^{T} \log P(y_t \mid y_0, \dots, y_{t-1}, \tilde{x})
""",
            (SourceLines("weft.objectives.span_corruption:SpanCorruption.batch", "text =", "return"),),
            (decoder_reads, denoising_loss),
            "t5-shift",
        ),
        GuideEntry(
            "unscaled",
            r"""
e_{ij} = q_i \cdot k_j + b_{\beta(j - i)}, \qquad W_Q = \frac{\sigma}{\sqrt{D}}\, G
""",
            (
                SourceLines("weft.model.families.t5:T5._block", "attention ="),
                SourceLines("weft.model.initialize:_rescale_t5", "for module in"),
            ),
            (unscaled_score, first_query_weight),
            "t5-scores",
        ),
        GuideEntry(
            "tied-head",
            r"""
z_v = \frac{E_v \cdot h}{\sqrt{W}}, \qquad E = \sqrt{W}\, \sigma\, G
""",
            (
                SourceLines("weft.model.families.t5:T5._heads", "scale ="),
                SourceLines("weft.model.heads:Head.prepare", "if self.spec.scale"),
                SourceLines("weft.model.initialize:_scales_of", "return"),
                SourceLines("weft.model.initialize:_rescale_t5", "for matrix, scale"),
            ),
            (tied_logits, first_tied_weight),
            "t5-start",
        ),
    ),
    T5_PICTURES,
)
