"""The pictures of the chapter on encoder and decoder."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from weft.model.keep import Keep
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, bar_chart, heatmap
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model

_SOURCE, _DAYLESS, _TARGET = "14 March 1952", "March 1952", "1952-03-14"


_MONTHS = "January February March April May June July August September October November December".split()


class _Reading(NamedTuple):
    """What the model of dates does with a source and a target."""

    probabilities: Tensor  # (target, vocabulary)
    own: Tensor  # attention weights: (target, target)
    cross: Tensor  # (target, source)
    encoder: Tensor  # (source, source)
    wanted: list[int]


@cache
def _read(source: str, target: str) -> _Reading:
    model = guide_model("dates")
    network, tokenizer, start = model.network, model.tokenizer, model.start_end.start_id
    assert start is not None
    x, wanted = tokenizer.encode(source), tokenizer.encode(target)
    decoder = pack([[start, *wanted[:-1]]])
    keep = Keep(attention=(0,), cross=(0,), source=Keep(attention=(0,)))
    with torch.no_grad():
        hidden, kept = network(pack([x]), decoder, keep=keep)
        shares = network.head("seq2seq")(hidden, decoder).softmax(-1)
    return _Reading(shares, kept.attention[0][0][0], kept.cross[0][0][0], kept.source.attention[0][0][0], wanted)


def _letters(text: str, end: str) -> list[str]:
    return [*(letter.replace(" ", "␣") for letter in text), end]


def _draw_map(language: Language) -> str:
    english = language == "en"
    return heatmap(
        "Cross-attention of a date" if english else "一个日期的交叉注意力",
        _read(_SOURCE, _TARGET).cross.tolist(),
        _letters(_TARGET, "∎"),
        _letters(_SOURCE, "∎"),
        note="row: the token being written; column: what it reads" if english else "行：正在写的词元；列：它读的词元",
    )


def _draw_views(language: Language) -> str:
    """All three attentions of the same date; where a weight is 0 by the mask, the cell is crossed out."""
    english = language == "en"
    reading = _read(_SOURCE, _TARGET)
    canvas = Canvas(WIDTH, 252, "Three attentions, three views" if english else "三种注意力，三种视野")
    names = ("encoder", "decoder", "cross") if english else ("编码器", "解码器", "交叉")
    cell = 11.6
    lefts = (20.0, 214.0, 376.0)
    for left, name, weights in zip(lefts, names, (reading.encoder, reading.own, reading.cross), strict=True):
        rows = weights.tolist()
        canvas.text(left + cell * len(rows[0]) / 2, 30, name, "strong")
        for i, row in enumerate(rows):
            for j, weight in enumerate(row):
                x, y = left + cell * j, 46 + cell * i
                if weight:
                    canvas.rect(x, y, cell - 1, cell - 1, "a", 0.12 + 0.8 * weight)
                else:
                    canvas.line([(x + 2, y + cell - 3), (x + cell - 3, y + 2)], "line")
    note = "rows look, columns are seen; crossed out: hidden" if english else "行在看，列被看；划掉的看不见"
    canvas.text(WIDTH / 2, 236, note, "soft small")
    return canvas.svg()


def _draw_months(language: Language) -> str:
    """Cross-attention to the letters of each month, while its second digit is written."""
    english = language == "en"
    canvas = Canvas(WIDTH, 276, "Which letters tell the month" if english else "哪些字母透露了月份")
    for number, month in enumerate(_MONTHS):
        reading = _read(f"14 {month} 1952", f"1952-{number + 1:02}-14")
        left, y = 12 + 276 * (number // 6), 16 + 38 * (number % 6)
        canvas.text(left + 14, y + 22, f"{number + 1:02}", "strong")
        for place, letter in enumerate(month):
            x = left + 34 + 25.5 * place
            canvas.rect(x, y, 23.5, 30, "a", 0.04 + 0.76 * float(reading.cross[6, 3 + place]))
            canvas.text(x + 11.7, y + 21, letter)
    note = "weights of the letters while the second digit is written" if english else "写月份第二位数字时各字母的权重"
    canvas.text(WIDTH / 2, 262, note, "soft small")
    return canvas.svg()


def _draw_shift(language: Language) -> str:
    english = language == "en"
    reading = _read(_DAYLESS, _TARGET)
    names = _letters(_TARGET, "end" if english else "结束")
    reads = ["start" if english else "开始", *names[:-1]]
    canvas = Canvas(WIDTH, 262, "Reads and writes" if english else "读什么，写什么")
    heads = ("reads", "wanted", "probability") if english else ("读入", "应写", "概率")
    for y, name in zip((46, 106, 190), heads, strict=True):
        canvas.text(10, y, name, "soft small", anchor="start")
    for place, (read, wanted) in enumerate(zip(reads, names, strict=True)):
        x = 114 + 40 * place
        share = float(reading.probabilities[place, reading.wanted[place]])
        for y, word, kind in ((22, read, "b"), (82, wanted, "a")):
            canvas.rect(x - 18, y, 36, 36, kind, 0.25)
            canvas.text(x, y + 24, word, "small" if len(word) > 1 else "")
        canvas.arrow(x, 60, x, 79)
        canvas.rect(x - 14, 228 - 84 * share, 28, 84 * share, "a", 0.75)
        canvas.text(x, 222 - 84 * share, f"{share:.2f}".lstrip("0"), "small")
    canvas.text(WIDTH / 2, 251, "source: March 1952" if english else "源文本：March 1952", "soft small")
    return canvas.svg()


def _draw_shares(language: Language) -> str:
    """The next token where the source does not say the day."""
    english = language == "en"
    tokenizer = guide_model("dates").tokenizer
    shares = _read(_DAYLESS, _TARGET).probabilities[8]
    best = sorted(range(len(shares)), key=lambda token: -float(shares[token]))[:5]
    return bar_chart(
        "The next token after 1952-03-" if english else "1952-03- 之后的词元",
        [f"“{tokenizer.decode([token])}”" for token in best],
        [float(shares[token]) for token in best],
        note="source “March 1952”, written “1952-03-”" if english else "源文本“March 1952”，已写“1952-03-”",
    )


def _draw_parts(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 452, "Encoder and decoder" if english else "编码器与解码器")
    left, right = 130.0, 412.0
    canvas.rect(left - 104, 182, 208, 152, "box")
    canvas.rect(right - 124, 112, 248, 222, "box")
    for x, name in ((left, "encoder" if english else "编码器"), (right, "decoder" if english else "解码器")):
        canvas.text(x, 30, name, "strong")
    boxes = {
        (left, 376): ("embedding", "嵌入", "soft"),
        (left, 296): ("attention", "注意力", "a"),
        (left, 228): ("feed-forward", "前馈", "a"),
        (right, 376): ("embedding", "嵌入", "soft"),
        (right, 296): ("attention, past only", "注意力（只看前文）", "a"),
        (right, 226): ("cross-attention", "交叉注意力", "b"),
        (right, 156): ("feed-forward", "前馈", "a"),
        (right, 76): ("matrix, softmax", "矩阵、softmax", "soft"),
    }
    for x, top in ((left, 168), (right, 44)):
        canvas.arrow(x, 424, x, top)
    for (x, y), (en, zh, kind) in boxes.items():
        width = 180 if x == left else 216
        canvas.rect(x - width / 2, y - 18, width, 36, "box")
        canvas.rect(x - width / 2, y - 18, width, 36, kind, 0.25)
        canvas.text(x, y + 6, en if english else zh)
    canvas.rect(left - 40, 130, 80, 36, "b", 0.25)
    canvas.text(left, 154, "M")
    canvas.line([(left + 40, 148), (266, 148), (266, 226)], "stroke-b")
    canvas.arrow(266, 226, right - 109, 226, "stroke-b")
    canvas.text(left, 442, "14 March 1952")
    canvas.text(right, 442, ("start" if english else "开始") + " 1 9 5 2 - 0")
    canvas.text(right + 16, 38 + 16, "3", "strong", anchor="start")
    return canvas.svg()


ENCODER_DECODER_PICTURES: dict[str, Drawing] = {
    "encoder-decoder-parts": _draw_parts,
    "encoder-decoder-views": _draw_views,
    "encoder-decoder-map": _draw_map,
    "encoder-decoder-months": _draw_months,
    "encoder-decoder-shares": _draw_shares,
    "encoder-decoder-shift": _draw_shift,
}
