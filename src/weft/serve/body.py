"""The JSON body of a request: read, parsed and checked.

What a body may not hold, each answered with 400 instead of an accident later: bytes that are not UTF-8, NaN and
infinities, integers of thousands of digits, halves of surrogate pairs, nesting that no schema of ours has. Fields that
a route does not know are accepted, as OpenAI's clients send new ones all the time, and are named in the header
x-weft-ignored.
"""

import asyncio
import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from weft.serve.errors import HTTPProblem, problem_of

MOST_DEPTH = 64  # of nested lists and objects
_ON_LOOP_BYTES = 32_768  # larger bodies are parsed on another thread, so that the event loop goes on
_MOST_NAMED = 20  # unknown fields in the header

_Body = TypeVar("_Body", bound="RequestBody")


class RequestBody(BaseModel):
    """The base of request bodies. Numbers must be numbers, not texts of digits."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


async def read_body(request: Request, kind: type[_Body]) -> _Body:
    """Raises HTTPProblem (400) for a body that does not fit `kind`."""
    data = await request.body()
    if len(data) > _ON_LOOP_BYTES:
        body = await asyncio.to_thread(parse_body, data, kind)
    else:
        body = parse_body(data, kind)
    if body.model_extra:
        request.scope["weft.ignored"] = ignored_header(body.model_extra)
    return body


def parse_body(data: bytes, kind: type[_Body]) -> _Body:
    value = parse_json(data)
    if not isinstance(value, dict):
        raise HTTPProblem(400, 'The body is a JSON object, such as {"model": …}.')
    try:
        return kind.model_validate(value)
    except ValueError as error:  # a ValidationError
        raise problem_of(error) from None
    except RecursionError:
        raise _nested() from None


def parse_json(data: bytes) -> Any:
    if not data.strip():
        raise HTTPProblem(400, "The body is empty; it should be a JSON object.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HTTPProblem(400, f"The body is not UTF-8 (byte {error.start}).") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise HTTPProblem(400, f"The body is not JSON: {error.msg} ({place}).") from None
    except ValueError:  # an integer with more digits than Python converts
        raise HTTPProblem(400, "The body holds an integer with too many digits.") from None
    except RecursionError:
        raise _nested() from None
    # Only bodies that can hold a fault are walked.
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH or b"\\ud" in data or b"\\uD" in data:
        _check(value)
    return value


def ignored_header(names: Iterable[str]) -> str:
    """Names of fields as a header's value: printable ASCII, of bounded length."""
    listed = list(names)
    shown = [quote(name[:100], safe="!#$&'()*+-./:;<=>?@[]^_`{|}~") for name in listed[:_MOST_NAMED]]
    return ",".join(shown + ["..."] * (len(listed) > _MOST_NAMED))


def _check(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH + 1):
        texts = [one for one in level if isinstance(one, str)]
        texts += [key for one in level if isinstance(one, dict) for key in one]
        _check_surrogates(texts)
        level = [item for one in level if isinstance(one, list | dict) for item in _items(one)]
        if not level:
            return
    raise _nested()


def _items(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _check_surrogates(texts: list[str]) -> None:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise HTTPProblem(
            400, "The body holds half of a surrogate pair (\\ud800 to \\udfff), which is no text."
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise HTTPProblem(400, f"The body is not JSON: {name} is no number.")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise HTTPProblem(400, "The body holds a number that is too large.")
    return number


def _nested() -> HTTPProblem:
    return HTTPProblem(400, f"The body is nested more than {MOST_DEPTH} levels deep.")
