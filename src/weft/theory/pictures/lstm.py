"""The pictures of the chapter on the LSTM."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from weft.charts import Curve
from weft.generate.recurrent_rows import RecurrentRows
from weft.model.families import design
from weft.model.flops import stack_weights
from weft.model.initialize import draw_normal, draw_uniform
from weft.model.network import create_network, outline
from weft.model.packed import pack
from weft.model.recurrent import Recurrent, RecurrentPast, RecurrentSpec
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language

_TEXT = "f(g(x),h(y))"
_LENGTHS = (3, 5, 2, 4)


def _draw_cell(language: Language) -> str:
    """The way of memory and output through one step."""
    english = language == "en"
    canvas = Canvas(WIDTH, 336, "One step of an LSTM" if english else "LSTM 的一步")
    names = ("forget", "write", "what", "show") if english else ("忘", "写", "写什么", "说")
    canvas.arrow(60, 66, 500, 66, "stroke-a")
    canvas.text(34, 72, "c₋", "strong")
    canvas.text(524, 72, "c", "strong")
    canvas.text(90, 50, "memory" if english else "记忆", "soft small")
    columns = (("σ(f)", 140), ("σ(i)", 240), ("tanh(g)", 330), ("σ(o)", 430))
    for name, (label, x) in zip(names, columns, strict=True):
        canvas.rect(x - 42, 182, 84, 38, "box")
        canvas.text(x, 206, label)
        canvas.text(x, 240, name, "soft small")
        canvas.arrow(x, 272, x, 248)
    canvas.arrow(140, 182, 140, 80)
    canvas.line([(240, 182), (240, 130), (273, 130)])
    canvas.line([(330, 182), (330, 130), (297, 130)])
    canvas.arrow(285, 118, 285, 80)
    canvas.line([(380, 66), (380, 126), (418, 126)], "stroke-a")
    canvas.arrow(430, 182, 430, 140)
    canvas.arrow(442, 126, 506, 126, "stroke-b")
    canvas.text(524, 132, "h", "strong")
    canvas.text(396, 148, "tanh", "soft small")
    for x, y, sign in ((140, 66, "×"), (285, 66, "+"), (285, 130, "×"), (430, 126, "×")):
        canvas.circle(x, y, 12, "box")
        canvas.text(x, y + 6, sign)
    canvas.rect(92, 272, 386, 36, "a", 0.2)
    canvas.text(285, 296, "W x + U h₋ + b")
    canvas.text(34, 284, "x", "strong")
    canvas.text(34, 312, "h₋", "strong")
    canvas.arrow(50, 280, 90, 284)
    canvas.arrow(50, 306, 90, 298)
    return canvas.svg()


def _counter() -> Recurrent:
    """A cell of width 1 that counts: its gates are open, and g is the sign of the input."""
    layer = Recurrent(RecurrentSpec(1), 1).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
        layer.get_parameter("lstm.weight_ih_l0")[2] = 10
        layer.get_parameter("lstm.bias_ih_l0")[:] = torch.tensor([10, 10, 0, 10])
    return layer


def _draw_brackets(language: Language) -> str:
    layer, past = _counter(), RecurrentPast()
    english = language == "en"
    canvas = Canvas(WIDTH, 292, "Memory and output, letter by letter" if english else "逐个字符的记忆与输出")
    left, step, ground, unit = 60, 40, 210, 70
    for count in range(3):
        y = ground - unit * count
        canvas.line([(left - 12, y), (WIDTH - 16, y)], "line")
        canvas.text(left - 22, y + 5, str(count), "soft small", anchor="end")
    for place, letter in enumerate(_TEXT):
        with torch.no_grad():
            h = float(layer(torch.tensor([[{"(": 1.0, ")": -1.0}.get(letter, 0.0)]]).double(), pack([[0]]), past))
        assert past.state is not None
        c, x = float(past.state[1]), left + step * place
        canvas.rect(x, ground - unit * max(c, 0), 14, max(unit * c, 1), "a", 0.75)
        canvas.rect(x + 15, ground - unit * max(h, 0), 14, max(unit * h, 1), "b", 0.75)
        canvas.text(x + 15, ground + 26, letter, "strong")
    for x, kind, name in (
        (60, "a", "memory c" if english else "记忆 c"),
        (210, "b", "output h" if english else "输出 h"),
    ):
        canvas.rect(x, 20, 14, 14, kind, 0.75)
        canvas.text(x + 22, 33, name, anchor="start")
    note = "letters of the text, from left to right" if english else "文本的字符，从左到右"
    canvas.text(WIDTH / 2, 276, note, "soft small")
    return canvas.svg()


def _slopes(layer: torch.nn.Module, texts: Tensor) -> list[float]:
    """How much the last output changes with each earlier input; that of the last input is 1. Latest first."""
    count, length, _ = texts.shape
    texts = texts.clone().requires_grad_()
    if isinstance(layer, Recurrent):
        hidden = layer(texts.flatten(0, 1), pack([range(length)] * count)).unflatten(0, (count, length))
    else:
        hidden, _ = layer(texts)
    sizes = torch.zeros(length, dtype=torch.float64)
    for unit in hidden[:, -1].sum(0):  # texts do not depend on each other
        (slope,) = torch.autograd.grad(unit, texts, retain_graph=True)
        sizes += slope.pow(2).sum((0, 2))
    sizes = sizes.sqrt().flip(0)
    return (sizes / sizes[0]).tolist()


def _draw_memory(language: Language) -> str:
    """A plain recurrent layer, a fresh LSTM, and one whose forget gates are nearly open."""
    width, length = 16, 61
    texts = draw_normal(0, "texts", torch.Size([16, length, width])).double()
    layers: dict[str, torch.nn.Module] = {
        "plain": torch.nn.RNN(width, width, batch_first=True).double(),
        "fresh": Recurrent(RecurrentSpec(1), width).double(),
        "open": Recurrent(RecurrentSpec(1), width).double(),
    }
    slopes = {}
    for name, layer in layers.items():
        with torch.no_grad():
            for place, weight in enumerate(layer.parameters()):
                weight.copy_((draw_uniform(0, str(place), weight.shape) * 2 - 1) * width**-0.5)
            if name == "open":
                layer.get_parameter("lstm.bias_ih_l0")[width : 2 * width] += 3
        slopes[name] = [(float(back), size) for back, size in enumerate(_slopes(layer, texts))]
    english = language == "en"
    return curve_chart(
        "How far back the past is felt" if english else "过去的影响能传多远",
        [
            Curve("tanh(Wx + Uh)", "soft", slopes["plain"]),
            Curve("LSTM", "b", slopes["fresh"]),
            Curve("LSTM, f + 3", "a", slopes["open"]),
        ],
        "tokens back" if english else "往回数多少个词元",
        "effect on the last output, last token = 1" if english else "对最后输出的影响，最后一个词元为 1",
        320,
    )


def _draw_rows(language: Language) -> str:
    """In which order the tokens of four texts are read."""
    layer, read = Recurrent(RecurrentSpec(1), 1).double(), list[PackedSequence]()
    layer.lstm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    batch = pack([range(length) for length in _LENGTHS])
    with torch.no_grad():
        layer(torch.arange(len(batch.tokens)).double()[:, None], batch)
    order = {int(token): number for number, token in enumerate(read[0].data.flatten().tolist())}
    english = language == "en"
    canvas = Canvas(WIDTH, 300, "The order of reading" if english else "读的次序")
    left, top, cell, high = 150, 48, 74, 44
    for s, (start, length) in enumerate(zip(batch.first.tolist(), _LENGTHS, strict=True)):
        name = f"text {s}" if english else f"文本 {s}"
        canvas.text(left - 18, top + high * s + 26, name, anchor="end")
        for t in range(length):
            canvas.rect(left + cell * t, top + high * s, cell - 6, high - 8, "a", 0.12 + 0.13 * t)
            canvas.text(left + cell * t + cell / 2 - 3, top + high * s + 25, str(order[start + t]))
    for t, count in enumerate(read[0].batch_sizes.tolist()):
        x = left + cell * t + cell / 2 - 3
        canvas.text(x, 34, f"t = {t}", "soft small")
        canvas.text(x, top + high * len(_LENGTHS) + 22, str(count), "strong")
    canvas.text(left - 18, top + high * len(_LENGTHS) + 22, "bₜ", "strong", anchor="end")
    note = "number: when the token is read" if english else "数字：这个词元第几个被读"
    canvas.text(WIDTH / 2, 284, note, "soft small")
    return canvas.svg()


def _draw_start(language: Language) -> str:
    """The spread of the gates of fresh weights, by width."""
    ruled, fixed = [], []
    for width in (8, 16, 32, 64, 128, 192, 256):
        network = create_network(design("lstm", vocabulary=4, layers=1, width=width)[1])
        x, h = draw_normal(0, "x and h", torch.Size([2, 50, width])).double()
        W, U = (network.get_parameter(f"recurrent.lstm.weight_{kind}_l0").detach().double() for kind in ("ih", "hh"))
        spread = float((x @ W.T + h @ U.T).std())
        ruled.append((float(width), spread))
        fixed.append((float(width), spread * 0.1 * width**0.5))
    english = language == "en"
    return curve_chart(
        "Gates before training" if english else "训练前的门",
        [
            Curve("±0.1", "b", fixed),
            Curve("±1 / √d", "a", ruled),
        ],
        "width d" if english else "宽度 d",
        "standard deviation of W x + U h" if english else "W x + U h 的标准差",
        300,
    )


def _draw_size(language: Language) -> str:
    english = language == "en"
    sizes = {
        f"{name}, 2 × 256": stack_weights(outline(design(family, vocabulary=1000, layers=2, width=256, heads=4)[1]))
        for name, family in (("LSTM", "lstm"), ("GPT-2", "gpt2"))
    }
    return bar_chart(
        "Weights in the layers" if english else "各层的权重",
        list(sizes),
        [size / 1000 for size in sizes.values()],
        digits=0,
        note="thousands of weights in matrices, without the vocabulary"
        if english
        else "矩阵中的权重，单位：千，不含词表",
    )


def _draw_cost(language: Language) -> str:
    """What one text keeps in memory while it is written."""
    settings: dict[str, Any] = {"vocabulary": 4, "layers": 2, "width": 256, "heads": 4}
    state = RecurrentRows(create_network(design("lstm", **settings)[1])).state[:, :, 0].numel()
    decoder = design("gpt2", **settings)[1].decoder
    assert decoder is not None
    each = sum(2 * block.attention.key_value_heads * block.attention.head_width for block in decoder.blocks)
    english = language == "en"
    return curve_chart(
        "What is kept while writing" if english else "生成时要留住多少",
        [
            Curve("GPT-2, 2 × 256", "b", [(0.0, 0.0), (500.0, each * 500 / 1000)]),
            Curve("LSTM, 2 × 256", "a", [(0.0, state / 1000), (500.0, state / 1000)]),
        ],
        "tokens read" if english else "读过多少词元",
        "thousands of numbers" if english else "多少个数，单位：千",
        300,
    )


LSTM_PICTURES: dict[str, Drawing] = {
    "lstm-cell": _draw_cell,
    "lstm-brackets": _draw_brackets,
    "lstm-memory": _draw_memory,
    "lstm-rows": _draw_rows,
    "lstm-start": _draw_start,
    "lstm-size": _draw_size,
    "lstm-cost": _draw_cost,
}
