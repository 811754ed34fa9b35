"""Stop and resume a run, as its user would in a terminal.

Stopping sends what Ctrl-C sends, once, to the process that holds the run's lock, if that is a weft command of the same
user on this machine: it saves a checkpoint after its step and ends. Resuming starts `weft pretrain RUN --resume` (or
finetune) as a process of its own, which outlives the page; what it prints goes to resume.log in the run's folder.
"""

import os
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from weft.errors import InputError
from weft.watch.holder import LOCK_NAME, LockHolder, has_open, lock_holder, process_words
from weft.watch.plain_files import read_end, shown_text
from weft.watch.run import WatchedRun

RESUME_LOG = "resume.log"
_STAGES = ("pretrain", "finetune", "distil", "run")
_LAST_WORDS = 20_000  # bytes of resume.log


class ControlRefused(InputError):
    """This run cannot be stopped or resumed from here."""


@dataclass
class Resumed:
    process: subprocess.Popen[bytes]
    command: str
    begins: int  # where its part of resume.log begins
    has_begun: bool = False  # whether it was seen holding the run's lock


class RunControl:
    def __init__(self) -> None:
        self._asked: dict[str, LockHolder] = {}  # who was asked to stop, by the run's id
        self._resumed: dict[str, Resumed] = {}

    def is_stopping(self, run: WatchedRun) -> bool:
        return run.holder is not None and self._asked.get(run.found.id) == run.holder

    def stop(self, run: WatchedRun) -> None:
        """Raises ControlRefused. A second call does nothing: a second Ctrl-C would end the run without saving."""
        holder = lock_holder(run.found.home)
        if holder is None:
            raise ControlRefused("This run is not running.")
        if self._asked.get(run.found.id) == holder:
            return
        if not holder.is_here:
            raise ControlRefused(f"The run is on {shown_text(holder.host, 100)}; stop it there.")
        _interrupt(holder, run.found.home)
        self._asked[run.found.id] = holder

    def resume(self, run: WatchedRun) -> Resumed:
        """Raises ControlRefused."""
        if lock_holder(run.found.home) is not None or self.is_starting(run):
            raise ControlRefused("This run is running already.")
        if run.is_seed:
            raise ControlRefused("This is one of several seeds; resume the run that it belongs to.")
        if run.results:
            raise ControlRefused("This run is finished.")
        if run.stage in ("prune", "quantize"):
            raise ControlRefused("This stage belongs to a recipe: weft run starts it again.")
        words, output = resume_words(run), _open_log(run.found.folder / RESUME_LOG)
        try:
            begins = os.fstat(output).st_size
            process = subprocess.Popen(  # noqa: S603 (weft itself, with a folder that was found)
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the page's terminal is not meant for it
            )
        finally:
            os.close(output)
        self._resumed[run.found.id] = found = Resumed(process, " ".join(words), begins)
        return found

    def note_holder(self, run: WatchedRun) -> None:
        """What was started here has begun if it holds the lock. If another process does, it is over."""
        resumed = self._resumed.get(run.found.id)
        if resumed is None or run.holder is None:
            return
        if run.holder.process == resumed.process.pid:
            resumed.has_begun = True
        elif resumed.process.poll() is not None:
            del self._resumed[run.found.id]

    def is_starting(self, run: WatchedRun) -> bool:
        """Whether a process that was started here has not claimed the folder yet. Also collects those that ended."""
        resumed = self._resumed.get(run.found.id)
        return resumed is not None and resumed.process.poll() is None and not resumed.has_begun

    def failure(self, run: WatchedRun) -> str | None:
        """What a process that was started here said when it failed; None if it runs, stopped as asked or succeeded."""
        resumed = self._resumed.get(run.found.id)
        code = None if resumed is None else resumed.process.poll()
        if resumed is None or code in (None, 0, 130):
            return None
        return last_words(run.found.folder / RESUME_LOG, resumed.begins) or f"It ended with exit code {code}."


def _open_log(log: Path) -> int:
    """The folder may be anybody's: not through a link, and not a pipe, which would wait for a reader."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        output = os.open(log, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        raise ControlRefused(f"{RESUME_LOG} in the run's folder cannot be written: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(output).st_mode):
        os.close(output)
        raise ControlRefused(f"{RESUME_LOG} in the run's folder is not a file.")
    return output


def resume_words(run: WatchedRun) -> list[str]:
    return ["weft", run.stage, str(run.found.folder.absolute()), "--resume"]


def last_words(log: Path, begins: int) -> str | None:
    """The error sentence at the end of a command's output."""
    try:
        data, size = read_end(log, _LAST_WORDS)
    except OSError:
        return None
    said = data[max(0, begins - (size - len(data))) :].decode("utf-8", "replace").splitlines()
    sentences = [line.removeprefix("weft: ") for line in said if line.startswith("weft: ")]
    last = sentences[-1] if sentences else next((line for line in reversed(said) if line.strip()), None)
    return shown_text(last, 1_000) if last else None


def _interrupt(holder: LockHolder, folder: Path) -> None:
    """As Ctrl-C does. The process is held by a handle, so that the signal cannot reach another one of its number."""
    if not hasattr(os, "pidfd_open"):
        raise ControlRefused("Only on Linux can a run be stopped from here; press Ctrl-C where it was started.")
    try:
        handle = os.pidfd_open(holder.process)
    except OSError:
        raise ControlRefused("This run is not running.") from None
    try:
        if lock_holder(folder) != holder:
            raise ControlRefused("This run is not running any more.")
        owner = Path(f"/proc/{holder.process}").stat().st_uid
        if owner != os.getuid():
            raise ControlRefused(f"Process {holder.process} belongs to another user.")
        if not is_weft(process_words(holder.process)):
            raise ControlRefused(
                f"Process {holder.process} is not a weft command, perhaps a notebook or a program of yours. Stop the "
                "run there."
            )
        if has_open(holder.process, folder / LOCK_NAME) is False:  # another run, which was given the same number
            raise ControlRefused("This run is not running any more.")
        signal.pidfd_send_signal(handle, signal.SIGINT)
    except OSError:
        raise ControlRefused("This run is not running any more.") from None
    finally:
        os.close(handle)


def is_weft(words: list[str]) -> bool:
    """Whether a command line is `weft STAGE …` or `python -m weft STAGE …`."""
    for place, word in enumerate(words[:-1]):
        is_module = word == "weft" and place > 0 and words[place - 1] == "-m"
        if (is_module or Path(word).name == "weft") and words[place + 1] in _STAGES:
            return True
    return False
