"""The pictures of the chapter on BERT."""

import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from weft.api.model import create
from weft.charts import Curve
from weft.model.families.bert import Bert
from weft.model.network import Network, count_parameters, outline
from weft.model.packed import pack
from weft.objectives.masked import Masked
from weft.objectives.masking import MaskSpec, Vocabulary, cover_round, mask_tokens
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.train.pending_checkpoint import list_checkpoints, remove_older

_TEXT = "[CLS] the cat sat on the mat and the dog sat by the door of the old house [SEP]".split()
_WORDS = "[MASK] [CLS] [SEP] she he Tom reads eats drives sings the book apple car song".split()
_THINGS = (("reads", "book"), ("eats", "apple"), ("drives", "car"), ("sings", "song"))


def _draw_fates(language: Language) -> str:
    """One sentence as the model reads it, three times."""
    words = sorted(set(_TEXT))
    special = frozenset(words.index(word) for word in ("[CLS]", "[SEP]"))
    vocabulary = Vocabulary(len(words), len(words), special)
    text = np.array([words.index(word) for word in _TEXT[:11] + _TEXT[-1:]])
    english = language == "en"
    canvas = Canvas(WIDTH, 262, "A sentence before and after masking" if english else "遮盖前后的一句话")
    read, places = mask_tokens(text, MaskSpec(0.4), vocabulary, np.random.default_rng(136))
    chosen = set(places.tolist())
    for place, (before, after) in enumerate(zip(text.tolist(), read.tolist(), strict=True)):
        x, y = 12 + 90 * (place % 6), 44 + 92 * (place // 6)
        kind = "" if place not in chosen else "mask" if after == len(words) else "kept" if after == before else "random"
        canvas.text(x + 43, y - 8, words[before], "soft small")
        canvas.rect(x, y, 86, 40, "box")
        if kind:
            canvas.rect(x, y, 86, 40, {"mask": "a", "kept": "soft", "random": "b"}[kind], 0.35)
        name = "[MASK]" if kind == "mask" else words[after]
        canvas.text(x + 43, y + 26, name, "strong" if kind else "")
    at = 16
    names = ("mask, 80 %", "random, 10 %", "kept, 10 %") if english else ("掩码 80 %", "随机 10 %", "不变 10 %")
    for name, colour in zip(names, ("a", "b", "soft"), strict=True):
        canvas.rect(at, 214, 22, 22, colour, 0.35)
        canvas.text(at + 30, 231, name, anchor="start")
        at += 180
    return canvas.svg()


def _draw_cover(language: Language) -> str:
    """Which of 14 tokens are masked in seven epochs: at random, and by the cover schedule."""
    english = language == "en"
    text, vocabulary = np.arange(14) + 1, Vocabulary(20, 0, frozenset())
    canvas = Canvas(WIDTH, 268, "Masks of seven epochs" if english else "七轮训练的掩码")
    names = ("at random", "cover") if english else ("随机", "覆盖")
    for side, (name, spec) in enumerate(zip(names, (MaskSpec(), MaskSpec(unit="cover")), strict=True)):
        left = 62 + 264 * side
        canvas.text(left + 112, 26, name)
        counts = [0] * len(text)
        for epoch in range(7):
            rng = np.random.default_rng((3, cover_round(spec, epoch) if side else epoch))
            chosen = set(mask_tokens(text, spec, vocabulary, rng, epoch=epoch)[1].tolist())
            for place in range(len(text)):
                canvas.rect(left + 16 * place, 38 + 24 * epoch, 14, 22, *(("a", 0.8) if place in chosen else ("line",)))
                counts[place] += place in chosen
            if not side:
                canvas.text(left - 10, 55 + 24 * epoch, str(epoch + 1), "soft small", anchor="end")
        for place, count in enumerate(counts):
            canvas.text(left + 16 * place + 7, 224, str(count), "soft small" if count else "b small")
    canvas.text(18, 128, "epoch" if english else "轮次", "soft small", turn=-90)
    note = "bottom row: how often each token was masked" if english else "最下一行：每个词元被遮了几次"
    canvas.text(WIDTH / 2, 252, note, "soft small")
    return canvas.svg()


def _draw_never(language: Language) -> str:
    """The share of tokens that no mask has hit yet, measured."""
    english = language == "en"
    text, vocabulary, epochs = np.arange(2000) + 1, Vocabulary(3000, 0, frozenset()), 14
    curves: list[list[tuple[float, float]]] = []
    for side, spec in enumerate((MaskSpec(), MaskSpec(unit="cover"))):
        left, points = set(range(len(text))), [(0.0, 100.0)]
        for epoch in range(epochs):
            rng = np.random.default_rng((5, cover_round(spec, epoch) if side else epoch))
            left -= set(mask_tokens(text, spec, vocabulary, rng, epoch=epoch)[1].tolist())
            points.append((epoch + 1.0, 100 * len(left) / len(text)))
        curves.append(points)
    names = ("at random", "cover") if english else ("随机", "覆盖")
    return curve_chart(
        "Tokens that were never masked" if english else "从未被遮盖的词元",
        [Curve(name, colour, points) for name, colour, points in zip(names, "ba", curves, strict=True)],
        "epochs" if english else "训练轮数",
        "tokens never masked so far, %" if english else "至今从未被遮盖的词元，%",
        290,
    )


class _Trained(NamedTuple):
    network: Network
    losses: list[float]


@cache
def _tiny_bert() -> _Trained:
    """The chapter's small BERT, trained on twelve sentences. The cells of the text do the same."""
    sentences = [f"{who} {verb} the {thing}" for who in ("she", "he", "Tom") for verb, thing in _THINGS]
    tape = np.array([_WORDS.index(word) for text in sentences for word in text.split()])
    vocabulary = Vocabulary(len(_WORDS), 0, frozenset({0, 1, 2}))
    objective = Masked(tape, 6, vocabulary, (1, 2), MaskSpec(0.4))  # type: ignore[arg-type]  # an array will do
    model = create("bert", vocabulary=15, layers=2, width=32, heads=2, positions=6, seed=0)
    network = model.network.double()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.005)
    losses = []
    samples = list(range(12)) * 4
    for step in range(250):
        optimizer.param_groups[0]["lr"] = 0.005 * (1 - step / 250)
        batch = objective.batch(samples, [4 * step + copy for copy in range(4) for _ in range(12)], 0)
        loss = objective.loss(network, batch, batch.counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return _Trained(network, losses)


def _draw_loss(language: Language) -> str:
    english = language == "en"
    losses = _tiny_bert().losses
    means = [(float(n), sum(losses[max(0, n - 5) : n + 5]) / len(losses[max(0, n - 5) : n + 5])) for n in range(250)]
    alone = float(np.log([3, 4, 1, 4]).mean())  # who, verb, the, thing: by frequency alone
    return curve_chart(
        "The masked loss of a tiny BERT" if english else "小 BERT 的掩码损失",
        [
            Curve("masked loss" if english else "掩码损失", "a", means),
            Curve("frequencies alone" if english else "只靠词频", "b", [(0.0, alone), (249.0, alone)]),
        ],
        "step" if english else "步",
        "loss per masked token" if english else "每个被遮词元的损失",
        290,
    )


def _draw_both_sides(language: Language) -> str:
    """The verbs that fit, with and without the words on the right."""
    english = language == "en"
    network = _tiny_bert().network
    canvas = Canvas(WIDTH, 262, "A verb with and without its object" if english else "有无宾语时的动词")
    for side, sentence in enumerate(("she [MASK] the [MASK]", "she [MASK] the apple")):
        batch = pack([[_WORDS.index(word) for word in f"[CLS] {sentence} [SEP]".split()]])
        with torch.no_grad():
            shares = network.head("masked")(network(batch), batch)[2].softmax(-1)
        left = 24 + 272 * side
        canvas.text(left + 120, 30, sentence)
        for place, (verb, _) in enumerate(_THINGS):
            value = float(shares[_WORDS.index(verb)])
            x = left + 62 * place
            canvas.rect(x, 216 - 150 * value, 50, max(150 * value, 1), "a", 0.75)
            canvas.text(x + 25, 208 - 150 * value, f"{value:.2f}")
            canvas.text(x + 25, 238, verb, "soft small")
    return canvas.svg()


def _draw_input(language: Language) -> str:
    """The three numbers that each token of a pair is looked up with."""
    english = language == "en"
    tokens = "[CLS] the cat sat [SEP] it purred [SEP]".split()
    canvas = Canvas(WIDTH, 236, "BERT's input" if english else "BERT 的输入")
    rows = ("E", "G", "P")
    for line, name in enumerate(rows):
        y = 40 + 58 * line
        canvas.text(26, y + 27, name, "strong")
        if line:
            canvas.text(26, y - 3, "+", "soft")
        for place, token in enumerate(tokens):
            x = 52 + 62 * place
            second = place > tokens.index("[SEP]")
            shown = (token, "B" if second else "A", str(place))[line]
            canvas.rect(x, y, 58, 40, "box")
            canvas.rect(x, y, 58, 40, ("b" if second else "a") if line == 1 else "line", 0.3)
            canvas.text(x + 29, y + 26, shown, "small" if line == 0 else "")
    names = ("E: tokens, G: segments, P: positions", "E：词元，G：段，P：位置")
    canvas.text(WIDTH / 2, 224, names[0] if english else names[1], "soft small")
    return canvas.svg()


def _draw_pairs(language: Language) -> str:
    """Where the two segments come from on the tape."""
    english = language == "en"
    canvas = Canvas(WIDTH, 250, "Where B comes from" if english else "B 从哪里来")
    rows = (
        ("B follows A: 0", "B 紧接 A：0", (1, 2, 0), (2, 4, 0)),
        ("another document: 1", "另一篇文档：1", (1, 2, 0), (1, 3, 1)),
    )
    for line, (name, chinese, A, B) in enumerate(rows):
        y = 46 + 104 * line
        canvas.text(16, y - 14, name if english else chinese, anchor="start")
        for document in range(2):
            left = 16 + 270 * document
            for sentence in range(4):
                x = left + 64 * sentence
                canvas.rect(x, y, 60, 44, "box")
                for (first, last, where), letter, colour in ((A, "A", "a"), (B, "B", "b")):
                    if where == document and first <= sentence < last:
                        canvas.rect(x, y, 60, 44, colour, 0.4)
                        canvas.text(x + 30, y + 28, letter, "strong")
    note = "two documents of four sentences; A is the second one" if english else "两篇文档，各四句；A 是第一篇的第二句"
    canvas.text(WIDTH / 2, 236, note, "soft small")
    return canvas.svg()


def _draw_sizes(language: Language) -> str:
    """Parameters of the published sizes: tables, layers, head."""
    english = language == "en"
    names = ("tiny", "mini", "small", "medium", "base", "large")
    canvas = Canvas(WIDTH, 316, "Parameters of BERT's sizes" if english else "BERT 各尺寸的参数量")
    for line, name in enumerate(names):
        y = 54 + 40 * line
        network = outline(Bert(**Bert.sizes[name]).architecture())
        total, tables = count_parameters(network), count_parameters(network.embed)
        layers = count_parameters(network.encoder) if network.encoder is not None else 0
        canvas.text(86, y + 22, name, anchor="end")
        at = 96.0
        for count, colour in ((tables, "b"), (layers, "a"), (total - tables - layers, "soft")):
            canvas.rect(at, y, max(340 * count / total - 2, 1), 30, colour, 0.7)
            at += 340 * count / total
        canvas.text(WIDTH - 14, y + 22, f"{total / 1e6:,.1f} M", anchor="end")
    at = 24
    for name, colour in zip(("tables", "layers", "head") if english else ("表", "层", "输出头"), ("b", "a", "soft")):  # noqa: B905
        canvas.rect(at, 16, 22, 22, colour, 0.7)
        canvas.text(at + 30, 33, name, anchor="start")
        at += 130
    return canvas.svg()


def _draw_checkpoints(language: Language) -> str:
    """Which checkpoints a run has after each save: the two newest, and the best."""
    english = language == "en"
    losses = [3.1, 2.6, 2.2, 2.4, 2.3, 2.5, 2.1, 2.2]
    canvas = Canvas(WIDTH, 344, "Checkpoints that are kept" if english else "留下的检查点")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for saved in range(1, len(losses) + 1):
            (folder / f"step-{saved:06}").mkdir()
            best = int(np.argmin(losses[:saved])) + 1
            remove_older(folder, saved, 2, best)
            kept = set(list_checkpoints(folder))
            y = 26 + 31 * saved
            canvas.text(84, y + 20, str(10_000 * saved // 1000) + "k", "soft small", anchor="end")
            for step in range(1, saved + 1):
                x = 96 + 56 * (step - 1)
                colour = "line" if step not in kept else "b" if step == best else "a"
                canvas.rect(x, y, 50, 26, colour, 1 if colour == "line" else 0.7)
                if step == saved:
                    canvas.text(x + 25, y + 19, f"{losses[step - 1]:.1f}", "small")
    canvas.text(96, 30, "after the save at step …" if english else "在第……步保存之后", "soft small", anchor="start")
    note = (
        "orange: the best so far; blue: the newest two; empty: deleted"
        if english
        else "橙：至今最好；蓝：最新两个；空：已删除"
    )
    canvas.text(WIDTH / 2, 328, note, "soft small")
    return canvas.svg()


BERT_PICTURES: dict[str, Drawing] = {
    "bert-both-sides": _draw_both_sides,
    "bert-fates": _draw_fates,
    "bert-cover": _draw_cover,
    "bert-never": _draw_never,
    "bert-loss": _draw_loss,
    "bert-pairs": _draw_pairs,
    "bert-input": _draw_input,
    "bert-sizes": _draw_sizes,
    "bert-checkpoints": _draw_checkpoints,
}
