"""The check before every metric: as many predictions as gold labels, and at least one."""

from collections.abc import Sized

from weft.errors import InputError


def check_pairs(gold: Sized, predicted: Sized) -> None:
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} gold answers, but {len(predicted)} predictions")
    if len(gold) == 0:
        raise InputError("There are no examples to evaluate.")
