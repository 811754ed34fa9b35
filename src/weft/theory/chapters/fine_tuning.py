"""Fine-tuning: pre-trained weights, heads, tags in a row, answers, written texts, adapters."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.fine_tuning import FINE_TUNING_PICTURES
from weft.theory.written.fine_tuning import (
    adapted,
    all_taggings,
    best_span,
    best_tagging,
    class_loss,
    class_shares,
    class_weight,
    command_loss,
    crf_loss,
    entity_f1,
    forward_sum,
    head_scores_of,
    held_out,
    maximum_entropy,
    may_follow,
    span_loss,
    spans_of,
    start_from,
    steps_in,
    tagging_score,
    written_loss,
)

_CRF = "weft.tasks.crf:"
_NEVER_CHANGES = "it only avoids a division by zero; a feature that never changes has weight 0"


FINE_TUNING_CHAPTER = Chapter(
    "fine-tuning",
    (
        GuideEntry(
            "start",
            r"""
\theta_i^{(0)} = \theta_i^{\mathrm{pre}} \quad (i \in K),
\qquad \theta_i^{(0)} = \theta_i^{\mathrm{new}} \quad (i \in N - K)
""",
            (SourceLines("weft.tasks.learning.build:_reused_weights"),),
            (start_from,),
            "tuning-parts",
            rows=(36,),
        ),
        GuideEntry(
            "head",
            r"""
z = W f(D\, h + a) + b
""",
            (
                SourceLines("weft.model.heads:Head.prepare", "if self.dense is not None"),
                SourceLines("weft.model.heads:Head.forward", "return"),
            ),
            (head_scores_of,),
            "tuning-parts",
            rows=(42,),
        ),
        GuideEntry(
            "classification",
            r"""
p_c = \frac{e^{z_c}}{\sum_{a} e^{z_a}}, \qquad L = -\frac{1}{N} \sum_{i=1}^{N} w_{y_i} \log p_{i, y_i}
""",
            (
                SourceLines("weft.tasks.classify:Classify.pieces"),
                SourceLines("weft.objectives.answers:ClassAnswers.loss"),
            ),
            (class_shares, class_loss),
            "tuning-curve",
            rows=(42,),
            equivalent={
                "-1 → 1": "the logits have two dimensions",
            },
        ),
        GuideEntry(
            "balance",
            r"""
w_c = \frac{N}{L\, N_c}
""",
            (SourceLines("weft.tasks.labels:balance"),),
            (class_weight,),
            "tuning-curve",
        ),
        GuideEntry(
            "maximum-entropy",
            r"""
p(c \mid x) = \frac{1}{Z(x)} \exp\left(\sum_{k} \lambda_{ck} f_k(x) + b_c\right),
\qquad Z(x) = \sum_{a} \exp\left(\sum_{k} \lambda_{ak} f_k(x) + b_a\right)
""",
            (
                SourceLines(
                    "weft.metrics.baselines.frozen:FrozenClassifier._fitted",
                    "centre, spread =",
                    "return cls(number, centre",
                ),
                SourceLines("weft.metrics.baselines.frozen:FrozenClassifier.probabilities"),
            ),
            (maximum_entropy,),
            "tuning-curve",
            rows=(43,),
            equivalent={
                "features.std(0) + 1e-06 → features.std(0) - 1e-06": _NEVER_CHANGES,
            },
        ),
        GuideEntry(
            "held-out-share",
            r"""
H = \min\left(2000, \max\left(1, \tfrac{N}{10}\right)\right), \qquad S = \left\lceil \frac{E N}{B} \right\rceil
""",
            (
                SourceLines("weft.tasks.labelled.hold_out:hold_out", "count ="),
                SourceLines("weft.train.budget:steps_of", "per_step =", "steps ="),
            ),
            (held_out, steps_in),
            "tuning-leak",
            rows=(45,),
        ),
        GuideEntry(
            "crf",
            r"""
-\log p(y \mid x) = \log \sum_{y'} e^{s(y')} - s(y), \qquad
s(y) = \sigma_{y_1} + \sum_{t=1}^{n} z_{t, y_t} + \sum_{t=2}^{n} T_{y_{t-1}, y_t} + \epsilon_{y_n}
""",
            (
                SourceLines(f"{_CRF}Crf.loss"),
                SourceLines(f"{_CRF}Crf._score"),
            ),
            (tagging_score, all_taggings, crf_loss),
            "crf-lattice",
            rows=(43,),
        ),
        GuideEntry(
            "forward",
            r"""
\alpha_1(j) = \sigma_j + z_{1j}, \qquad \alpha_t(j) = \log \sum_{i} e^{\alpha_{t-1}(i) + T_{ij}} + z_{tj}, \qquad
\log \sum_{y'} e^{s(y')} = \log \sum_{j} e^{\alpha_n(j) + \epsilon_j}
""",
            (SourceLines(f"{_CRF}Crf._log_partition"),),
            (forward_sum,),
            "crf-lattice",
            rows=(43,),
        ),
        GuideEntry(
            "viterbi",
            r"""
\hat y = \operatorname{arg\,max}_{y}\, s(y)
""",
            (SourceLines(f"{_CRF}viterbi"),),
            (best_tagging,),
            "crf-lattice",
            rows=(43,),
        ),
        GuideEntry(
            "well-formed",
            r"""
T_{a,\,\text{I-}k} = -10^4 \qquad (a \neq \text{B-}k,\ a \neq \text{I-}k)
""",
            (SourceLines(f"{_CRF}allowed_transitions", "parts =", "return allowed, ~"),),
            (may_follow,),
            "crf-moves",
            rows=(46,),
            equivalent={
                "True → False": "all lists have an entry per tag",
                "True → False #2": "all lists have an entry per tag",
            },
        ),
        GuideEntry(
            "entity-f1",
            r"""
F_1 = \frac{2 \sum_s |G_s \cap P_s|}{\sum_s \left( |G_s| + |P_s| \right)}
""",
            (
                SourceLines("weft.metrics.entities:entities_in"),
                SourceLines("weft.metrics.entities:entity_counts", "pairs =", "for row, (ours"),
                SourceLines(
                    "weft.metrics.entities:entity_figures_from_counts", "right, extra, missed = np", "return {"
                ),
            ),
            (spans_of, entity_f1),
            "crf-moves",
            rows=(46,),
            equivalent={
                "0 → 1": "without an open entity nobody reads its start",
                "True → False": "there are as many predictions as sentences",
                "counts.sum(-1) → counts.mean(-1)": "a mean is positive where the sum is",
            },
        ),
        GuideEntry(
            "span",
            r"""
L = -\tfrac{1}{2} \left( \log p^{\mathrm{first}}_b + \log p^{\mathrm{last}}_e \right),
\qquad (\hat b, \hat e) = \operatorname{arg\,max}_{i \le j < i + M}\, z^{\mathrm{first}}_i + z^{\mathrm{last}}_j
""",
            (
                SourceLines("weft.objectives.answers:SpanAnswers.loss"),
                SourceLines("weft.tasks.answer:_candidates", "begins, ends =", "scores ="),
            ),
            (span_loss, best_span),
            "tuning-span",
            rows=(46,),
        ),
        GuideEntry(
            "written-text",
            r"""
L = -\frac{1}{m} \sum_{t=1}^{m} \log p(y_t \mid x, y_1 \dots y_{t-1})
""",
            (SourceLines("weft.tasks.rewrite:Rewrite.batch"),),
            (written_loss,),
            "tuning-frames",
            rows=(46,),
        ),
        GuideEntry(
            "command",
            r"""
L = -\frac{1}{N} \sum_{i=1}^{N} \log p(a_i \mid x_i)
- \frac{1}{M} \sum_{i=1}^{N} \sum_{t=1}^{n_i} \log p(y_{it} \mid x_i), \qquad M = \sum_{i=1}^{N} n_i
""",
            (
                SourceLines("weft.tasks.intent:Intent.batch"),
                SourceLines("weft.objectives.objective:scaled_loss", "scale ="),
                SourceLines("weft.objectives.objective:scaled_loss", "loss = loss + batch.answers"),
            ),
            (command_loss,),
            "tuning-command",
            rows=(46, 49),
        ),
        GuideEntry(
            "adapters",
            r"""
y = W x + b + \frac{\alpha}{r}\, B A\, x, \qquad A \in \mathbb{R}^{r \times d}, \quad B \in \mathbb{R}^{d' \times r}
""",
            (
                SourceLines("weft.tasks.learning.lora:Adapted.forward"),
                SourceLines("weft.tasks.learning.lora:Adapted.merged"),
            ),
            (adapted,),
            "tuning-adapter",
            rows=(36,),
        ),
    ),
    FINE_TUNING_PICTURES,
)
