"""Exact continuation: everything random is a function of seed and step."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.exact_continuation import EXACT_CONTINUATION_PICTURES
from weft.theory.written.exact_continuation import (
    continued,
    counted_uniform,
    epoch_keys,
    feistel_permuted,
    keyed_position,
    mask_from_bits,
    mixed_bits,
    numbered_sample,
    step_samples,
    step_seed,
)

_SHUFFLE = "weft.tokens.keyed_shuffle"


EXACT_CONTINUATION_CHAPTER = Chapter(
    "exact-continuation",
    (
        GuideEntry(
            "mixing",
            r"""
\begin{aligned}
x &\leftarrow (x \oplus \lfloor x / 2^{30} \rfloor) \cdot A \bmod 2^{64} \\
x &\leftarrow (x \oplus \lfloor x / 2^{27} \rfloor) \cdot B \bmod 2^{64} \\
\operatorname{mix}(x) &= x \oplus \lfloor x / 2^{31} \rfloor
\end{aligned}
""",
            (SourceLines("weft.splitmix64:mix64"),),
            (mixed_bits,),
            "continuation-bits",
        ),
        GuideEntry(
            "uniforms",
            r"""
u_{k,t} = \left\lfloor \frac{\operatorname{mix}\left( k + (t + 1)\, \gamma \bmod 2^{64} \right)}{2^{11}} \right\rfloor
\cdot 2^{-53}
""",
            (SourceLines("weft.generate.next_token:uniforms"),),
            (counted_uniform,),
            "continuation-uniforms",
            equivalent={
                "True → False": "there are as many keys as steps",
                "(bits >> np.uint64(11)).astype(np.float64) → bits >> np.uint64(11)": (
                    "numpy makes doubles of them in the product"
                ),
            },
        ),
        GuideEntry(
            "feistel",
            r"""
L_{r+1} = R_r, \qquad R_{r+1} = L_r \oplus \left( \operatorname{mix}(R_r + K_r) \bmod 2^h \right),
\qquad r = 0, 1, 2, 3
""",
            (SourceLines(f"{_SHUFFLE}:_permute"),),
            (epoch_keys, feistel_permuted),
            "continuation-feistel",
        ),
        GuideEntry(
            "keyed-shuffle",
            r"""
\pi(i) = F^m(i), \qquad m = \min \lbrace m \ge 1 : F^m(i) < n \rbrace
""",
            (SourceLines(f"{_SHUFFLE}:shuffle_epochs", "half_bits =", "while (outside"),),
            (keyed_position,),
            "continuation-shuffle",
            equivalent={
                "max(1, ((size - 1).bit_length() + 1) // 2) → ((size - 1).bit_length() + 1) // 2": (
                    "it matters for a single sample only, whose number is 0 either way"
                ),
                "size - 1 → 1 - size": "a number and its negative have equally many bits",
            },
        ),
        GuideEntry(
            "step-samples",
            r"""
\operatorname{sample}(t, i) = \pi_{s,\,e}(m \bmod n), \qquad m = t S + i,
\qquad e = \left\lfloor \frac{m}{n} \right\rfloor
""",
            (
                SourceLines("weft.tokens.order:Order.batch", "return self"),
                SourceLines("weft.tokens.order:Order.__getitem__", "for source, size"),
            ),
            (numbered_sample, step_samples),
            "continuation-steps",
        ),
        GuideEntry(
            "step-seed",
            r"""
\sigma_{s,t} = \left\lfloor \tfrac{1}{2} \operatorname{hash}_{64}(s, t) \right\rfloor
""",
            (
                SourceLines("weft.train.engine:piece_seed"),
                SourceLines("weft.train.engine:Engine._take_step", "torch.manual_seed"),
            ),
            (step_seed,),
            "continuation-dropout",
            equivalent={
                "1 → 2": "of several numbers the first is taken, which is the same",
            },
        ),
        GuideEntry(
            "dropout-bits",
            r"""
m_i = \frac{[\, c_i \ge 2^{16} p \,]}{1 - p}, \qquad c_i \in \lbrace 0, \dots, 2^{16} - 1 \rbrace
""",
            (SourceLines("weft.model.dropout:dropout_mask"),),
            (mask_from_bits,),
            "continuation-dropout",
            equivalent={
                "round(p * 2 ** 16) - 2 ** 15 → round(p * 2 ** 16) + 2 ** 15": (
                    "they are compared as numbers of 16 bits, which wrap around after 2¹⁶"
                ),
            },
        ),
        GuideEntry(
            "resume",
            r"""
\theta_{t+1} = f(\theta_t, t), \qquad \theta_T = f(\,\cdots f(f(\theta_k, k),\, k + 1) \cdots,\, T - 1)
""",
            (
                SourceLines("weft.train.loop:_Loop._take_step", "pieces = pieces_of", "loss, norm ="),
                SourceLines("weft.train.checkpoints:_optimizer_tensors"),
                SourceLines("weft.train.checkpoints:restore_weights", "local_part(parameter).copy_"),
                SourceLines("weft.train.checkpoints:_fill_optimizers", "if shape :="),
                SourceLines("weft.train.checkpoints:_fill_optimizers", "owner[parameter].state"),
            ),
            (continued,),
            "continuation-resume",
            equivalent={
                "True → False": "a number that was just read belongs to nobody else",
            },
        ),
    ),
    EXACT_CONTINUATION_PICTURES,
)
