"""Extract the article of a page, without menus, banners, footers or comments.

A page is a sequence of blocks (paragraphs, headings, list items), each with the elements around it. Then

1. blocks in suspicious elements are dropped (a footer, something called "related" or "cookie"), unless they hold most
   of the page's text: then the name is misleading;
2. the article is the element with a name that publishing systems use for it, or the smallest element that holds three
   quarters of the running text: long blocks with few links;
3. of its blocks, those that are mostly links, or begin with a phrase that points elsewhere, are dropped; the sentences
   above the article that lead into it are added.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lxml import etree, html

from weft.sources.pages.boilerplate import (
    BESIDE_ELEMENTS,
    BESIDE_ROLES,
    BOILERPLATE_PHRASE,
    CONTENT_NAME,
    HARMLESS_NAME,
    LEAD_NAME,
    SILENT_ELEMENTS,
    SUSPECT_NAME,
)
from weft.sources.pages.charset import decode_page, is_binary
from weft.sources.pages.facts import Facts, HtmlElement, read_facts
from weft.words import ENDS_OF_SENTENCES, weight_of

_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_BLOCKS = _HEADINGS | frozenset(
    "p div section article main header footer aside nav ul ol li dl dt dd table thead tbody tfoot tr td th blockquote "
    "pre figure figcaption address hr form fieldset body html details summary center caption noscript menu label "
    "hgroup".split()
)
_TRUSTED = frozenset(("body", "html", "main", "article"))  # not suspicious, whatever their names
_INLINE = frozenset(("h1", "em", "strong", "b", "i"))  # likewise: they are parts of a text
_LEAST_WEIGHT = 60  # letters of a block of running text; those of menus are shorter
_MOST_DEPTH, _MOST_SUSPECTS = 100, 20  # elements around a block; deeper ones are ignored
_MOST_NAME, _MOST_NAMES = 100, 1000  # characters of a class, and of all classes of an element; the rest is ignored
_SENTENCE_END = re.compile(rf"[.!?…。！？”\"»“{ENDS_OF_SENTENCES}]")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LINE_BREAK = "\0"  # in place of <br>; a page cannot contain it
_BY_NAME, _BY_KIND = 1, 2  # why an element is suspicious


@dataclass(frozen=True)
class Article:
    text: str  # a line for each paragraph, or several
    facts: Facts
    is_cut: bool = False  # the rest is missing: elements are nested too deeply


@dataclass(eq=False, slots=True)
class TextBlock:
    text: str
    links: float  # share of the text that is links
    tag: str
    path: tuple[HtmlElement, ...]  # block elements and suspicious elements around it, outermost first
    suspects: tuple[tuple[HtmlElement, int], ...]
    weight: int  # letters

    @property
    def is_running_text(self) -> bool:
        return self.weight >= _LEAST_WEIGHT and self.links < 0.4 and self.tag not in _HEADINGS


def extract(page: bytes, charset: str | None = None) -> Article:
    """`charset` is that of the HTTP header. A page without an article gives an empty text."""
    text = decode_page(page, charset)
    root, is_cut = (None, False) if is_binary(text) else _parse(text)
    if root is None:
        return Article("", Facts(), is_cut)
    body = root.find("body")
    blocks = list(_blocks(root if body is None else body))
    return Article("\n".join(_article(blocks)), read_facts(root), is_cut)


def _parse(text: str) -> tuple[HtmlElement | None, bool]:
    """Returns the root, and whether the end of the page is missing."""
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        return html.document_fromstring(text.encode("utf-8", "replace"), parser=parser), _is_too_deep(parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return None, _is_too_deep(parser)


def _is_too_deep(parser: Any) -> bool:
    """Whether elements are nested so deeply (2,048) that libxml2 has left out the rest of the page."""
    return any("depth" in entry.message for entry in parser.error_log)


def _article(blocks: list[TextBlock]) -> Iterator[str]:
    spared = _spare(blocks)
    main = _main_element(spared)
    chosen = spared if main is None else [*_lead(blocks, spared, main), *(b for b in spared if main in b.path)]
    kept = [block for block in chosen if _belongs(block)]
    while kept and kept[-1].tag in _HEADINGS:  # of a section that was dropped
        kept.pop()
    return (block.text for block in kept)


def _blocks(root: HtmlElement) -> Iterator[TextBlock]:
    """In the order of the page. Not recursive: pages may be nested a thousand deep."""
    pieces: list[str] = []
    linked = links = 0
    path: list[HtmlElement] = []
    suspects: list[tuple[HtmlElement, int]] = []

    def finish(tag: str) -> Iterator[TextBlock]:
        nonlocal linked
        if pieces:
            text = _tidy("".join(pieces), tag)
            if text:
                yield TextBlock(text, linked / len(text), tag, tuple(path), tuple(suspects), weight_of(text))
            pieces.clear()
            linked = 0

    def add(text: str | None) -> None:
        nonlocal linked
        if text:
            pieces.append(text)
            linked += len(text.strip()) if links else 0

    walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start":
            if tag in SILENT_ELEMENTS:
                walk.skip_subtree()
                continue
            suspicion = 0 if element is root else _suspicion(element, tag)
            if (suspicion or tag in _BLOCKS) and len(path) < _MOST_DEPTH:
                yield from finish(_block_tag(path))
                path.append(element)
                if suspicion and len(suspects) < _MOST_SUSPECTS:
                    suspects.append((element, suspicion))
            links += tag == "a"
            add(_LINE_BREAK if tag == "br" else None)
            add(element.text)
            continue
        if event == "end" and tag not in SILENT_ELEMENTS:
            if path and path[-1] is element:
                yield from finish(_block_tag(path))
                path.pop()
                if suspects and suspects[-1][0] is element:
                    suspects.pop()
            links = max(0, links - (tag == "a"))
        if element is not root:
            add(element.tail)
    yield from finish("body")


def _block_tag(path: list[HtmlElement]) -> str:
    return next((element.tag for element in reversed(path) if element.tag in _BLOCKS), "body")


def _tidy(text: str, tag: str) -> str:
    if tag == "pre":
        return "\n".join(line.rstrip() for line in text.replace(_LINE_BREAK, "\n").split("\n")).strip("\n")
    return "\n".join(" ".join(line.split()) for line in text.split(_LINE_BREAK)).strip()


def _suspicion(element: HtmlElement, tag: str) -> int:
    if tag in BESIDE_ELEMENTS or element.get("role") in BESIDE_ROLES:
        return _BY_KIND
    if element.get("hidden") is not None or element.get("aria-hidden") == "true":
        return _BY_KIND
    style = element.get("style")
    if style and _HIDDEN.search(style):
        return _BY_KIND
    if tag in _TRUSTED or tag in _INLINE:
        return 0
    return _BY_NAME if SUSPECT_NAME.search(_names(element)) else 0


def _names(element: HtmlElement) -> str:
    """Its class and id, in lower case, with words separated."""
    return _plain_names((element.get("class") or "")[:_MOST_NAMES], (element.get("id") or "")[:_MOST_NAMES])


@lru_cache(10_000)
def _plain_names(*names: str) -> str:
    words = [_CAMEL_CASE.sub("-", word).lower() for name in names for word in name.split() if len(word) <= _MOST_NAME]
    return " ".join(word for word in words if not HARMLESS_NAME.fullmatch(word))


def _spare(blocks: list[TextBlock]) -> list[TextBlock]:
    """The blocks outside suspicious elements. An element that holds most of the text is not suspicious."""
    reading = [block for block in blocks if block.is_running_text]
    beside = sum(block.weight for block in blocks if _is_cleared(block, set(), _BY_KIND) and block.links < 0.4)
    inside = _weigh(reading, _BY_KIND, set())
    cleared = {element for element, weight in inside.items() if weight >= 2 * beside}
    inside = _weigh(reading, _BY_NAME, cleared)
    whole = sum(block.weight for block in reading if _is_cleared(block, cleared, _BY_KIND))
    cleared |= {element for element, weight in inside.items() if weight >= 0.5 * whole}
    spared = [block for block in blocks if _is_cleared(block, cleared, _BY_NAME)]
    if (
        sum(block.weight for block in spared if block.is_running_text) < 0.1 * whole
    ):  # a forum: everything in it is "comments"
        return [block for block in blocks if _is_cleared(block, cleared, _BY_KIND)]
    return spared


def _weigh(blocks: Iterable[TextBlock], level: int, cleared: set[HtmlElement]) -> dict[HtmlElement, int]:
    """Letters of running text in each element that is suspicious at this level."""
    inside: dict[HtmlElement, int] = {}
    for block in blocks:
        if _is_cleared(block, cleared, level + 1):
            for element, suspicion in block.suspects:
                if suspicion == level:
                    inside[element] = inside.get(element, 0) + block.weight
    return inside


def _is_cleared(block: TextBlock, cleared: set[HtmlElement], level: int) -> bool:
    """Whether all its suspicious elements from this level on are cleared."""
    return all(element in cleared for element, suspicion in block.suspects if suspicion >= level)


def _main_element(blocks: list[TextBlock]) -> HtmlElement | None:
    weights: dict[HtmlElement, int] = {}
    depths: dict[HtmlElement, int] = {}
    around: dict[HtmlElement, HtmlElement] = {}
    total = 0
    for block in blocks:
        if block.is_running_text:
            total += block.weight
            for depth in range(len(block.path) - 1, -1, -1):
                element = block.path[depth]
                if element in depths:  # then those around it are known, too
                    break
                depths[element], weights[element] = depth, 0
                if depth:
                    around[element] = block.path[depth - 1]
            if block.path:
                weights[block.path[-1]] += block.weight
    if not total:
        return None
    for element in sorted(around, key=depths.__getitem__, reverse=True):
        weights[around[element]] += weights[element]
    named = {e: w for e, w in weights.items() if w >= 0.3 * total and _is_named_content(e)}
    least = 0.9 * max(named.values()) if named else 0.75 * total
    candidates = [element for element, weight in (named or weights).items() if weight >= least]
    return max(reversed(candidates), key=depths.__getitem__)  # the later of two at the same depth


def _is_named_content(element: HtmlElement) -> bool:
    if element.get("itemprop") == "articleBody":
        return True
    return element.tag != "body" and CONTENT_NAME.search(_names(element)) is not None


def _lead(blocks: list[TextBlock], spared: list[TextBlock], main: HtmlElement) -> Iterator[TextBlock]:
    """The sentences between the headline and the text, in the same <article> or after the last <h1>."""
    known = set(spared)
    candidates = [block for block in blocks if block in known or _may_lead(block)]
    begins = next((i for i, b in enumerate(candidates) if b in known and b.is_running_text and main in b.path), 0)
    around = next((e for e in main.iterancestors() if e.tag in ("article", "main")), main)
    headline = max((i for i in range(begins) if candidates[i].tag == "h1"), default=begins)
    for i, block in enumerate(candidates[:begins]):
        if (block in known and main in block.path) or not (around in block.path or i >= headline):
            continue
        if block.tag == "h1" or (block.weight >= 50 and block.links < 0.3 and _sounds_like_a_lead(block)):
            yield block


def _sounds_like_a_lead(block: TextBlock) -> bool:
    return _SENTENCE_END.match(block.text[-1]) is not None or any(
        LEAD_NAME.search(_names(element)) for element in block.path[-3:]
    )


def _may_lead(block: TextBlock) -> bool:
    """Whether it is not suspicious, or only named like a teaser: a lead often is."""
    return all(
        suspicion == _BY_NAME and LEAD_NAME.search(_names(element)) is not None for element, suspicion in block.suspects
    )


def _belongs(block: TextBlock) -> bool:
    if BOILERPLATE_PHRASE.match(block.text) and (block.weight < 100 or block.links > 0.5):
        return False
    if block.tag in _HEADINGS:
        return block.links < 0.9
    if block.tag in ("p", "blockquote", "pre", "dd"):
        return block.links < 0.75 or block.weight > 200
    if block.tag in ("li", "td", "th", "dt"):
        return block.links < 0.5
    return block.links < 0.5 and block.weight >= 20
