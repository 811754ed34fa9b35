"""A chapter as HTML: Markdown with formulas as MathML, pictures inline, and code linked to its lines."""

import html
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import unquote

from weft.errors import WeftError, needs
from weft.theory.chapters import CHAPTER_TITLES, read_chapter
from weft.theory.entry import LANGUAGES, GuideEntry, Language
from weft.theory.excerpt import Excerpt, excerpt, source_of
from weft.theory.filling import WORDS, ChapterPiece, chapter_pieces
from weft.theory.formulas import mathml, with_tokens
from weft.theory.places import picture_file, read_guide_text

_FENCE = re.compile(r"^(```|~~~).*?^\1$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_PUNCTUATED = re.compile("(\ue000\\d+\ue001[,.;:!?)，。；：、！？）]+)")  # not to be parted by the end of a line
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


class BadLink(WeftError):
    """A link or picture that leads nowhere."""


@dataclass
class Rendered:
    """A chapter. `sections`: anchor and title of its second-level headings. `shown`: the excerpts it shows."""

    slug: str
    body: str
    sections: list[tuple[str, str]] = field(default_factory=list)
    shown: list[Excerpt] = field(default_factory=list)


class _Kept:
    """HTML that Markdown must not touch: a token stands for it until the end."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def __call__(self, part: str) -> str:
        self.parts.append(part)
        return f"\ue000{len(self.parts) - 1}\ue001"

    def put_back(self, page: str) -> str:
        page = re.sub(r"<p>\s*\ue000(\d+)\ue001\s*</p>", lambda found: self.parts[int(found[1])], page)
        while "\ue000" in page:
            page = re.sub(r"\ue000(\d+)\ue001", lambda found: self.parts[int(found[1])], page)
        return page


def render_chapter(slug: str, language: Language) -> Rendered:
    rendered, kept, parts = Rendered(slug, ""), _Kept(), list[str]()
    for piece in chapter_pieces(read_guide_text(slug, language)):
        if piece.kind == "text":
            parts.append(_text(piece.text, kept))
        elif piece.kind == "cell":
            parts.append(f"\n\n{kept(_code_block(piece.text, 'cell'))}\n\n")
        elif piece.kind == "output":
            lines = piece.text.splitlines()[2:-2]
            parts.append(f"\n\n{kept(f'<pre class=output>{html.escape(chr(10).join(lines))}</pre>')}\n\n")
        elif piece.kind == "glossary":
            parts.append(piece.text)
        elif piece.kind != "head":
            parts.append(
                f"\n\n{kept(_entry_block(piece, read_chapter(slug).entry(piece.name), language, rendered))}\n\n"
            )
    page = _PUNCTUATED.sub(r'<span class="joined">\1</span>', _markdown().render("".join(parts)))
    page = kept.put_back(page)
    page = _headings(page, rendered)
    page = re.sub(r'<p><img src="([^"]+)" alt="([^"]*)"\s*/?></p>', lambda found: _picture(found[1], found[2]), page)
    rendered.body = re.sub(r'href="([^"]+)"', lambda found: f'href="{_link(found[1], slug, language)}"', page)
    return rendered


def _text(text: str, kept: _Kept) -> str:
    """Formulas as MathML, outside code; no comments."""
    done, end = list[str](), 0
    for code in [*_FENCE.finditer(text), None]:
        plain = _COMMENT.sub("", text[end : code.start() if code else len(text)])
        done.append(with_tokens(plain, lambda latex, display: _formula(latex, display, kept)))
        if code is not None:
            done.append(code[0])
            end = code.end()
    return "".join(done)


def _formula(latex: str, display: bool, kept: _Kept) -> str:
    shown = mathml(latex, display=display)
    return f"\n{kept(f'<div class=formula tabindex=0>{shown}</div>')}\n" if display else kept(shown)


def _entry_block(piece: ChapterPiece, entry: GuideEntry, language: Language, rendered: Rendered) -> str:
    if piece.kind == "formula":
        return f'<div class="formula main" tabindex=0>{mathml(entry.formula, display=True)}</div>'
    if piece.kind == "written":
        code = "\n\n\n".join(source_of(function) for function in entry.written)
        return f'<div class="code written"><p>{WORDS[language]["written"]}</p>{_code_block(code)}</div>'
    blocks = []
    for part in entry.production:
        found = excerpt(part)
        rendered.shown.append(found)
        where = f"{found.path}:{found.first}" + (f"–{found.last}" if found.last > found.first else "")
        link = f'<a href="#{line_anchor(found)}">{where}</a>'
        caption = f"<p>{WORDS[language]['production']} · {link} · <code>{html.escape(found.name)}</code></p>"
        blocks.append(f'<div class="code production">{caption}{_code_block(found.text)}</div>')
    return "".join(blocks)


def line_anchor(found: Excerpt) -> str:
    return f"source-{found.path.removesuffix('.py').replace('/', '-')}-{found.first}"


def _code_block(code: str, kind: str = "") -> str:
    pygments = needs("pygments", "theory", "to show the guide's code")
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    shown = pygments.highlight(code.strip("\n"), PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    return f'<pre class="source {kind}" tabindex=0><code>{shown.rstrip()}</code></pre>'


@cache
def _markdown() -> Any:
    parser = needs("markdown_it", "theory", "to read the guide's chapters").MarkdownIt("commonmark", {"html": True})

    def fence(code: str, language: str, _: str) -> str:
        return _code_block(code) if language == "py" else f"<pre tabindex=0><code>{html.escape(code)}</code></pre>"

    parser.options["highlight"] = fence
    return parser.enable("table")


def anchor_of(heading: str) -> str:
    """As code hosts make them."""
    return re.sub(r"[^\w\- ]", "", html.unescape(re.sub(r"<math.*?</math>|<[^>]+>", "", heading)).lower()).replace(
        " ", "-"
    )


def _headings(page: str, rendered: Rendered) -> str:
    def with_id(found: re.Match[str]) -> str:
        level, title = found[1], found[2]
        anchor = f"{rendered.slug}--{anchor_of(title)}"
        if level == "1":
            return f'<h1 id="{rendered.slug}">{title}</h1>'
        if level == "2":
            rendered.sections.append((anchor, re.sub(r"<[^>]+>", "", title)))
        return f'<h{level} id="{anchor}">{title}</h{level}>'

    return re.sub(r"<h([1-4])>(.*?)</h\1>", with_id, page, flags=re.DOTALL)


def _picture(source: str, alternative: str) -> str:
    """The drawing itself, so that it takes the page's colours and its text can be searched."""
    name, _, rest = source.rpartition("/")[2].partition(".")
    language = rest.partition(".")[0]
    if language not in LANGUAGES or not picture_file(name, language).is_file():
        raise BadLink(f"There is no picture {source} in the guide: run python scripts/theory.py.")
    svg = picture_file(name, language).read_text("utf-8")
    svg = re.sub(r"<style>.*?</style>\s*<rect class=\"card\".*?/>\s*", "", svg, flags=re.DOTALL)
    return f"<figure>{svg}<figcaption>{alternative}</figcaption></figure>"


def _link(target: str, slug: str, language: Language) -> str:
    """Links between files of the guide become links inside the page, or to the other language's page."""
    if target.startswith(("#source-", "http")):
        return target
    path, _, anchor = unquote(target).partition("#")
    if not path:
        return f"#{slug}--{anchor}"
    folder, _, name = path.rpartition("/")
    chapter = name.removesuffix(".md")
    if folder in ("", *(f"../{one}" for one in LANGUAGES)) and chapter in CHAPTER_TITLES:
        page = "" if folder in ("", f"../{language}") else f"{folder[3:]}.html"
        return f"{page}#{chapter}" + (f"--{anchor}" if anchor else "")
    raise BadLink(f"{slug}: the page cannot follow the link {target}; chapters link to chapters.")
