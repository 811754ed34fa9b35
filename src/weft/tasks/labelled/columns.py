"""Which column of the data has which role: as the recipe names it, or inferred from its name or content.

Names come first: pairs that belong together (premise and hypothesis), then the usual names of each role. Only text and
label are also inferred from content: the longest column, and the column with the fewest values. Guesses are printed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import InputError, suggest
from weft.sources.records import Record

_SHOWN = 30  # columns in a message


@dataclass(frozen=True)
class ColumnRole:
    name: str
    synonyms: tuple[str, ...]  # usual names of the column, best first; case is ignored


def _role(name: str, synonyms: str) -> ColumnRole:
    return ColumnRole(name, (name, *synonyms.split()))


COLUMN_ROLES: dict[str, ColumnRole] = {
    role.name: role
    for role in (
        _role(
            "text",
            "sentence text_a content review review_body reviewtext document article message body comment tweet post "
            "utterance query question sentence1 text1 premise headline title description",
        ),
        _role("second", "sentence2 text_b hypothesis question2 text2 sentence_b second_sentence"),
        _role(
            "label",
            "labels class category gold_label target sentiment topic intent classes categories label_text emotion "
            "polarity stars rating y",
        ),
        _role("score", "similarity similarity_score relatedness label rating stars value target gold y"),
        _role("words", "tokens token word form forms sentence text"),
        _role("tags", "ner_tags tag upos pos_tags pos ner entities spans labels label slots"),
        _role("context", "passage paragraph document article text"),
        _role("question", "query q"),
        _role("answers", "answer"),
        _role(
            "source",
            "src prompt input instruction dialogue dialog article document question context text original sentence",
        ),
        _role(
            "target",
            "tgt response completion output summary highlights answer reply translation reference abstract answers",
        ),
        _role("messages", "conversations conversation text"),
        _role("intent", "intents intent_label label class category"),
    )
}
# Names that belong together, tried before single names.
_PAIRS: dict[tuple[str, str], tuple[str, ...]] = {
    ("text", "second"): (
        "sentence1 sentence2", "premise hypothesis", "question1 question2", "text_a text_b", "text1 text2",
        "sentence_a sentence_b", "question sentence", "query passage", "query document", "anchor positive",
        "query positive", "question context",
    ),
    ("source", "target"): (
        "source target", "src tgt", "prompt response", "prompt completion", "instruction output", "input output",
        "dialogue summary", "dialog summary", "article highlights", "article summary", "document summary",
        "article abstract", "text summary", "question answer",
    ),
}  # fmt: skip
_LANGUAGES = frozenset(  # without id and no: columns of these names are rarely Indonesian and Norwegian
    "ar bg bn ca cs da de el en es et eu fa fi fr ga he hi hr hu is it ja ko lt lv mk ms nl pl pt ro ru sk sl sq "
    "sr sv sw ta th tr uk ur vi zh english german french spanish italian portuguese dutch russian chinese japanese "
    "korean".split()
)
_INDEX = re.compile(r"(.*[_ -])?(id|ids|idx|index|guid|uid|uuid|key|hash|number|nr|no\.?)|row|#|column 0|unnamed.*")
_HASH = re.compile(r"[0-9a-fA-F-]{16,}")
RoleColumns = dict[str, str | tuple[str, ...]]


def find_columns(
    sample: Sequence[Record], roles: Sequence[ColumnRole], named: Mapping[str, str | Sequence[str]], where: str
) -> tuple[RoleColumns, list[str]]:
    """The column of each role (several if the recipe names several), and sentences about what was guessed."""
    search = _Search(sample, roles, where)
    search.by_recipe(named)
    search.by_pairs()
    search.by_synonyms()
    search.by_content()
    search.check_complete()
    return search.found, search.sentences


class _Search:
    def __init__(self, sample: Sequence[Record], roles: Sequence[ColumnRole], where: str) -> None:
        if not sample:
            raise InputError(f"{where} has no usable rows.")
        self.sample, self.roles, self.where = sample, roles, where
        self.names = list(dict.fromkeys(name for row in sample for name in row.values))
        self.by_lower = {name.lower(): name for name in reversed(self.names)}  # the first of two with the same name
        self.free = set(self.names)
        self.wanted = {role.name: role for role in roles}  # roles without a column so far
        self.found: RoleColumns = {}
        self.guesses: dict[str, str] = {}

    def by_recipe(self, named: Mapping[str, str | Sequence[str]]) -> None:
        for role, columns in named.items():
            if role not in self.wanted:
                known = list(self.wanted)
                raise InputError(
                    f"finetune.data.{role} is not a column of this task{suggest(role, known)}. Its columns are "
                    f"{_listed(known)}."
                )
            for column in [columns] if isinstance(columns, str) else columns:
                if column not in self.names:
                    hint = suggest(column, self.names)
                    raise InputError(f"{self.where} has no column {column}{hint}. {self._its_columns}")
                self.free.discard(column)
            self.found[role] = columns if isinstance(columns, str) else tuple(columns)
        self.wanted = {name: role for name, role in self.wanted.items() if name not in named}

    def by_pairs(self) -> None:
        for roles, names in _PAIRS.items():
            if all(role in self.wanted or role in self.found for role in roles):
                for role, column in zip(roles, self._pair(roles, names), strict=False):
                    if role in self.wanted:
                        self._guess(role, column)

    def _pair(self, roles: tuple[str, str], names: tuple[str, ...]) -> list[str]:
        """Two columns that belong together, agree with the roles found so far and have no other role."""
        pairs = [[self.by_lower.get(name, "") for name in pair.split()] for pair in names]
        languages = [name for name in self.names if name.lower() in _LANGUAGES]
        if roles == ("source", "target") and len(languages) == 2:
            pairs += [languages, languages[::-1]]
        for pair in pairs:
            if all(
                self.found[role] == name if role in self.found else name in self.free
                for role, name in zip(roles, pair, strict=True)
            ):
                return pair
        return []

    def by_synonyms(self) -> None:
        for role in list(self.wanted.values()):
            names = (self.by_lower.get(synonym.lower()) for synonym in role.synonyms)
            name = next((name for name in names if name in self.free), None)
            if name is not None:
                self._guess(role.name, name)

    def by_content(self) -> None:
        if "text" in self.wanted:
            lengths = {
                name: sum(map(len, values)) / len(values)
                for name, values in self._candidates()
                if all(isinstance(value, str) for value in values) and not all(map(_is_number, values))
            }
            if lengths:
                self._guess("text", max(lengths, key=lambda name: lengths[name]), " (the longest column)")
        if "label" in self.wanted:
            counts = {
                name: len(set(values))
                for name, values in self._candidates()
                if all(isinstance(value, str | int | float) for value in values)
            }
            repeated = {name: count for name, count in counts.items() if 1 < count <= (len(self.sample) + 1) / 2}
            if repeated:
                name = min(repeated, key=lambda name: repeated[name])
                self._guess("label", name, " (the column with the fewest values)")

    def check_complete(self) -> None:
        for role in self.roles:
            if role.name not in self.found:
                raise InputError(
                    f"{self.where} has no column that looks like the {role.name}. {self._its_columns} "
                    f"Name the column with finetune.data.{role.name} in a recipe, or with --column {role.name}=… "
                    f"(evaluate, predict, compare), or rename it to {role.name}."
                )

    @property
    def sentences(self) -> list[str]:
        guesses = [self.guesses[role.name] for role in self.roles if role.name in self.guesses]
        is_plain = all(self.found[name] == name for name in self.guesses)  # such as text as text
        return [] if is_plain else [f"{self.where}: using {_listed(guesses)}."]

    @property
    def _its_columns(self) -> str:
        return f"Its columns: {', '.join(self.names[:_SHOWN])}{' …' if len(self.names) > _SHOWN else ''}."

    def _guess(self, role: str, column: str, why: str = "") -> None:
        self.found[role] = column
        self.guesses[role] = f"{column} as {role}{why}"
        self.free.discard(column)
        del self.wanted[role]

    def _candidates(self) -> Iterator[tuple[str, list[Any]]]:
        """The columns without a role and their values, except row numbers and ids."""
        for name in self.names:
            values = [value for row in self.sample if (value := row.values.get(name)) not in (None, "")]
            is_index = _INDEX.fullmatch(name.lower()) or all(_HASH.fullmatch(str(value)) for value in values)
            if name in self.free and values and not is_index:
                yield name, values


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
