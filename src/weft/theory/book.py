"""The whole guide in one language as one HTML page that needs nothing else: no network, no library. The font of its
formulas is inside, since many phones have none with the tall brackets and roots that formulas need.

Without scripts it is one long page. With them it shows a chapter at a time and can be searched.
"""

import base64
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path

from weft.errors import refuse_address
from weft.folders import write_file
from weft.page import page
from weft.theory.chapters import CHAPTER_TITLES, written_chapters
from weft.theory.drawing import STYLE
from weft.theory.entry import LANGUAGES, Language
from weft.theory.excerpt import Excerpt
from weft.theory.render import Rendered, line_anchor, render_chapter

_WORDS = {
    "en": {
        "title": "From theory to practice", "search": "Search", "contents": "Contents", "other": "中文",
        "sources": "Source files", "found": "results", "none": "Nothing found", "all": "All chapters on one page",
        "intro": "Every formula beside the lines of weft that compute it, each with a test.",
        "files": "The files that the chapters quote, as they are in this version of weft.",
    },
    "zh": {
        "title": "从理论到实践", "search": "搜索", "contents": "目录", "other": "English",
        "sources": "源文件", "found": "条结果", "none": "没有找到", "all": "全部章节放在一页",
        "intro": "每个公式旁边就是 weft 里计算它的代码，并且都有测试。",
        "files": "各章引用的源文件，与本版 weft 中的一致。",
    },
}  # fmt: skip
_PAGE = Path(__file__).with_name("page")


def write_guide(folder: Path) -> list[Path]:
    """Writes en.html and zh.html into the folder."""
    refuse_address(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{language}.html" for language in LANGUAGES]
    for file, language in zip(files, LANGUAGES, strict=True):
        write_file(file, guide_page(language))
    return files


def guide_page(language: Language) -> bytes:
    words = _WORDS[language]
    chapters = [render_chapter(slug, language) for slug in written_chapters()]
    style, script = (_PAGE.joinpath(name).read_text("utf-8") for name in ("guide.css", "guide.js"))
    font = base64.b64encode(_PAGE.joinpath("math.woff2").read_bytes()).decode()
    style = f'@font-face {{ font-family: "weft math"; src: url("data:font/woff2;base64,{font}") }}{style}'
    parts = [
        f"<style>{STYLE}{style}</style>",
        _navigation(chapters, language),
        "<main>",
        *(_article(place, chapters, language) for place in range(len(chapters))),
        _sources(chapters, language),
        "</main>",
        f"<script>{script}</script>",
    ]
    return page(words["title"], parts, "zh-CN" if language == "zh" else language)


def _navigation(chapters: list[Rendered], language: Language) -> str:
    words = _WORDS[language]
    (other,) = set(LANGUAGES) - {language}
    numbers = {slug: number for number, slug in enumerate(CHAPTER_TITLES, 1)}
    items = []
    for chapter in chapters:
        sections = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title in chapter.sections)
        title = escape(CHAPTER_TITLES[chapter.slug].of(language))
        items.append(
            f'<li value="{numbers[chapter.slug]}"><a href="#{chapter.slug}">{title}</a><ol>{sections}</ol></li>'
        )
    search = (
        f'<input type="search" id="search" placeholder="{words["search"]}" aria-label="{words["search"]}" '
        f'data-found="{words["found"]}" data-none="{words["none"]}" autocomplete="off" hidden>'
    )
    return (
        f'<nav aria-label="{words["contents"]}"><div class="bar">'
        f'<button id="menu" aria-label="{words["contents"]}" aria-expanded="false" hidden>☰</button>'
        f'<a class="name" href="#{chapters[0].slug}">{words["title"]}</a>'
        f'<a class="other" lang="{"zh-CN" if other == "zh" else other}" href="{other}.html">{words["other"]}</a></div>'
        f'{search}<div id="results" aria-live="polite"></div>'
        f'<div class="toc"><p>{words["intro"]}</p><ol>{"".join(items)}</ol>'
        f'<p><a href="#sources">{words["sources"]}</a></p>'
        f'<p><a href="#all" id="all" hidden>{words["all"]}</a></p></div></nav>'
    )


def _article(place: int, chapters: list[Rendered], language: Language) -> str:
    def link(other: int, text: str) -> str:
        slug = chapters[other].slug
        return f'<a href="#{slug}">{text.format(escape(CHAPTER_TITLES[slug].of(language)))}</a>'

    before = link(place - 1, "← {}") if place else "<span></span>"
    after = link(place + 1, "{} →") if place + 1 < len(chapters) else "<span></span>"
    chapter = chapters[place]
    return f'<article data-chapter="{chapter.slug}">{chapter.body}<footer>{before}{after}</footer></article>'


def _sources(chapters: Iterable[Rendered], language: Language) -> str:
    """Every quoted file, with an anchor at each quoted line."""
    shown: dict[str, list[Excerpt]] = defaultdict(list)
    for chapter in chapters:
        for found in chapter.shown:
            shown[found.path].append(found)
    words = _WORDS[language]
    files = "".join(_source_file(path, shown[path]) for path in sorted(shown))
    return (
        f'<article data-chapter="sources" class="sources"><h1 id="sources">{words["sources"]}</h1>'
        f"<p>{words['files']}</p>{files}</article>"
    )


def _source_file(path: str, excerpts: list[Excerpt]) -> str:
    quoted = {line for found in excerpts for line in range(found.first, found.last + 1)}
    anchors = {found.first: line_anchor(found) for found in excerpts}
    rows = []
    for number, line in enumerate(excerpts[0].file.read_text("utf-8").splitlines(), 1):
        mark = ' class="quoted"' if number in quoted else ""
        anchor = f' id="{anchors[number]}"' if number in anchors else ""
        rows.append(f"<span{mark}{anchor}><i>{number}</i>{escape(line)}\n</span>")
    return f"<details><summary>weft/{path}</summary><pre>{''.join(rows)}</pre></details>"
