"""The code cells of a chapter: run in order in one namespace, with what each of them prints.

A chapter's numbers are values of this namespace, so the text cannot say another number than the code.
"""

import ast
import io
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.errors import WeftError


class CellFailed(WeftError):
    """Code in a chapter raises an error."""


@dataclass(frozen=True)
class Run:
    outputs: tuple[str, ...]  # of each cell
    names: dict[str, Any]  # after the last one

    def value(self, expression: str) -> str:
        """`p:.3f`, as between the braces of an f-string."""
        try:
            return str(eval(f"f{'{' + expression + '}'!r}", self.names))  # noqa: S307  # the guide's own text
        except Exception as error:
            raise CellFailed(f"The value {expression!r} in a chapter: {error}") from error


def run_cells(cells: Sequence[str]) -> Run:
    names: dict[str, Any] = {"__name__": "chapter"}
    outputs: list[str] = []
    with np.printoptions(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number, cell in enumerate(cells, 1):
            printed = io.StringIO()
            try:
                with redirect_stdout(printed):
                    exec(compile(cell, f"cell {number}", "exec"), names)  # noqa: S102  # the guide's own text
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                raise CellFailed(f"Cell {number} ({where.filename}, line {where.lineno}): {error!r}\n{cell}") from error
            outputs.append(printed.getvalue().rstrip())
    return Run(tuple(outputs), names)


def without_comments(cell: str) -> str:
    """To compare the cells of two languages, whose comments differ."""
    return ast.unparse(ast.parse(cell))
