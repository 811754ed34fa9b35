"""Baseline from a model before fine-tuning: logistic regression on its frozen vectors.

The regularization strength and the set of features are selected on a fifth of the training examples; then the
classifier is trained on all. Examples that share a text stay together: otherwise features that memorize the text would
seem best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from weft.errors import needs

from .vectors import SKLEARN_PURPOSE

_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # C, of features with variance 1
_SELECTION_FOLDS = 5  # one in five examples is held out for selection
_MOST_ITERATIONS = 200


@dataclass(frozen=True)
class FrozenClassifier:
    chosen: int  # index of the set of features
    centre: np.ndarray
    spread: np.ndarray
    model: Any
    count: int

    @classmethod
    def fit(cls, sets: Sequence[np.ndarray], labels: Sequence[int], count: int, groups: np.ndarray) -> Self:
        """Selects one of the `sets` of features, each (examples, features), simplest first, and trains on it.

        A richer set is taken only if it is better by more than one standard error (Breiman et al. 1984). `groups` is
        the group number of each example.
        """
        gold = np.asarray(labels)
        different, which = np.unique(groups, return_inverse=True)
        is_tried = (np.random.default_rng(0).permutation(len(different)) % _SELECTION_FOLDS == 0)[which]
        if not is_tried.any() or len(np.unique(gold[~is_tried])) < 2:  # too few for a selection
            return cls._fitted(0, sets[0], gold, count, _STRENGTHS[1])
        best: tuple[np.ndarray, int, float] | None = None
        for number, features in enumerate(sets):
            trials = []
            for strength in _STRENGTHS:
                model = cls._fitted(number, features[~is_tried], gold[~is_tried], count, strength)
                chances = model.probabilities([part[is_tried] for part in sets])
                losses = -np.log(np.maximum(chances[np.arange(is_tried.sum()), gold[is_tried]], 1e-9))
                trials.append((losses, number, strength))
            found = min(trials, key=lambda trial: float(trial[0].mean()))
            gain = np.zeros(1) if best is None else best[0] - found[0]
            if best is None or gain.mean() > gain.std() / np.sqrt(len(gain)):
                best = found
        assert best is not None
        _, number, strength = best
        return cls._fitted(number, sets[number], gold, count, strength)

    @classmethod
    def _fitted(cls, number: int, features: np.ndarray, gold: np.ndarray, count: int, strength: float) -> Self:
        if (gold == gold[0]).all():  # scikit-learn refuses a single class
            dummy = needs("sklearn.dummy", *SKLEARN_PURPOSE).DummyClassifier().fit(features, gold)
            return cls(number, np.zeros(features.shape[1]), np.ones(features.shape[1]), dummy, count)
        linear = needs("sklearn.linear_model", *SKLEARN_PURPOSE)
        centre, spread = features.mean(0), features.std(0) + 1e-6
        model = linear.LogisticRegression(C=strength, max_iter=_MOST_ITERATIONS)
        _quietly(model.fit, (features - centre) / spread, gold)
        return cls(number, centre, spread, model, count)

    def probabilities(self, sets: Sequence[np.ndarray]) -> np.ndarray:
        """(examples, count); 0 for classes that are not in the training data."""
        features = sets[self.chosen]
        found = np.zeros((len(features), self.count))
        if len(features):
            found[:, self.model.classes_] = self.model.predict_proba((features - self.centre) / self.spread)
        return found


def _quietly(fit: Any, *arguments: Any) -> None:
    """Suppresses the warning that `_MOST_ITERATIONS` iterations did not converge."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(*arguments)


def row_cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(1) / np.maximum(lengths, 1e-12)


def pair_features(first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """Two sets of features: the cosine; and u, v, |u − v|, u ∘ v and the cosine (Conneau et al. 2017)."""
    cosine = row_cosines(first, second)[:, None]
    return [cosine, np.concatenate([first, second, np.abs(first - second), first * second, cosine], axis=1)]
