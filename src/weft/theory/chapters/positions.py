"""Positions: how a model learns which token comes where."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.positions import POSITIONS_PICTURES
from weft.theory.written.positions import (
    biased_score,
    distance_bucket,
    rotary_angle,
    rotated_head,
    sinusoid,
    slowed_frequency,
    with_position_vectors,
)

POSITIONS_CHAPTER = Chapter(
    "positions",
    (
        GuideEntry(
            "position-vectors",
            r"""
x_p = E_{t_p} + P_{p + o}
""",
            (SourceLines("weft.model.embeddings:Embeddings.forward", "if self.positions is not None"),),
            (with_position_vectors,),
            "positions-loss",
            rows=(5,),
        ),
        GuideEntry(
            "sinusoids",
            r"""
P_{p,\,2i} = \sin\left(\frac{p}{10000^{2i/W}}\right), \qquad P_{p,\,2i+1} = \cos\left(\frac{p}{10000^{2i/W}}\right)
""",
            (SourceLines("weft.model.positions:sinusoid_table", "even =", "return torch.cat"),),
            (sinusoid,),
            "positions-sinusoids",
            rows=(5,),
        ),
        GuideEntry(
            "distance-buckets",
            r"""
\beta(n) = \begin{cases}
n & n < e \\
\min\left(e + \left\lfloor \dfrac{\log (n / e)}{\log (M / e)}\, (N - e) \right\rfloor,\; N - 1\right) & n \ge e
\end{cases}
\qquad e = \left\lfloor \frac{N}{2} \right\rfloor
""",
            (SourceLines("weft.model.positions:relative_bucket", "buckets, base =", "return base"),),
            (distance_bucket,),
            "positions-buckets",
            rows=(30,),
            equivalent={
                "distance.clamp(min=1) → distance": (
                    "it only keeps the logarithm of 0 away; distance 0 always has its own bucket"
                ),
                "distance < exact → distance <= exact": "at distance e the logarithm is 0, so both give e",
            },
        ),
        GuideEntry(
            "relative-bias",
            r"""
e_{ij} = q_i \cdot k_j + b_{\beta(j - i)}
""",
            (
                SourceLines("weft.model.positions:RelativeBias.forward", "index =", "return bias_HLL.masked"),
                SourceLines("weft.model.attention:_attend_by_formula", "if view.causal"),
            ),
            (biased_score,),
            "positions-bias",
            rows=(30,),
            equivalent={"2 → 3 #2": "with a bias the length does not matter there; without one the view is causal"},
        ),
        GuideEntry(
            "rotary-angles",
            r"""
\varphi_{p,\,i} = p\, \theta_i, \qquad \theta_i = B^{-2i/D}, \qquad i = 0, \dots, \tfrac{D}{2} - 1
""",
            (
                SourceLines("weft.model.positions:rotary_frequencies", "even =", "frequency ="),
                SourceLines("weft.model.positions:rotary_table", "angle = positions", "return angle.cos"),
            ),
            (rotary_angle,),
            "positions-clocks",
            rows=(30,),
        ),
        GuideEntry(
            "rotation",
            r"""
\begin{pmatrix} x'_i \\ x'_{i + D/2} \end{pmatrix} =
\begin{pmatrix} \cos \varphi_{p,i} & -\sin \varphi_{p,i} \\ \sin \varphi_{p,i} & \cos \varphi_{p,i} \end{pmatrix}
\begin{pmatrix} x_i \\ x_{i + D/2} \end{pmatrix}
""",
            (
                SourceLines("weft.model.positions:_rotated", "(a, b), (sin, _) =", "return rotated"),
                SourceLines("weft.model.fused_layers:prepare_heads", "if table is not None:"),
            ),
            (rotated_head,),
            "positions-distance",
            rows=(30,),
        ),
        GuideEntry(
            "longer-context",
            r"""
\theta'_i = (1 - \gamma_i)\, \frac{\theta_i}{s} + \gamma_i\, \theta_i, \qquad
\gamma_i = \operatorname{clamp}\left(
    \frac{L \theta_i / 2 \pi - \mathrm{low}}{\mathrm{high} - \mathrm{low}},\; 0,\; 1\right)
""",
            (SourceLines("weft.model.positions:rotary_frequencies", "match rotary.scaling"),),
            (slowed_frequency,),
            "positions-longer",
        ),
    ),
    POSITIONS_PICTURES,
)
