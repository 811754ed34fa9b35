"""Labels of the training data that may be wrong.

A label is suspect if two classifiers agree on another one: the tuned model, and the classical baseline, which is
trained on four fifths of the examples and asked about the last one, so it has not seen the label (the idea of
confident learning, Northcutt et al. 2021). Equal texts are in one fold. Nothing is changed: a person should look.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.progress import say
from weft.tasks.example import Example
from weft.tasks.labelled.data import some_of
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

_FOLDS = 5
_MOST_EXAMPLES, _MOST_CHARACTERS, _LEAST_EXAMPLES = 20_000, 1_000_000, 50  # that are looked at: some ten seconds
_MOST_CHECKED = 200  # candidates of the baseline that the model is asked about
_MOST_SUSPECTS = 20


@dataclass(frozen=True)
class Suspect:
    example: Example
    label: str  # what both classifiers say
    confidence: float  # the mean of both


def label_suspects(model: LoadedModel, train: Sequence[Example]) -> list[Suspect]:
    """The surest first. Empty for tasks without one label per example."""
    task = model.required_task
    if not task.has_one_label:
        return []
    some = some_of(train, _MOST_EXAMPLES, 0)
    characters = sum(len(task.in_words(one)) for one in some)
    if characters > _MOST_CHARACTERS:
        some = some_of(some, len(some) * _MOST_CHARACTERS // characters, 0)
    if len(some) < _LEAST_EXAMPLES or len({task.in_words(one) for one in some}) < _FOLDS:
        return []
    numbers = {label: number for number, label in enumerate(task.labels)}
    gold = np.asarray([numbers[one.gold] for one in some])
    say("Looking for labels that may be wrong ...")
    unseen = out_of_fold(task, some)
    against = np.flatnonzero(unseen.argmax(1) != gold)
    against = against[np.argsort(unseen[against, gold[against]], kind="stable")][:_MOST_CHECKED]
    if not len(against):
        return []
    said = np.stack(model.answers([some[number] for number in against]))
    found = []
    for number, own in zip(against, said, strict=True):
        best = int(own.argmax())
        if best == unseen[number].argmax():
            confidence = float(own[best] + unseen[number, best]) / 2
            found.append(Suspect(some[number], task.labels[best], confidence))
    return sorted(found, key=lambda one: -one.confidence)[:_MOST_SUSPECTS]


def out_of_fold(task: Task, examples: Sequence[Example]) -> np.ndarray:
    """(examples, labels): the baseline's probabilities for each example, from the folds without it."""
    names = {text: number for number, text in enumerate(dict.fromkeys(map(task.in_words, examples)))}
    places = np.random.default_rng(0).permutation(len(names)) % _FOLDS
    fold = np.asarray([places[names[task.in_words(one)]] for one in examples])
    found = np.zeros((len(examples), len(task.labels)))
    for number in range(_FOLDS):
        inside, others = np.flatnonzero(fold == number).tolist(), np.flatnonzero(fold != number).tolist()
        if inside:
            _, answers = task.baseline([examples[i] for i in others], [examples[i] for i in inside])
            found[inside] = np.stack(answers)
    return found
