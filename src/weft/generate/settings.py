"""How to write: which token comes next, when it is over, how many answers.

Three strategies: `greedy`, the likeliest token each time; `sample`, a draw from what is left after temperature and
filters; `beam`, the likeliest whole text among those followed side by side. Left out, it is told from the settings
that go with only one of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from weft.errors import InputError
from weft.progress import say
from weft.recipe.file import check_section
from weft.recipe.section import Section

DEFAULT_NEW_TOKENS = 64
_MOST_ANSWERS = 100_000
Strategy = Literal["greedy", "sample", "beam"]
_ONLY_WITH: dict[Strategy, tuple[str, ...]] = {
    "sample": ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed"),
    "beam": ("beams", "length_penalty", "early_stopping", "groups", "diversity"),
}
# What a folder's generation_config.json may recommend.
_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "typical_p")


class Settings(Section):
    strategy: Strategy | None = Field(None, description="greedy, sample or beam")
    max_new_tokens: int | None = Field(None, ge=1, description=f"at most so many ({DEFAULT_NEW_TOKENS}, or what fits)")
    min_new_tokens: int = Field(0, ge=0, description="no end token before so many")
    n: int = Field(1, ge=1, le=_MOST_ANSWERS, description="answers to each prompt: samples, or the best of the beams")
    stop: list[str] = Field([], description="the text ends before the first of these")
    stop_tokens: list[int] = Field([], description="token ids that end the text, besides the model's own")
    banned: list[int | str] = Field([], description="token ids, or words of one token, that are never written")
    repetition_penalty: float = Field(
        1.0, ge=0.01, le=100, description="above 1: what stood before is less likely (Keskar et al. 2019)"
    )
    frequency_penalty: float = Field(
        0.0, ge=-100, le=100, description="taken off a token's score for each time that it was written"
    )
    slide: bool = Field(False, description="go on beyond the context: its older half is forgotten when it is full")

    temperature: float | None = Field(None, ge=1e-4, le=1e4, description="below 1 bolder, above 1 wilder")
    top_k: int | None = Field(None, ge=1, description="only the k likeliest tokens")
    top_p: float | None = Field(
        None, gt=0, le=1, description="only the likeliest that make up p (Holtzman et al. 2020)"
    )
    min_p: float | None = Field(None, ge=0, le=1, description="only those at least p times as likely as the likeliest")
    typical_p: float | None = Field(
        None, ge=1e-6, le=1, description="only the most typical that make up p (Meister et al. 2023)"
    )
    seed: int | None = Field(None, ge=0, lt=2**63, description="the same seed, the same samples")

    beams: int | None = Field(None, ge=1, le=1000, description="texts followed side by side (4)")
    length_penalty: float | None = Field(
        None, ge=-20, le=20, description="score / lengthᵖ: above 0 favours long texts (1)"
    )
    early_stopping: bool | Literal["never"] | None = Field(
        None, description="true: once there are as many ends as beams; never: only when nothing better can come"
    )
    groups: int | None = Field(None, ge=2, description="of beams that keep apart (Vijayakumar et al. 2018)")
    diversity: float | None = Field(
        None, ge=0, le=1e6, description="what a token costs that an earlier group has just taken (0.5)"
    )


def settings_of(given: Mapping[str, Any], recommended: Mapping[str, Any] | None = None) -> Settings:
    """The settings with nothing left open; `recommended` is the model folder's generation_config.json."""
    values = {name: _plain(value) for name, value in given.items() if value is not None}
    if isinstance(values.get("stop"), str):
        values["stop"] = [values["stop"]]
    values.setdefault("strategy", _strategy(values))
    for strategy, names in _ONLY_WITH.items():
        wrong = [name for name in names if name in values]
        if wrong and values["strategy"] in ["greedy", "sample", "beam"] and values["strategy"] != strategy:
            raise InputError(f"{wrong[0]} goes with strategy {strategy}, not {values['strategy']}.")
    names = (*_RECOMMENDED, "repetition_penalty") if values["strategy"] == "sample" else ("repetition_penalty",)
    values = {**_usable(recommended or {}, names), **values}
    return _consistent(check_section(Settings, values, "generate"))


def _plain(value: Any) -> Any:
    """numpy's numbers and arrays, and other collections, as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def _usable(recommended: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Of what a folder recommends, what can be followed; nobody here has asked for the rest."""
    found = {}
    for name in names:
        value = recommended.get(name)
        if value is None or value == 0:  # transformers writes 0 for none
            continue
        try:
            Settings.model_validate({name: value})
        except ValidationError:
            say(f"generation_config.json: {name} cannot be {value!r}; it is left out.")
        else:
            found[name] = value
    return found


def _strategy(values: Mapping[str, Any]) -> Strategy:
    for strategy, names in reversed(_ONLY_WITH.items()):
        if any(name in values for name in names):
            return strategy
    return "sample" if values.get("n", 1) != 1 else "greedy"


def _consistent(settings: Settings) -> Settings:
    most, least = settings.max_new_tokens, settings.min_new_tokens
    if most is not None and least > most:
        raise InputError(
            f"min_new_tokens is {least} and max_new_tokens {most}; the least cannot be more than the most."
        )
    if any(not text for text in settings.stop):
        raise InputError("A stop string cannot be empty: it would be found at once.")
    if settings.strategy == "greedy" and settings.n > 1:
        raise InputError("greedy has one answer to each prompt; for n answers use strategy sample or beam.")
    if settings.strategy != "beam":
        return settings
    beams = settings.beams or max(4, settings.n)
    if settings.n > beams:
        raise InputError(f"{beams} beams have no {settings.n} best answers; n can be at most as many as the beams.")
    if settings.groups is not None and beams % settings.groups:
        raise InputError(f"{beams} beams cannot be put into {settings.groups} groups of the same size.")
    if settings.diversity is not None and settings.groups is None:
        raise InputError("diversity goes with groups: it keeps the groups apart.")
    if settings.slide:
        raise InputError(
            "Beam search does not slide: its beams are compared from their beginnings. Use greedy or sample."
        )
    filled = {
        "beams": beams,
        "length_penalty": 1.0 if settings.length_penalty is None else settings.length_penalty,
        "early_stopping": False if settings.early_stopping is None else settings.early_stopping,
    }
    return settings.model_copy(update=filled)
