"""Where a smaller model is written: never over, around or inside the one that it is made from."""

from pathlib import Path

from weft.errors import FolderError
from weft.folders import check_place, check_writable


def place_for_model(folder: Path, source: Path | None) -> Path:
    """The absolute path of an output folder. Raises FolderError before the work if the model could not be written."""
    place = check_place(folder, mark="config.json")
    if source is not None:
        check_apart(folder, source)
    check_writable(place.parent)  # the model is made beside its place and renamed
    return place


def check_apart(folder: Path, model: Path) -> None:
    """Raises FolderError if the output folder is, contains or is inside the folder of a model that is read."""
    place, before = folder.resolve(), model.resolve()
    if place == before or place in before.parents or before in place.parents:
        how = "is" if place == before else "contains" if place in before.parents else "is inside"
        raise FolderError(f"{folder} {how} the model {model}. Choose a folder elsewhere.")
