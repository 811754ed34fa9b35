"""Small pages like those of the web: the article is kept, what surrounds it is dropped."""

import pytest

from weft.sources.pages.article import extract

SENTENCES = [
    "The fox that everybody had been looking for since Monday was found asleep behind the town library.",
    "Nobody knows how it came there, but the librarian says that it must have liked the warm air from the cellar.",
    "It will be brought back to the forest as soon as the snow has gone, if it wants to go at all.",
]
TEXT = "\n".join(SENTENCES)
PARAGRAPHS = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
MENU = "<ul>" + "".join(f'<li><a href="/{name}">{name}</a></li>' for name in ("Home", "Sport", "Weather")) + "</ul>"
LONG = "This is not the article, though it is as long as a paragraph of it and reads like one. "


def text_of(body, head=""):
    return extract(f"<html><head>{head}</head><body>{body}</body></html>".encode()).text


@pytest.mark.parametrize(
    "page",
    [
        f"{MENU}{PARAGRAPHS}",
        f"<nav>{LONG}</nav><main>{PARAGRAPHS}</main><footer>{LONG}</footer>",
        f'<div class="cookie-banner"><p>{LONG}</p></div><div>{PARAGRAPHS}</div>',
        f'<div>{PARAGRAPHS}</div><div id="comments"><p>{LONG}</p><p>{LONG}</p></div>',
        f'<div class="content">{PARAGRAPHS}<div class="relatedPosts"><p>{LONG}</p></div></div>',
        f'<article>{PARAGRAPHS}<p style="display: none">{LONG}</p></article>',
        f"<article>{PARAGRAPHS}<script>var x = '{LONG}'</script><!-- {LONG} --></article>",
        f'<article>{PARAGRAPHS}<p>Read more: <a href="/x">{LONG}</a></p></article>',
        f'<article>{PARAGRAPHS}<h2>Related: <a href="/x">more foxes</a></h2></article>',
        f'<div class="page has-sidebar"><div class="menu-open">{PARAGRAPHS}</div></div>',  # misleading names
        f"<form><table><tr><td>{PARAGRAPHS}</td></tr></table></form>",
        f'<div class="entry-content">{PARAGRAPHS}</div><div><p>{LONG * 3}</p></div>',
    ],
)
def test_the_article_and_nothing_else(page):
    assert text_of(page) == TEXT


def test_the_lead_and_the_headline_come_before_the_text():
    lead = "A fox slept behind the library for days, and nobody had seen it."
    page = (
        f'<article><h1>A fox</h1><div class="lead">{lead}</div><div class="article-body">{PARAGRAPHS}</div></article>'
    )
    assert text_of(f"<article>{page}</article>") == f"A fox\n{lead}\n{TEXT}"


def test_lines_and_code_keep_their_breaks():
    assert text_of(f"<article>{PARAGRAPHS}<p>One line,<br>and   another one.</p></article>") == (
        f"{TEXT}\nOne line,\nand another one."
    )
    code = "def fox():\n    return True"
    assert text_of(f"<article>{PARAGRAPHS}<pre>{code}</pre></article>") == f"{TEXT}\n{code}"


def test_a_page_of_comments_is_read_when_there_is_nothing_else():
    posts = "".join(f'<div class="comment">{sentence}</div>' for sentence in SENTENCES)
    assert text_of(posts) == TEXT


@pytest.mark.parametrize("page", [b"", b"   ", b"<", b"<html></html>", b"\x00\x01\x02", b"<!-- nothing -->"])
def test_a_page_without_text_has_no_article(page):
    assert extract(page).text == ""


def test_a_page_may_be_nested_ten_thousand_deep():
    deep = "<div>" * 10_000 + "</div>" * 10_000
    assert text_of(f"<article>{PARAGRAPHS}</article>{deep}") == TEXT
    text_of("<div>" * 10_000 + PARAGRAPHS)  # no more than that: libxml2 gives up at some depth
    text_of("<div>" * 2000 + "<p>x" * 20_000)
    text_of(f'<div class="{"a" * 200_000}" id="{"b-" * 100_000}">{PARAGRAPHS}</div>')


def test_short_lines_of_an_article_are_kept_beside_a_long_footer():
    lines = ["雪下了一整夜，第二天早上，狐狸醒来了。", "它看见图书馆的后面有一扇小门。", "没有人知道它是怎么来的。"] * 4
    paragraphs = "".join(f"<p>{line}</p>" for line in lines)
    footer = f"<footer>{'版权所有，未经许可不得转载。' * 6}</footer>"
    page = f"<h1>狐狸</h1><div>{paragraphs}</div>{footer}"
    assert text_of(page) == "\n".join(["狐狸", *lines])


def test_long_paragraphs_that_begin_with_a_boilerplate_phrase_are_kept():
    share = "Share prices fell on Monday, because " + SENTENCES[0]
    copyright = "Copyright law is the body of rules that says so, and it says that " + SENTENCES[1]
    assert (
        text_of(f"<article>{PARAGRAPHS}<p>{share}</p><p>{copyright}</p></article>") == f"{TEXT}\n{share}\n{copyright}"
    )


@pytest.mark.parametrize(
    ("charset", "declared", "header"),
    [
        ("utf-8", None, None),
        ("utf-8", "iso-8859-1", None),  # wrong, as often
        ("utf-8-sig", None, None),
        ("utf-16", None, None),
        ("gb18030", "gb2312", None),
        ("gb18030", None, "gbk"),
        ("gb18030", None, None),  # guessed
        ("big5", "big5", None),
        ("gb18030", "no-such-thing", None),
        ("gb18030", "hex", None),
        ("gb18030", "punycode", None),
        ("gb18030", "undefined", None),
        ("utf-16-le", "utf-16le", None),
        ("utf-32", None, None),
        ("utf-8", "iso-2022-jp", None),
        ("iso-2022-jp", "iso-2022-jp", None),
    ],
)
def test_the_character_set_is_found(charset, declared, header):
    sentence = (
        "日本的狐狸在雪中生活，大家都知道它的名字是白，而且大家都喜歡它。"
        if charset == "big5"
        else ("日本的狐狸在雪中生活，大家都知道它的名字是白，而且大家都在看它。")
    )
    if charset == "iso-2022-jp":
        sentence = "日本のきつねは雪の中でくらしています。みんながその名前を知っていて、みんながすきです。"
    meta = f'<meta charset="{declared}">' if declared else ""
    page = f"<html><head>{meta}</head><body><article>{f'<p>{sentence * 3}</p>' * 5}</article></body></html>"
    assert extract(page.encode(charset), header).text == "\n".join([sentence * 3] * 5)


def test_a_page_that_was_cut_inside_a_character_is_still_utf_8():
    sentence = "大家都知道它的名字是白，而且大家都在看它，却没有人知道它是怎么来的。" * 2
    page = f"<p>{sentence}</p>".encode()
    assert extract(page + "白".encode()[:2]).text.startswith(sentence)


def test_windows_quotes_in_a_page_that_calls_itself_latin():
    page = f'<meta charset="iso-8859-1"><p>“{SENTENCES[0]}” — café</p>'.encode("cp1252")
    assert extract(page).text == f"“{SENTENCES[0]}” — café"


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:title" content="A fox"><meta name="author" content="Ann Lee">'
        '<meta property="article:published_time" content="2024-02-03T10:00:00Z">',
        '<title>A fox</title><script type="application/ld+json">{"@graph": [{"@type": "Article", "headline": "A fox",'
        '"author": [{"name": "Ann Lee"}], "datePublished": "2024-02-03"}]}</script>',
    ],
)
def test_a_page_declares_its_title_author_date_and_language(head):
    page = f'<html lang="en-GB"><head>{head}</head><body>{PARAGRAPHS}</body></html>'
    facts = extract(page.encode()).facts
    assert (facts.title, facts.author, facts.date, facts.language) == ("A fox", "Ann Lee", "2024-02-03", "en")


@pytest.mark.parametrize("script", ["{", "[" * 100_000, '"text"', "[1, null]", '{"headline": 5, "author": [[]]}'])
def test_malformed_facts_are_ignored(script):
    page = f'<script type="application/ld+json">{script}</script><html lang="">{PARAGRAPHS}</html>'
    facts = extract(page.encode()).facts
    assert (facts.title, facts.author, facts.date, facts.language) == (None, None, None, None)
