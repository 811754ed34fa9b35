"""How to generate: strategy, filters, lengths, stop strings, number of answers.

Three strategies: `greedy` takes the most probable token each time; `sample` draws from the tokens that temperature and
filters leave; `beam` looks for the most probable whole text. Default: inferred from the settings that only one of them
has.
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
# Settings that a folder's generation_config.json may recommend.
_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "typical_p")


class Settings(Section):
    strategy: Strategy | None = Field(None, description="greedy, sample or beam")
    max_new_tokens: int | None = Field(
        None, ge=1, description=f"the most new tokens; default: {DEFAULT_NEW_TOKENS}, or what fits"
    )
    min_new_tokens: int = Field(0, ge=0, description="no end token before this many new tokens")
    n: int = Field(1, ge=1, le=_MOST_ANSWERS, description="answers per prompt: samples, or the best hypotheses")
    stop: list[str] = Field([], description="strings; the text ends before the first of them")
    stop_tokens: list[int] = Field([], description="token ids that end the text, in addition to the model's end tokens")
    banned: list[int | str] = Field([], description="token ids, or words of one token, that are never generated")
    repetition_penalty: float = Field(
        1.0, ge=0.01, le=100, description="above 1: tokens that occurred before are less probable (Keskar et al. 2019)"
    )
    frequency_penalty: float = Field(
        0.0, ge=-100, le=100, description="subtracted from a token's score for each earlier occurrence"
    )
    presence_penalty: float = Field(
        0.0, ge=-100, le=100, description="subtracted from a token's score once it has occurred in the text"
    )
    logit_bias: dict[int, float] = Field({}, description="token ids with what is added to their scores")
    no_repeat_ngram: int = Field(
        0, ge=0, le=1000, description="no n tokens in a row occur twice in prompt and text (Paulus et al. 2018)"
    )
    json_schema: dict[str, Any] | str | None = Field(None, description="the text is JSON that fits this schema")
    regex: str | None = Field(None, description="the text matches this regular expression")
    choice: list[str] | None = Field(None, description="the text is one of these")
    top_log_probs: int = Field(
        0, ge=0, le=100, description="log-probabilities of so many most probable tokens at each step"
    )
    speculate: int = Field(
        0, ge=0, le=64, description="tokens guessed ahead in each step; the text is the same, sooner"
    )
    slide: bool = Field(False, description="continue beyond the context: when it is full, drop its older half")

    temperature: float | None = Field(
        None, ge=1e-4, le=1e4, description="below 1: more predictable; above 1: more random"
    )
    top_k: int | None = Field(None, ge=1, description="sample from the k most probable tokens")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample from the fewest tokens whose probabilities reach p (Holtzman et al. 2020)"
    )
    min_p: float | None = Field(
        None, ge=0, le=1, description="sample from tokens at least p times as probable as the most probable one"
    )
    typical_p: float | None = Field(
        None,
        ge=1e-6,
        le=1,
        description="sample from the most typical tokens whose probabilities reach p (Meister et al. 2023)",
    )
    seed: int | None = Field(None, ge=0, lt=2**63, description="the same seed gives the same samples")

    beams: int | None = Field(None, ge=1, le=1000, description="hypotheses kept at each step; default: 4")
    length_penalty: float | None = Field(
        None, ge=-20, le=20, description="score / lengthᵖ: above 0 favours long texts; default: 1"
    )
    early_stopping: bool | Literal["never"] | None = Field(
        None, description="true: stop at as many finished hypotheses as beams; never: only when none can be beaten"
    )
    groups: int | None = Field(
        None, ge=2, description="groups of beams, for diverse beam search (Vijayakumar et al. 2018)"
    )
    diversity: float | None = Field(
        None, ge=0, le=1e6, description="cost of a token that an earlier group has just chosen; default: 0.5"
    )

    @property
    def is_constrained(self) -> bool:
        return self.json_schema is not None or self.regex is not None or self.choice is not None


def settings_of(given: Mapping[str, Any], recommended: Mapping[str, Any] | None = None) -> Settings:
    """Checked and complete settings. `recommended`: the model folder's generation_config.json."""
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
    """numpy values and collections as Python numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple | set | frozenset) else value


def _usable(recommended: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The recommended values that are valid. The user did not ask for the others, so they are no error."""
    found = {}
    for name in names:
        value = recommended.get(name)
        if value is None or value == 0:  # transformers writes 0 for none
            continue
        try:
            Settings.model_validate({name: value})
        except ValidationError:
            say(f"generation_config.json: {name} cannot be {value!r}; it is ignored.")
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
        raise InputError(f"min_new_tokens is {least}, more than max_new_tokens, {most}.")
    if any(not text for text in settings.stop):
        raise InputError("A stop string cannot be empty.")
    if len([one for one in (settings.json_schema, settings.regex, settings.choice) if one is not None]) > 1:
        raise InputError("json_schema, regex and choice each decide the whole text; give one of them.")
    if settings.choice is not None and (not settings.choice or not all(settings.choice)):
        raise InputError("choice needs at least one text, and none of them empty.")
    if any(not -1e6 <= bias <= 1e6 for bias in settings.logit_bias.values()):
        raise InputError("logit_bias takes numbers from -1e6 to 1e6.")
    if settings.strategy == "greedy" and settings.n > 1:
        raise InputError("greedy has one answer per prompt; for n answers use strategy sample or beam.")
    if settings.strategy != "beam":
        return settings
    beams = settings.beams or max(4, settings.n)
    if settings.n > beams:
        raise InputError(f"{beams} beams give at most {beams} answers, not {settings.n}.")
    if settings.groups is not None and beams % settings.groups:
        raise InputError(f"{beams} beams cannot be divided into {settings.groups} groups of the same size.")
    if settings.diversity is not None and settings.groups is None:
        raise InputError("diversity goes with groups; set groups as well.")
    if settings.slide:
        raise InputError(
            "Beam search cannot slide: it compares hypotheses from their beginnings. Use greedy or sample."
        )
    filled = {
        "beams": beams,
        "length_penalty": 1.0 if settings.length_penalty is None else settings.length_penalty,
        "early_stopping": False if settings.early_stopping is None else settings.early_stopping,
    }
    return settings.model_copy(update=filled)
