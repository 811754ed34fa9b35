"""Where the guide's files are."""

from pathlib import Path

from weft.errors import InputError
from weft.theory.entry import Language

PACKAGE = Path(__file__).parents[1]


def guide_folder() -> Path:
    """docs/theory of a checkout; the copy inside an installed package."""
    checkout = PACKAGE.parents[1] / "docs/theory"
    return checkout if PACKAGE.parent.name == "src" and checkout.is_dir() else Path(__file__).with_name("guide")


def chapter_file(slug: str, language: Language) -> Path:
    return guide_folder() / language / f"{slug}.md"


def picture_file(name: str, language: Language) -> Path:
    return guide_folder() / "pictures" / f"{name}.{language}.svg"


def read_guide_text(slug: str, language: Language) -> str:
    file = chapter_file(slug, language)
    if not file.is_file():
        raise InputError(f"The chapter {slug} has no text in {file.parent}.")
    return file.read_text("utf-8")
