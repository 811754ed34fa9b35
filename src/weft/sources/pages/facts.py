"""What a page declares about itself: title, author, date, language. Nothing is guessed."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

HtmlElement = Any  # lxml has no types
_MOST_JSON = 2_000_000  # characters of a JSON-LD block
_MOST_FACT = 300  # characters
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?=$|[-_])")


@dataclass(frozen=True)
class Facts:
    title: str | None = None
    author: str | None = None
    date: str | None = None  # YYYY-MM-DD
    language: str | None = None  # two or three letters


def read_facts(root: HtmlElement) -> Facts:
    metas = _metas(root)
    linked = list(_linked_data(root))
    times = [element.get("datetime") for element in root.iter("time")]
    return Facts(
        title=_first(
            metas.get("og:title"),
            *(entry.get("headline") for entry in linked),
            metas.get("dc.title"),
            _text(root, "h1"),
            _text(root, "title"),
        ),
        author=_first(
            metas.get("author"), *map(_author, linked), metas.get("dc.creator"), metas.get("article:author"), url=False
        ),
        date=_date(
            metas.get("article:published_time"),
            *(entry.get("datePublished") for entry in linked),
            *(metas.get(name) for name in ("date", "dc.date", "dcterms.created", "pubdate", "publish-date")),
            *times,
        ),
        language=_language(
            root.get("lang"), root.get("xml:lang"), metas.get("content-language"), metas.get("og:locale")
        ),
    )


def _metas(root: HtmlElement) -> dict[str, str]:
    """The first value of each name of a <meta>."""
    found: dict[str, str] = {}
    for element in root.iter("meta"):
        name = element.get("property") or element.get("name") or element.get("itemprop") or element.get("http-equiv")
        content = element.get("content")
        if name and content:
            found.setdefault(name.strip().lower(), content)
    return found


def _linked_data(root: HtmlElement) -> Iterator[dict[str, Any]]:
    """The objects of a page's JSON-LD that have a headline or a date."""
    for element in root.iter("script"):
        if element.get("type") != "application/ld+json" or not element.text or len(element.text) > _MOST_JSON:
            continue
        try:
            found = json.loads(element.text, strict=False)
        except (ValueError, RecursionError):
            continue
        entries = found.get("@graph", [found]) if isinstance(found, dict) else found
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and ("headline" in entry or "datePublished" in entry):
                yield entry


def _author(entry: dict[str, Any]) -> Any:
    author = entry.get("author")
    author = author[0] if isinstance(author, list) and author else author
    return author.get("name") if isinstance(author, dict) else author


def _text(root: HtmlElement, tag: str) -> str | None:
    element = next(root.iter(tag), None)
    return None if element is None else "".join(element.itertext())


def _first(*values: Any, url: bool = True) -> str | None:
    """The first non-empty text. `url`: whether an address counts."""
    for value in values:
        if isinstance(value, str) and (tidy := " ".join(value.split())) and (url or "://" not in tidy):
            return tidy[:_MOST_FACT]
    return None


def _date(*values: Any) -> str | None:
    return next((found[0] for value in values if isinstance(value, str) and (found := _DATE.search(value))), None)


def _language(*values: str | None) -> str | None:
    return next((found[0].lower() for value in values if value and (found := _LANGUAGE.match(value.strip()))), None)
