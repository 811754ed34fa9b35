"""`weft fill`: the most probable words for [MASK]."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.api.fill import fill_masks
from weft.api.model import load
from weft.commands.generate import read_prompts
from weft.errors import InputError
from weft.sources.standard_input import texts_or_file


def fill_texts(
    folder: Path, texts: Sequence[str], file: Path | None, top: int, precision: str | None = None
) -> dict[str, Any]:
    texts, file = texts_or_file(texts, file)
    if (file is None) == (not texts):
        raise InputError("Give texts with [MASK] in them, or --file.")
    lines = list(texts) if file is None else read_prompts(file)
    model = load(folder, precision=precision)
    filled = []
    for number, text in enumerate(lines, start=1):
        try:
            masks = fill_masks(model.network, model.tokenizer, text, top)
        except InputError as error:
            where = f"{file}, line {number}" if file is not None else f"Text {number}"
            raise error if len(lines) == 1 and file is None else type(error)(f"{where}: {error}") from None
        shown = [
            [{"word": one.word, "probability": round(one.probability, 6), "text": one.text} for one in suggestions]
            for suggestions in masks
        ]
        filled.append({"text": text, "masks": shown})
    return {"model": str(folder), "filled": filled}


def filled_lines(results: dict[str, Any]) -> str:
    """A block per text: a line per suggestion, with its probability."""
    blocks = []
    for row in results["filled"]:
        lines = [row["text"]] if len(results["filled"]) > 1 else []
        for number, suggestions in enumerate(row["masks"], start=1):
            if len(row["masks"]) > 1:
                lines.append(f"mask {number}")
            lines += [f"{one['probability']:.3f}  {one['word']}" for one in suggestions]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
