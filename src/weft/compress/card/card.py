"""The card: a verdict in one sentence, a table, a page and JSON."""

from pathlib import Path
from typing import Any

from weft.compress.card.card_page import card_page
from weft.compress.card.measured import MeasuredModels
from weft.compress.card.table import card_lines
from weft.compress.card.verdict import card_verdict
from weft.errors import FolderError, WeftError
from weft.folders import MANIFEST, disk_errors, known_facts, manifest, read_json, to_json, write_file
from weft.version import VERSION

CARD_PAGE, CARD_FACTS, CARD_KEY = "card.html", "card.json", "card"


class Card(MeasuredModels):
    @property
    def verdict(self) -> str:
        return card_verdict(self)

    def facts(self) -> dict[str, Any]:
        """As card.json has it."""
        own = {key: getattr(self, key) for key in ("kind", "task", "where", "unit", "count", "metric", "headline")}
        timing = {"rounds": self.rounds, "texts_alone": self.timed_alone, "texts_together": self.timed_together}
        return {
            "weft": VERSION,
            "verdict": self.verdict,
            **own,
            "models": [model.facts() for model in self.models],
            "timing": {**timing, "alone": self.alone_title},
            "machine": self.machine,
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """For the terminal."""
        return [self.verdict, "", *card_lines(self)]

    def write(self, folder: Path) -> Path:
        """Write card.html and card.json into the folder. Returns the path of the page."""
        check_card_place(folder)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / CARD_FACTS, to_json(self.facts()))
        write_file(folder / CARD_PAGE, card_page(self))
        return folder / CARD_PAGE

    def keep(self, folder: Path) -> None:
        """Write the card's facts, without texts of the data, into the weft.json of the model in `folder`."""
        facts = self.facts()
        for model in facts["models"]:
            if model["against"] and model["against"]["agreement"]:
                model["against"]["agreement"].pop("shown")
        known = known_facts(folder) or manifest(folder, weft=VERSION, kind="model")
        write_file(folder / MANIFEST, to_json({**known, CARD_KEY: facts}))


def check_card_place(folder: Path) -> None:
    """Raises FolderError if the folder has a card.html or a card.json that is no card: it would be overwritten."""
    file = next((folder / name for name in (CARD_FACTS, CARD_PAGE) if (folder / name).exists()), None)
    if file is None:
        return
    try:
        is_card = {"verdict", "models", "machine"} <= read_json(folder / CARD_FACTS).keys()
    except WeftError:
        is_card = False
    if not is_card:
        raise FolderError(f"{file} is not a card of weft, and would be overwritten. Choose another folder.")
