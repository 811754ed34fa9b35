"""The pictures of the chapter on T5."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch

from weft.charts import Curve
from weft.model.families import design
from weft.model.initialize import InitSpec
from weft.model.network import create_network
from weft.model.packed import pack
from weft.objectives.span_corruption import SpanCorruption
from weft.objectives.spans import corrupt_spans
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language

_WORDS = "Thank you for inviting me to your party last week".split()
_NAMES = [*_WORDS, "<0>", "<1>", "<2>", "</s>", "<pad>"]
_SENTINELS, _END, _START = (10, 11, 12), 13, 14
_EXAMPLE = 18  # the seed that cuts as figure 2 of the paper does


def _cut_words() -> tuple[list[int], list[int]]:
    rng = np.random.default_rng(_EXAMPLE)
    source, target = corrupt_spans(np.arange(10), _SENTINELS, rng, share=0.3, mean_length=1.5)
    return source.tolist(), target.tolist()


def _row_of_words(canvas: Canvas, y: float, tokens: list[int], cut: set[int]) -> None:
    x = 22.0
    for token in tokens:
        width = 10 + 8.2 * len(_NAMES[token])
        sentinel = token in _SENTINELS
        canvas.rect(x, y, width, 34, "a" if sentinel else "b" if token in cut else "box", 0.35 if sentinel else 0.3)
        canvas.text(x + width / 2, y + 22, _NAMES[token], "strong small" if sentinel else "small")
        x += width + 4


def _draw_example(language: Language) -> str:
    source, target = _cut_words()
    cut = set(range(10)) - set(source)
    english = language == "en"
    canvas = Canvas(WIDTH, 250, "Text, source and target" if english else "原文、源和目标")
    names = ("text", "source: what the encoder reads", "target: what the decoder writes")
    names = names if english else ("原文", "源：编码器读到的", "目标：解码器要写的")
    for line, (name, tokens) in enumerate(zip(names, (list(range(10)), source, target), strict=True)):
        canvas.text(22, 28 + 78 * line, name, "soft small", "start")
        _row_of_words(canvas, 38 + 78 * line, tokens, cut)
    return canvas.svg()


def _draw_lengths(language: Language) -> str:
    """Tokens on each side for 512 tokens of text, by the mean length of a span."""
    english = language == "en"
    sides: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for mean in range(1, 11):
        rng = np.random.default_rng(0)
        found = corrupt_spans(np.arange(512), range(600, 700), rng, mean_length=mean)
        for side, tokens in zip(sides, found, strict=True):
            side.append((mean, len(tokens)))
    return curve_chart(
        "How long source and target are" if english else "源和目标有多长",
        [
            Curve("source" if english else "源", "a", sides[0]),
            Curve("target" if english else "目标", "b", sides[1]),
        ],
        "mean length of a span μ" if english else "片段的平均长度 μ",
        "tokens, from 512 of text" if english else "512 个词元的原文变成多少词元",
        310,
    )


def _draw_cuts(language: Language) -> str:
    """All thirty ways to cut three of eight tokens in two spans, and how often weft draws each."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        source, _ = corrupt_spans(np.arange(8), _SENTINELS, rng, share=3 / 8, mean_length=1.5)
        counts[tuple(int(place not in source) for place in range(8))] += 1
    english = language == "en"
    canvas = Canvas(WIDTH, 300, "Thirty ways to cut" if english else "三十种挖法")
    cell = 15
    for number, (cut, count) in enumerate(sorted(counts.items(), reverse=True)):
        left, top = 20 + 182 * (number // 10), 22 + 24 * (number % 10)
        for place, is_cut in enumerate(cut):
            x = left + cell * place
            canvas.rect(x, top, cell - 2, 18, "b" if is_cut else "box", 0.75 if is_cut else 1)
        canvas.text(left + cell * 8 + 32, top + 14, str(count), "soft small", anchor="end")
    note = "orange: cut; number: how often in 3,000 draws" if english else "橙色：挖掉；数字：抽 3000 次出现几次"
    canvas.text(WIDTH / 2, 286, note, "soft small")
    return canvas.svg()


def _draw_edges(language: Language) -> str:
    """How often each of 40 places is cut: in weft, and if a text must begin with a kept token and end with a span."""
    length, cut, spans, draws = 40, 6, 2, 8000
    ours, theirs = np.zeros(length), []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        source, _ = corrupt_spans(np.arange(length), (50, 51, 52), rng, share=cut / length, mean_length=cut / spans)
        ours[np.setdiff1d(np.arange(length), source)] += 1 / draws
    for kept in _sums(length - cut, spans):
        for sizes in _sums(cut, spans):
            theirs.append(np.repeat([0, 1] * spans, [size for pair in zip(kept, sizes, strict=True) for size in pair]))
    english = language == "en"
    return curve_chart(
        "How often each place is cut" if english else "各个位置被挖掉的频率",
        [
            Curve("weft", "a", [(place + 1.0, float(share)) for place, share in enumerate(ours)]),
            Curve(
                "always ends with a span" if english else "总以片段结尾",
                "b",
                [(place + 1.0, float(share)) for place, share in enumerate(np.mean(theirs, axis=0))],
            ),
        ],
        "place in a text of 40 tokens" if english else "在 40 个词元的文本中的位置",
        "share of draws in which it is cut" if english else "被挖掉的比例",
        310,
    )


def _sums(total: int, count: int) -> list[list[int]]:
    """All ways to write `total` as a sum of `count` positive integers."""
    ends = [(0, *chosen, total) for chosen in combinations(range(1, total), count - 1)]
    return [np.diff(one).tolist() for one in ends]


def _draw_shift(language: Language) -> str:
    """What the decoder reads and what it should write, place by place."""
    objective = SpanCorruption(
        np.arange(10),  # type: ignore[arg-type]  # any row of tokens will do
        10, _SENTINELS, end=_END, start=_START, share=0.3, mean_length=1.5,
    )  # fmt: skip
    batch = objective.batch([0], [0], 35)
    assert batch.decoder is not None and batch.targets is not None
    english = language == "en"
    canvas = Canvas(WIDTH, 214, "Decoder input and target" if english else "解码器的输入与目标")
    reads, targets = batch.decoder.tokens.tolist(), batch.targets.tolist()
    size = (WIDTH - 40) / len(reads)
    labels = ("decoder reads", "it should write") if english else ("解码器读到", "它应当写出")
    canvas.text(20, 28, labels[0], "soft small", "start")
    canvas.text(20, 204, labels[1], "soft small", "start")
    for place, (read, wanted) in enumerate(zip(reads, targets, strict=True)):
        x = 20 + size * place
        for y, token in ((38, read), (144, wanted)):
            canvas.rect(x, y, size - 5, 36, "a" if token in _SENTINELS else "box", 0.35)
            canvas.text(x + size / 2 - 2, y + 23, _NAMES[token], "small")
        canvas.arrow(x + size / 2 - 2, 78, x + size / 2 - 2, 140)
        if place:
            canvas.line([(x - size / 2 + 8, 142), (x + size / 2 - 14, 76)], "stroke-b dashed")
    return canvas.svg()


def _draw_scores(language: Language) -> str:
    """The spread of q·k of fresh weights, by head width: with T5's start and with that of other models."""
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    curves: dict[str, list[tuple[float, float]]] = {"t5": [], "normal": []}
    for width in (1, 4, 8, 16, 32, 48, 64, 96, 128):
        _, architecture = design("t5", vocabulary=8, layers=1, width=512, heads=1, head_width=width, inner=8)
        for kind, points in curves.items():
            network = create_network(replace(architecture, init=InitSpec("t5" if kind == "t5" else "normal"))).double()
            assert network.encoder is not None
            q, k, _ = network.encoder.blocks[0].get_submodule("attention.qkv")(x).detach().chunk(3, dim=1)
            points.append((width, float((q @ k.T).std())))
    english = language == "en"
    return curve_chart(
        "Scores before training" if english else "训练前的得分",
        [
            Curve("W_Q as others start it" if english else "W_Q 照常初始化", "b", curves["normal"]),
            Curve("W_Q / √D", "a", curves["t5"]),
        ],
        "head width D" if english else "头的宽度 D",
        "standard deviation of q·k" if english else "q·k 的标准差",
        310,
    )


def _draw_start(language: Language) -> str:
    """The loss of an embedding of N(0, 1) as the output matrix, by the width of the model."""
    generator = torch.Generator().manual_seed(0)
    wanted, batch = torch.arange(400), pack([range(400)])
    curves: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for width in (16, 32, 64, 96, 128, 192, 256):
        _, architecture = design("t5", vocabulary=500, layers=1, width=width, heads=1, head_width=1, inner=1)
        head = create_network(architecture).double().head("seq2seq")
        hidden = torch.randn(len(wanted), width, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            head.out.weight.normal_(generator=generator)
            for scaled, points in curves.items():
                logits = head(hidden, batch) * (1 if scaled else width**0.5)
                points.append((width, float(torch.nn.functional.cross_entropy(logits, wanted))))
    level = [(16.0, float(np.log(500))), (256.0, float(np.log(500)))]
    english = language == "en"
    return curve_chart(
        "The loss before training" if english else "训练前的损失",
        [
            Curve("E·h", "b", curves[False]),
            Curve("E·h / √W", "a", curves[True]),
            Curve("log 500", "soft", level),
        ],
        "width W" if english else "宽度 W",
        "loss; 500 tokens in the vocabulary" if english else "损失；词表 500 个词元",
        310,
    )


T5_PICTURES: dict[str, Drawing] = {
    "t5-example": _draw_example,
    "t5-lengths": _draw_lengths,
    "t5-cuts": _draw_cuts,
    "t5-edges": _draw_edges,
    "t5-shift": _draw_shift,
    "t5-scores": _draw_scores,
    "t5-start": _draw_start,
}
