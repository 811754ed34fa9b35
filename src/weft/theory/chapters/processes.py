"""Several processes: pieces, sums along a tree, weights that are shared out, and one matrix in several processes."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.processes import PROCESSES_PICTURES
from weft.theory.written.processes import (
    feedforward_of_peers,
    gradient_at_entrance,
    heads_of_peers,
    logit_gradient_of_peers,
    look_up_at_peers,
    loss_of_peers,
    mean_of_all,
    norm_of_peers,
    pieces_in_turn,
    pieces_of_process,
    rows_of_peer,
    rows_of_process,
    sent_numbers,
    tree_sum,
)

PROCESSES_CHAPTER = Chapter(
    "processes",
    (
        GuideEntry(
            "shared-pieces",
            r"""
I_r = \left\lbrace\, i : \left\lfloor \frac{r\, p}{n} \right\rfloor \le i
< \left\lfloor \frac{(r + 1)\, p}{n} \right\rfloor \right\rbrace,
\qquad I'_r = \lbrace\, i < p : i \bmod n = r \,\rbrace
""",
            (SourceLines("weft.train.processes:Processes.own_pieces"),),
            (pieces_of_process, pieces_in_turn),
            "processes-pieces",
            rows=(48,),
        ),
        GuideEntry(
            "mean-of-all",
            r"""
L = \sum_{i=0}^{p - 1} \frac{1}{N} \sum_{j=1}^{N_i} l_{ij}, \qquad N = \sum_{i=0}^{p - 1} N_i
""",
            (
                SourceLines("weft.train.engine:Engine._totals"),
                SourceLines("weft.train.processes:Processes.add_up"),
            ),
            (mean_of_all,),
            "processes-pieces",
            rows=(48,),
        ),
        GuideEntry(
            "tree-sum",
            r"""
S(a, b) = S(a,\, a + m) + S(a + m,\, b), \qquad m = 2^{\lceil \log_2 (b - a) \rceil - 1},
\qquad S(a,\, a + 1) = g_a
""",
            (
                SourceLines("weft.train.gradients:TreeSum.add"),
                SourceLines("weft.train.gradients:TreeSum.total"),
                SourceLines("weft.train.gradients:_add"),
                SourceLines("weft.train.gradients:_are_halves"),
            ),
            (tree_sum,),
            "processes-tree",
            rows=(48,),
        ),
        GuideEntry(
            "exchange",
            r"""
s = (k + 1)\, (n - 1) \cdot 16 \left\lceil \frac{G}{16\, n} \right\rceil,
\qquad G = \sum_j 16 \left\lceil \frac{|g_j|}{16} \right\rceil
""",
            (
                SourceLines("weft.train.gradients:_places"),
                SourceLines("weft.train.gradients:PieceGradients._exchanged", "share =", "return _views"),
            ),
            (sent_numbers,),
            "processes-tree",
            rows=(48,),
            equivalent={
                "True → False": "there is a row for each branch",
                "True → False #2": "something arrives from each process",
                "True → False #3": "each process sends a row for each of its branches",
            },
        ),
        GuideEntry(
            "sharded-rows",
            r"""
R_r = \left\lbrace\, i < R : r\, a \le i < (r + 1)\, a \,\right\rbrace,
\qquad a = \left\lceil \frac{R}{n} \right\rceil
""",
            (SourceLines("weft.train.local:shared_rows"),),
            (rows_of_process,),
            "processes-memory",
            rows=(48,),
            equivalent={"min(rank * most, rows) → rank * most": "a range that begins behind its end is empty, too"},
        ),
        GuideEntry(
            "peer-rows",
            r"""
P_r = \left\lbrace\, b_k + i : k \ge 1,\; \left\lfloor \frac{r\, R_k}{n} \right\rfloor \le i
< \left\lfloor \frac{(r + 1)\, R_k}{n} \right\rfloor \right\rbrace, \qquad b_k = \sum_{j < k} R_j
""",
            (
                SourceLines("weft.model.peers:WeightCut.ranges"),
                SourceLines("weft.model.peers:WeightCut.part"),
                SourceLines("weft.model.peers:begin_and_end", "return"),
            ),
            (rows_of_peer,),
            "processes-peers",
            rows=(48,),
        ),
        GuideEntry(
            "peer-heads",
            r"""
\operatorname{Concat}(z_1, \dots, z_H)\, W_O + b_O = \sum_{r=0}^{n-1} \sum_{h \in H_r} z_h\, W_O^{(h)} + b_O
""",
            (
                SourceLines("weft.model.tensor_parallel:_cuts", "width =", "if isinstance(module, Attention)"),
                SourceLines("weft.model.tensor_parallel:SummedLinear.forward"),
            ),
            (heads_of_peers,),
            "processes-peers",
            rows=(48,),
        ),
        GuideEntry(
            "peer-feedforward",
            r"""
U f(W x + b) + c = \sum_{r=0}^{n-1} U_{:,\, P_r}\, f(W_{P_r,\, :}\, x + b_{P_r}) + c
""",
            (SourceLines("weft.model.tensor_parallel:_cuts", "inner =", 'note(f"{path}.down"'),),
            (feedforward_of_peers,),
            "processes-peers",
            rows=(48,),
        ),
        GuideEntry(
            "peer-gradient",
            r"""
\frac{\partial L}{\partial x} = \sum_{r=0}^{n-1} \left.\frac{\partial L}{\partial x}\right|_r
""",
            (
                SourceLines("weft.model.peers:_Enter"),
                SourceLines("weft.model.peers:_Sum"),
                SourceLines("weft.model.peers:_summed"),
            ),
            (gradient_at_entrance,),
            "processes-peers",
        ),
        GuideEntry(
            "peer-tokens",
            r"""
x = \sum_{r=0}^{n-1} \sum_{i \in P_r} [\, i = t \,]\; E_i
""",
            (SourceLines("weft.model.tensor_parallel:PeerEmbedding.forward"),),
            (look_up_at_peers,),
            "processes-peers",
        ),
        GuideEntry(
            "peer-loss",
            r"""
l = c + \ln \sum_{r=0}^{n-1} \sum_{i \in P_r} e^{z_i - c} - (1 - \epsilon)\, z_y
- \frac{\epsilon}{V} \sum_{r=0}^{n-1} \sum_{i \in P_r} z_i, \qquad c = \max_r \max_{i \in P_r} z_i
""",
            (
                SourceLines("weft.model.sliced_loss:VocabularySlice.places"),
                SourceLines("weft.model.sliced_loss:sum_of_losses"),
                SourceLines("weft.model.sliced_loss:gradient_in_place"),
            ),
            (loss_of_peers, logit_gradient_of_peers),
            "processes-peers",
        ),
        GuideEntry(
            "peer-norm",
            r"""
\lVert g \rVert = \sqrt{\sum_{r=0}^{n-1} \sum_{w \in C_r} \sum_i g_{wi}^2 + \sum_{w \in D} \sum_i g_{wi}^2}
""",
            (
                SourceLines("weft.train.peer_gradients:PeerGradients._norm"),
                SourceLines("weft.train.layout:WeightLayout.counts"),
            ),
            (norm_of_peers,),
            "processes-peers",
        ),
    ),
    PROCESSES_PICTURES,
)
