"""No padding: a batch as one run of tokens, and what it saves."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.no_padding import NO_PADDING_PICTURES
from weft.theory.written.no_padding import (
    attend_within,
    cut_by_tokens,
    flat_products,
    loss_of_scored,
    mean_of_sequence,
    padded_head,
    place_if_padded,
    position_in_sequence,
    scored_rows,
    sequence_of,
    starts_of,
)

_EQUALLY_LONG = "strict only makes sure that the lists are equally long, and they are"

NO_PADDING_CHAPTER = Chapter(
    "no-padding",
    (
        GuideEntry(
            "flat-batch",
            r"""
s_j = \sum_{i < j} n_i, \qquad p_t = t - \max \lbrace s_j : s_j \le t \rbrace
""",
            (SourceLines("weft.model.packed:pack", "lengths =", "positions ="),),
            (starts_of, position_in_sequence),
            "padding-batch",
            rows=(4,),
        ),
        GuideEntry(
            "one-by-one",
            r"""
z_t = \sum_{u \,:\, o(u) = o(t)} \alpha_{tu}\, v_u, \qquad
\alpha_{tu} = \frac{\exp(q_t \cdot k_u / \sqrt{D})}{\sum_{r \,:\, o(r) = o(t)} \exp(q_t \cdot k_r / \sqrt{D})}
""",
            (
                SourceLines("weft.model.attention:attend", "runs = _shared_runs", "return torch.cat"),
                SourceLines("weft.model.attention:_shared_runs"),
                SourceLines("weft.model.attention:_split_by_run", "query_sizes", "return zip"),
            ),
            (sequence_of, attend_within),
            "padding-blocks",
            rows=(4,),
            equivalent={
                "1 → 2 #3": "no neighbours are then joined: the same result from more calls",
                "True → False": _EQUALLY_LONG,
                "True → False #2": _EQUALLY_LONG,
            },
        ),
        GuideEntry(
            "mean-of-each",
            r"""
\bar h_j = \frac{1}{n_j} \sum_{t = s_j}^{s_{j+1} - 1} h_t
""",
            (SourceLines("weft.model.heads:mean_of_each"),),
            (mean_of_sequence,),
            "padding-mean",
            equivalent={"-1 → 1": "a flat batch has two dimensions, so the last one is the second"},
        ),
        GuideEntry(
            "padding-mask",
            r"""
\alpha_{ij} = \frac{m_j \exp(q_i \cdot k_j / \sqrt{D})}{\sum_{r=1}^{L} m_r \exp(q_i \cdot k_r / \sqrt{D})},
\qquad m_j = \begin{cases} 1 & j \le n \\ 0 & j > n \end{cases}
""",
            (
                SourceLines("weft.model.gpu_attention:_padded", "count =", "return rows"),
                SourceLines("weft.model.gpu_attention:padding_mask", "place =", "return of_longest"),
            ),
            (place_if_padded, padded_head),
            "padding-batch",
            rows=(4,),
        ),
        GuideEntry(
            "products",
            r"""
F = 2 M \sum_j n_j \;+\; 4\, d\, c \sum_{\ell} \sum_j n_j \min(n_j, w_\ell)
""",
            (
                SourceLines("weft.model.flops:_stack_flops", "total = 2.0"),
                SourceLines("weft.model.flops:_stack_flops", "width =", "total += 4 * width * seen"),
            ),
            (flat_products,),
            "padding-share",
        ),
        GuideEntry(
            "cutting",
            r"""
c_0 = 0, \qquad
c_{k+1} = \max \Big\lbrace\, e : \sum_{i = c_k}^{e - 1} n_i \le B \;\lor\; e = c_k + 1 \,\Big\rbrace
""",
            (
                SourceLines("weft.model.packed:order_by_length", "return"),
                SourceLines("weft.model.packed:group_by_tokens"),
            ),
            (cut_by_tokens,),
            "padding-share",
        ),
        GuideEntry(
            "scored-rows",
            r"""
L = \frac{1}{|R|} \sum_{t \in R} -\log \operatorname{softmax}(W h_t + b)_{y_t},
\qquad R = \lbrace\, s_j + i : 1 \le j \le N,\; i \in M_j \rbrace
""",
            (
                SourceLines("weft.objectives.masked:masked_batch", "inputs.append", "start +="),
                SourceLines("weft.model.heads:Head.prepare", "x = hidden_TW"),
            ),
            (scored_rows, loss_of_scored),
            "padding-scored",
        ),
    ),
    NO_PADDING_PICTURES,
)
