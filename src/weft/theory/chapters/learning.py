"""Learning: the loss of a prediction, its gradient, the update, the rate, clipping, accumulation, when to stop."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.learning import LEARNING_PICTURES
from weft.theory.written.learning import (
    accumulated_loss,
    adamw,
    clipped,
    cosine_decay,
    cross_entropy,
    linear_decay,
    loss_gradient,
    muon,
    newton_schulz,
    smoothed_cross_entropy,
    smoothed_target,
    softmax,
    stops_after,
    warm_up,
)

_NOT_ZERO = "the small number only avoids a division by zero"
_TWO_WAYS = "both branches clip by the norm; the first gives the same bits for any number of processes"


LEARNING_CHAPTER = Chapter(
    "learning",
    (
        GuideEntry(
            "cross-entropy",
            r"""
l = -\log \frac{e^{z_y}}{\sum_{v=1}^{V} e^{z_v}} = \log \sum_{v=1}^{V} e^{z_v} - z_y
""",
            (SourceLines("weft.model.loss:_sum_of_losses"),),
            (softmax, cross_entropy),
            "cross-entropy",
            rows=(40,),
        ),
        GuideEntry(
            "label-smoothing",
            r"""
l_\epsilon = -\sum_{v=1}^{V} t_v \log p_v, \qquad t_v = (1 - \epsilon)\, [v = y] + \frac{\epsilon}{V}
""",
            (SourceLines("weft.model.loss:_sum_of_losses", "if smoothing", "return (largest"),),
            (smoothed_target, smoothed_cross_entropy),
            "cross-entropy",
            rows=(40,),
        ),
        GuideEntry(
            "loss-gradient",
            r"""
\frac{\partial l_\epsilon}{\partial z_v} = p_v - t_v
""",
            (SourceLines("weft.model.loss:_gradient_in_place"),),
            (loss_gradient,),
            "gradient",
            rows=(40,),
        ),
        GuideEntry(
            "adamw",
            r"""
\begin{aligned}
m_t &= \beta_1 m_{t-1} + (1 - \beta_1)\, g_t, & \hat m_t &= \frac{m_t}{1 - \beta_1^t}, \\
v_t &= \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2, & \hat v_t &= \frac{v_t}{1 - \beta_2^t}, \\
w_t &= w_{t-1} - \eta \left(\frac{\hat m_t}{\sqrt{\hat v_t} + \epsilon} + \lambda\, w_{t-1}\right)
\end{aligned}
""",
            (
                SourceLines("weft.train.exact_update:ExactAdamW.step", 'state["step"] = state', "numbers ="),
                SourceLines("weft.train.exact_update:_adamw_by_torch"),
            ),
            (adamw,),
            "descent",
            rows=(38,),
        ),
        GuideEntry(
            "muon",
            r"""
\begin{aligned}
M_t &= \mu M_{t-1} + G_t, \qquad D_t = G_t + \mu M_t, \\
W_t &= W_{t-1} - \eta \left(\sqrt{\max(1, r / c)}\; \operatorname{NS}(D_t) + \lambda\, W_{t-1}\right)
\end{aligned}
""",
            (
                SourceLines("weft.train.optimizers:Muon.step", "momentum = state", "weight.mul_"),
                SourceLines("weft.train.optimizers:orthogonal", "rows, columns =", "return (x.mT"),
            ),
            (newton_schulz, muon),
            "singular-values",
            rows=(38,),
            equivalent={
                "x.norm(dim=(-2, -1), keepdim=True) + 1e-07 → x.norm(dim=(-2, -1), keepdim=True) - 1e-07": _NOT_ZERO,
                "x.norm(dim=(-2, -1), keepdim=True) + 1e-07 → x.norm(dim=(-2, -1), keepdim=True)": _NOT_ZERO,
            },
        ),
        GuideEntry(
            "schedule",
            r"""
\frac{\eta_t}{\eta} = \begin{cases}
\dfrac{t + 1}{T_w} & t < T_w \\
f + (1 - f)\, \tfrac{1}{2}\left(1 + \cos \pi \dfrac{t - T_w}{T - T_w}\right) & \text{cosine} \\
f + (1 - f) \left(1 - \dfrac{t - T_w}{T - T_w}\right) & \text{linear}
\end{cases}
""",
            (
                SourceLines("weft.train.schedules:Schedule.decay_begins", "stable =", "return max"),
                SourceLines("weft.train.schedules:Schedule.__call__"),
            ),
            (warm_up, cosine_decay, linear_decay),
            "schedules",
            rows=(33, 38),
            equivalent={"step < begin → step <= begin": "the decay begins with a share of 1, too"},
        ),
        GuideEntry(
            "clipping",
            r"""
g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)
""",
            (
                SourceLines("weft.train.engine:Engine._update", "if 0 < self.clip"),
                SourceLines("weft.train.exact_update:clip_gradients", "torch._foreach_mul_"),
            ),
            (clipped,),
            "clipping",
            rows=(39,),
            equivalent={
                "0 < self.clip < norm_value → 0 < self.clip": "a factor of at most 1 is taken inside as well",
                "if self.is_exact → if not self.is_exact": _TWO_WAYS,
                "norm + 1e-06 → norm - 1e-06": _NOT_ZERO,
                "norm + 1e-06 → norm": _NOT_ZERO,
            },
        ),
        GuideEntry(
            "accumulation",
            r"""
L = \sum_{m=1}^{M} \frac{1}{N} \sum_{i=1}^{n_m} l_{mi}, \qquad N = \sum_{m=1}^{M} n_m
""",
            (SourceLines("weft.objectives.objective:scaled_loss", "for kind, total"),),
            (accumulated_loss,),
            "accumulation",
            equivalent={"max(total, 1) → total": "only avoids a division by zero, where nothing is scored"},
        ),
        GuideEntry(
            "early-stopping",
            r"""
k_{\mathrm{stop}} = \min \Big\lbrace\, k : \min_{k - P < j \le k} L_j \ge \min_{j \le k - P} L_j \,\Big\rbrace
""",
            (
                SourceLines("weft.train.state:TrainState.judge", "cost =", "if self.best_cost is None"),
                SourceLines("weft.train.loop:patience_rule", "def rule", "return rule"),
            ),
            (stops_after,),
            "early-stopping",
            rows=(38,),
        ),
    ),
    LEARNING_PICTURES,
)
