"""GPT: the next token, the whole network, its sizes, and tasks without training."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.gpt import GPT_PICTURES
from weft.theory.written.gpt import (
    first_deviation,
    gpt_attention,
    gpt_gelu,
    gpt_head,
    gpt_layer,
    gpt_logits,
    gpt_norm,
    heads_fit,
    likelihood,
    option_shares,
    rule_for_batch,
    rule_for_length,
    surprise_per_token,
)

_EQUALLY_LONG = "strict only makes sure that the lists are equally long, and they are"
_ONE_HEAD = "a GPT has one head, so there is no other loss to add to"


GPT_CHAPTER = Chapter(
    "gpt",
    (
        GuideEntry(
            "likelihood",
            r"""
\arg\max_\theta \prod_{t=1}^{n} p_\theta(x_{t+1} \mid x_1 \dots x_t) = \arg\min_\theta L(\theta),
\qquad L(\theta) = -\frac{1}{n} \log \prod_{t=1}^{n} p_\theta(x_{t+1} \mid x_1 \dots x_t)
""",
            (
                SourceLines("weft.objectives.causal:Causal.batch", "rows =", "targets ="),
                SourceLines("weft.objectives.objective:scaled_loss", "scale ="),
                SourceLines("weft.objectives.objective:scaled_loss", "head =", "loss = loss + vocabulary_loss"),
            ),
            (likelihood, surprise_per_token),
            "gpt-questions",
            rows=(32,),
            equivalent={
                "max(total, 1) → total": "only avoids a division by zero, where nothing is scored",
                (
                    "loss + vocabulary_loss(head, prepared, batch.targets, scale=scale, smoothing=smoothing) → "
                    "vocabulary_loss(head, prepared, batch.targets, scale=scale, smoothing=smoothing)"
                ): _ONE_HEAD,
            },
        ),
        GuideEntry(
            "gpt-forward",
            r"""
\begin{aligned}
x^0 &= E_t + P, \\
a^l &= x^{l-1} + \operatorname{Attention}_l\left(\operatorname{Norm}(x^{l-1})\right), \\
x^l &= a^l + \operatorname{FFN}_l\left(\operatorname{Norm}(a^l)\right), \\
z &= \operatorname{Norm}(x^{L})\, E^\top
\end{aligned}
""",
            (
                SourceLines("weft.model.families.gpt2:Gpt2.architecture", "block =", "return Architecture"),
                SourceLines("weft.model.block:Block._wrap", "normal, x =", "return x + drop(sublayer(normal"),
                SourceLines("weft.model.stack:Stack.forward", "for layer, block in", "return self.dropout"),
                SourceLines("weft.model.heads:Head.forward", "return x if self.out"),
            ),
            (gpt_norm, gpt_gelu, gpt_head, gpt_attention, gpt_layer, gpt_logits),
            "gpt-lens",
            rows=(32,),
            equivalent={"True → False #3": "changes the first weights only, which the next formula is about"},
        ),
        GuideEntry(
            "residual-init",
            r"""
W \sim N(0, \sigma^2), \qquad
\sigma = \begin{cases} 0.02 / \sqrt{2L} & W \in \lbrace W_O, W_2 \rbrace \\ 0.02 & \text{else} \end{cases}
""",
            (
                SourceLines("weft.model.initialize:initialize", "std ="),
                SourceLines("weft.model.initialize:_residual_writers"),
            ),
            (first_deviation,),
            "gpt-first-weights",
        ),
        GuideEntry(
            "head-width",
            r"""
d = H \cdot D
""",
            (SourceLines("weft.model.families.family:head_width"),),
            (heads_fit,),
            "gpt-sizes",
            rows=(34,),
        ),
        GuideEntry(
            "run-rules",
            r"""
n = 2^{\min(\max(\operatorname{round}(\log_2 (256\, (C / C_0)^{1/3})),\, 6),\, 10)}, \qquad
B = n \cdot \max\left(8, \operatorname{round}\left(0.146\, C^{0.3271} / n\right)\right)
""",
            (
                SourceLines("weft.train.plan.scaling:length_for"),
                SourceLines("weft.train.plan.scaling:batch_for"),
            ),
            (rule_for_length, rule_for_batch),
            "gpt-batch",
            rows=(34,),
        ),
        GuideEntry(
            "choose",
            r"""
P(a \mid q) = \frac{e^{m_a}}{\sum_b e^{m_b}}, \qquad
m_a = \frac{1}{|a|} \sum_{j=1}^{n_a} \log p(a_j \mid q\, a_1 \dots a_{j-1})
""",
            (
                SourceLines("weft.generate.scorer:_candidates", "sizes =", "return"),
                SourceLines("weft.generate.scorer:_size"),
            ),
            (option_shares,),
            "gpt-choose",
            rows=(34,),
            equivalent={
                "True → False": _EQUALLY_LONG,
                "True → False #2": _EQUALLY_LONG,
                "True → False #3": _EQUALLY_LONG,
            },
        ),
    ),
    GPT_PICTURES,
)
