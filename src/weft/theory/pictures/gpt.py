"""The pictures of the chapter on GPT."""

import math
from dataclasses import replace

import torch

from weft.charts import Curve
from weft.model.families.gpt2 import Gpt2
from weft.model.keep import Keep
from weft.model.network import count_parameters, create_network, outline
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import EXAMPLE_SENTENCE, example_tokens, guide_model
from weft.train.plan.scaling import ALPHA, BETA, A, B, batch_for, length_for

_SIZES = ("small", "medium", "large", "xl", "gpt3-1.3b", "gpt3-13b", "gpt3-175b")


def _draw_questions(language: Language) -> str:
    """Every token of a sentence is a question with the tokens before it as context."""
    english = language == "en"
    ids, words = example_tokens(EXAMPLE_SENTENCE)
    with torch.no_grad():
        p = torch.from_numpy(guide_model().logits([ids])[0]).double().softmax(-1)
    canvas = Canvas(WIDTH, 64 + 32 * (len(ids) - 1), "One sentence, many questions" if english else "一句话，许多道题")
    names = ("reads", "target", "p") if english else ("读到", "目标", "p")
    for x, name, anchor in zip((300, 326, 430), names, ("end", "start", "start"), strict=True):
        canvas.text(x, 30, name, "soft small", anchor=anchor)
    for t in range(len(ids) - 1):
        y, share = 60 + 32 * t, float(p[t, ids[t + 1]])
        before = " ".join(words[: t + 1])
        canvas.text(300, y, before if len(before) < 30 else "… " + before[-28:], "soft", anchor="end")
        canvas.text(326, y, words[t + 1], "strong", anchor="start")
        canvas.rect(430, y - 16, max(70 * share, 1), 22, "a", 0.75)
        canvas.text(438 + 70 * share, y, f"{share:.2f}", "small", anchor="start")
    return canvas.svg()


def _draw_lens(language: Language) -> str:
    """The probability of the right next token, if the head reads the stream after each layer."""
    english = language == "en"
    ids, words = example_tokens(EXAMPLE_SENTENCE)
    network, batch = guide_model().network, pack([ids])
    assert network.decoder is not None and network.decoder.norm is not None
    canvas = Canvas(WIDTH, 66 + 30 * (len(ids) - 1), "What each layer adds" if english else "每一层添了什么")
    names = ("x⁰", "x¹", "x²")
    with torch.no_grad():
        _, kept = network(batch, keep=Keep(hidden=(0, 1)))
        streams = [kept.hidden[0], kept.hidden[1]]
        shares = [network.head("causal")(network.decoder.norm(x), batch).softmax(-1) for x in streams]
        shares.append(network.head("causal")(network(batch), batch).softmax(-1))
    canvas.text(124, 30, "reads" if english else "读到", "soft small", anchor="end")
    canvas.text(248, 30, "target" if english else "目标", "soft small", anchor="end")
    for column, name in enumerate(names):
        canvas.text(308 + 94 * column, 30, name)
    for t in range(len(ids) - 1):
        y = 44 + 30 * t
        canvas.text(124, y + 20, words[t], "soft", anchor="end")
        canvas.text(248, y + 20, words[t + 1], "strong", anchor="end")
        for column, p in enumerate(shares):
            share = float(p[t, ids[t + 1]])
            canvas.rect(264 + 94 * column, y, 88, 27, "a", 0.05 + 0.75 * share**0.5)
            canvas.text(308 + 94 * column, y + 19, f"{share:.3f}", "small")
    return canvas.svg()


def _draw_first_weights(language: Language) -> str:
    """How large the stream grows through 48 fresh layers, with and without the smaller deviation."""
    english, layers = language == "en", 48
    batch = pack([range(16)])
    curves = []
    for scaled in (False, True):
        design = Gpt2(vocabulary=64, layers=layers, width=64, heads=4, positions=16, init_std=0.1).architecture()
        network = create_network(replace(design, init=replace(design.init, depth_scaled=scaled))).double().eval()
        with torch.no_grad():
            _, kept = network(batch, keep=Keep(hidden=tuple(range(layers))))
        curves.append([(float(layer), float(kept.hidden[layer].std())) for layer in range(layers)])
    names = ("all alike", "smaller: 1/√(2L)") if english else ("都一样", "缩小 1/√(2L)")
    return curve_chart(
        "The residual stream in fresh weights" if english else "初始权重下的残差流",
        [Curve(name, colour, points) for name, colour, points in zip(names, "ba", curves, strict=True)],
        "layer" if english else "层",
        "standard deviation of the stream" if english else "残差流的标准差",
        290,
    )


def _draw_sizes(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 62 + 38 * len(_SIZES), "Sizes of GPT-2 and GPT-3" if english else "GPT-2 与 GPT-3 的尺寸")
    names = ("L", "d", "H × D", "parameters") if english else ("L", "d", "H × D", "参数")
    for x, name in zip((152, 210, 284, 400), names, strict=True):
        canvas.text(x, 30, name, "soft small")
    for line, name in enumerate(_SIZES):
        y, family = 46 + 38 * line, Gpt2(**Gpt2.sizes[name])
        count = count_parameters(outline(family.architecture()))
        canvas.text(122, y + 22, name.replace("gpt3-", "GPT-3 "), anchor="end")
        canvas.text(152, y + 22, str(family.layers))
        canvas.text(210, y + 22, f"{family.width:,}")
        canvas.text(284, y + 22, f"{family.heads} × {family.width // family.heads}", "small")
        width = 34 * (math.log10(count) - 7.5)
        canvas.rect(336, y, width, 30, "a", 0.7)
        text = f"{count / 1e9:,.1f} B" if count > 1e9 else f"{count / 1e6:,.0f} M"
        canvas.text(344 + width, y + 22, text, anchor="start")
    return canvas.svg()


def _draw_batch(language: Language) -> str:
    english = language == "en"
    powers = [14 + 0.1 * step for step in range(61)]
    length = [(power, math.log2(length_for(10**power))) for power in powers]
    batch = [(power, math.log2(batch_for(10**power, length_for(10**power)))) for power in powers]
    return curve_chart(
        "Batch and length by the rules" if english else "按规则得到的批次与长度",
        [
            Curve("batch" if english else "批次", "a", batch),
            Curve("sequence length" if english else "序列长度", "b", length),
        ],
        "log₁₀ C (FLOPs of the run)" if english else "log₁₀ C（整次训练的 FLOP 数）",
        "log₂ of the number of tokens" if english else "词元数的 log₂",
        300,
    )


def _draw_search(language: Language) -> str:
    """Expected loss by size for three budgets, by the law that the search uses."""
    english = language == "en"
    curves = []
    for power, colour in ((15, "soft"), (16, "b"), (17, "a")):
        sizes = [5 + 0.05 * step for step in range(61)]
        points = [(x, A / 10 ** (x * ALPHA) + B / (10**power / (6 * 10**x)) ** BETA) for x in sizes]
        curves.append(Curve(f"10{_raised(power)}", colour, [point for point in points if point[1] < 12]))
    return curve_chart(
        "Expected loss by size" if english else "不同尺寸的预期损失",
        curves,
        "log₁₀ N (weights)" if english else "log₁₀ N（权重数）",
        "expected loss above E, for three budgets in FLOPs"
        if english
        else "三种预算（FLOP 数）下，预期损失超出 E 的部分",
        310,
    )


def _raised(number: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


def _draw_choose(language: Language) -> str:
    english = language == "en"
    found = guide_model().choose(
        "'Of course,' said the", [" Mock Turtle", " Hatter", " Queen", " Dormouse", " teapot"], details=True
    )
    note = "“'Of course,' said the …”"
    title = "Options after a prompt" if english else "提示之后的选项"
    return bar_chart(title, [one.option.strip() for one in found], [one.probability for one in found], note=note)


GPT_PICTURES: dict[str, Drawing] = {
    "gpt-questions": _draw_questions,
    "gpt-lens": _draw_lens,
    "gpt-first-weights": _draw_first_weights,
    "gpt-sizes": _draw_sizes,
    "gpt-batch": _draw_batch,
    "gpt-search": _draw_search,
    "gpt-choose": _draw_choose,
}
