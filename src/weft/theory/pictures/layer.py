"""The pictures of the chapter on layers."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from weft.charts import Curve
from weft.model.attention import AttentionSpec, View
from weft.model.block import Block, BlockSpec
from weft.model.dropout import drop
from weft.model.feedforward import Activation, FeedForwardSpec, activate
from weft.model.fused_layers import gate
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import EXAMPLE_SENTENCE, guide_model, guide_text

_LAYER, _NEURON = 1, 207  # of the guide's model: the one whose tokens the text names


_EXAMPLE = [9.0, 1.0, 3.0, 3.0]


@cache
def _neuron() -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """(The tokens at which the neuron is most active, on average; those whose logits it raises most)."""
    model = guide_model()
    network, tokenizer = model.network, model.tokenizer
    ids = tokenizer.encode(guide_text()[0][:40_000])
    found: list[Tensor] = []
    assert network.decoder is not None
    block = network.decoder.blocks[_LAYER]
    assert isinstance(block, Block)
    feedforward = block.feedforward
    hook = feedforward.down.register_forward_pre_hook(lambda _, given: found.append(given[0].detach()))
    with torch.no_grad():
        network(pack([ids[start : start + 64] for start in range(0, len(ids), 64)]))
    hook.remove()
    active = found[0][:, _NEURON]
    tokens = torch.tensor(ids)
    seen = [token for token in sorted(set(ids)) if int((tokens == token).sum()) >= 3]
    means = {token: float(active[tokens == token].mean()) for token in seen}
    raised = network.embed.tokens.weight.detach() @ feedforward.down.weight.detach()[:, _NEURON]
    best = sorted(means, key=lambda token: -means[token])[:6]
    top = sorted(range(len(raised)), key=lambda token: -float(raised[token]))[:6]
    return [(tokenizer.decode([token]), means[token]) for token in best], [
        (tokenizer.decode([token]), float(raised[token])) for token in top
    ]


def _draw_neuron(language: Language) -> str:
    english = language == "en"
    reads, writes = _neuron()
    canvas = Canvas(WIDTH, 290, "What one neuron reads and writes" if english else "一个神经元读什么、写什么")
    headings = ("active at", "raises") if english else ("遇到谁就兴奋", "抬高谁")
    for place, (heading, bars) in enumerate(zip(headings, (reads, writes), strict=True)):
        left = 20 + 270 * place
        canvas.text(left + 110, 32, heading, "strong")
        scale = 110 / max(value for _, value in bars)
        for line, (token, value) in enumerate(bars):
            y = 46 + 34 * line
            canvas.text(left + 84, y + 22, f"“{token.replace(' ', '␣')}”", anchor="end")
            canvas.rect(left + 92, y + 4, max(scale * value, 1), 25, "b" if place else "a", 0.75)
            canvas.text(left + 100 + scale * value, y + 22, f"{value:.2f}", "soft small", anchor="start")
    note = (
        "left: mean activation at a token; right: its change of a token's logit"
        if english
        else "左：在各词元上的平均激活；右：使各词元的 logit 改变多少"
    )
    canvas.text(WIDTH / 2, 275, note, "soft small")
    return canvas.svg()


def _curve(name: str, colour: str, function: Activation | Literal["sigmoid"], low: float, high: float) -> Curve:
    z = torch.linspace(low, high, 121, dtype=torch.float64)
    y = torch.relu(torch.sigmoid(z)) if function == "sigmoid" else activate(z, function)
    return Curve(name, colour, list(zip(z.tolist(), y.tolist(), strict=True)))


def _draw_activations(language: Language) -> str:
    curves = [
        _curve("ReLU", "soft", "relu", -4, 2.5),
        _curve("GELU", "a", "gelu", -4, 2.5),
        _curve("SiLU", "b", "silu", -4, 2.5),
    ]
    return curve_chart("Activations" if language == "en" else "激活函数", curves, "z", "φ(z)", 320)


def _draw_sigmoid(language: Language) -> str:
    curves = [
        _curve("max(0, σ(z))", "b", "sigmoid", -6, 2),
        _curve("max(0, z)", "a", "relu", -6, 2),
    ]
    title = "A ReLU around a sigmoid does nothing" if language == "en" else "套在 sigmoid 外面的 ReLU 毫无作用"
    return curve_chart(title, curves, "z", "y", 300)


def _draw_gate(language: Language) -> str:
    """silu(a)·b as a function of a, for three values of b."""
    english = language == "en"
    a = torch.linspace(-4, 4, 121, dtype=torch.float64)
    curves = []
    for b, colour in ((1.0, "a"), (0.25, "soft"), (-1.0, "b")):
        y = gate(torch.stack([a, torch.full_like(a, b)], dim=1))[:, 0]
        curves.append(Curve(f"b = {b:g}".replace("-", "−"), colour, list(zip(a.tolist(), y.tolist(), strict=True))))
    return curve_chart("A gate" if english else "门", curves, "a", "SiLU(a) · b", 310)


@cache
def _sizes() -> tuple[list[float], list[float]]:
    """Of the guide's model at the example: the mean length of what each part adds, and of the stream after it."""
    model = guide_model()
    network = model.network
    assert network.decoder is not None
    batch = pack([model.tokenizer.encode(EXAMPLE_SENTENCE)])
    written: list[Tensor] = []
    parts = [part for block in network.decoder.blocks for part in (block.attention, block.feedforward)]
    hooks = [part.register_forward_hook(lambda _, __, out: written.append(out)) for part in parts]
    with torch.no_grad():
        written.append(network.embed(batch))
        network(batch)
    for hook in hooks:
        hook.remove()
    streams = torch.stack(written).cumsum(0)
    return [float(x.norm(dim=1).mean()) for x in written], [float(x.norm(dim=1).mean()) for x in streams]


def _draw_stream(language: Language) -> str:
    english = language == "en"
    added, streams = _sizes()
    names = (
        ["embedding", "attention 1", "feed-forward 1", "attention 2", "feed-forward 2"]
        if english
        else ["嵌入", "注意力 1", "前馈 1", "注意力 2", "前馈 2"]
    )
    canvas = Canvas(WIDTH, 292, "What each part adds" if english else "各部分加进去多少")
    canvas.text(160, 30, "adds a vector of length" if english else "加进的向量长度", "soft small", anchor="start")
    canvas.text(WIDTH - 16, 30, "stream after it" if english else "此后流的长度", "soft small", anchor="end")
    scale = 210 / max(*added, *streams)
    for line, (name, length, stream) in enumerate(zip(names, added, streams, strict=True)):
        y = 44 + 48 * line
        canvas.text(152, y + 24, name, anchor="end")
        canvas.rect(160, y + 4, scale * stream, 30, "box")
        canvas.rect(160, y + 9, scale * length, 20, "a", 0.75)
        canvas.text(168 + scale * max(length, stream), y + 25, f"+ {length:.1f}", anchor="start")
        canvas.text(WIDTH - 16, y + 25, f"{stream:.1f}", anchor="end")
    return canvas.svg()


def _draw_norms(language: Language) -> str:
    english = language == "en"
    x = torch.tensor([_EXAMPLE], dtype=torch.float64)
    with torch.no_grad():
        rows = [x, *(make_norm(NormSpec(kind, 0.0), 4).double()(x) for kind in ("layer", "rms"))]
    names = ("x", "LayerNorm", "RMSNorm")
    notes = ("mean 4, deviation 3", "(x − 4) / 3", "x / 5") if english else ("均值 4，标准差 3", "(x − 4) / 3", "x / 5")
    canvas = Canvas(WIDTH, 286, "Two norms of four numbers" if english else "四个数的两种归一化")
    for place, (name, note, row) in enumerate(zip(names, notes, rows, strict=True)):
        left, zero, unit = 24 + 180 * place, (196, 176, 176)[place], (14.0, 56.0, 56.0)[place]
        canvas.text(left + 76, 30, name, "strong")
        canvas.line([(left, zero), (left + 152, zero)], "stroke")
        for column, value in enumerate(row[0].tolist()):
            high = abs(unit * value)
            canvas.rect(left + 4 + 38 * column, zero - high if value > 0 else zero, 30, high, "a", 0.75)
            above = zero - high - 7 if value > 0 else zero + high + 18
            shown = f"{value:.1f}".removesuffix(".0").replace("-", "−")
            canvas.text(left + 19 + 38 * column, above, shown, "small")
        canvas.text(left + 76, 272, note, "soft small")
    return canvas.svg()


def _draw_order(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 424, "Post-norm and pre-norm" if english else "后归一化与前归一化")
    titles = ("post-norm", "pre-norm") if english else ("后归一化", "前归一化")
    words = ("attention", "feed-forward", "norm") if english else ("注意力", "前馈", "归一化")
    for place, title in enumerate(titles):
        middle, stream = 70 + 280 * place, "stroke" if place == 0 else "stroke-a"
        right = middle + 128
        canvas.text(middle + 64, 30, title, "strong")
        canvas.text(middle, 414, "x")
        canvas.line([(middle, 396), (middle, 56)], stream)
        canvas.arrow(middle, 60, middle, 46, stream)
        for part in (0, 1):
            base = 388 - 172 * part
            canvas.line([(middle, base), (right, base), (right, base - 108), (middle + 13, base - 108)])
            if place == 0:
                _box(canvas, right, base - 54, 128, words[part], "a")
                _box(canvas, middle, base - 143, 104, words[2], "b")
            else:
                _box(canvas, right, base - 32, 104, words[2], "b")
                _box(canvas, right, base - 76, 128, words[part], "a")
            canvas.circle(middle, base - 108, 12, "box")
            canvas.text(middle, base - 102, "+")
    return canvas.svg()


def _box(canvas: Canvas, x: float, y: float, width: float, word: str, kind: str) -> None:
    canvas.rect(x - width / 2, y - 17, width, 34, "box")
    canvas.rect(x - width / 2, y - 17, width, 34, kind, 0.25)
    canvas.text(x, y + 6, word)


def _gradient(depth: int, seed: int, *, residual: bool) -> float:
    """The length of the gradient that reaches the input of `depth` untrained layers; its decimal logarithm."""
    torch.manual_seed(seed)
    spec = BlockSpec(AttentionSpec(2, 8, 2), FeedForwardSpec(64), NormSpec(), "pre")
    batch = pack([range(4)])
    x = torch.randn(4, 16, dtype=torch.float64, requires_grad=True)
    y = x
    for _ in range(depth):
        block = Block(spec, 16).double()
        y = block(y, batch, View()) if residual else block.feedforward(block.attention(y, batch, View()))
    y = make_norm(NormSpec(), 16).double()(y)
    (y * torch.randn(4, 16, dtype=torch.float64)).sum().backward()
    assert x.grad is not None
    return math.log10(float(x.grad.norm()))


def _draw_gradients(language: Language) -> str:
    english = language == "en"
    names = {
        False: ("without sums", "没有残差", "b"),
        True: ("with residual sums", "有残差", "a"),
    }
    curves = []
    for residual, (en, zh, colour) in names.items():
        with torch.random.fork_rng(devices=[]):
            points = [
                (float(depth), sum(_gradient(depth, seed, residual=residual) for seed in range(4)) / 4)
                for depth in range(1, 25)
            ]
        curves.append(Curve(en if english else zh, colour, points))
    return curve_chart(
        "The gradient that arrives at the bottom" if english else "到达最底层的梯度",
        curves,
        "layers" if english else "层数",
        "length of the gradient at the input, powers of 10" if english else "输入处梯度的长度（10 的几次方）",
        320,
    )


def _draws(count: int) -> Iterator[list[float]]:
    ones = torch.ones(10, dtype=torch.float64)
    for _ in range(count):
        yield drop(ones, 0.25).tolist()


def _draw_dropout(language: Language) -> str:
    english = language == "en"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        draws = list(_draws(2000))
    mean = [sum(column) / len(draws) for column in zip(*draws, strict=True)]
    canvas = Canvas(WIDTH, 300, "Dropout of ten ones" if english else "对十个 1 做暂退")
    names = ["1st draw", "2nd draw", "3rd draw", "4th draw"] if english else [f"第 {n} 次" for n in range(1, 5)]
    rows = [*zip(names, draws, strict=False), ("mean of 2,000" if english else "2,000 次平均", mean)]
    for line, (name, row) in enumerate(rows):
        y = 22 + 46 * line + 14 * (line == 4)
        canvas.text(124, y + 25, name, "small", anchor="end")
        for column, value in enumerate(row):
            x = 132 + 41.5 * column
            canvas.rect(x, y, 39, 38, "a" if value else "line", min(0.5 * value, 1) if value else 1)
            canvas.text(x + 19.5, y + 25, f"{value:.2f}"[: 4 if value else 1], "small")
    note = "dropped: 0; kept: 1 / (1 − 0.25) = 1.33" if english else "丢掉的变成 0；留下的变成 1 / (1 − 0.25) = 1.33"
    canvas.text(WIDTH / 2, 286, note, "soft small")
    return canvas.svg()


LAYER_PICTURES: dict[str, Drawing] = {
    "layer-neuron": _draw_neuron,
    "layer-activations": _draw_activations,
    "layer-sigmoid": _draw_sigmoid,
    "layer-gate": _draw_gate,
    "layer-gradients": _draw_gradients,
    "layer-stream": _draw_stream,
    "layer-norms": _draw_norms,
    "layer-order": _draw_order,
    "layer-dropout": _draw_dropout,
}
