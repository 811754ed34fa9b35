"""Baselines that give texts any number of labels: logistic regression for each label, on TF-IDF or on frozen vectors.

A model whose thresholds were chosen for its probabilities is compared with a baseline that had the same chance. The
baseline's thresholds are chosen on a fifth of its training examples, by a baseline trained on the others. Examples of
one group stay together. The training examples come first, then those to answer.
"""

from collections.abc import Callable, Sequence

import numpy as np

from weft.metrics.thresholds import PLAIN_THRESHOLD, label_thresholds

from .classify import LabelsClassifier
from .frozen import FrozenClassifier

Ask = Callable[[np.ndarray, np.ndarray], np.ndarray]  # probabilities of the second examples, trained on the first
_FOLDS = 5


def labels_by_words(texts: Sequence[str], gold_NL: np.ndarray, groups_N: np.ndarray | None) -> np.ndarray:
    """(texts without gold labels, labels): probabilities; decisions if the training texts have groups."""

    def ask(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        model = LabelsClassifier.fit([texts[i] for i in known], gold_NL[known])
        return model.probabilities([texts[i] for i in wanted])

    known, wanted = np.split(np.arange(len(texts)), [len(gold_NL)])
    return ask(known, wanted) if groups_N is None else baseline_decisions(ask, gold_NL, groups_N, wanted)


def labels_by_vectors(vectors: np.ndarray, gold_NL: np.ndarray, groups_N: np.ndarray, *, decides: bool) -> np.ndarray:
    """(vectors without gold labels, labels): probabilities, or decisions."""

    def ask(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        answers = np.zeros((len(wanted), gold_NL.shape[1]))
        for number, has in enumerate(gold_NL[known].T):
            if 0 < has.sum() < len(known):
                model = FrozenClassifier.fit([vectors[known]], has.astype(int).tolist(), 2, groups_N[known])
                answers[:, number] = model.probabilities([vectors[wanted]])[:, 1]
            else:
                answers[:, number] = has[0]
        return answers

    known, wanted = np.split(np.arange(len(vectors)), [len(gold_NL)])
    return baseline_decisions(ask, gold_NL, groups_N, wanted) if decides else ask(known, wanted)


def baseline_decisions(ask: Ask, gold_NL: np.ndarray, groups_N: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(wanted, labels): 1 or 0, which no other threshold changes."""
    different, which = np.unique(groups_N, return_inverse=True)
    is_held = (np.random.default_rng(0).permutation(len(different)) % _FOLDS == 0)[which]
    kept, held = np.flatnonzero(~is_held), np.flatnonzero(is_held)
    has_both = len(kept) and len(held)
    thresholds = label_thresholds(ask(kept, held), gold_NL[held]) if has_both else PLAIN_THRESHOLD
    return (ask(np.arange(len(gold_NL)), wanted) > thresholds).astype(float)
