"""The pictures of the chapter on cost."""

import math
from collections.abc import Sequence

from torch import nn

from weft.charts import Curve
from weft.generate.pages import PageShape, pages_for
from weft.model.attention import Attention
from weft.model.families import design
from weft.model.feedforward import FeedForward
from weft.model.flops import forward_flops, stack_weights
from weft.model.network import Network, count_parameters, outline
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model
from weft.train.plan.scaling import expected_loss

_LEFT = 120


def _stacked(
    title: str,
    bars: Sequence[tuple[str, Sequence[float], str]],
    parts: Sequence[tuple[str, str, float]],
    note: str,
    scale: float,
) -> str:
    """Rows of bars: name, lengths of the parts, and what stands behind them. `parts`: name, colour and opacity."""
    canvas = Canvas(WIDTH, 62 + 44 * len(bars) + 30, title)
    at = 24.0
    for name, colour, opacity in parts:
        canvas.rect(at, 18, 18, 18, colour, opacity)
        canvas.text(at + 25, 33, name, "small", anchor="start")
        at += 48 + sum(15 if ord(letter) > 0x2E7F else 8 for letter in name)
    for line, (name, lengths, total) in enumerate(bars):
        y, x = 56 + 44 * line, float(_LEFT)
        canvas.text(_LEFT - 10, y + 22, name, "small", anchor="end")
        for length, (_, colour, opacity) in zip(lengths, parts, strict=True):
            if length:
                canvas.rect(x, y, max(scale * length - 1, 1), 32, colour, opacity)
            x += scale * length
        canvas.text(x + 8, y + 22, total, "small", anchor="start")
    canvas.text(WIDTH / 2, canvas.height - 12, note, "soft small")
    return canvas.svg()


def _of(network: Network, kind: type[nn.Module]) -> int:
    return sum(count_parameters(part) for part in network.modules() if isinstance(part, kind))


def _draw_parameters(language: Language) -> str:
    english = language == "en"
    networks = {
        "Alice": guide_model().network,
        "GPT-2": outline(design("gpt2")[1]),
        "BERT-base": outline(design("bert", "base")[1]),
        "GPT-3": outline(design("gpt2", "gpt3-175b")[1]),
    }
    bars = []
    for name, network in networks.items():
        whole = count_parameters(network)
        tables, attention, feedforward = (_of(network, kind) for kind in (nn.Embedding, Attention, FeedForward))
        rest = whole - tables - attention - feedforward
        shares = [part / whole for part in (tables, attention, feedforward, rest)]
        unit, power = next((unit, power) for unit, power in (("B", 9), ("M", 6), ("k", 3)) if whole >= 10**power)
        if english:
            total = f"{whole / 10**power:.3g} {unit}"
        else:
            total = f"{whole / 1e8:,.{0 if whole >= 1e10 else 2}f} 亿" if whole >= 1e8 else f"{whole / 1e4:,.0f} 万"
        bars.append((name, shares, total))
    names = ("tables", "attention", "feed-forward", "rest") if english else ("嵌入表", "注意力", "前馈", "其余")
    looks = (("b", 0.85), ("a", 0.9), ("a", 0.5), ("soft", 0.5))
    return _stacked(
        "Where the parameters are" if english else "参数都在哪里",
        bars,
        [(name, *look) for name, look in zip(names, looks, strict=True)],
        "share of all parameters; right: how many in all" if english else "占全部参数的比例；右边是总数",
        340,
    )


def _draw_products(language: Language) -> str:
    """One matrix in one training step: the product forward and the two products backward."""
    english = language == "en"
    canvas = Canvas(WIDTH, 330, "Three products for each matrix" if english else "每个矩阵三次乘法")
    r, c, tokens = 70, 52, 44
    rows = [
        ("forward" if english else "前向", ("Y", tokens, r), ("X", tokens, c), ("Wᵀ", c, r)),
        ("backward: input" if english else "反向：输入", ("dX", tokens, c), ("dY", tokens, r), ("W", r, c)),
        ("backward: weights" if english else "反向：权重", ("dW", r, c), ("dYᵀ", r, tokens), ("X", tokens, c)),
    ]
    for line, (name, *matrices) in enumerate(rows):
        y, x = 60 + 102 * line, 178.0
        canvas.text(24, y + 6, name, "small", anchor="start")
        for place, (letter, height, width) in enumerate(matrices):
            own = letter.startswith("W") or letter == "dW"
            canvas.rect(x, y - height / 2, width, height, "a" if own else "b", 0.45)
            canvas.text(x + width / 2, y + 6, letter, "strong")
            if place < 2:
                canvas.text(x + width + 17, y + 6, "=·"[place], "strong")
            x += width + 34
        canvas.text(WIDTH - 18, y + 6, "2 r c T", "soft", anchor="end")
    return canvas.svg()


def _draw_length(language: Language) -> str:
    english = language == "en"
    network = outline(design("gpt2")[1])
    lengths = [64, *range(1024, 16 * 1024 + 1, 1024)]
    whole = [(n, forward_flops(network, pack([range(n)])) / n / 1e6) for n in lengths]
    matrices = forward_flops(network, pack([[0]] * 2)) / 2 / 1e6
    return curve_chart(
        "FLOPs per token by length" if english else "每词元的运算次数与长度",
        [
            Curve("matrices" if english else "矩阵", "b", [(n, matrices) for n in lengths]),
            Curve("with attention" if english else "加上注意力", "a", whole),
        ],
        "tokens in the sequence" if english else "序列的词元数",
        "million FLOPs per token, GPT-2" if english else "每词元百万次运算，GPT-2",
        300,
    )


def _draw_memory(language: Language) -> str:
    english = language == "en"
    network = outline(design("gpt2")[1])
    N, M = count_parameters(network) / 1e6, stack_weights(network) / 1e6
    rows = [("AdamW", [4 * N, 4 * N, 8 * N]), ("Muon", [4 * N, 4 * N, 8 * N - 4 * M])]
    rows += [("fp32", [4 * N, 0, 0]), ("int8", [N, 0, 0])]
    names = ("weights", "gradients", "state") if english else ("权重", "梯度", "优化器状态")
    looks = (("a", 0.9), ("b", 0.85), ("soft", 0.6))
    words = {"AdamW": "train: AdamW", "Muon": "train: Muon", "fp32": "use: fp32", "int8": "use: int8"}
    if not english:
        words = {"AdamW": "训练 AdamW", "Muon": "训练 Muon", "fp32": "使用 fp32", "int8": "使用 int8"}
    return _stacked(
        "Bytes of GPT-2, in training and in use" if english else "GPT-2 训练和使用时的字节数",
        [(words[name], parts, f"{sum(parts):,.0f} MB") for name, parts in rows],
        [(name, *look) for name, look in zip(names, looks, strict=True)],
        "GPT-2, 124 million weights; without activations and scales"
        if english
        else "GPT-2，1.24 亿个权重；不含激活值和比例",
        0.17,
    )


def _draw_cache(language: Language) -> str:
    english = language == "en"
    counts = (32, 8)
    curves: list[Curve] = []
    for heads, colour in zip(counts, ("b", "a"), strict=True):
        stack = outline(design("llama", "3-8b", key_value_heads=heads)[1]).decoder
        assert stack is not None
        numbers = PageShape.of_tokens(stack).numbers
        points = [(float(n), numbers * pages_for(n) * 2 / 1e9) for n in range(0, 8193, 512)]
        name = f"{heads} key heads" if english else f"{heads} 个键值头"
        curves.append(Curve(name, colour, points))
    return curve_chart(
        "Keys and values of one text" if english else "一篇文本的键和值",
        curves,
        "tokens of the text" if english else "文本的词元数",
        "GB, Llama 3 of 8 billion weights, 16 bits" if english else "GB，80 亿参数的 Llama 3，16 位",
        300,
    )


def _draw_law(language: Language) -> str:
    english = language == "en"
    curves = []
    for budget, colour in ((1e17, "b"), (1e18, "soft"), (1e19, "a")):
        points = []
        for step in range(61):
            M = 10 ** (5.5 + step / 15)
            tokens = budget / (6 * M)
            if (loss := expected_loss(M, tokens, tokens)) < 7:
                points.append((math.log10(M), loss))
        name = "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(round(math.log10(budget))))
        curves.append(Curve(f"C = {name}", colour, points))
    return curve_chart(
        "Expected loss by size for three budgets" if english else "三种预算下损失与大小的关系",
        curves,
        "weights M, as a power of ten" if english else "权重数 M，10 的几次方",
        "expected loss above E" if english else "高出 E 的预期损失",
        320,
    )


def _draw_repeats(language: Language) -> str:
    """What the tokens of so many passes are worth: L solved for fresh tokens that give the same loss."""
    english = language == "en"
    M, unique = 1e9, 1e11
    floor = expected_loss(M, 1e30, 1e30)
    scale = (expected_loss(M, unique, unique) - floor) * unique**0.366

    def fresh(passes: float) -> float:
        return float(((expected_loss(M, passes * unique, unique) - floor) / scale) ** (-1 / 0.366) / unique)

    passes = [1 + step / 2 for step in range(59)]
    return curve_chart(
        "What repeated text is worth" if english else "重复的文本值多少",
        [
            Curve("fresh text" if english else "全是新文本", "b", [(x, x) for x in passes]),
            Curve("the same again" if english else "同样的文本", "a", [(x, fresh(x)) for x in passes]),
        ],
        "passes over the text" if english else "读了几遍",
        "worth as much as so many texts" if english else "相当于多少份新文本",
        300,
    )


COST_PICTURES: dict[str, Drawing] = {
    "cost-parameters": _draw_parameters,
    "cost-length": _draw_length,
    "cost-products": _draw_products,
    "cost-memory": _draw_memory,
    "cost-cache": _draw_cache,
    "cost-law": _draw_law,
    "cost-repeats": _draw_repeats,
}
