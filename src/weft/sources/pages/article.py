"""The article out of a page: no menus, banners, footers or comments.

A page is read as a row of blocks (paragraphs, headings, list items), each with the elements around it. Then

1. blocks inside suspicious elements go (a footer, something called "related" or "cookie"), unless most of the page's
   text stands there: then the name was misleading;
2. the article is the element that publishing systems call so, or the smallest one that holds three quarters of what
   reads like text: long blocks with few links;
3. of its blocks, those stay that are not mostly links and do not begin like a pointer to something else; and the
   sentences above it that lead into it are added.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lxml import etree, html

from weft.sources.pages.boilerplate import BESIDES, CONTENT, HARMLESS, LEAD, PHRASE, ROLES, SILENT, SUSPECT
from weft.sources.pages.charset import decode, is_binary
from weft.sources.pages.facts import Facts, read_facts
from weft.words import ENDS_OF_SENTENCES, weight_of

HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
BLOCKS = HEADINGS | frozenset(
    "p div section article main header footer aside nav ul ol li dl dt dd table thead tbody tfoot tr td th blockquote "
    "pre figure figcaption address hr form fieldset body html details summary center caption noscript menu label "
    "hgroup".split()
)
TRUSTED = frozenset(("body", "html", "main", "article"))  # a name cannot make these suspicious
INLINE = frozenset(("h1", "em", "strong", "b", "i"))  # nor these, which are parts of a text
READS = 60  # letters of a block that reads like text; menus have shorter ones
MOST_DEPTH, MOST_SUSPECTS = 100, 20  # of elements around a block; what is deeper counts as part of what is around it
MOST_NAME, MOST_NAMES = 100, 1000  # characters of a class, of all classes of an element; the rest is not looked at
ENDS = re.compile(rf"[.!?…。！？”\"»“{ENDS_OF_SENTENCES}]")
HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
BREAK = "\0"  # stands for <br>; a page cannot hold it
BY_NAME, BY_KIND = 1, 2  # what makes an element suspicious

Element = Any  # lxml has no types


@dataclass(frozen=True)
class Article:
    text: str  # paragraphs, each on a line of its own or on several
    facts: Facts
    is_cut: bool = False  # its elements are nested too deeply: the rest is missing


@dataclass(eq=False, slots=True)
class Block:
    text: str
    links: float  # the share of it that is links
    tag: str
    path: tuple[Element, ...]  # the elements around it that make blocks or are suspicious, outermost first
    suspects: tuple[tuple[Element, int], ...]
    weight: int  # in letters

    @property
    def reads(self) -> bool:
        return self.weight >= READS and self.links < 0.4 and self.tag not in HEADINGS


def extract(page: bytes, charset: str | None = None) -> Article:
    """`charset` is what came with the page. A page without an article gives an empty text."""
    text = decode(page, charset)
    root, is_cut = (None, False) if is_binary(text) else _parse(text)
    if root is None:
        return Article("", Facts(), is_cut)
    body = root.find("body")
    blocks = list(_blocks(root if body is None else body))
    return Article("\n".join(_article(blocks)), read_facts(root), is_cut)


def _parse(text: str) -> tuple[Element | None, bool]:
    """The page, and whether it goes on beyond what was parsed."""
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        return html.document_fromstring(text.encode("utf-8", "replace"), parser=parser), _is_too_deep(parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return None, _is_too_deep(parser)


def _is_too_deep(parser: Any) -> bool:
    """Whether elements are nested so deeply (2,048) that libxml2 has left out the rest of the page."""
    return any("depth" in entry.message for entry in parser.error_log)


def _article(blocks: list[Block]) -> Iterator[str]:
    spared = _spare(blocks)
    main = _main_element(spared)
    chosen = spared if main is None else [*_lead(blocks, spared, main), *(b for b in spared if main in b.path)]
    kept = [block for block in chosen if _belongs(block)]
    while kept and kept[-1].tag in HEADINGS:  # of something that went
        kept.pop()
    return (block.text for block in kept)


def _blocks(root: Element) -> Iterator[Block]:
    """In the order of the page. Iterative: pages may be nested a thousand deep."""
    pieces: list[str] = []
    linked = links = 0
    path: list[Element] = []
    suspects: list[tuple[Element, int]] = []

    def finish(tag: str) -> Iterator[Block]:
        nonlocal linked
        if pieces:
            text = _tidy("".join(pieces), tag)
            if text:
                yield Block(text, linked / len(text), tag, tuple(path), tuple(suspects), weight_of(text))
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
            if tag in SILENT:
                walk.skip_subtree()
                continue
            suspicion = 0 if element is root else _suspicion(element, tag)
            if (suspicion or tag in BLOCKS) and len(path) < MOST_DEPTH:
                yield from finish(_block_tag(path))
                path.append(element)
                if suspicion and len(suspects) < MOST_SUSPECTS:
                    suspects.append((element, suspicion))
            links += tag == "a"
            add(BREAK if tag == "br" else None)
            add(element.text)
            continue
        if event == "end" and tag not in SILENT:
            if path and path[-1] is element:
                yield from finish(_block_tag(path))
                path.pop()
                if suspects and suspects[-1][0] is element:
                    suspects.pop()
            links = max(0, links - (tag == "a"))
        if element is not root:
            add(element.tail)
    yield from finish("body")


def _block_tag(path: list[Element]) -> str:
    return next((element.tag for element in reversed(path) if element.tag in BLOCKS), "body")


def _tidy(text: str, tag: str) -> str:
    if tag == "pre":
        return "\n".join(line.rstrip() for line in text.replace(BREAK, "\n").split("\n")).strip("\n")
    return "\n".join(" ".join(line.split()) for line in text.split(BREAK)).strip()


def _suspicion(element: Element, tag: str) -> int:
    if tag in BESIDES or element.get("role") in ROLES:
        return BY_KIND
    if element.get("hidden") is not None or element.get("aria-hidden") == "true":
        return BY_KIND
    style = element.get("style")
    if style and HIDDEN.search(style):
        return BY_KIND
    if tag in TRUSTED or tag in INLINE:
        return 0
    return BY_NAME if SUSPECT.search(_names(element)) else 0


def _names(element: Element) -> str:
    """Its class and id, in lower case, words apart."""
    return _plain_names((element.get("class") or "")[:MOST_NAMES], (element.get("id") or "")[:MOST_NAMES])


@lru_cache(10_000)
def _plain_names(*names: str) -> str:
    words = [CAMEL.sub("-", word).lower() for name in names for word in name.split() if len(word) <= MOST_NAME]
    return " ".join(word for word in words if not HARMLESS.fullmatch(word))


def _spare(blocks: list[Block]) -> list[Block]:
    """Without those inside suspicious elements; an element that holds most of the text is cleared of suspicion."""
    reading = [block for block in blocks if block.reads]
    beside = sum(block.weight for block in blocks if _is_cleared(block, set(), BY_KIND) and block.links < 0.4)
    inside = _weigh(reading, BY_KIND, set())
    cleared = {element for element, weight in inside.items() if weight >= 2 * beside}
    inside = _weigh(reading, BY_NAME, cleared)
    whole = sum(block.weight for block in reading if _is_cleared(block, cleared, BY_KIND))
    cleared |= {element for element, weight in inside.items() if weight >= 0.5 * whole}
    spared = [block for block in blocks if _is_cleared(block, cleared, BY_NAME)]
    if sum(block.weight for block in spared if block.reads) < 0.1 * whole:  # a forum: all of it is "comments"
        return [block for block in blocks if _is_cleared(block, cleared, BY_KIND)]
    return spared


def _weigh(blocks: Iterable[Block], level: int, cleared: set[Element]) -> dict[Element, int]:
    """How much text each element holds that is suspicious at this level."""
    inside: dict[Element, int] = {}
    for block in blocks:
        if _is_cleared(block, cleared, level + 1):
            for element, suspicion in block.suspects:
                if suspicion == level:
                    inside[element] = inside.get(element, 0) + block.weight
    return inside


def _is_cleared(block: Block, cleared: set[Element], level: int) -> bool:
    """Of every suspicion from this level on."""
    return all(element in cleared for element, suspicion in block.suspects if suspicion >= level)


def _main_element(blocks: list[Block]) -> Element | None:
    weights: dict[Element, int] = {}
    depths: dict[Element, int] = {}
    around: dict[Element, Element] = {}
    total = 0
    for block in blocks:
        if block.reads:
            total += block.weight
            for depth in range(len(block.path) - 1, -1, -1):
                element = block.path[depth]
                if element in depths:  # and so are those around it
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
    return max(reversed(candidates), key=depths.__getitem__)  # of two as deep, the later


def _is_named_content(element: Element) -> bool:
    if element.get("itemprop") == "articleBody":
        return True
    return element.tag != "body" and CONTENT.search(_names(element)) is not None


def _lead(blocks: list[Block], spared: list[Block], main: Element) -> Iterator[Block]:
    """What stands between the headline and the text, in the same <article> or after the last <h1>."""
    known = set(spared)
    candidates = [block for block in blocks if block in known or _may_lead(block)]
    begins = next((i for i, b in enumerate(candidates) if b in known and b.reads and main in b.path), 0)
    around = next((e for e in main.iterancestors() if e.tag in ("article", "main")), main)
    headline = max((i for i in range(begins) if candidates[i].tag == "h1"), default=begins)
    for i, block in enumerate(candidates[:begins]):
        if (block in known and main in block.path) or not (around in block.path or i >= headline):
            continue
        if block.tag == "h1" or (block.weight >= 50 and block.links < 0.3 and _sounds_like_a_lead(block)):
            yield block


def _sounds_like_a_lead(block: Block) -> bool:
    return ENDS.match(block.text[-1]) is not None or any(LEAD.search(_names(element)) for element in block.path[-3:])


def _may_lead(block: Block) -> bool:
    """Suspected of nothing, or only of being a teaser, which a lead is."""
    return all(
        suspicion == BY_NAME and LEAD.search(_names(element)) is not None for element, suspicion in block.suspects
    )


def _belongs(block: Block) -> bool:
    if PHRASE.match(block.text) and (block.weight < 100 or block.links > 0.5):
        return False
    if block.tag in HEADINGS:
        return block.links < 0.9
    if block.tag in ("p", "blockquote", "pre", "dd"):
        return block.links < 0.75 or block.weight > 200
    if block.tag in ("li", "td", "th", "dt"):
        return block.links < 0.5
    return block.links < 0.5 and block.weight >= 20
