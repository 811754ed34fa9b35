"""The names of the columns of a table: found, checked, or refused."""

from collections.abc import Sequence

from weft.errors import InputError, suggest

_LONGEST_NAME = 64  # characters; a longer one is a sentence
_MOST_SHOWN = 20


def find_column(names: Sequence[str], wanted: str) -> int:
    """Raises InputError if there is no such column."""
    names = [name.removeprefix("\ufeff").strip() for name in names]
    if wanted not in names:
        shown = ", ".join(names[:_MOST_SHOWN]) or "none"
        raise InputError(f'there is no column "{wanted}"{suggest(wanted, names)}; the columns are: {shown}.')
    return names.index(wanted)


def names_in_first_line(fields: Sequence[str]) -> list[str]:
    """Raises InputError if the fields look like data. The first column may be unnamed: pandas writes its index so."""
    names = [name.strip() for name in fields]
    if any(_looks_like_data(name) for name in names[1:]) or (names[0] and _looks_like_data(names[0])):
        shown = ", ".join(name if len(name) <= 20 else f"{name[:20]}…" for name in names[:5])
        raise InputError(
            f"its first line looks like data ({shown}), not like column names. Give it a first line of names, or name "
            "them with finetune.data.columns."
        )
    return [names[0] or "column 0", *names[1:]]


def _looks_like_data(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return not name or len(name) > _LONGEST_NAME or name.endswith((".", "。"))
    return True


def refuse_equal_names(names: Sequence[str]) -> None:
    equal = sorted({name for name in names if names.count(name) > 1})
    if equal:
        raise InputError(f"there is more than one column {equal[0]!r}. Name them all with finetune.data.columns.")
