"""`weft search`: the passages of texts that are nearest in meaning to a query."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Self

from weft.api.model import Model, load
from weft.api.search import Passage, SearchHit, SearchIndex, passages_of
from weft.commands.printing import as_json_line, print_next
from weft.errors import InputError
from weft.folders import write_file
from weft.page import page
from weft.progress import say
from weft.recipe.corpus import ReadSection
from weft.recipe.file import check_section
from weft.sources.documents import files_of, read_documents
from weft.sources.reading import Reading
from weft.sources.standard_input import is_standard_input, standard_input_as_file
from weft.terminal import for_standard_output
from weft.words import places_of_words, words_of

_SHOWN = 300  # characters of a passage on the terminal
_SAMPLED, _COMMON = 500, 0.1  # passages that tell which words are common; in so large a share of them
_STYLE = """
.hit { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem 1rem;
  margin: .7rem 0 }
.hit div { display: flex; gap: 1rem; justify-content: space-between; color: var(--soft); font-size: .85rem }
.hit div b { color: var(--a); font-variant-numeric: tabular-nums }
.hit p { color: var(--ink); white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0 0 }
mark { background: color-mix(in srgb, var(--b) 30%, transparent); color: inherit; border-radius: .2rem }
"""


@dataclass(frozen=True)
class SearchedTexts:
    """The texts that are searched, and how they are read."""

    places: Sequence[Path]
    reading: Reading
    index: Path | None = None  # a folder that keeps the vectors

    @classmethod
    def by_options(cls, places: Sequence[Path], index: Path | None, options: dict[str, str]) -> Self:
        """`options`: of the command line, by their names."""
        given = check_section(ReadSection, options, "search")
        return cls(places, Reading(given.documents or "file", given.text, given.encoding, given.format), index)

    def opened(self, model: Model) -> SearchIndex:
        """The index as it was saved, if neither the model nor the files have changed; otherwise a new one."""
        if self.index is None:
            return self._read(model)
        if any(map(is_standard_input, self.places)):
            raise InputError("An index remembers files, and standard input (-) is none. Save it to a file first.")
        made_of = [*self._versions(), str(self.reading)]
        if self.index.exists():
            if (known := SearchIndex.open(self.index, model, made_of)) is not None:
                return known
            say(f"{self.index} was made by another model or of other files: reading the texts again.")
        found = self._read(model)
        found.save(self.index, made_of)
        return found

    def _read(self, model: Model) -> SearchIndex:
        with standard_input_as_file(self.places, self.reading.format) as places:
            found = SearchIndex.build(model, passages_of(read_documents(places, self.reading), _most_tokens(model)))
        if not found.passages:
            raise InputError(f"There is no text to search in {', '.join(map(str, self.places))}.")
        return found

    def _versions(self) -> list[list[Any]]:
        """Of each file: how large, and when it was written."""
        stats = [(file, file.stat()) for file in files_of(self.places, self.reading)]
        return [[str(file.resolve()), one.st_size, one.st_mtime_ns] for file, one in stats]


def search_texts(
    folder: Path,
    texts: SearchedTexts,
    queries: Sequence[str],
    *,
    top: int = 5,
    output: Path | None = None,
    precision: str | None = None,
    as_json: bool = False,
) -> None:
    """Prints the nearest passages to each query. Without queries, each line of standard input is one. `output`: an HTML
    page.
    """
    if not queries and any(map(is_standard_input, texts.places)):
        raise InputError("Standard input (-) has the texts, so the queries must be given: --query.")
    if not all(query.strip() for query in queries):
        raise InputError("A query is empty.")
    if not queries and output is not None:
        raise InputError("A page needs its queries: --query.")
    files_of([place for place in texts.places if not is_standard_input(place)], texts.reading)  # raises, before work
    model = load(folder, precision=precision)
    _check_reads(model)
    index = texts.opened(model)
    if not queries:
        for query in typed_queries():
            found = found_facts(query, index.search(query, top))
            print(as_json_line(found) if as_json else for_standard_output(found_lines(found)), flush=True)
        return
    hits = [(query, index.search(query, top)) for query in queries]
    results: dict[str, Any] = {"model": str(folder), "passages": len(index.passages)}
    results["queries"] = [found_facts(query, best) for query, best in hits]
    if output is not None:
        write_file(output, search_page(hits, index.passages))
        results["page"] = str(output)
    blocks = "\n\n".join(map(found_lines, results["queries"]))
    print(as_json_line(results) if as_json else for_standard_output(blocks))
    if output is not None:
        print_next(f"open {output}", quiet=as_json)


def found_facts(query: str, hits: Sequence[SearchHit]) -> dict[str, Any]:
    found = [{"score": round(one.score, 4), "place": one.passage.place, "text": one.passage.text} for one in hits]
    return {"query": query, "found": found}


def _check_reads(model: Model) -> None:
    if model.network.architecture.is_encoder_decoder:
        raise InputError(f"Search needs text vectors, which a {model.family} does not give. Use an encoder.")


def _most_tokens(model: Model) -> int:
    limits = [limit for limit in (model.longest, model.pooling.most_tokens) if limit is not None]
    return min(limits, default=512)


def typed_queries() -> Iterator[str]:
    """Lines of standard input; a terminal is asked for them."""
    asked = sys.stdin is not None and sys.stdin.isatty()
    while True:
        if asked:
            print("search> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            return
        if line.strip():
            yield line.strip()


def found_lines(facts: dict[str, Any]) -> str:
    """For a terminal: the score, the place and the beginning of each passage."""
    lines = [facts["query"]]
    for one in facts["found"]:
        text = " ".join(one["text"].split())
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
        lines += [f"  {one['score']:.2f}  {one['place']}", f"        {shown}"]
    return "\n".join(lines)


def search_page(hits: Sequence[tuple[str, Sequence[SearchHit]]], passages: Sequence[Passage]) -> bytes:
    """Self-contained HTML. Rare words that a passage shares with the query are marked."""
    common = _common_words(passages)
    parts = [f"<style>{_STYLE}</style><h1>Search</h1><p>{len(passages):,} passages, nearest in meaning first.</p>"]
    for query, best in hits:
        wanted = set(words_of(query.lower())) - common
        parts.append(f"<h2>{escape(query)}</h2>")
        for one in best:
            head = f"<div><span>{escape(one.passage.place)}</span><b>{one.score:.2f}</b></div>"
            parts.append(f'<section class="hit">{head}<p>{_marked(one.passage.text, wanted)}</p></section>')
    return page("Search", parts)


def _common_words(passages: Sequence[Passage]) -> set[str]:
    some = passages[:: max(1, len(passages) // _SAMPLED)]
    counts = Counter(word for one in some for word in set(words_of(one.text.lower())))
    return {word for word, count in counts.items() if count > max(1, _COMMON * len(some))}


def _marked(text: str, wanted: set[str]) -> str:
    shown, end = [], 0
    for start, stop in places_of_words(text):
        if text[start:stop].lower() in wanted:
            shown += [escape(text[end:start]), f"<mark>{escape(text[start:stop])}</mark>"]
            end = stop
    return "".join([*shown, escape(text[end:])])
