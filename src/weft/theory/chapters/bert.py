"""BERT: masked words, sentence pairs, and the recipe."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.bert import BERT_PICTURES
from weft.theory.written.bert import (
    bert_gelu,
    bert_norm,
    bert_weights,
    cover_masks,
    input_vectors,
    joint_loss,
    kept_checkpoints,
    mask_count,
    masked_logits,
    masked_loss,
    pair_input,
    pair_label,
    pair_loss,
    read_instead,
)

BERT_CHAPTER = Chapter(
    "bert",
    (
        GuideEntry(
            "mask-count",
            r"""
k = \max\left(1, \lfloor s\,n + u \rfloor\right), \qquad u \sim U[0, 1),
\qquad \mathrm{E}[k] = s\,n \quad (s\,n \ge 1)
""",
            (
                SourceLines("weft.objectives.masking:_choose", "wanted ="),
                SourceLines("weft.objectives.masking:_choose", "return rng.permutation(free)[:wanted]"),
                SourceLines("weft.objectives.masking:_round_fairly"),
            ),
            (mask_count,),
            "bert-never",
            rows=(26,),
        ),
        GuideEntry(
            "masked-input",
            r"""
\tilde x_i = \begin{cases}
m & i \in M,\; u_i < a \\
r_i & i \in M,\; a \le u_i < a + b \\
x_i & \text{else}
\end{cases}
\qquad a = 0.8,\; b = 0.1
""",
            (SourceLines("weft.objectives.masking:_replace"),),
            (read_instead,),
            "bert-fates",
            rows=(1, 26),
            equivalent={"dice < spec.hidden → dice <= spec.hidden": "the next lines replace it by a random token"},
        ),
        GuideEntry(
            "masked-loss",
            r"""
L_{\mathrm{MLM}} = -\frac{1}{|M|} \sum_{i \in M} \log p(x_i \mid \tilde x)
""",
            (
                SourceLines("weft.objectives.masked:masked_batch", "inputs.append", "start +="),
                SourceLines("weft.model.heads:Head.prepare", "x = hidden_TW"),
                SourceLines("weft.objectives.objective:_vocabulary_scores", "loss = F.cross_entropy"),
            ),
            (masked_loss,),
            "bert-loss",
            rows=(26,),
        ),
        GuideEntry(
            "masked-head",
            r"""
z_v = E_v \cdot \operatorname{Norm}\left(\operatorname{gelu}(W h + b)\right) + c_v,
\qquad \operatorname{gelu}(a) = a\, \Phi(a)
""",
            (
                SourceLines("weft.model.heads:Head.prepare", "if self.dense is not None", "if self.norm is not None"),
                SourceLines("weft.model.heads:Head.forward", "return x if self.out"),
                SourceLines("weft.model.network:Network.__init__", "if head.spec.tied"),
            ),
            (bert_gelu, bert_norm, masked_logits),
            "bert-both-sides",
            rows=(26,),
        ),
        GuideEntry(
            "cover",
            r"""
M_1 \cup \dots \cup M_m = \lbrace 1, \dots, n \rbrace, \qquad M_j \cap M_k = \lbrace \, \rbrace,
\qquad m = \operatorname{round}(1 / s)
""",
            (
                SourceLines("weft.objectives.masking:_choose", 'if spec.unit == "cover"'),
                SourceLines("weft.objectives.masking:_parts"),
                SourceLines("weft.objectives.masking:cover_round"),
            ),
            (cover_masks,),
            "bert-cover",
            rows=(2,),
            equivalent={
                "max(1, round(1 / spec.share)) → round(1 / spec.share)": "a share is below 1, so this is at least 1"
            },
        ),
        GuideEntry(
            "next-sentence",
            r"""
y = \begin{cases} 0 & \operatorname{end}(A) = \operatorname{begin}(B) \\ 1 & \text{else} \end{cases},
\qquad P(y = 0) = P(y = 1) = \tfrac{1}{2}
""",
            (SourceLines("weft.objectives.sentence_pairs:SentencePairs.pair", "flip =", "return SentencePair"),),
            (pair_label,),
            "bert-pairs",
            rows=(3, 27),
        ),
        GuideEntry(
            "pair-input",
            r"""
x = (\mathrm{CLS}, a_1, \dots, a_p, \mathrm{SEP}, b_1, \dots, b_q, \mathrm{SEP}),
\qquad g_i = \begin{cases} 0 & i < p + 2 \\ 1 & i \ge p + 2 \end{cases}
""",
            (SourceLines("weft.objectives.masked_pairs:MaskedPairs.batch", "first, second =", "labels.append"),),
            (pair_input,),
            "bert-input",
            rows=(3, 27),
        ),
        GuideEntry(
            "segment-vectors",
            r"""
h_i = E_{x_i} + P_i + G_{g_i}
""",
            (
                SourceLines("weft.model.embeddings:Embeddings.forward", "x = self.tokens"),
                SourceLines("weft.model.embeddings:Embeddings.forward", "x = x + self.positions"),
                SourceLines("weft.model.embeddings:Embeddings.forward", "if self.segments is not None"),
            ),
            (input_vectors,),
            "bert-input",
            rows=(27,),
        ),
        GuideEntry(
            "joint-loss",
            r"""
L = L_{\mathrm{MLM}} + L_{\mathrm{NSP}},
\qquad L_{\mathrm{NSP}} = -\frac{1}{N} \sum_{j=1}^{N} \log \frac{e^{z_{j y_j}}}{e^{z_{j0}} + e^{z_{j1}}}
""",
            (
                SourceLines("weft.objectives.objective:scaled_loss", "for kind, total"),
                SourceLines("weft.objectives.answers:ClassAnswers.loss", "return F.cross_entropy"),
            ),
            (pair_loss, joint_loss),
            "bert-pairs",
            rows=(27,),
            equivalent={"max(total, 1) → total": "only avoids a division by zero, where nothing is scored"},
        ),
        GuideEntry(
            "bert-size",
            r"""
N = \underbrace{(V + P + S + 2)\, d}_{E, P, G} + l \left(12 d^2 + 13 d\right) + \underbrace{d^2 + 3 d + V}_{W, b, c}
""",
            (
                SourceLines("weft.model.families.bert:Bert.architecture", "return Architecture"),
                SourceLines("weft.model.families.bert:Bert._block"),
                SourceLines("weft.model.families.bert:Bert._masked"),
            ),
            (bert_weights,),
            "bert-sizes",
            rows=(44,),
        ),
        GuideEntry(
            "checkpoints",
            r"""
K = \lbrace t \rbrace \cup \operatorname{newest}_{k - 1}\left(S \setminus \lbrace t \rbrace\right)
\cup \left(S \cap \lbrace b \rbrace\right)
""",
            (SourceLines("weft.train.pending_checkpoint:remove_older"),),
            (kept_checkpoints,),
            "bert-checkpoints",
            rows=(44,),
            equivalent={"True → False #2": "only says what happens if a file cannot be deleted"},
        ),
    ),
    BERT_PICTURES,
)
