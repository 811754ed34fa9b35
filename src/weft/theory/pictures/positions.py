"""The pictures of the chapter on positions."""

import math
from functools import cache

import torch

from weft.charts import Curve
from weft.model.positions import (
    LinearScaling,
    Llama3Scaling,
    Relative,
    Rotary,
    relative_bucket,
    rotary_frequencies,
    rotary_table,
    rotate,
    sinusoid_table,
)
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model, guide_text


@cache
def _losses() -> list[float]:
    """Of the guide's model on the unseen chapter: as trained, with the vectors of positions mixed up, and without."""
    model, (_, unseen) = guide_model(), guide_text()
    embed = model.network.embed
    assert embed.positions is not None
    table = embed.positions.weight.data
    trained = table.clone()
    mixed = trained[torch.randperm(len(trained), generator=torch.Generator().manual_seed(0))]
    losses = []
    try:
        for changed in (trained, mixed, torch.zeros_like(trained)):
            table.copy_(changed)
            losses.append(math.log(model.score(unseen).perplexity))
    finally:
        table.copy_(trained)
    return losses


def _draw_loss(language: Language) -> str:
    english = language == "en"
    trained, *changed = _losses()
    return bar_chart(
        "How much the loss rises" if english else "损失升高多少",
        ["mixed up", "without"] if english else ["打乱", "去掉"],
        [loss - trained for loss in changed],
        note="rise of the loss per token on chapter XII" if english else "第十二章上每个词元的损失升高多少",
    )


def _draw_sinusoids(language: Language) -> str:
    """32 positions as rows, 16 columns of the table in the order of the paper."""
    english = language == "en"
    positions, width = 32, 16
    table = sinusoid_table(torch.arange(positions), width, torch.float64)
    table = table.view(positions, 2, width // 2).transpose(1, 2).flatten(1)
    canvas = Canvas(WIDTH, 392, "Sines and cosines" if english else "正弦与余弦")
    left, top, cell_x, cell_y = 62, 42, 30, 9.6
    for column in range(width):
        canvas.text(left + cell_x * (column + 0.5), top - 10, str(column), "soft small")
    for p, row in enumerate(table.tolist()):
        if p % 5 == 0:
            canvas.text(left - 10, top + cell_y * p + 10, str(p), "soft small", anchor="end")
        for column, value in enumerate(row):
            kind = "a" if value > 0 else "b"
            canvas.rect(left + cell_x * column, top + cell_y * p, cell_x - 1, cell_y - 0.6, kind, abs(value))
    note = (
        "row: position; column: coordinate; blue: positive, orange: negative"
        if english
        else "行：位置；列：坐标；蓝：正，橙：负"
    )
    canvas.text(WIDTH / 2, 378, note, "soft small")
    return canvas.svg()


def _draw_buckets(language: Language) -> str:
    english = language == "en"
    distances = torch.arange(-150, 151)
    spec = Relative(32, 128)
    curves = []
    for name, colour, both_ways in (("decoder", "b", False), ("encoder", "a", True)):
        buckets = relative_bucket(distances, spec, both_ways=both_ways).tolist()
        points = [(float(d), float(b)) for d, b in zip(distances.tolist(), buckets, strict=True) if both_ways or d <= 0]
        label = name if english else {"decoder": "解码器", "encoder": "编码器"}[name]
        curves.append(Curve(label, colour, points))
    return curve_chart(
        "The bucket of each distance" if english else "每个距离的桶",
        curves,
        "distance: key − query" if english else "距离：键 − 查询",
        "bucket" if english else "桶",
        310,
    )


def _draw_bias(language: Language) -> str:
    """The number of the bucket for each query and key, with 8 buckets up to distance 16."""
    english = language == "en"
    size, cell = 10, 26
    index = torch.arange(size)
    distance = index[None, :] - index[:, None]
    canvas = Canvas(WIDTH, 350, "Buckets of a small table" if english else "一张小表的桶")
    names = (("encoder", "decoder") if english else ("编码器", "解码器"), (True, False))
    for place, (name, both_ways) in enumerate(zip(*names, strict=True)):
        left = 12 + 276 * place
        canvas.text(left + cell * size / 2, 28, name)
        buckets = relative_bucket(distance, Relative(8, 16), both_ways=both_ways).tolist()
        for i, row in enumerate(buckets):
            for j, bucket in enumerate(row):
                x, y = left + cell * j, 42 + cell * i
                if j > i and not both_ways:
                    canvas.line([(x + 8, y + cell - 8), (x + cell - 8, y + 8)], "line")
                    continue
                later = both_ways and bucket >= 4
                shade = (bucket - 4 * later + 1) / (4 if both_ways else 8)
                canvas.rect(x, y, cell - 2, cell - 2, "b" if later else "a", 0.08 + 0.55 * shade)
                canvas.text(x + cell / 2 - 1, y + cell / 2 + 4, str(bucket), "small")
    note = "row: query, column: key; number of the bucket" if english else "行：查询，列：键；数字是桶的编号"
    canvas.text(WIDTH / 2, 334, note, "soft small")
    return canvas.svg()


def _draw_clocks(language: Language) -> str:
    """Four pairs of a head of width 8: where the vector (1, 0) points at each of six positions."""
    english = language == "en"
    pairs, positions = 4, 6
    width = 2 * pairs
    table = rotary_table(Rotary(16), torch.arange(positions), width, torch.float64)
    start = torch.tensor([1.0] * pairs + [0.0] * pairs, dtype=torch.float64).expand(positions, 1, width)
    turned = rotate(start, table)[:, 0]
    frequencies = rotary_frequencies(Rotary(16), width, torch.device("cpu")).tolist()
    canvas = Canvas(WIDTH, 232, "Pairs as clocks" if english else "像钟表一样的坐标对")
    for pair in range(pairs):
        x, y, radius = 76 + 136 * pair, 100, 48
        canvas.text(x, 26, f"θ{pair} = {frequencies[pair]:g}")
        canvas.circle(x, y, radius, "box")
        spoken: list[float] = []
        for p in range(positions):
            across, up = float(turned[p, pair]), float(turned[p, pair + pairs])
            tip = (x + radius * across, y - radius * up)
            canvas.line([(x, y), tip], "stroke-a" if p else "stroke-b", 1 if p in (0, positions - 1) else 0.45)
            if all((across - a) ** 2 + (up - b) ** 2 > 0.1 for a, b in zip(spoken[::2], spoken[1::2], strict=True)):
                canvas.text(x + 1.26 * radius * across, y + 5 - 1.26 * radius * up, str(p), "small")
                spoken += [across, up]
        speed = (f"{positions - 1} steps: " if english else f"{positions - 1} 步：") + (
            f"{57.29578 * frequencies[pair] * (positions - 1):.3g}°"
        )
        canvas.text(x, 188, speed, "soft small")
    note = "hand: the pair (1, 0) at positions 0 to 5" if english else "指针：坐标对 (1, 0) 在位置 0 到 5 上的方向"
    canvas.text(WIDTH / 2, 218, note, "soft small")
    return canvas.svg()


def _draw_distance(language: Language) -> str:
    """q·k of two equal vectors after rotation, from two places in the text."""
    english = language == "en"
    width, longest = 64, 120
    curves = []
    for name, colour, base in (("B = 10 000", "a", 10_000.0), ("B = 500 000", "b", 500_000.0)):
        table = rotary_table(Rotary(longest + 1, base), torch.arange(longest + 1), width, torch.float64)
        turned = rotate(torch.full((longest + 1, 1, width), width**-0.5, dtype=torch.float64), table)[:, 0]
        scores = (turned @ turned[0]).tolist()
        curves.append(Curve(name, colour, [(float(p), s) for p, s in enumerate(scores)]))
    return curve_chart(
        "Score and distance" if english else "得分与距离",
        curves,
        "distance between query and key" if english else "查询与键的距离",
        "q·k of two equal vectors of length 1" if english else "两个相等的单位向量的 q·k",
        310,
    )


def _draw_longer(language: Language) -> str:
    english = language == "en"
    width = 128
    scalings: dict[str, tuple[str, LinearScaling | Llama3Scaling]] = {
        "linear" if english else "线性": ("b", LinearScaling(8.0)),
        "Llama 3.1": ("a", Llama3Scaling(8.0, 1.0, 4.0, 8192)),
    }
    cpu = torch.device("cpu")
    plain = rotary_frequencies(Rotary(8192, 500_000.0), width, cpu)
    curves = []
    for name, (colour, scaling) in scalings.items():
        share = rotary_frequencies(Rotary(8192, 500_000.0, scaling), width, cpu) / plain
        curves.append(Curve(name, colour, [(float(i), value) for i, value in enumerate(share.tolist())]))
    return curve_chart(
        "Which frequencies are slowed down" if english else "哪些频率被放慢",
        curves,
        "pair i, from fast to slow" if english else "坐标对 i，从快到慢",
        "θ′ / θ",
        290,
    )


POSITIONS_PICTURES: dict[str, Drawing] = {
    "positions-loss": _draw_loss,
    "positions-sinusoids": _draw_sinusoids,
    "positions-buckets": _draw_buckets,
    "positions-bias": _draw_bias,
    "positions-clocks": _draw_clocks,
    "positions-distance": _draw_distance,
    "positions-longer": _draw_longer,
}
