"""Writing text: how the next token is chosen, and beam search."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.generation import GENERATION_PICTURES
from weft.theory.written.generation import (
    by_rank,
    cannot_improve,
    drawn_token,
    extended_beams,
    finished_beams,
    going_on,
    length_score,
    most_probable,
    nucleus,
    renormalized,
    repetition_penalized,
    top_k_set,
    with_temperature,
)

_FILTERS = "weft.generate.next_token:filtered_probabilities"
_GROUP = "weft.generate.beam:_Group"
_TWO = "the tensor has two dimensions, so the last is number 1"
_MORE = "more proposals than are needed; they are sorted, and the best ones are taken"
_UNUSED = "real scores lie far above this bound, and those of unused beams below it"


GENERATION_CHAPTER = Chapter(
    "generation",
    (
        GuideEntry(
            "greedy",
            r"""
w_t = \operatorname*{argmax}_{v}\; z_v
""",
            (SourceLines("weft.generate.next_token:_choose", "if is_greedy"),),
            (most_probable,),
            "generation-temperature",
            rows=(41,),
            equivalent={
                "scores_RV.numpy() → scores_RV": "torch finds the same place, more slowly",
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "temperature",
            r"""
p_v = \frac{e^{z_v / \tau}}{\sum_{u=1}^{V} e^{z_u / \tau}}
""",
            (
                SourceLines(_FILTERS, "scores = scores_RV -", "scores = scores / _column"),
                SourceLines(_FILTERS, "yield left, _filtered(scores.softmax"),
            ),
            (with_temperature,),
            "generation-temperature",
            rows=(41,),
            equivalent={
                "-1 → 1": _TWO,
                "-1 → 1 #2": _TWO,
            },
        ),
        GuideEntry(
            "draw",
            r"""
w_t = \min \left\lbrace v : \sum_{i=1}^{v} p_i > u \sum_{i=1}^{V} p_i \right\rbrace, \qquad 0 \le u < 1
""",
            (SourceLines("weft.generate.next_token:draw_tokens"),),
            (drawn_token,),
            "generation-draw",
            rows=(41,),
            equivalent={
                "-1 → 1": _TWO,
                "-1 → 1 #3": _TWO,
                "-1 → 1 #4": _TWO,
                "-1 → 1 #5": _TWO,
            },
        ),
        GuideEntry(
            "top-k",
            r"""
p'_v = \frac{[v \in S]\; p_v}{\sum_{s \in S} p_s}, \qquad S = \lbrace r_1, \dots, r_k \rbrace,
\qquad p_{r_1} \ge p_{r_2} \ge \dots \ge p_{r_V}
""",
            (SourceLines(_FILTERS, "if one.top_k is not None"),),
            (by_rank, top_k_set, renormalized),
            "generation-filters",
            rows=(41,),
            equivalent={
                "one.top_k < vocabulary → one.top_k <= vocabulary": "with k = V every token stays, in either branch",
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "top-p",
            r"""
S = \left\lbrace r_i : \sum_{j < i} p_{r_j} < P \right\rbrace \cup \lbrace r_1 \rbrace
""",
            (SourceLines("weft.generate.next_token:_filtered", "if one.top_p is not None"),),
            (nucleus,),
            "generation-filters",
            rows=(41,),
            equivalent={
                "-1 → 1": _TWO,
            },
        ),
        GuideEntry(
            "repetition",
            r"""
z'_v = \begin{cases} z_v / \theta & z_v > 0 \\ z_v\, \theta & z_v \le 0 \end{cases}
\qquad v \in W = \lbrace w_1, \dots, w_{t-1} \rbrace
""",
            (SourceLines("weft.generate.next_token:TokenRules.apply", "if self.seen is not None"),),
            (repetition_penalized,),
            "generation-repetition",
            rows=(41,),
            equivalent={
                "scores < 0 → scores <= 0": "a score of 0 is 0 after both",
            },
        ),
        GuideEntry(
            "beam-step",
            r"""
H_t = \operatorname*{top}_{B} \left\lbrace\, s(w) + \log p(v \mid w) \;:\;
w \in H_{t-1},\; v = 1, \dots, V \right\rbrace
""",
            (
                SourceLines("weft.generate.beam:BeamSearch._proposed", "total ="),
                SourceLines("weft.generate.beam:BeamSearch._proposed", "each =", "columns ="),
                SourceLines(f"{_GROUP}.advance", "chosen =", "self.log_probs = np.column"),
            ),
            (extended_beams, going_on),
            "generation-tree",
            rows=(41,),
            equivalent={
                "min(self.wanted, scores_BV.shape[-1]) → scores_BV.shape[-1]": _MORE,
                "min(self.wanted, each.values.numel()) → each.values.numel()": _MORE,
                "-1 → 1": _TWO,
                "-1 → 1 #2": _TWO,
                "-1 → 1 #3": _TWO,
            },
        ),
        GuideEntry(
            "beam-score",
            r"""
\operatorname{score}(w) = \frac{1}{n^a} \sum_{t=1}^{n} \log p(w_t \mid w_1 \dots w_{t-1})
""",
            (
                SourceLines(f"{_GROUP}.advance", "if rank < self.beams"),
                SourceLines(f"{_GROUP}._finish", "self.found ="),
            ),
            (length_score, finished_beams),
            "generation-length",
            rows=(41,),
            equivalent={
                "score > LOST / 2 → score >= LOST / 2": _UNUSED,
                "LOST / 2 → LOST": _UNUSED,
                "2 → 3": _UNUSED,
            },
        ),
        GuideEntry(
            "beam-end",
            r"""
|F| = B, \qquad \frac{1}{m^a} \max_{w \in H_t} s(w) \le \min_{f \in F} \operatorname{score}(f)
""",
            (SourceLines(f"{_GROUP}._cannot_improve"),),
            (cannot_improve,),
            "generation-bound",
            rows=(41,),
            equivalent={
                "self.penalty > 0 → self.penalty >= 0": "with a = 0 no length is divided by",
            },
        ),
    ),
    GENERATION_PICTURES,
)
