"""The examples of RFC 9309 and those of Google's documentation of robots.txt."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.sources.web.robots import MOST_ROBOTS_BYTES, product_token, read_robots


def allows(text, target, agent="weft"):
    data = text if isinstance(text, bytes) else text.encode()
    return read_robots(data, agent).allows(target)


# developers.google.com/search/docs/crawling-indexing/robots/robots_txt: "URL matching based on path values"
MATCHES = {
    "/": ("/ /fish /any/thing?x", ""),
    "/*": ("/ /fish", ""),
    "/$": ("/", "/fish"),
    "/fish": ("/fish /fish.html /fish/salmon.html /fishheads /fishheads/yummy.html /fish.php?id=anything",
              "/Fish.asp /catfish /?id=fish /desert/fish"),
    "/fish*": ("/fish /fish.html /fish/salmon.html /fishheads /fish.php?id=anything", "/Fish.asp /catfish /?id=fish"),
    "/fish/": ("/fish/ /fish/?id=anything /fish/salmon.htm", "/fish /fish.html /animals/fish/ /Fish/Salmon.asp"),
    "/*.php": ("/index.php /filename.php /folder/filename.php /folder/filename.php?parameters "
               "/folder/any.php.file.html /filename.php/", "/ /windows.PHP"),
    "/*.php$": ("/filename.php /folder/filename.php",
                "/filename.php?parameters /filename.php/ /filename.php5 /windows.PHP"),
    "/fish*.php": ("/fish.php /fishheads/catfish.php?parameters", "/Fish.PHP"),
    "*a*b*c$": ("/abc /xaybzc /abcc", "/acb /abcd /ab"),
    "/a$b": ("/a$b /a%24bc", "/a /ab"),
    "/a%2Ab": ("/a*b /a%2ab", "/axb"),
    "/foo/bar?baz=https://foo.bar": ("/foo/bar?baz=https%3A%2F%2Ffoo.bar /foo/bar?baz=https://foo.bar",
                                     "/foo/bar?baz="),
    "/foo/bar/ツ": ("/foo/bar/%E3%83%84 /foo/bar/%e3%83%84", "/foo/bar/"),
    "/foo/bar/%E3%83%84": ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83"),
    "/foo/bar/%62%61%7A": ("/foo/bar/baz", "/foo/bar/ba"),
    "/a%2Fb": ("/a%2fb", "/a/b"),
}  # fmt: skip


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_matches_as_documented(pattern):
    matching, others = (paths.split() for paths in MATCHES[pattern])
    rule = f"User-agent: *\nDisallow: {pattern}"
    assert [path for path in matching if allows(rule, path)] == []
    assert [path for path in others if not allows(rule, path)] == []


PATHS = st.text("ab/.", max_size=8).map("/".__add__)
PATTERNS = st.text("ab/.*", max_size=6).map("/".__add__)


@given(st.lists(st.tuples(st.booleans(), PATTERNS, st.sampled_from(["", "$"])), max_size=4), PATHS)
def test_rules_match_like_equivalent_regular_expressions(rules, path):
    found = [
        (len(pattern + end), allow)
        for allow, pattern, end in rules
        if re.match(re.escape(pattern).replace(r"\*", ".*") + (r"\Z" if end else ""), path)
    ]
    lines = [f"{'Allow' if allow else 'Disallow'}: {pattern}{end}" for allow, pattern, end in rules]
    assert allows("\n".join(["User-agent: *", *lines]), path) is max(found, default=(0, True))[1]


# The same page: "Order of precedence for rules"
@pytest.mark.parametrize(
    ("allow", "disallow", "path", "is_allowed"),
    [
        ("/p", "/", "/page", True),
        ("/folder", "/folder", "/folder/page", True),
        ("/page", "/*.htm", "/page.htm", False),
        ("/page", "/*.ph", "/page.php5", True),
        ("/$", "/", "/", True),
        ("/$", "/", "/page.htm", False),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_longest_rule_wins_and_allow_wins_a_tie(allow, disallow, path, is_allowed, is_first):
    lines = [f"Allow: {allow}", f"Disallow: {disallow}"][:: 1 if is_first else -1]
    assert allows("\n".join(["User-agent: *", *lines]), path) is is_allowed


RFC = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "is_allowed"),
    [
        ("weft", "/example/page.html", False),
        ("weft", "/a.gif", False),
        ("weft", "/publications/a.html", True),
        ("FooBot/2.1", "/example/page.html", True),
        ("foobot", "/example/allowed.gif", True),
        ("foobot", "/publications/", False),
        ("barbot", "/example/page.html", False),
        ("BAZBOT", "/example/page.html", False),
        ("barbot", "/a.gif", True),
        ("quxbot", "/example/page.html", True),
    ],
)
def test_the_simple_example_of_the_rfc(agent, path, is_allowed):
    assert allows(RFC, path, agent) is is_allowed


def test_groups_of_one_name_are_one():
    text = "user-agent: ExampleBot\ndisallow: /foo\ndisallow: /bar\n\nuser-agent: ExampleBot\ndisallow: /baz\n"
    assert [allows(text, path, "examplebot/1.0") for path in ("/foo", "/bar", "/baz", "/")] == [False] * 3 + [True]


def test_a_name_is_a_whole_product_token():
    text = "User-agent: weft-news\nDisallow: /\nUser-agent: Weft/9.0\nDisallow: /own\nUser-agent: *\nDisallow: /all"
    assert [allows(text, path) for path in ("/", "/own", "/all")] == [True, False, True]
    assert product_token("weft/1.0 (+https://example.org)") == "weft"


def test_other_lines_do_not_end_a_group_and_rules_without_one_are_ignored():
    text = "Disallow: /\nUser-agent: weft\nSitemap: /map.xml\nnonsense\nUser-agent: other\nDisallow: /own # mine\n"
    assert allows(text, "/") and not allows(text, "/own")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark(end):
    text = end.join(["\ufeffUSER-AGENT : weft", "  Disallow :  /own  "])
    assert not allows(text, "/own") and allows(text, "/")


def test_half_a_megabyte_is_read_and_the_line_at_its_end_is_not_halved():
    begin = b"User-agent: *\nDisallow: /early\n"
    filler = b"# \n" * ((MOST_ROBOTS_BYTES - len(begin) - 30) // 3)
    text = begin + filler + b"Disallow: /late\nAllow: /early/but-not-all\nDisallow: /never\n"
    assert len(begin + filler) < MOST_ROBOTS_BYTES - 16 and len(text) > MOST_ROBOTS_BYTES
    read = read_robots(text, "weft")
    assert [read.allows(path) for path in ("/early", "/late", "/early/but", "/never")] == [False, False, False, True]


def test_crawl_delay_is_that_of_the_group():
    text = "User-agent: *\nCrawl-delay: 7\n\nUser-agent: weft\nCrawl-delay: 2.5\nCrawl-delay: x\nCrawl-delay: -1\n"
    assert read_robots(text.encode(), "weft").crawl_delay == 2.5
    assert read_robots(text.encode(), "other").crawl_delay == 7
    assert read_robots(b"User-agent: *\nCrawl-delay: nan", "other").crawl_delay is None


def test_many_wildcards_do_not_take_forever():
    assert allows("User-agent: *\nDisallow: /" + "*a" * 100_000 + "$", "/" + "a" * 5_000)


def test_robots_txt_itself_is_always_allowed():
    assert allows("User-agent: *\nDisallow: /", "/robots.txt")
