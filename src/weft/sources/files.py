"""The files that paths stand for: a file, a folder with the files in it, or a pattern with those that match."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from weft.errors import InputError, not_found, suggest
from weft.folders import known_facts
from weft.progress import say
from weft.sources.archives import ARCHIVES, is_archive, is_hidden
from weft.sources.formats.catalog import DOCUMENT_FORMATS, ending_of

KNOWN_ENDINGS = f"Known endings: {', '.join((*DOCUMENT_FORMATS, *ARCHIVES))}."
_HELD_OUT = ("test", "validation")  # parts of a corpus folder, the first that is there
_MOST_SHOWN = 5  # files in a message
_EXPANDS = 4  # bytes of text per byte of a file that is not plain, about


@dataclass
class Listing:
    """The files to read, and those that are passed over because their endings are not known."""

    files: list[Path] = field(default_factory=list)
    passed_over: list[Path] = field(default_factory=list)

    def add(self, files: Sequence[Path], format: str | None) -> None:
        for file in files:
            (self.files if format or is_readable(file.name) else self.passed_over).append(file)

    def say_passed_over(self) -> None:
        if self.passed_over:
            say(f"Not read: {said_passed_over(self.passed_over)} To read them, give their format: --format or format:.")


def said_passed_over(files: Sequence[Path]) -> str:
    """Example: 3 files with an ending that is not known (.epub 2, none 1): a.epub, b.epub, README."""
    endings = Counter(unknown_ending(file.name) for file in files).most_common(_MOST_SHOWN)
    kinds = ", ".join(f"{ending} {count:,}" for ending, count in endings)
    shown = ", ".join(file.name for file in files[:_MOST_SHOWN]) + (" …" if len(files) > _MOST_SHOWN else "")
    return f"{len(files):,} file{'' if len(files) == 1 else 's'} with an ending that is not known ({kinds}): {shown}."


def unknown_ending(name: str) -> str:
    return ending_of(name)[:20] or "none"


def find_files(paths: Sequence[Path], format: str | None = None) -> list[Path]:
    """The files to read, in a fixed order."""
    return list_files(paths, format).files


def list_files(paths: Sequence[Path], format: str | None = None) -> Listing:
    """The files of documents. With a format, files of any ending count. A corpus stands for its training texts: what is
    held out, or was dropped, is not to be learnt from.
    """
    listing = Listing()
    for path in paths:
        if path.is_file() and format is None and not is_readable(path.name):
            raise InputError(
                f"{path} has an ending that is not known ({unknown_ending(path.name)}). Give its format: "
                f"format: text in a recipe, --format text on the command line. {KNOWN_ENDINGS}"
            )
        before, passed_over = len(listing.files), len(listing.passed_over)
        is_built = is_corpus(path)
        listing.add(expand(path / "train" if is_built else path), None if is_built else format)
        if len(listing.files) == before:
            raise InputError(_nothing_readable(path, listing.passed_over[passed_over:]))
    return listing


def _nothing_readable(path: Path, others: Sequence[Path]) -> str:
    is_folder = path.is_dir()
    begins = f"{path} holds no text files. " if is_folder else f"{path} matches no file that can be read"
    if not others:
        return f"{begins}{KNOWN_ENDINGS}" if is_folder else f"{begins}."
    has = f"It has {said_passed_over(others)}" if is_folder else f": {said_passed_over(others)}"
    return f"{begins}{has} Give their format, such as format: text. {KNOWN_ENDINGS}"


def expand(path: Path) -> list[Path]:
    """The files that a path stands for, whatever their endings. Raises InputError if there is nothing of this name."""
    if path.is_file():
        return [path]
    if path.is_dir():
        return list(files_in(path))
    if path.is_symlink() or path.exists():
        raise InputError(f"{path} is neither a file nor a folder.")
    matches = [Path(match) for match in sorted(glob(str(path), recursive=True))]  # noqa: PTH207, Path.glob takes no absolute pattern
    if not matches:
        near = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(not_found(path, suggest(path.name, near)))
    found: list[Path] = []
    for match in matches:
        if match.is_dir():
            found += files_in(match / "train" if is_corpus(match) else match)
        elif match.is_file():
            found.append(match)
    return found


def files_in(folder: Path) -> Iterator[Path]:
    """Hidden files are not read, nor a corpus that lies in the folder: parts of it are held out, or were dropped."""
    for item in sorted(folder.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            yield item
        elif item.is_dir() and not item.is_symlink() and not is_corpus(item):
            yield from files_in(item)


def is_corpus(folder: Path) -> bool:
    """Whether `weft corpus` wrote this folder."""
    return known_facts(folder).get("kind") == "corpus"


def held_out_part(path: Path) -> Path:
    """Of a corpus folder the part that models are not trained on; any other path as it is."""
    if not is_corpus(path):
        return path
    parts = [path / part for part in _HELD_OUT if any((path / part).glob("**/*.*"))]
    if not parts:
        raise InputError(f"{path} has no test or validation part to evaluate on. Give text that was held out.")
    return parts[0]


def text_size(files: Sequence[Path]) -> int:
    """About how many bytes of text the files hold."""
    return sum(file.stat().st_size * (1 if _is_plain(file) else _EXPANDS) for file in files)


def _is_plain(file: Path) -> bool:
    known = DOCUMENT_FORMATS.get(file.suffix.lower())
    return known is not None and known.is_plain


def is_readable(name: str) -> bool:
    """Whether documents are read from a file of this name, without a format being given."""
    return not is_hidden(name) and (is_archive(name) or ending_of(name) in DOCUMENT_FORMATS)
