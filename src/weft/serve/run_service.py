"""The runs that a service watches: one thread reads their folders, so that the event loop never waits for a disk.

A frame cannot send a key. So a report is shown under a ticket, a path that nobody can guess, which is given only to
those who have asked with a key, and ends after an hour or two.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from weft.errors import FolderError
from weft.serve.errors import HTTPProblem
from weft.serve.security import REPORT_FRAMES
from weft.watch.control import ControlRefused
from weft.watch.run import WatchedRun
from weft.watch.watcher import NoSuchRun, RunWatcher

_Result = TypeVar("_Result")
_TICKET_SECONDS = 3600
_START_SECONDS, _START_LOOK = 20.0, 0.1  # that a resumed run may take to claim its folder; between two looks


class RunService:
    def __init__(self, watcher: RunWatcher, *, allow_control: bool = False) -> None:
        """`allow_control`: whether runs may be stopped and resumed."""
        self.watcher, self.allow_control = watcher, allow_control
        self._thread = ThreadPoolExecutor(1, "weft-watch")
        self._secret = secrets.token_bytes(32)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def ask(self, work: Callable[..., _Result], *given: Any) -> _Result:
        """Runs `work` on the thread of the watcher. Raises HTTPProblem (404, 409)."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)
        except NoSuchRun as error:
            raise HTTPProblem(404, str(error), code="run_not_found") from None
        except FolderError as error:
            raise HTTPProblem(404, str(error)) from None
        except ControlRefused as error:
            raise HTTPProblem(409, str(error), code="refused") from None

    async def ask_json(self, work: Callable[..., Any], *given: Any) -> bytes:
        """What `work` finds, as JSON. Texts are ASCII: a file name may hold what is no text."""
        return await self.ask(lambda: json.dumps(work(*given), allow_nan=False, separators=(",", ":")).encode())

    def report_path(self, id: str) -> str:
        return f"{REPORT_FRAMES}{id}-{self._ticket(id, int(time.time() // _TICKET_SECONDS))}"

    def knows_ticket(self, id: str, ticket: str) -> bool:
        hour = int(time.time() // _TICKET_SECONDS)
        good = [hmac.compare_digest(self._ticket(id, when), ticket) for when in (hour, hour - 1)]
        return any(good)

    def _ticket(self, id: str, hour: int) -> str:
        return hmac.new(self._secret, f"{id} {hour}".encode(), hashlib.sha256).hexdigest()

    def check_control(self) -> None:
        if not self.allow_control:
            raise HTTPProblem(
                403, "Runs can only be watched here. Start the service with --allow-control to stop and resume them."
            )

    async def stop(self, id: str) -> dict[str, Any]:
        def stop() -> None:
            run = self.watcher.run(id)
            self.watcher.control.stop(run)
            self.watcher.look_again(run)

        await self.ask(stop)
        return {"state": "stopping"}

    async def resume(self, id: str) -> tuple[dict[str, Any], bool]:
        """Returns once the run has claimed its folder; false if it has not yet. Raises HTTPProblem (409) with the error
        of a command that ends at once.
        """
        watcher = self.watcher
        run = await self.ask(watcher.run, id)
        resumed = await self.ask(watcher.control.resume, run)
        until = asyncio.get_running_loop().time() + _START_SECONDS
        while asyncio.get_running_loop().time() < until:
            failure, has_begun = await self.ask(self._look_at, run)
            if failure is not None:
                raise HTTPProblem(409, failure, code="refused")
            if has_begun:
                return {"state": "running", "command": resumed.command}, True
            await asyncio.sleep(_START_LOOK)
        return {"state": "starting", "command": resumed.command}, False

    def _look_at(self, run: WatchedRun) -> tuple[str | None, bool]:
        self.watcher.look_again(run)
        control = self.watcher.control
        return control.failure(run), run.holder is not None or not control.is_starting(run)
