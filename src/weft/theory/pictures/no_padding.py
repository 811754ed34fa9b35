"""The pictures of the chapter on batches without padding."""

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from weft.model.attention import View, attend_with_maps
from weft.model.families.bert import Bert
from weft.model.flops import forward_flops
from weft.model.heads import mean_of_each
from weft.model.network import outline
from weft.model.packed import order_by_length, pack
from weft.theory.drawing import WIDTH, Canvas, bar_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model, guide_text

_TEXTS = (("good", "day"), ("the", "cat", "sat", "on", "it"), ("yes",), ("come", "back", "now"))
_LENGTHS = [len(text) for text in _TEXTS]
_LONGEST = 64  # what the guide's model reads at once
_SENTENCE = re.compile(r"[^.!?]+[.!?]+'?")


def _colour(sequence: int) -> str:
    return "ab"[sequence % 2]


def _draw_batch(language: Language) -> str:
    """Four texts as a padded rectangle, and as one row."""
    batch = pack([range(length) for length in _LENGTHS])
    english = language == "en"
    canvas = Canvas(WIDTH, 396, "The same batch with and without padding" if english else "同一批次：有填充与无填充")
    cell, high, left = 47, 32, 22
    spaces = len(_TEXTS) * batch.longest
    title = f"padded: {spaces} places" if english else f"有填充：{spaces} 个位置"
    canvas.text(left, 28, title, anchor="start")
    for number, text in enumerate(_TEXTS):
        for place in range(batch.longest):
            x, y = left + cell * place, 40 + (high + 6) * number
            if place < len(text):
                canvas.rect(x, y, cell - 4, high, _colour(number), 0.3)
                canvas.text(x + cell / 2 - 2, y + 21, text[place], "small")
            else:
                canvas.rect(x, y, cell - 4, high, "box")
                canvas.line([(x + 8, y + high - 6), (x + cell - 12, y + 6)], "line")
    title = f"flat: {len(batch.tokens)} places" if english else f"平铺：{len(batch.tokens)} 个位置"
    canvas.text(left, 234, title, anchor="start")
    words = [word for text in _TEXTS for word in text]
    for place, (word, owner) in enumerate(zip(words, batch.owner.tolist(), strict=True)):
        canvas.rect(left + cell * place, 246, cell - 4, high, _colour(owner), 0.3)
        canvas.text(left + cell * place + cell / 2 - 2, 267, word, "small")
        canvas.text(left + cell * place + cell / 2 - 2, 298, str(int(batch.positions[place])), "soft small")
    canvas.text(left, 322, "↑ position in its own text" if english else "↑ 在自己那段里的位置", "soft small", "start")
    for start in batch.starts.tolist():
        x = left + cell * start - 2
        canvas.line([(x, 242), (x, 340)], "stroke dashed")
        canvas.text(x, 358, str(start), "small")
    canvas.text(left, 382, "↑ starts" if english else "↑ 各段的起点 starts", "soft small", "start")
    return canvas.svg()


def _draw_blocks(language: Language) -> str:
    """The scores that attention needs: of the flat batch, and of the padded one."""
    batch = pack([range(length) for length in _LENGTHS])
    total, longest = len(batch.tokens), batch.longest
    q, k = torch.randn(2, total, 1, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, weights, _ = attend_with_maps(q, k, k, batch, batch, View(), scaled=True, dropout=0.0)
    english = language == "en"
    canvas = Canvas(WIDTH, 330, "Scores of a flat and of a padded batch" if english else "平铺批次与填充批次的得分")
    computed, size, left, top = sum(one[0].numel() for one in weights), 22, 20, 48
    title = f"flat: {computed} scores" if english else f"平铺：{computed} 个得分"
    canvas.text(left + size * total / 2, 30, title)
    for i in range(total):
        for j in range(total):
            canvas.rect(left + size * j, top + size * i, size - 2, size - 2, "box", 0.5)
    for number, (start, of_one) in enumerate(zip(batch.first.tolist(), weights, strict=True)):
        for i, row in enumerate(of_one[0].tolist()):
            for j, weight in enumerate(row):
                x, y = left + size * (start + j), top + size * (start + i)
                canvas.rect(x, y, size - 2, size - 2, _colour(number), 0.3 + 0.6 * weight)
    title = f"padded: {len(weights) * longest**2} scores" if english else f"有填充：{len(weights) * longest**2} 个得分"
    canvas.text(422, 30, title)
    for number, (length, of_one) in enumerate(zip(_LENGTHS, weights, strict=True)):
        x, y = 300 + 130 * (number % 2), top + 130 * (number // 2)
        for i in range(longest):
            for j in range(longest):
                at = x + size * j, y + size * i, size - 2, size - 2
                if i < length and j < length:
                    canvas.rect(*at, _colour(number), 0.3 + 0.6 * float(of_one[0][i, j]))
                else:
                    canvas.rect(*at, "box")
    note = "coloured: what is needed" if english else "有颜色的才是要用的"
    canvas.text(WIDTH / 2, 316, note, "soft small")
    return canvas.svg()


def _draw_mean(language: Language) -> str:
    """How long the mean hidden state is, divided by the own length and by the longest one."""
    model, (_, unseen) = guide_model(), guide_text()
    ids = model.tokenizer.encode(unseen[:2000])
    lengths = (4, 8, 16, 32)
    sequences = [ids[100 : 100 + length] for length in lengths]
    rows = np.concatenate(model.hidden(sequences))
    batch = pack(sequences)
    means = mean_of_each(torch.from_numpy(rows), batch)
    wrong = means * batch.starts.diff()[:, None] / batch.longest
    english = language == "en"
    canvas = Canvas(
        WIDTH, 296, "The mean, and a mean that counts padding" if english else "平均，与把填充也算进去的平均"
    )
    names = ("÷ own length", "÷ longest") if english else ("除以自己的长度", "除以最长的长度")
    for at, (name, kind) in enumerate(zip(names, "ab", strict=True)):
        canvas.rect(110 + 190 * at, 16, 18, 18, kind, 0.75)
        canvas.text(136 + 190 * at, 31, name, anchor="start")
    scale = 330 / float(means.norm(dim=1).max())
    for line, length in enumerate(lengths):
        y = 52 + 52 * line
        canvas.text(100, y + 26, f"{length} tokens" if english else f"{length} 个词元", anchor="end")
        for below, (value, kind) in enumerate(zip((means[line], wrong[line]), "ab", strict=True)):
            size = float(value.norm())
            canvas.rect(110, y + 21 * below, scale * size, 17, kind, 0.75)
            canvas.text(118 + scale * size, y + 14 + 21 * below, f"{size:.2f}", "soft small", "start")
    note = "length of the mean vector" if english else "平均向量的长度"
    canvas.text(WIDTH / 2, 280, note, "soft small")
    return canvas.svg()


@cache
def sentence_lengths() -> list[int]:
    """Tokens of each sentence of the book, cut at what the model reads at once."""
    known, _ = guide_text()
    ids = guide_model().tokenizer.encode_many([one.strip() for one in _SENTENCE.findall(known)])
    return [min(len(one), _LONGEST) for one in ids if len(one)]


def padded_flops(lengths: Sequence[int], size: int) -> float:
    """Of a forward pass in batches of `size` sequences, each padded to its longest one."""
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    return sum(forward_flops(guide_model().network, pack([range(max(one))] * len(one))) for one in batches)


def _draw_share(language: Language) -> str:
    lengths = sentence_lengths()
    ordered = [lengths[place] for place in order_by_length([range(length) for length in lengths])]
    flat = forward_flops(guide_model().network, pack([range(length) for length in lengths]))
    costs = [
        padded_flops([_LONGEST] * len(lengths), 32),
        padded_flops(lengths, 32),
        padded_flops(ordered, 32),
        flat,
    ]
    english = language == "en"
    names = (
        (f"padded to {_LONGEST}", "to the batch's longest", "sorted, then padded", "no padding")
        if english
        else (f"补到 {_LONGEST}", "补到批次中最长", "先排序再填充", "无填充")
    )
    title = "FLOPs of one pass over the sentences of a book" if english else "把一本书的句子过一遍的运算量"
    note = "FLOPs, without padding = 1; batches of 32" if english else "运算量，无填充为 1；每批 32 句"
    return bar_chart(title, names, [cost / flat for cost in costs], digits=2, note=note)


def _draw_scored(language: Language) -> str:
    """What a BERT-mini computes per token, if the vocabulary layer reads all rows or only the scored ones."""
    network, batch = outline(Bert(**Bert.sizes["mini"]).architecture("masked")), pack([range(100)])
    layers = forward_flops(network, batch, scored=0) / 100
    english = language == "en"
    title = "The vocabulary layer's share of a small BERT" if english else "词表层在小型 BERT 中的份额"
    canvas = Canvas(WIDTH, 210, title)
    names = ("every row", "scored rows: 15 %") if english else ("所有行", "只算要打分的 15 %")
    whole = forward_flops(network, batch) / 100
    scale = (WIDTH - 120) / whole
    for line, (name, scored) in enumerate(zip(names, (100, 15), strict=True)):
        y, cost = 44 + 66 * line, forward_flops(network, batch, scored=scored) / 100
        canvas.text(24, y - 10, name, anchor="start")
        canvas.rect(24, y, scale * layers, 30, "a", 0.75)
        canvas.rect(26 + scale * layers, y, scale * (cost - layers), 30, "b", 0.75)
        canvas.text(34 + scale * cost, y + 21, f"{cost / 1e6:.1f} M", "soft", "start")
    for at, (name, kind) in enumerate(
        zip(("layers", "vocabulary") if english else ("各层", "词表层"), "ab", strict=True)
    ):
        canvas.rect(24 + 130 * at, 172, 18, 18, kind, 0.75)
        canvas.text(50 + 130 * at, 187, name, "small", "start")
    canvas.text(WIDTH - 20, 187, "FLOPs per token" if english else "每个词元的运算量", "soft small", "end")
    return canvas.svg()


NO_PADDING_PICTURES: dict[str, Drawing] = {
    "padding-batch": _draw_batch,
    "padding-blocks": _draw_blocks,
    "padding-mean": _draw_mean,
    "padding-share": _draw_share,
    "padding-scored": _draw_scored,
}
