"""What a run reports: metrics.jsonl for programs, train.log, TensorBoard if installed, and a line on the terminal.

On resuming, lines after the step of the checkpoint are dropped, so that the file ends up as if the run had never
stopped.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from weft.folders import disk_errors, write_file
from weft.progress import LiveLine, say

METRICS, LOG, TENSORBOARD = "metrics.jsonl", "train.log", "tensorboard"
_SECONDS_BETWEEN_LINES = {True: 0.2, False: 5.0}  # by whether the line is written over itself
_NOT_PLOTTED = ("step", "tokens", "seconds")


class TrainingLog:
    def __init__(self, folder: Path, step: int, steps: int, peak: float | None = None) -> None:
        """The run begins after `step` of `steps` steps. `peak`: FLOP/s of the machine, to report the share used."""
        self.folder, self.first, self.steps, self.peak = folder, step, steps, peak
        self.earlier = 0.0  # seconds, before this process
        self.tokens = self.flops = 0.0
        self.busy = 1e-9  # seconds in training steps
        self.board: Any = None
        self.began, self.shown, self.line = time.monotonic(), 0.0, LiveLine()
        self._open()

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(self.folder) if line["step"] <= self.first] if self.first else []
        write_file(self.folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept).encode())
        self.earlier = kept[-1]["seconds"] if kept else 0.0
        self.board = _board(self.folder / TENSORBOARD, self.first)

    @property
    def seconds(self) -> float:
        """Time spent in this process."""
        return time.monotonic() - self.began

    def note(self, text: str) -> None:
        """Add a line to train.log."""
        with disk_errors(self.folder / LOG), (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def count(self, tokens: int, flops: float, seconds: float) -> None:
        """Count a step. Validation and saving are not part of `seconds`, so the rates are those of training alone."""
        self.tokens += tokens
        self.flops += flops
        self.busy += seconds

    def write(self, facts: dict[str, Any]) -> None:
        rate = round(self.tokens / self.busy, 1)
        line = {**facts, "seconds": round(self.earlier + self.seconds, 3), "tokens_per_second": rate}
        with disk_errors(self.folder / METRICS):
            with (self.folder / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            with (self.folder / LOG).open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._line(facts)}\n")
                if "sample" in facts:
                    file.write(facts["sample"] + "\n")
            if self.board is not None:
                for key, value in facts.items():
                    if isinstance(value, int | float) and key not in _NOT_PLOTTED:
                        self.board.add_scalar(key, value, facts["step"])
                self.board.add_scalar("tokens_per_second", rate, facts["step"])
                if "sample" in facts:
                    self.board.add_text("sample", facts["sample"], facts["step"])

    def show(self, facts: dict[str, Any], *, always: bool = False) -> None:
        """Show progress: one changing line on a terminal and in a notebook, a new line every few seconds elsewhere."""
        if not always and self.seconds - self.shown < _SECONDS_BETWEEN_LINES[self.line.is_live]:
            return
        self.shown = self.seconds
        self.line.show(self._line(facts), stays=always)
        if "sample" in facts:
            say("  " + "\n  ".join(facts["sample"].splitlines()))

    def close(self) -> None:
        if self.board is not None:
            with suppress(OSError):
                self.board.close()

    def _line(self, facts: dict[str, Any]) -> str:
        rate = (facts["step"] - self.first) / max(self.seconds, 1e-9)
        line = f"step {facts['step']:,}/{self.steps:,}  loss {facts['loss']:.4f}"
        if "validation_loss" in facts:
            line += f"  validation {facts['validation_loss']:.4f}"
        line += f"  {self.tokens / self.busy:,.0f} tokens/s"
        if self.peak:
            line += f"  {self.flops / self.busy / self.peak:.0%} of the matmul peak"
        return f"{line}  {_clock((self.steps - facts['step']) / max(rate, 1e-9))} left"


class SilentLog(TrainingLog):
    """The log of a process that is not the first: it counts and keeps time, and writes nothing."""

    def _open(self) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def write(self, facts: dict[str, Any]) -> None:
        pass

    def show(self, facts: dict[str, Any], *, always: bool = False) -> None:
        pass


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All complete lines; a kill may have cut off the last one."""
    file = folder / METRICS
    lines = file.read_text("utf-8", errors="replace").splitlines() if file.is_file() else []
    found = []
    for line in lines:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict) and "step" in line and "seconds" in line]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _board(folder: Path, step: int) -> Any:
    """TensorBoard's writer, if the package is installed (pip install weft[tensorboard])."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
