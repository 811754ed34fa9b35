"""What a model costs: parameters, FLOPs, bytes, and the size that fits a budget."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.cost import COST_PICTURES
from weft.theory.written.cost import (
    block_rows,
    bytes_of_weights,
    decoder_flops,
    fitting_size,
    gpt2_parameters,
    law,
    layer_weights,
    matrix_weights,
    product_flops,
    reading_flops,
    remembered_bytes,
    repeated_worth,
    step_flops,
    trained_bytes,
)

COST_CHAPTER = Chapter(
    "cost",
    (
        GuideEntry(
            "layer-weights",
            r"""
M_1 = \underbrace{d\, D\, (H + 2 H_k)}_{W_Q,\, W_K,\, W_V} + \underbrace{H D\, d}_{W_O}
+ \underbrace{(g + 1)\, d\, m}_{W_1,\, V,\, W_2}
""",
            (
                SourceLines("weft.model.attention:Attention.__init__", "self.qkv =", "self.out ="),
                SourceLines("weft.model.feedforward:FeedForward.__init__", "self.up =", "self.down ="),
            ),
            (layer_weights,),
            "cost-parameters",
            rows=(19,),
        ),
        GuideEntry(
            "parameters",
            r"""
N = (V + P)\, d + l\, (12\, d^2 + 13\, d) + 2\, d
""",
            (
                SourceLines("weft.model.network:Network.__init__", "for head in self.heads"),
                SourceLines("weft.model.network:count_parameters", "quantized =", "return sum("),
            ),
            (gpt2_parameters,),
            "cost-parameters",
            rows=(19,),
        ),
        GuideEntry(
            "matrix-weights",
            r"""
M = \sum_{k} r_k\, c_k, \qquad W_k \in \mathbb{R}^{r_k \times c_k}
""",
            (
                SourceLines("weft.model.flops:stack_weights", "parts =", "return"),
                SourceLines("weft.model.flops:_matrix_weights", "tables =", "return"),
            ),
            (matrix_weights,),
            "cost-parameters",
            rows=(19,),
        ),
        GuideEntry(
            "reading-flops",
            r"""
F = 2\, M\, T + 2\, l\, d \sum_j n_j^2 + 2\, V d\, R, \qquad T = \sum_j n_j
""",
            (SourceLines("weft.model.flops:forward_flops"),),
            (reading_flops,),
            "cost-length",
        ),
        GuideEntry(
            "cross-flops",
            r"""
F = 2\, l \left(14\, d^2 \sum_j t_j + 2\, d^2 \sum_j s_j\right) + l \sum_j \left(2\, d\, t_j^2 + 4\, d\, t_j s_j\right)
""",
            (
                SourceLines("weft.model.flops:_stack_flops", "if stack.spec.cross"),
                SourceLines("weft.model.flops:_stack_flops", "for module in stack.modules()"),
            ),
            (decoder_flops,),
            "cost-length",
            equivalent={"True → False": "every target has a source, so the two lists are always equally long"},
        ),
        GuideEntry(
            "training-flops",
            r"""
C = \sum_k \left(2\, r_k c_k T + 2\, r_k c_k T + 2\, r_k c_k T\right) = 3 F = 6\, M\, T
""",
            (SourceLines("weft.model.flops:training_flops", "return"),),
            (product_flops, step_flops),
            "cost-products",
        ),
        GuideEntry(
            "training-bytes",
            r"""
B = \beta\, \big(\underbrace{4\, (N - M)}_{w,\, g,\, m,\, v} + \underbrace{3\, M}_{w,\, g,\, m}\big)
""",
            (
                SourceLines("weft.train.exact_update:ExactAdamW.step", "if not state"),
                SourceLines("weft.train.optimizers:Muon.step", "if not state"),
            ),
            (trained_bytes,),
            "cost-memory",
        ),
        GuideEntry(
            "weight-bytes",
            r"""
B = \sum_k \left(\frac{b_k}{8}\, r_k c_k + 4\, r_k G_k\right) + \sum_p \beta_p N_p
""",
            (SourceLines("weft.model.quantized:weight_bytes", "shared =", "return"),),
            (bytes_of_weights,),
            "cost-memory",
        ),
        GuideEntry(
            "remembered-bytes",
            r"""
B = 2\, \beta\, l\, H_k D \cdot 16 \left\lceil \frac{n}{16} \right\rceil
""",
            (
                SourceLines("weft.generate.pages:pages_for", "return"),
                SourceLines("weft.generate.pages:PageShape.__init__", "sizes =", "self.numbers ="),
            ),
            (remembered_bytes,),
            "cost-cache",
        ),
        GuideEntry(
            "loss-block",
            r"""
R = \max\left(1, \left\lfloor \frac{\max(2^{24},\, G / 256)}{V} \right\rfloor\right)
""",
            (
                SourceLines("weft.model.loss:rows_of_a_block", "return"),
                SourceLines("weft.model.loss:logits_of_a_block", "return"),
            ),
            (block_rows,),
            "cost-memory",
        ),
        GuideEntry(
            "scaling-law",
            r"""
L = E + \frac{A}{u(M,\, U/20,\, 5.3)^{\alpha}} + \frac{B}{u(D,\, U,\, 15.4)^{\beta}},
\qquad u(x, U, R) = \min(x, U) + U R\, \big(1 - e^{-\max(x/U - 1,\, 0) / R}\big)
""",
            (
                SourceLines("weft.train.plan.scaling:expected_loss", "filled =", "return"),
                SourceLines("weft.train.plan.scaling:_useful", "more =", "return"),
            ),
            (repeated_worth, law),
            "cost-repeats",
        ),
        GuideEntry(
            "best-size",
            r"""
M^{*} = \operatorname*{arg\,min}_{M} \left| \ln \frac{20\, M}{D} \right|
""",
            (SourceLines("weft.train.plan.scaling:best_size"),),
            (fitting_size,),
            "cost-law",
            equivalent={
                "weights_of(size, vocabulary) * TOKENS_PER_WEIGHT / tokens"
                " → tokens / (weights_of(size, vocabulary) * TOKENS_PER_WEIGHT)": (
                    "the logarithm of the inverse has the same size"
                )
            },
        ),
    ),
    COST_PICTURES,
)
