"""What surrounds an article on a page: the names of such elements, and the phrases that such lines begin with.

The names are English words that web developers use in every language. The phrases are in the languages of the pages
they were collected on (mostly German, English, Spanish, French, Polish); they have no effect on other languages.
"""

import re

# Elements that never hold text for a reader.
SILENT_ELEMENTS = frozenset(
    "script style iframe svg button select option textarea input template object embed canvas audio video map head "
    "dialog datalist".split()
)
# Elements and roles with text that is not the article's, unless nearly everything is in them.
BESIDE_ELEMENTS = frozenset("nav footer aside figcaption label menu noscript".split())
BESIDE_ROLES = frozenset(
    "navigation banner contentinfo complementary search dialog menu menubar alertdialog toolbar".split()
)

_BEGINNINGS = (
    "adbox adslot advert author banner breadcrumb byline caption carousel comment consent cookie copyright credit "
    "dateline disclaimer disqus footer gallery imprint infobox kommentar login masthead menu modal navi newsletter "
    "outbrain overlay pagination paywall pingback popular popup promo rating recommend relat reply respond search "
    "share sharing sidebar signup similar skip slider social sponsor subscri taboola teaser toolbar trackback trending "
    "weitere widget"
).split()
_WORDS = (
    "ad ads bio comments? feed hidden lang meta most-?read nav pager post-?nav print read-?more rss side-bar tags? "
    "taglist toc"
).split()
SUSPECT_NAME = re.compile(rf"(?<![a-z])(?:(?:{'|'.join(_BEGINNINGS)})|(?:{'|'.join(_WORDS)})(?![a-z]))")

# Harmless names with a suspicious word: topics of a post, layouts with a sidebar, page builders.
HARMLESS_NAME = re.compile(
    r"(?:tag|category|post_tag|elementor)-.+"
    r"|.*(?:has|with|without|no|one|two|left|right)[-_]?sidebar.*"
    r"|.+-widget-(?:wrap|container)"
)

# Names of the element around an article's text, in the commonest publishing systems.
CONTENT_NAME = re.compile(
    r"(?<![a-z])(?:article-?(?:body|text|content|inner)|article__(?:body|content|text)|articletext|body-?copy|body-?nota"
    r"|content-?body|detail-?content|entry-content|field-name-body|news-?(?:text|content)|page-?content"
    r"|post-?(?:content|body|entry)|single-?content|story-?(?:body|content|text)|text-?content)(?![a-z])"
)

# Names of the sentences between the headline and the text; they are often outside the text's element.
LEAD_NAME = re.compile(
    r"lead|intro|excerpt|teaser|perex|chapo|abstract|summary|description|subtitle|subline|subhead|preface|standfirst"
    r"|dek|entry-header|article-header"
)

_PHRASES = (
    # pointers to other articles
    r"lea (?:también|más|además)|lea:|notas relacionadas|[lt]e puede interesar",
    r"lesen sie|lies auch|siehe auch|auch interessant|das könnte|mehr (?:lesen|dazu|infos|informationen|zum)|zum thema",
    r"weiterlesen|weiterführende|empfehlungen",
    r"weitere (?:informationen|infos|artikel|themen|links|meldungen|news|tourentipps)",
    r"read (?:more|also)|see also|also read|related:|lire aussi|à lire|zobacz też|czytaj (?:także|też|więcej)",
    # about the page
    r"foto:|bild:|photo:|crédits? photos?|photo credit|quelle:|source:|copyright|©|aktualisiert",
    r"tags?:|kategorie|posted (?:in|by|on)|filed under",
    r"der beitrag wurde|dieser (?:beitrag|artikel|text) (?:wurde|entspricht)",
    r"kontakt:|pressekontakt|anzeige|bild anzeigen|rezept drucken",
    # what the reader is asked to do
    r"teilen|share|newsletter|subscribe|sign up|download the|follow us",
    r"möchten sie den artikel|war (?:der|dieser) artikel",
    r"kommentieren|kommentare?$|(?:noch )?keine (?:bewertung|kommentar)",
)
BOILERPLATE_PHRASE = re.compile(rf"(?:{'|'.join(_PHRASES)})(?!\w)", re.IGNORECASE)
