"""Fills in the chapters of the theory guide (docs/theory): formulas, code, outputs, numbers, pictures, contents.

    python scripts/theory.py [CHAPTER…]       fill in the chapters and draw their pictures; default: all
    python scripts/theory.py --check          only say what is out of date; exit with 1 if anything is

`weft theory` makes the pages and notebooks from what this writes.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.theory.chapters import CHAPTER_TITLES, read_chapter, written_chapters
from weft.theory.entry import LANGUAGES
from weft.theory.filling import filled
from weft.theory.places import chapter_file, guide_folder, picture_file

BEGIN, END = "<!-- chapters -->", "<!-- end -->"


def main() -> int:
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    late = [(path, text) for path, text in contents(names or written_chapters()) if is_stale(path, text)]
    if "--check" in sys.argv:
        print("\n".join(f"{path} is out of date: run python scripts/theory.py" for path, _ in late) or "up to date")
        return int(bool(late))
    for path, text in late:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(path.relative_to(guide_folder()))
    return 0


def contents(chapters: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Every file that is made, with its text."""
    for slug in chapters:
        for language in LANGUAGES:
            yield chapter_file(slug, language), filled(slug, language)
            for name, draw in read_chapter(slug).pictures.items():
                yield picture_file(name, language), draw(language)
    yield guide_folder() / "README.md", with_contents()


def is_stale(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_text("utf-8") != text


def with_contents() -> str:
    page = (guide_folder() / "README.md").read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = ["| | English | 中文 |", "|---|---|---|"]
    written = written_chapters()
    for number, (slug, title) in enumerate(CHAPTER_TITLES.items(), 1):
        names = [
            f"[{title.of(language)}]({language}/{slug}.md)" if slug in written else title.of(language)
            for language in LANGUAGES
        ]
        lines.append(f"| {number} | {' | '.join(names)} |")
    return f"{head}{BEGIN}\n{chr(10).join(lines)}\n{END}{tail}"


if __name__ == "__main__":
    sys.exit(main())
