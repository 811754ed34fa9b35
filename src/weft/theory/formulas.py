"""LaTeX as MathML, which browsers show without any script or font from elsewhere. `math-core` is needed only here."""

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import WeftError, needs

_DISPLAY = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<![\\$\w])\$(?! )([^$\n]+?)(?<! )\$(?![\w$])")


class BadFormula(WeftError):
    """A formula that math-core does not take."""


@cache
def _converter() -> Any:
    return needs("math_core", "theory", "to show the guide's formulas").LatexToMathML(fancy_error=False)


@cache
def mathml(latex: str, *, display: bool) -> str:
    """Raises BadFormula for an unknown command."""
    converter = _converter()
    try:
        found: str = converter.convert_with_local_state(latex.strip(), displaystyle=display)
    except Exception as error:
        raise BadFormula(f"The formula {latex.strip()} cannot be shown: {error}") from error
    return found


def unknown_characters(shown: str) -> set[str]:
    """The characters of MathML that the guide's font for formulas lacks."""
    letters = html.unescape(re.sub(r"<[^>]+>", "", shown))
    return {letter for letter in letters if not letter.isspace() and ord(letter) not in _known()}


@cache
def _known() -> frozenset[int]:
    text = Path(__file__).with_name("page").joinpath("math-characters.txt").read_text("utf-8")
    ranges = (one.strip().removeprefix("U+").partition("-") for one in text.split(","))
    return frozenset(code for low, _, high in ranges for code in range(int(low, 16), int(high or low, 16) + 1))


def with_tokens(text: str, keep: Any) -> str:
    """The text with every formula replaced by what `keep(latex, display)` returns."""
    text = _DISPLAY.sub(lambda found: keep(found[1], True), text)
    return _INLINE.sub(lambda found: keep(found[1], False), text)
