"""Clients that leave: their work stops at once, streamed or not.

The server tells of a closed connection only to whoever waits for a message, so somebody must be waiting while the
answer is computed. `request.is_disconnected` does not: it asks once and gives up.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

DIRECT_WRITE = "weft.write"  # the key of a scope: writes a part of a body at once, if the connection can take it
_Result = TypeVar("_Result")


class ClientGone(Exception):
    """The client has closed its connection; nobody reads the answer."""


async def wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, answer: Awaitable[_Result]) -> _Result:
    """The answer. Raises ClientGone, and cancels `answer`, if the client leaves first. The body must have been read."""
    waited = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(wait_until_gone(request.receive))
    try:
        await asyncio.wait((waited, gone), return_when=asyncio.FIRST_COMPLETED)
        if waited.done():
            return waited.result()
        raise ClientGone
    finally:
        gone.cancel()
        waited.cancel()  # does nothing if it is done
