"""The data types that every task shares: a labelled example, and what the network reads of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np


class Unusable(Exception):
    """This row cannot be used. The message continues a sentence that begins with the row: "line 3 has no label"."""


class UnseenLabel(Unusable):
    """The label does not occur in the training data. In an evaluation, every prediction for this row is wrong."""


@dataclass(frozen=True)
class Example:
    given: Any
    gold: Any  # None in prediction
    place: str = ""  # file and line it was read from
    text: str = ""  # the raw text that the given words were cut from, if any
    group: str = ""  # examples with the same group share a source, such as the article that questions are about
    repairs: tuple[str, ...] = ()  # what was wrong in the row and was repaired; each continues "line 3 …"


@dataclass(frozen=True)
class Input:
    """What the network reads of an example, or of one window of a long example."""

    example: int  # index of the example in the list given to `Task.inputs`
    ids: np.ndarray
    segments: np.ndarray | None = None
    targets: Any = None  # gold values for the loss, and positions needed to read the prediction
    was_cut: bool = False  # the text does not fit into one input
    parts: tuple[int, ...] = ()  # lengths of the sequences in `ids` that the network reads apart. Empty: one sequence
