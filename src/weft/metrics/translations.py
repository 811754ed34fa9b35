"""Translations beside a reference, as sacrebleu measures them: BLEU (Papineni et al. 2002) and chrF (Popović 2015).

Both are figures of a corpus, from 0 to 100: n-grams are counted per sentence (by sacrebleu), the counts are summed, and
only then divided. The counts are kept per sentence, and the division is written for many sums at once, so that the
bootstrap can draw sentences a thousand times without reading them again.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft.errors import needs
from weft.metrics.characters import are_mostly_cjk
from weft.metrics.classes import ratio
from weft.metrics.examples import check_pairs

BleuTokenizer = Literal["13a", "zh"]
_BLEU_COUNTS = 10  # length, length of the reference, common 1- to 4-grams, all 1- to 4-grams
_CHRF_RECALL = 4  # β², by which chrF2 weighs recall


def bleu_tokenizer_for(golds: Sequence[str]) -> BleuTokenizer:
    """sacrebleu's name for the way BLEU's words are found: "zh" takes ideographs apart. So for Japanese as well, whose
    own tokenizer needs MeCab: "13a" would take a sentence for a word.
    """
    return "zh" if are_mostly_cjk(golds) else "13a"


def translation_counts(predictions: Sequence[str], golds: Sequence[str]) -> np.ndarray:
    """(sentences, 28): ten counts for BLEU; then for chrF, of 1- to 6-grams of characters, ours, theirs and common."""
    check_pairs(golds, predictions)
    metrics = needs("sacrebleu.metrics", "tasks", "to measure BLEU and chrF")
    # sacrebleu's own significance tests take their counts from here; a test holds the sums against `corpus_score`.
    return np.concatenate(
        [
            np.array(metric._extract_corpus_statistics(predictions, [golds]), np.int64)
            for metric in (metrics.BLEU(tokenize=bleu_tokenizer_for(golds), force=True), metrics.CHRF())
        ],
        axis=1,
    )


def translation_figures(counts: np.ndarray) -> dict[str, float]:
    """Of a corpus, from the counts of its sentences."""
    return {name: float(value) for name, value in translation_figures_from_counts(counts.sum(0)).items()}


def translation_figures_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Figures of shape (…) from sums of shape (…, 28)."""
    return {"bleu": _bleu(counts[..., :_BLEU_COUNTS]), "chrf": _chrf(counts[..., _BLEU_COUNTS:])}


def _bleu(counts: np.ndarray) -> np.ndarray:
    ours, theirs = counts[..., 0], counts[..., 1]
    common, total = counts[..., 2:6], counts[..., 6:10]
    # mteval-v13a's smoothing: the first order without a hit has half a one, the next a quarter.
    hits = np.where(common == 0, 0.5 ** np.cumsum(common == 0, axis=-1), common)
    precision = ratio(hits, total)
    possible = (common.max(-1) > 0) & (total.min(-1) > 0)
    mean = np.exp(np.log(precision, where=possible[..., None], out=np.zeros_like(precision)).mean(-1))
    brevity = np.exp(np.minimum(0, 1 - ratio(theirs, ours)))
    return np.where(possible, 100 * brevity * mean, 0)


def _chrf(counts: np.ndarray) -> np.ndarray:
    ours, theirs, common = counts[..., 0::3], counts[..., 1::3], counts[..., 2::3]
    orders = ((ours > 0) & (theirs > 0)).sum(-1)  # a short text has no 6-grams
    precision, recall = (ratio(ratio(common, all_).sum(-1), orders) for all_ in (ours, theirs))
    return 100 * ratio((1 + _CHRF_RECALL) * precision * recall, _CHRF_RECALL * precision + recall)
