"""The pictures of the chapter on attention."""

import torch

from weft.charts import Curve
from weft.model.attention import View, attend_with_maps, visibility_mask
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, curve_chart, heatmap
from weft.theory.entry import Drawing, Language
from weft.theory.models import EXAMPLE_SENTENCE, example_tokens, guide_model

_WORDS = ("the", "cat", "sat")


_Q = [[0, 1, 1, 0], [1, 1, 0, 1], [2, 0, 1, 1]]


_K = [[0, 1, 0, 0], [2, 0, 1, 1], [1, 0, 0, 2]]


_V = [[1, 0], [0, 1], [1, 1]]


def _draw_steps(language: Language) -> str:
    """Scores, weights and output of the last of three words, computed by weft."""
    q, k, v = (torch.tensor(rows, dtype=torch.float64)[:, None] for rows in (_Q, _K, _V))
    batch = pack([[0, 1, 2]])
    out, weights, scores = attend_with_maps(q, k, v, batch, batch, View(), scaled=True, dropout=0.0)
    english = language == "en"
    canvas = Canvas(WIDTH, 300, "One query: scores, weights, output" if english else "一个查询：得分、权重、输出")
    title = ("query", "q = (2, 0, 1, 1)") if english else ("查询", "q = (2, 0, 1, 1)")
    canvas.rect(20, 112, 130, 66, "box")
    canvas.text(85, 138, "sat", "strong")
    canvas.text(85, 162, title[1], "soft small")
    canvas.text(85, 100, title[0], "soft small")
    headings = ("key", "score q·k/√4", "weight", "value") if english else ("键", "得分 q·k/√4", "权重", "值")
    for x, heading in zip((210, 304, 400, 516), headings, strict=True):
        canvas.text(x, 30, heading, "soft small")
    for place, word in enumerate(_WORDS):
        y = 76 + 68 * place
        weight = float(weights[0][0, 2, place])
        canvas.line([(150, 145), (176, y)], "stroke-a", 0.15 + 0.85 * weight)
        canvas.rect(176, y - 26, 70, 52, "box")
        canvas.text(211, y - 3, word, "strong")
        canvas.text(211, y + 17, "".join(map(str, _K[place])), "soft small")
        canvas.text(305, y + 5, f"{float(scores[0][0, 2, place]):.0f}")
        canvas.rect(366, y - 18, 62 * weight, 30, "a", 0.75)
        canvas.text(374 + 62 * weight, y + 4, f"{weight:.3f}", anchor="start")
        canvas.text(516, y + 5, f"({_V[place][0]}, {_V[place][1]})")
    z = out[2, 0].tolist()
    canvas.text(WIDTH - 20, 282, f"z = ({z[0]:.3f}, {z[1]:.3f})", "strong", anchor="end")
    return canvas.svg()


def _draw_map(language: Language) -> str:
    ids, words = example_tokens(EXAMPLE_SENTENCE)
    (layers,) = guide_model().attentions([ids])
    note = (
        "row: the token that looks; column: what it looks at"
        if language == "en"
        else "行：发出查询的词元；列：被看的词元"
    )
    title = "Weights of one head" if language == "en" else "一个头的注意力权重"
    return heatmap(title, layers[0][1].tolist(), words, words, note=note, hidden_above=True)


def _draw_heads(language: Language) -> str:
    """The eight heads of the model, small."""
    ids, _ = example_tokens(EXAMPLE_SENTENCE)
    (layers,) = guide_model().attentions([ids])
    english = language == "en"
    canvas = Canvas(WIDTH, 336, "The maps of all eight heads" if english else "全部八个头的注意力图")
    size = 120 / len(ids)
    for number, weights in enumerate(layers):
        for head, rows in enumerate(weights):
            left, top = 16 + 134 * head, 34 + 152 * number
            name = f"layer {number + 1}, head {head + 1}" if english else f"第 {number + 1} 层第 {head + 1} 头"
            canvas.text(left + 60, top - 10, name, "soft small")
            for i, row in enumerate(rows):
                for j, weight in enumerate(row[: i + 1]):
                    canvas.rect(left + size * j, top + size * i, size - 1, size - 1, "a", 0.06 + 0.9 * float(weight))
    return canvas.svg()


def _draw_scale(language: Language) -> str:
    """The largest of 16 weights, for random queries and keys."""
    curves: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    generator = torch.Generator().manual_seed(0)
    batch = pack([range(16)] * 16)
    for width in (1, 2, 4, 8, 16, 32, 64, 96, 128):
        q, k = torch.randn(2, 256, 1, width, generator=generator, dtype=torch.float64)
        for scaled in curves:
            _, weights, _ = attend_with_maps(q, k, k, batch, batch, View(), scaled=scaled, dropout=0.0)
            curves[scaled].append((width, float(torch.stack(weights).amax(-1).mean())))
    english = language == "en"
    return curve_chart(
        "Largest weight with and without the scale" if english else "有无缩放时最大的权重",
        [
            Curve("q·k" if english else "不除", "b", curves[False]),
            Curve("q·k / √D" if english else "除以 √D", "a", curves[True]),
        ],
        "head width D" if english else "头的宽度 D",
        "mean of the largest of 16 weights" if english else "16 个权重中最大者的平均值",
        300,
    )


def _draw_cosine(language: Language) -> str:
    """The same scores of one query as cosines, and divided by √D."""
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(1, 64, generator=generator), torch.randn(8, 64, generator=generator)
    k[2] = 0.6 * q[0] + 0.5 * k[2]
    batch = pack([[0] * 8])
    shares = []
    for scale in (8.0 / (q.norm() * k.norm(dim=1, keepdim=True)), torch.ones(8, 1)):
        keys = (k * scale)[:, None].double()
        _, weights, _ = attend_with_maps(
            q.repeat(8, 1)[:, None].double(), keys, keys, batch, batch, View(), scaled=True, dropout=0.0
        )
        shares.append(weights[0][0, 0].tolist())
    english = language == "en"
    canvas = Canvas(WIDTH, 250, "Weights from cosines and from scaled products" if english else "余弦与缩放点积的权重")
    names = ("cosine q·k / (‖q‖‖k‖)", "q·k / √D") if english else ("余弦 q·k / (‖q‖‖k‖)", "q·k / √D")
    for place, (name, values) in enumerate(zip(names, shares, strict=True)):
        left = 24 + 272 * place
        canvas.text(left + 120, 28, name)
        for key, value in enumerate(values):
            canvas.rect(left + 31 * key, 206 - 165 * value, 25, max(165 * value, 1), "a", 0.75)
            canvas.text(left + 31 * key + 12, 226, f"k{key + 1}", "soft small")
            canvas.text(left + 31 * key + 12, 200 - 165 * value, f"{value:.2f}".lstrip("0"), "small")
    return canvas.svg()


def _draw_masks(language: Language) -> str:
    english = language == "en"
    names = ("all", "causal", "causal, window 2") if english else ("全部可见", "因果", "因果，窗口 2")
    kinds: list[tuple[bool, int | None]] = [(False, None), (True, None), (True, 2)]
    canvas = Canvas(WIDTH, 226, "Which keys a query sees" if english else "一个查询能看到哪些键")
    for place, (name, (causal, window)) in enumerate(zip(names, kinds, strict=True)):
        left = 22 + 180 * place
        canvas.text(left + 78, 28, name)
        for i, row in enumerate(visibility_mask(6, window, causal=causal).tolist()):
            for j, seen in enumerate(row):
                canvas.rect(left + 26 * j, 42 + 26 * i, 24, 24, "a" if seen else "line", 0.7 if seen else 1)
    note = "rows: queries, columns: keys" if english else "行：查询，列：键"
    canvas.text(WIDTH / 2, 216, note, "soft small")
    return canvas.svg()


ATTENTION_PICTURES: dict[str, Drawing] = {
    "attention-steps": _draw_steps,
    "attention-scale": _draw_scale,
    "attention-map": _draw_map,
    "attention-masks": _draw_masks,
    "attention-cosine": _draw_cosine,
    "attention-heads": _draw_heads,
}
