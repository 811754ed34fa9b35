"""robots.txt (RFC 9309): what a server allows a crawler of a certain name to request.

The groups with the crawler's product token apply, or else the groups of `*`. The longest rule that matches a path wins;
of two rules of equal length, the one that allows. `*` matches any characters, and `$` at the end the end of the path.
Paths are compared with normalized percent-encoding. Crawl-delay is not in the RFC, but it is obeyed.
"""

import math
import re
from dataclasses import dataclass, field
from urllib.parse import quote

from weft.sources.web.addresses import SAFE

MOST_ROBOTS_BYTES = 500 * 1024  # RFC 9309, 2.5: the least that must be read; the rest is ignored
_TOKEN = re.compile(r"[A-Za-z_-]+")
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
# In a query these are equal to their escapes (RFC 9309, 2.2.2, second example).
_PLAIN_IN_QUERY = _UNRESERVED | frozenset(":/?@[]!'(),;")


@dataclass(frozen=True)
class Rule:
    allows: bool
    pieces: tuple[str, ...]  # of the pattern, split at `*`
    is_whole: bool  # whether the pattern ends with `$`
    length: int

    def matches(self, path: str) -> bool:
        first, *rest = self.pieces
        if not path.startswith(first):
            return False
        at = len(first)
        if self.is_whole:
            if not rest:
                return len(path) == at
            last = rest.pop()
            if not path.endswith(last) or len(path) - len(last) < at:
                return False
            path = path[: len(path) - len(last)]
        for piece in rest:  # the first match is the best: it leaves the most room for the rest
            if (found := path.find(piece, at)) < 0:
                return False
            at = found + len(piece)
        return True


@dataclass(frozen=True)
class Robots:
    rules: tuple[Rule, ...] = ()  # those of this crawler; the first match wins
    crawl_delay: float | None = None

    def allows(self, target: str) -> bool:
        """`target`: the path and query of an address."""
        if target == "/robots.txt":
            return True
        path = _normal(target).replace("*", "%2A").replace("$", "%24")
        return next((rule.allows for rule in self.rules if rule.matches(path)), True)


@dataclass
class _Group:
    names: set[str] = field(default_factory=set)
    rules: list[Rule] = field(default_factory=list)


def read_robots(data: bytes, agent: str) -> Robots:
    token = product_token(agent)
    groups, delays = _groups(_text(data), token)
    name = token if any(token in group.names for group in groups) else "*"
    rules = [rule for group in groups if name in group.names for rule in group.rules]
    rules.sort(key=lambda rule: (-rule.length, not rule.allows))
    return Robots(tuple(dict.fromkeys(rules)), delays.get(name))


def product_token(agent: str) -> str:
    """In lower case: `weft` of `weft/1.0 (+https://example.org)`."""
    found = _TOKEN.match(agent.strip())
    return found.group().lower() if found else ""


def _text(data: bytes) -> str:
    if len(data) >= MOST_ROBOTS_BYTES:  # without the line that was cut: half an `Allow` allows too much
        data = data[:MOST_ROBOTS_BYTES]
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _groups(text: str, token: str) -> tuple[list[_Group], dict[str, float]]:
    """The groups and the crawl delays of this token and of `*`."""
    groups: list[_Group] = []
    delays: dict[str, float] = {}
    is_open = False  # whether the group may get more names; other lines, such as Sitemap, do not end it
    named: set[str] = set()  # the names directly above, to which a Crawl-delay applies
    has_delay = False
    for line in re.split(r"[\r\n]+", text):
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            if not is_open:
                groups.append(_Group())
            if has_delay or not is_open:
                named, has_delay = set(), False
            is_open = True
            name = "*" if value.partition(" ")[0] == "*" else product_token(value)
            if name in ("*", token):
                groups[-1].names.add(name)
                named.add(name)
        elif groups and key in ("allow", "disallow"):
            is_open = False
            if value:
                groups[-1].rules.append(_rule(key == "allow", value))
        elif key == "crawl-delay" and (delay := _seconds(value)) is not None:
            delays |= {name: max(delay, delays.get(name, 0.0)) for name in named}
            has_delay = True
    return groups, delays


def _rule(allows: bool, value: str) -> Rule:
    pattern = _normal(value)
    is_whole = pattern.endswith("$")
    body = pattern.removesuffix("$").replace("$", "%24")  # elsewhere it is a plain character
    return Rule(allows, tuple(re.sub(r"\*+", "*", body).split("*")), is_whole, len(pattern))


def _normal(text: str) -> str:
    """Normalize percent-encoding: no needless escapes, and the others in capitals."""
    path, mark, query = quote(text, SAFE).partition("?")
    return _unescaped(path, _UNRESERVED) + mark + _unescaped(query, _PLAIN_IN_QUERY)


def _unescaped(text: str, plain: frozenset[str]) -> str:
    def one(found: re.Match[str]) -> str:
        character = chr(int(found.group(1), 16))
        return character if character in plain else found.group().upper()

    return _ESCAPE.sub(one, text)


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
