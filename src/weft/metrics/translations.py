"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of translations, equal to sacrebleu's.

Both are corpus metrics from 0 to 100: n-gram counts are summed over sentences before they are divided. sacrebleu counts
per sentence. The division is vectorized over many sums, so the bootstrap need not count again.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft.errors import needs
from weft.metrics.characters import are_mostly_cjk
from weft.metrics.classes import ratio
from weft.metrics.examples import check_pairs

BleuTokenizer = Literal["13a", "zh"]
_BLEU_COUNTS = 10  # length, reference length, matching 1- to 4-grams, all 1- to 4-grams
_CHRF_RECALL = 4  # β² of chrF2, the weight of recall


def bleu_tokenizer_for(references: Sequence[str]) -> BleuTokenizer:
    """The name of sacrebleu's tokenizer. "zh" splits ideographs; it also serves Japanese, whose own tokenizer needs
    MeCab. "13a" would take a Japanese sentence for one word.
    """
    return "zh" if are_mostly_cjk(references) else "13a"


def translation_counts(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """(sentences, 28): ten counts for BLEU; for chrF predicted, reference and matching character 1- to 6-grams."""
    check_pairs(references, predictions)
    metrics = needs("sacrebleu.metrics", "tasks", "to measure BLEU and chrF")
    # A private method of sacrebleu, used by its significance tests. Our tests compare the result with `corpus_score`.
    return np.concatenate(
        [
            np.array(metric._extract_corpus_statistics(predictions, [references]), np.int64)
            for metric in (metrics.BLEU(tokenize=bleu_tokenizer_for(references), force=True), metrics.CHRF())
        ],
        axis=1,
    )


def translation_figures(counts: np.ndarray) -> dict[str, float]:
    """BLEU and chrF of a corpus, from the counts of its sentences."""
    return {name: float(value) for name, value in translation_figures_from_counts(counts.sum(0)).items()}


def translation_figures_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of shape (…) from sums of shape (…, 28)."""
    return {"bleu": _bleu(counts[..., :_BLEU_COUNTS]), "chrf": _chrf(counts[..., _BLEU_COUNTS:])}


def _bleu(counts: np.ndarray) -> np.ndarray:
    ours, theirs = counts[..., 0], counts[..., 1]
    common, total = counts[..., 2:6], counts[..., 6:10]
    # Smoothing of mteval-v13a: the first order without a match counts as 1/2, the next as 1/4.
    hits = np.where(common == 0, 0.5 ** np.cumsum(common == 0, axis=-1), common)
    precision = ratio(hits, total)
    possible = (common.max(-1) > 0) & (total.min(-1) > 0)
    mean = np.exp(np.log(precision, where=possible[..., None], out=np.zeros_like(precision)).mean(-1))
    brevity = np.exp(np.minimum(0, 1 - ratio(theirs, ours)))
    return np.where(possible, 100 * brevity * mean, 0)


def _chrf(counts: np.ndarray) -> np.ndarray:
    ours, theirs, common = counts[..., 0::3], counts[..., 1::3], counts[..., 2::3]
    orders = ((ours > 0) & (theirs > 0)).sum(-1)  # short texts have no 6-grams
    precision, recall = (ratio(ratio(common, all_).sum(-1), orders) for all_ in (ours, theirs))
    return 100 * ratio((1 + _CHRF_RECALL) * precision * recall, _CHRF_RECALL * precision + recall)
