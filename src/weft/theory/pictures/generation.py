"""The pictures of the chapter on writing text."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

from weft.charts import Curve
from weft.generate.beam import BeamSearch, Hypothesis, advance_searches
from weft.generate.next_token import TokenRules, draw_tokens, filtered_probabilities
from weft.generate.settings import settings_of
from weft.generate.start_end_tokens import StartEndTokens
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model

_DRINKS = ("hot", "green", "coffee", "tea", "milk")


# Probabilities of the next word, by the last word; the last row: there is none yet.
_NEXT_DRINK = [
    [0.02, 0.03, 0.40, 0.35, 0.20],
    [0.02, 0.01, 0.04, 0.90, 0.03],
    [0.2] * 5,
    [0.2] * 5,
    [0.2] * 5,
    [0.50, 0.40, 0.05, 0.04, 0.01],
]


_MOST = 20


def _next_scores(prompt: str) -> torch.Tensor:
    model = guide_model()
    return torch.tensor(model.logits([model.tokenizer.encode(prompt)])[0][-1:], dtype=torch.float64)


def _in_order(scores: torch.Tensor, **given: float) -> tuple[list[float], list[int]]:
    """The probabilities of the next token after the filters, and the tokens, most probable first."""
    asked = [settings_of({"strategy": "sample", **given})]
    ((_, probabilities, tokens),) = filtered_probabilities(scores, asked)
    p = probabilities[0]
    order = p.argsort(descending=True, stable=True)
    ids = order if tokens is None else tokens[0][order]
    return p[order].tolist(), ids.tolist()


def _draw_temperature(language: Language) -> str:
    """The next token after one prompt, at three temperatures."""
    english = language == "en"
    scores, shown, row = _next_scores("'Why,' said the"), 7, 31
    model = guide_model()
    canvas = Canvas(WIDTH, 44 + row * (shown + 1) + 34, "Three temperatures" if english else "三种温度")
    for column, tau in enumerate((0.5, 1.0, 2.0)):
        left = 132 + 144 * column
        p, ids = _in_order(scores, temperature=tau)
        canvas.text(left + 56, 30, f"τ = {tau:g}", "strong")
        for place in range(shown + 1):
            y = 44 + row * place
            value = p[place] if place < shown else sum(p[shown:])
            canvas.rect(left, y + 4, max(84 * value, 1), row - 10, "a" if place < shown else "soft", 0.75)
            canvas.text(left + 84 * value + 6, y + 21, f"{value:.2f}".lstrip("0"), "small", anchor="start")
            if column == 0:
                others = f"{len(p) - shown:,} others" if english else f"其余 {len(p) - shown:,} 个"
                name = model.tokenizer.decode([ids[place]]).strip() if place < shown else others
                canvas.text(left - 8, y + 21, name, "" if place < shown else "soft small", anchor="end")
    note = "“'Why,' said the …”: probability of the next token" if english else "“'Why,' said the …”：下一个词元的概率"
    canvas.text(WIDTH / 2, canvas.height - 12, note, "soft small")
    return canvas.svg()


def _draw_draw(language: Language) -> str:
    """A number between 0 and 1 picks a token."""
    english = language == "en"
    names, u = ("cat", "dog", "fox", "owl"), 0.75
    p = torch.tensor([[2.0, 1.0, 0.5, 0.0]], dtype=torch.float64).softmax(-1)
    chosen = int(draw_tokens(p, None, torch.tensor([u], dtype=torch.double)))
    canvas = Canvas(WIDTH, 178, "One number picks a token" if english else "一个数选出一个词元")
    left, size, at = 30, WIDTH - 60, 0.0
    for place, (name, share) in enumerate(zip(names, p[0].tolist(), strict=True)):
        x = left + size * at
        canvas.rect(x + 1, 76, size * share - 2, 44, "a", 0.75 if place == chosen else 0.25)
        canvas.text(x + size * share / 2, 104, name, "strong" if place == chosen else "")
        canvas.text(x if place else x + 6, 144, f"{at:.2f}".lstrip("0") if place else "0", "soft small")
        at += share
    canvas.text(left + size - 1, 144, "1", "soft small")
    canvas.arrow(left + size * u, 40, left + size * u, 74, "stroke-b")
    canvas.text(left + size * u, 30, f"u = {u}")
    note = "running sums of the probabilities" if english else "概率的累加和"
    canvas.text(WIDTH / 2, 166, note, "soft small")
    return canvas.svg()


def _draw_filters(language: Language) -> str:
    """Where the model is sure and where it is not: what top-k and top-p keep."""
    english = language == "en"
    shown, width, k, share = 20, 25, 5, 0.9
    canvas = Canvas(WIDTH, 366, "What top-k and top-p keep" if english else "top-k 与 top-p 留下什么")
    for panel, prompt in enumerate(("said the March", "Alice looked at the")):
        scores = _next_scores(prompt)
        p, _ = _in_order(scores)
        kept = sum(value > 0 for value in _in_order(scores, top_p=share)[0])
        top, left = 54 + 166 * panel, 30
        scale = 84 / p[0]
        canvas.text(left, top - 26, f"“{prompt} …”", anchor="start")
        said = f"top-p {share}: {kept:,} of {len(p):,}" if english else f"top-p {share}：{kept:,} / {len(p):,} 个"
        canvas.text(WIDTH - 30, top - 26, said, "small", anchor="end")
        for place, value in enumerate(p[:shown]):
            inside = place < kept
            height = max(scale * value, 2)
            canvas.rect(left + width * place, top + 84 - height, width - 4, height, "a" if inside else "soft", 0.75)
        canvas.text(left + 10, top + 104, f"{p[0]:.2f}".lstrip("0"), "soft small")
        canvas.text(left + width * (shown - 0.5), top + 104, f"{p[shown - 1]:.4f}".lstrip("0"), "soft small")
        edge = left + width * k - 2
        canvas.line([(edge, top - 8), (edge, top + 88)], "stroke-b dashed")
        canvas.text(edge, top + 104, f"k = {k}", "small")
    note = "the 20 most probable tokens; blue: kept by top-p" if english else "最可能的 20 个词元；蓝色：top-p 留下的"
    canvas.text(WIDTH / 2, 354, note, "soft small")
    return canvas.svg()


def _draw_repetition(language: Language) -> str:
    """The score of a token that has occurred, before and after the penalty."""
    english = language == "en"
    before = np.linspace(-3, 3, 61)
    rules = TokenRules(settings_of({"repetition_penalty": 2.0}), StartEndTokens(), range(61), 61)
    after = before.copy()
    rules.apply(after, [], 1)
    names = ("unchanged", "by sign", "always divided") if english else ("不变", "看正负号", "一律用除")
    parts = zip(names, ("soft", "a", "b"), (before, after, before / 2), strict=True)
    return curve_chart(
        "The penalty, right and wrong" if english else "正确的与错误的惩罚",
        [Curve(name, colour, list(zip(before.tolist(), y.tolist(), strict=True))) for name, colour, y in parts],
        "logit before" if english else "惩罚前的 logit",
        "logit after, θ = 2" if english else "惩罚后的 logit，θ = 2",
        320,
    )


def _draw_tree(language: Language) -> str:
    """Two beams over the drinks: what is proposed, what is kept, what is found."""
    english = language == "en"
    asked = settings_of({"beams": 2, "length_penalty": 0.0})
    search = BeamSearch(asked, StartEndTokens(), 2, TokenRules(asked, StartEndTokens(), [0], 5), None)
    table = torch.tensor(_NEXT_DRINK, dtype=torch.float64).log()
    advance_searches([search], table[[-1, -1]])
    kept = [text[0] for text in search.texts]
    advance_searches([search], table[kept])
    found = [one.tokens for one in search.ranked()]
    canvas = Canvas(WIDTH, 356, "Beam search" if english else "束搜索")
    canvas.rect(14, 130, 96, 40, "box")
    canvas.text(62, 156, "I drink …")
    for first, y in ((0, 68), (1, 206), (2, 296)):
        p, goes_on = _NEXT_DRINK[-1][first], first in kept
        canvas.line([(110, 150), (190, y)], "stroke-a" if goes_on else "stroke dashed")
        canvas.rect(190, y - 20, 126, 40, "a" if goes_on else "box", 0.2 if goes_on else 1)
        canvas.text(253, y + 6, f"{_DRINKS[first]} {p:.2f}", "" if goes_on else "soft")
        for place, second in enumerate((2, 3, 4) if goes_on else ()):
            end, is_found = y - 42 + 42 * place, [first, second] in found
            canvas.line([(316, y), (390, end)], "stroke-a" if is_found else "stroke")
            canvas.rect(390, end - 18, 152, 36, "a" if is_found else "box", 0.2 if is_found else 1)
            shown = f"{_DRINKS[second]} {p * _NEXT_DRINK[first][second]:.3f}"
            canvas.text(466, end + 6, shown, "strong" if [first, second] == found[0] else "" if is_found else "soft")
    note = (
        "number: probability of the text up to here; blue: kept, B = 2"
        if english
        else "数字：到此为止的文本概率；蓝色：留下的，B = 2"
    )
    canvas.text(WIDTH / 2, 342, note, "soft small")
    return canvas.svg()


def _sentence_search(prompt: str, **given: float | str) -> Iterator[BeamSearch]:
    """A search for the end of a sentence, with the guide's model, after each step."""
    model = guide_model()
    ids, stop = model.tokenizer.encode(prompt), StartEndTokens((model.tokenizer.encode("a.")[-1],))
    asked = settings_of(given)
    search = BeamSearch(asked, stop, _MOST, TokenRules(asked, stop, ids, 2000), None)
    while not search.is_over:
        logits = [rows[-1] for rows in model.logits([ids + text for text in search.texts])]
        advance_searches([search], torch.tensor(np.array(logits), dtype=torch.float64))
        yield search


@cache
def _sentences() -> list[Hypothesis]:
    """How "The Mock Turtle …" goes on by the best score with a = 0, and with a = 1."""
    best = []
    for a in (0.0, 1.0):
        *_, search = _sentence_search("The Mock Turtle", beams=4, length_penalty=a, early_stopping="never")
        best.append(search.ranked()[0])
    return best


def _draw_length(language: Language) -> str:
    english = language == "en"
    curves = []
    for found, colour in zip(_sentences(), ("b", "a"), strict=True):
        n, total = len(found.tokens), sum(found.log_probs)
        name = f"{n} token{'s' * (n > 1)}" if english else f"{n} 个词元"
        curves.append(Curve(name, colour, [(a, total / n**a) for a in np.linspace(0.6, 1.6, 41).tolist()]))
    return curve_chart(
        "A short and a long text" if english else "一短一长两个文本",
        curves,
        "length penalty a" if english else "长度惩罚 a",
        "score" if english else "得分",
        300,
    )


def _draw_bound(language: Language) -> str:
    """When may the search stop? The best beam by the two rules, and the worst finished text."""
    english = language == "en"
    going: list[tuple[float, float]] = []
    hoped: list[tuple[float, float]] = []
    worst: list[tuple[float, float]] = []
    for search in _sentence_search("'What", beams=2, length_penalty=1.0):
        (group,) = search.groups
        n = group.tokens.shape[1]
        going.append((n, group.scores[0] / n))
        hoped.append((n, group.scores[0] / _MOST))
        if len(group.found) == 2:
            worst.append((n, group.found[-1].score))
    names = ("m = n", "m = 20", "worst finished") if english else ("m = n", "m = 20", "最差的成品")
    return curve_chart(
        "When the search may stop" if english else "搜索何时可以停",
        [
            Curve(name, colour, points)
            for name, colour, points in zip(names, ("b", "soft", "a"), (going, hoped, worst), strict=True)
        ],
        "step n" if english else "第 n 步",
        "score" if english else "得分",
        310,
    )


GENERATION_PICTURES: dict[str, Drawing] = {
    "generation-temperature": _draw_temperature,
    "generation-draw": _draw_draw,
    "generation-filters": _draw_filters,
    "generation-repetition": _draw_repetition,
    "generation-tree": _draw_tree,
    "generation-length": _draw_length,
    "generation-bound": _draw_bound,
}
