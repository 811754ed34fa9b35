"""Evaluation: metrics of classes and texts, intervals, the classical baseline."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.evaluation import EVALUATION_PICTURES
from weft.theory.written.evaluation import (
    accuracy_of,
    bleu_of,
    brier_score,
    calibration_error,
    chance_of,
    class_precision,
    clipped_matches,
    common_length,
    confusion_of,
    differences,
    f1_of,
    macro_f1,
    matthews,
    middle_of,
    modified_precisions,
    ngrams_of,
    one_against_rest,
    perplexity_and_bits,
    recall_of,
    resampled_means,
    rouge_l,
    rouge_n,
    share,
    weighted_f1,
    wilson,
)

_CLASSES = "weft.metrics.classes:"
_BOOTSTRAP = "weft.metrics.bootstrap:"
_ROUGE = "weft.metrics.rouge:"
_NOT_READ = "bits beyond the last word are never read"
_ROUNDING = "between the ends by the formula; the limits are for rounding"
_NO_4_GRAM = "without any 4-gram the last precision is 0, and so is the mean"


EVALUATION_CHAPTER = Chapter(
    "evaluation",
    (
        GuideEntry(
            "accuracy",
            r"""
A = \frac{\sum_{c} C_{cc}}{\sum_{a} \sum_{b} C_{ab}},
\qquad C_{ab} = \sum_{i=1}^{N} [\, y_i = a \,]\,[\, \hat y_i = b \,]
""",
            (
                SourceLines(f"{_CLASSES}confusion", "return np.bincount"),
                SourceLines(f"{_CLASSES}class_figures", "right =", "gold, predicted, total ="),
                SourceLines(f"{_CLASSES}class_figures", "accuracy ="),
            ),
            (confusion_of, accuracy_of),
            "eval-confusion",
            rows=(47,),
        ),
        GuideEntry(
            "f1",
            r"""
P_c = \frac{C_{cc}}{\sum_{a} C_{ac}}, \qquad R_c = \frac{C_{cc}}{\sum_{b} C_{cb}},
\qquad F_c = \frac{2 P_c R_c}{P_c + R_c}
""",
            (
                SourceLines(f"{_CLASSES}per_class"),
                SourceLines(f"{_CLASSES}class_score"),
                SourceLines(f"{_CLASSES}ratio"),
            ),
            (share, class_precision, recall_of, f1_of),
            "eval-means",
            rows=(47,),
            equivalent={
                "True → False": "all three have a number per class",
            },
        ),
        GuideEntry(
            "macro-f1",
            r"""
F_{\mathrm{macro}} = \frac{1}{|S|} \sum_{c \in S} F_c,
\qquad F_{\mathrm{weighted}} = \sum_{c} \frac{\sum_b C_{cb}}{N}\, F_c
""",
            (SourceLines(f"{_CLASSES}class_figures", "f1 =", "return {"),),
            (macro_f1, weighted_f1),
            "eval-imbalance",
            rows=(47,),
        ),
        GuideEntry(
            "matthews",
            r"""
\mathrm{MCC} = \frac{N \sum_c C_{cc} - \sum_c g_c\, p_c}{\sqrt{N^2 - \sum_c g_c^2}\, \sqrt{N^2 - \sum_c p_c^2}},
\qquad g_c = \sum_b C_{cb}, \quad p_c = \sum_a C_{ac}
""",
            (SourceLines(f"{_CLASSES}_matthews", "covariance =", "return ratio"),),
            (matthews,),
            "eval-imbalance",
            rows=(47,),
        ),
        GuideEntry(
            "calibration",
            r"""
\mathrm{ECE} = \sum_{b=1}^{10} \frac{|B_b|}{N}
\left| \frac{1}{|B_b|} \sum_{i \in B_b} \left( [\, \hat y_i = y_i \,] - \max_c p_{ic} \right) \right|,
\qquad \mathrm{Brier} = \frac{1}{N} \sum_{i=1}^{N} \sum_c \left( p_{ic} - [\, y_i = c \,] \right)^2
""",
            (SourceLines("weft.metrics.calibration:calibration", "confidence, right =", "return Calibration"),),
            (calibration_error, brier_score),
            "eval-calibration",
            equivalent={
                "one.accuracy - one.confidence → one.confidence - one.accuracy": "only the size of the gap counts",
            },
        ),
        GuideEntry(
            "wilson",
            r"""
\frac{p + \frac{z^2}{2N} \pm z \sqrt{\frac{p\,(1 - p)}{N} + \frac{z^2}{4N^2}}}{1 + \frac{z^2}{N}},
\qquad p = \frac{k}{N}, \quad z = 1.96
""",
            (SourceLines(f"{_BOOTSTRAP}proportion_interval", "z =", "return ("),),
            (wilson,),
            "eval-wilson",
            equivalent={
                "max(0.0, middle - half) → middle - half": _ROUNDING,
                "min(1.0, middle + half) → middle + half": _ROUNDING,
                "1.0 → 2.0 #2": _ROUNDING,
            },
        ),
        GuideEntry(
            "bootstrap",
            r"""
m_r = \frac{1}{N} \sum_{k=1}^{N} x_{i_{rk}}, \qquad i_{rk} \in \lbrace 1, \dots, N \rbrace,
\qquad \left[\, q_{0.025}(m_1 \dots m_R),\; q_{0.975}(m_1 \dots m_R) \,\right]
""",
            (
                SourceLines(f"{_BOOTSTRAP}mean_interval", "drawn ="),
                SourceLines(f"{_BOOTSTRAP}_drawn_sums", "size =", "return np.concatenate"),
                SourceLines(f"{_BOOTSTRAP}_middle"),
            ),
            (resampled_means, middle_of),
            "eval-bootstrap",
        ),
        GuideEntry(
            "paired-difference",
            r"""
d_r = m_r^{A} - m_r^{B}, \qquad \left[\, q_{0.025}(d_1 \dots d_R),\; q_{0.975}(d_1 \dots d_R) \,\right]
""",
            (
                SourceLines("weft.metrics.difference:paired_difference", "low, high =", "return PairedDifference"),
                SourceLines("weft.metrics.difference:PairedDifference.is_ahead", "return"),
            ),
            (differences,),
            "eval-paired",
        ),
        GuideEntry(
            "bleu",
            r"""
\mathrm{BLEU} = 100\, \min\left(1, e^{1 - r/c}\right) \left( \prod_{n=1}^{4} p_n \right)^{1/4},
\qquad p_n = \frac{\sum_s \sum_{g} \min\left(\mathrm{count}_c(g), \mathrm{count}_r(g)\right)}
{\sum_s \sum_{g} \mathrm{count}_c(g)}
""",
            (SourceLines("weft.metrics.translations:_bleu"),),
            (ngrams_of, clipped_matches, modified_precisions, bleu_of),
            "eval-bleu",
            rows=(47,),
            equivalent={
                "10 → 11": "there are ten columns",
                "(common.max(-1) > 0) & (total.min(-1) > 0) → common.max(-1) > 0": _NO_4_GRAM,
                "total.min(-1) > 0 → total.min(-1) >= 0": _NO_4_GRAM,
                "total.min(-1) → total.max(-1)": _NO_4_GRAM,
            },
        ),
        GuideEntry(
            "rouge",
            r"""
\mathrm{ROUGE}_N = \frac{2 \sum_{g} \min\left(\mathrm{count}_a(g), \mathrm{count}_b(g)\right)}{|a|_N + |b|_N},
\qquad \mathrm{ROUGE}_L = \frac{2\, \mathrm{LCS}(a, b)}{|a| + |b|}
""",
            (
                SourceLines(f"{_ROUGE}rouge", "return {"),
                SourceLines(f"{_ROUGE}_shared"),
                SourceLines(f"{_ROUGE}_f1"),
                SourceLines(f"{_ROUGE}_common", "everywhere =", "for word in words"),
            ),
            (common_length, rouge_n, rouge_l),
            "eval-rouge",
            equivalent={
                "1 → 2": _NOT_READ,
                "(column + match | column - match) & everywhere → column + match | column - match": _NOT_READ,
            },
        ),
        GuideEntry(
            "bits-per-byte",
            r"""
\mathrm{PPL} = \exp\left(-\frac{1}{n} \sum_{t=1}^{n} \log p_t\right),
\qquad \mathrm{BPB} = -\frac{1}{B \ln 2} \sum_{t=1}^{n} \log p_t
""",
            (SourceLines("weft.generate.log_probs:to_score"),),
            (perplexity_and_bits,),
            "eval-bits",
        ),
        GuideEntry(
            "baseline",
            r"""
p_c = \frac{s_c}{\sum_{a} s_a}, \qquad s_c = \frac{1}{1 + e^{-(w_c \cdot x + b_c)}}
""",
            (
                SourceLines("weft.metrics.baselines.classify:TextClassifier.fit"),
                SourceLines("weft.metrics.baselines.classify:LogisticRegression.chances"),
                SourceLines("weft.metrics.baselines.classify:shares_of"),
            ),
            (chance_of, one_against_rest),
            "eval-baseline",
            rows=(35,),
            equivalent={
                "1 → 2 #3": "equal numbers have equal shares, whatever they are",
            },
        ),
    ),
    EVALUATION_PICTURES,
)
