"""The pictures of the chapter on evaluation."""

import re
from functools import cache

import numpy as np

from weft.charts import Curve
from weft.metrics.baselines.classify import LogisticRegression, TextClassifier, one_hot, shares_of
from weft.metrics.baselines.vectors import WordVectors, pieces_of
from weft.metrics.bootstrap import mean_interval, proportion_interval
from weft.metrics.calibration import calibration
from weft.metrics.classes import class_figures, class_score, confusion, per_class
from weft.metrics.rouge import _common, _places, rouge
from weft.metrics.translations import translation_counts, translation_figures
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language, Matrix, Vector
from weft.theory.models import guide_model, guide_text

_CHAPTERS = {"III": 3, "VII": 7, "IX": 9}
_REFERENCE = "the hatter was the first to break the silence"
_TRANSLATION = "the hatter was the first who broke the silence"


@cache
def _contest() -> tuple[Vector, TextClassifier, Matrix, Matrix]:
    """Paragraphs of three chapters: gold labels of every second one, and what two baselines say of them."""
    parts = re.split(r"CHAPTER [IVX]+\. .*\n", guide_text()[0])
    found = [
        (text, label)
        for label, number in enumerate(_CHAPTERS.values())
        for text in parts[number].split("\n\n")
        if len(text) > 40
    ]
    (known, labels), (asked, gold) = (zip(*found[start::2], strict=True) for start in (0, 1))
    model = TextClassifier.fit(known, labels, 3)
    vectors = WordVectors.fit(known, pieces_of)
    rival = LogisticRegression.fit(vectors.of(known), one_hot(labels, 3))
    return np.array(gold), model, model.probabilities(asked), shares_of(rival.chances(vectors.of(asked)))


def _draw_confusion(language: Language) -> str:
    gold, _, chances, _ = _contest()
    table = confusion(gold, chances.argmax(1), 3)
    english = language == "en"
    canvas = Canvas(WIDTH, 326, "A confusion matrix" if english else "混淆矩阵")
    left, top, cell = 212.0, 76.0, 62.0
    names = list(_CHAPTERS)
    canvas.text(left + 1.5 * cell, 28, "predicted chapter" if english else "预测的章", "soft small")
    canvas.text(left - 62, top + 1.5 * cell + 5, "gold chapter" if english else "真实的章", "soft small", anchor="end")
    canvas.text(left + 3.9 * cell, 52, "recall" if english else "召回率")
    canvas.text(left - 12, top + 3.5 * cell, "precision" if english else "精确率", anchor="end")
    scores = per_class(table)
    for row, (name, score) in enumerate(zip(names, scores, strict=True)):
        y = top + cell * row
        canvas.text(left - 14, y + cell / 2 + 6, name, "strong", anchor="end")
        canvas.text(left + cell * (row + 0.5), 58, name, "strong")
        for column in range(3):
            kind = "a" if row == column else "b"
            canvas.rect(left + cell * column + 1, y + 1, cell - 2, cell - 2, kind, 0.08 + 0.8 * table[row, column] / 50)
            canvas.text(left + cell * (column + 0.5), y + cell / 2 + 6, str(table[row, column]))
        canvas.text(left + 3.9 * cell, y + cell / 2 + 6, f"{score.recall:.2f}")
        canvas.text(left + cell * (row + 0.5), top + 3.5 * cell, f"{score.precision:.2f}")
    return canvas.svg()


def _draw_means(language: Language) -> str:
    """60 of 240 gold examples are found: recall is 1/4."""
    scores = [class_score(60, predicted, 240) for predicted in (60, 66, 75, 86, 100, 120, 150, 200, 300, 600, 1200)]
    english = language == "en"
    return curve_chart(
        "F1 and the plain mean" if english else "F1 与算术平均",
        [
            Curve(
                "(P + R) / 2" if english else "算术平均 (P + R) / 2",
                "b",
                [(s.precision, (s.precision + s.recall) / 2) for s in scores],
            ),
            Curve("F1", "a", [(s.precision, s.f1) for s in scores]),
        ],
        "precision P, when recall R is 0.25" if english else "召回率 R 为 0.25 时的精确率 P",
        "",
        290,
    )


def _draw_imbalance(language: Language) -> str:
    tables = np.array([[[950, 0], [50, 0]], [[900, 50], [10, 40]], [[940, 10], [20, 30]]])
    figures = class_figures(tables)
    english = language == "en"
    canvas = Canvas(WIDTH, 268, "Three tests for an illness" if english else "同一种病的三种检验")
    names = ("always “healthy”", "careful", "strict") if english else ("永远报“健康”", "宁可错报", "有把握才报")
    kinds = [
        ("accuracy", "accuracy" if english else "准确率", "b"),
        ("f1", "macro F1" if english else "宏平均 F1", "a"),
        ("mcc", "MCC", "soft"),
    ]
    at = 60.0
    for _, title, colour in kinds:
        canvas.rect(at, 18, 16, 16, colour, 0.75)
        canvas.text(at + 24, 32, title, anchor="start")
        at += 160
    for place, name in enumerate(names):
        left = 34 + 178 * place
        canvas.text(left + 72, 252, name)
        for number, (kind, _, colour) in enumerate(kinds):
            value = float(figures[kind][place])
            canvas.rect(left + 50 * number, 226 - 150 * value, 44, max(150 * value, 1), colour, 0.75)
            canvas.text(left + 50 * number + 22, 219 - 150 * value, f"{value:.2f}", "small")
    return canvas.svg()


def _draw_calibration(language: Language) -> str:
    gold, _, chances, _ = _contest()
    found = calibration(chances, gold)
    english = language == "en"
    canvas = Canvas(WIDTH, 372, "Confidence and accuracy" if english else "把握与准确率")
    left, bottom, size = 120.0, 312.0, 260.0
    canvas.line([(left, bottom - size), (left, bottom), (left + size, bottom)], "line")
    canvas.line([(left, bottom), (left + size, bottom - size)], "stroke dashed")
    for tick in (0, 0.5, 1):
        canvas.text(left - 10, bottom - size * tick + 5, f"{tick:g}", "soft small", anchor="end")
        canvas.text(left + size * tick, bottom + 20, f"{tick:g}", "soft small")
    for one in found.bins:
        x, y = left + size * one.confidence, bottom - size * one.accuracy
        canvas.line([(x, y), (x, bottom - size * one.confidence)], "stroke-b")
        canvas.circle(x, y, 3 + one.count**0.5, "a", 0.75)
    canvas.text(left + size / 2, bottom + 46, "confidence" if english else "把握（最大的概率）", "soft small")
    canvas.text(left, bottom - size - 24, "share right" if english else "答对的比例", "soft small")
    notes = (f"ECE {found.ece:.3f}", f"Brier {found.brier:.3f}")
    for place, note in enumerate(notes):
        canvas.text(left + size + 24, 190 + 28 * place, note, anchor="start")
    return canvas.svg()


def _draw_wilson(language: Language) -> str:
    sizes = (10, 30, 100, 300, 1000, 3000)
    english = language == "en"
    canvas = Canvas(WIDTH, 286, "Intervals of 90 % right" if english else "答对 90% 时的区间")
    left, right = 130.0, WIDTH - 30.0

    def x_of(value: float) -> float:
        return left + (value - 0.5) / 0.5 * (right - left)

    for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        canvas.line([(x_of(tick), 24), (x_of(tick), 244)], "line")
        canvas.text(x_of(tick), 268, f"{tick:.1f}", "soft small")
    for place, size in enumerate(sizes):
        low, high = proportion_interval(size * 9 // 10, size)
        y = 46 + 36 * place
        canvas.text(left - 14, y + 6, f"N = {size:,}", anchor="end")
        canvas.line([(x_of(low), y), (x_of(high), y)], "stroke-a")
        for end in (low, high):
            canvas.line([(x_of(end), y - 7), (x_of(end), y + 7)], "stroke-a")
        canvas.circle(x_of(0.9), y, 5, "a")
    return canvas.svg()


def _draw_bootstrap(language: Language) -> str:
    gold, _, chances, _ = _contest()
    found = mean_interval(chances.argmax(1) == gold)
    assert found.drawn is not None
    low, high = np.quantile(found.drawn, [0.025, 0.975])
    english = language == "en"
    return _histograms(
        "Accuracy in a thousand rounds" if english else "一千轮的准确率",
        [(found.drawn, (float(low), float(high)), "")],
        "accuracy of a drawn test set" if english else "重新抽出的测试集上的准确率",
        len(gold),
    )


def _draw_paired(language: Language) -> str:
    gold, _, ours, theirs = _contest()
    drawn = [mean_interval(p.argmax(1) == gold).drawn for p in (ours, theirs)]
    others = mean_interval(theirs.argmax(1) == gold, seed=1).drawn
    assert drawn[0] is not None and drawn[1] is not None and others is not None
    english = language == "en"
    names = (
        ("same paragraphs for both", "other paragraphs for each")
        if english
        else ("两者抽同样的段落", "两者各抽各的段落")
    )
    rows = []
    for name, rival in zip(names, (drawn[1], others), strict=True):
        gaps = drawn[0] - rival
        low, high = np.quantile(gaps, [0.025, 0.975])
        rows.append((gaps, (float(low), float(high)), name))
    return _histograms(
        "Differences in a thousand rounds" if english else "一千轮的差",
        rows,
        "accuracy of A minus accuracy of B" if english else "A 的准确率减去 B 的准确率",
        len(gold),
    )


def _histograms(title: str, rows: list[tuple[Vector, tuple[float, float], str]], axis: str, steps: int) -> str:
    """Below each other on one axis, a bar per 1/`steps`. What lies between the ends has the first colour."""
    pitch = 206 if any(name for _, _, name in rows) else 186
    canvas = Canvas(WIDTH, 20 + pitch * len(rows), title)
    low = min(round(steps * float(drawn.min())) for drawn, _, _ in rows) - 0.5
    high = max(round(steps * float(drawn.max())) for drawn, _, _ in rows) + 0.5
    left, right = 24.0, WIDTH - 24.0
    width = (right - left) / (high - low)
    for place, (drawn, ends, name) in enumerate(rows):
        foot = 142.0 + pitch * place
        counts = np.bincount(np.round(steps * drawn - low - 0.5).astype(int))
        for number, count in enumerate(counts):
            height = 96 * count / counts.max()
            inside = steps * ends[0] - 1e-6 <= low + 0.5 + number <= steps * ends[1] + 1e-6
            canvas.rect(left + width * number, foot - height, width - 1.5, height, "a" if inside else "b", 0.75)
        canvas.line([(left, foot), (right, foot)], "line")
        for end in ends:
            x = left + width * (steps * end - low)
            canvas.line([(x, foot + 4), (x, foot - 108)], "stroke dashed")
            canvas.text(x, foot - 114, f"{end:.3f}".replace("-", "−"), "small")
        if low < 0 < high:
            x = left - width * low
            canvas.line([(x, foot + 4), (x, foot - 100)], "stroke")
            canvas.text(x, foot + 20, "0", "soft small")
        canvas.text(left, foot + 42, name, anchor="start")
    canvas.text(WIDTH / 2, canvas.height - 14, axis, "soft small")
    return canvas.svg()


def _draw_bleu(language: Language) -> str:
    counts = translation_counts([_TRANSLATION], [_REFERENCE])
    bleu = translation_figures(counts)["bleu"]
    english = language == "en"
    canvas = Canvas(WIDTH, 308, "BLEU of one sentence" if english else "一句译文的 BLEU")
    reference = _REFERENCE.split()
    for row, (title, text) in enumerate(
        zip(("reference", "translation") if english else ("参考", "译文"), (_REFERENCE, _TRANSLATION), strict=True)
    ):
        y, x = 30 + 62 * row, 16.0
        canvas.text(x, y, title, "soft small", anchor="start")
        for word in text.split():
            width = 12 + 9.6 * len(word)
            matched = row == 0 or word in reference
            canvas.rect(x, y + 8, width, 28, "a" if row and matched else "b" if row else "box", 0.3 if row else 1)
            canvas.text(x + width / 2, y + 27, word, "small")
            x += width + 5
    for place in range(4):
        hits, total = (int(counts[0, 2 + place + 4 * kind]) for kind in (0, 1))
        y = 160 + 28 * place
        name = f"{place + 1}-gram" + ("s" if english else "")
        canvas.text(100, y + 17, name, anchor="end")
        canvas.rect(112, y, 290 * hits / total, 20, "a", 0.75)
        canvas.text(124 + 290 * hits / total, y + 16, f"{hits}/{total}", "soft", anchor="start")
    canvas.text(112, 296, f"BLEU = {bleu:.1f}", "strong", anchor="start")
    return canvas.svg()


def _draw_rouge(language: Language) -> str:
    ours = "alice found a small golden key on the table".split()
    gold = "on a glass table alice found a golden key".split()
    common = _common(_places(gold), ours)
    english = language == "en"
    canvas = Canvas(WIDTH, 224, "The longest common subsequence" if english else "最长公共子序列")
    centres: list[list[float]] = []
    for title, words, y in zip(
        ("summary", "reference") if english else ("摘要", "参考"), (ours, gold), (30, 136), strict=True
    ):
        canvas.text(16, y, title, "soft small", anchor="start")
        x, row = 16.0, []
        for word in words:
            width = 12 + 9.6 * len(word)
            row.append(x + width / 2)
            canvas.rect(x, y + 8, width, 28, "box")
            canvas.text(x + width / 2, y + 27, word, "small")
            x += width + 5
        centres.append(row)
    begin = 0
    for place, word in enumerate(gold):
        if common >> place & 1:
            begin = ours.index(word, begin) + 1
            canvas.line([(centres[0][begin - 1], 67), (centres[1][place], 143)], "stroke-a")
    scores = rouge(" ".join(ours), " ".join(gold))
    for place, (kind, title) in enumerate((("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rougeL", "ROUGE-L"))):
        canvas.text(100 + 178 * place, 206, f"{title} {scores[kind]:.2f}")
    return canvas.svg()


def _draw_bits(language: Language) -> str:
    known, unseen = guide_text()
    words = unseen.split()
    model = guide_model()
    mixed = " ".join(words[i] for i in np.random.default_rng(0).permutation(len(words)))
    scores = [model.score(text[:6000]).bits_per_byte for text in (known[-6000:], unseen, mixed, unseen[::-1])]
    english = language == "en"
    names = (
        ["chapter XI (read)", "chapter XII (new)", "its words shuffled", "its letters reversed"]
        if english
        else ["第十一章（读过）", "第十二章（没读过）", "打乱它的词序", "把字母倒着写"]
    )
    title = "Bits per byte of four texts" if english else "四段文本的每字节比特数"
    return bar_chart(title, names, [score or 0.0 for score in scores], digits=2)


def _draw_baseline(language: Language) -> str:
    _, model, _, _ = _contest()
    names = model.vectors.vectorizer.get_feature_names_out()
    english = language == "en"
    canvas = Canvas(WIDTH, 272, "The heaviest words of each class" if english else "每一类权重最大的词")
    for place, chapter in enumerate(_CHAPTERS):
        left = 14 + 182 * place
        title = f"chapter {chapter}" if english else f"第 {chapter} 章"
        canvas.text(left + 84, 30, title, "strong")
        weights = model.regression.weights[:, place].round(2)
        for row, feature in enumerate(np.argsort(-weights, kind="stable")[:6]):
            y = 46 + 36 * row
            canvas.rect(left, y, 132 * float(weights[feature]) / 2.6, 30, "a", 0.3)
            canvas.text(left + 8, y + 20, names[feature], "small", anchor="start")
            canvas.text(left + 168, y + 20, f"{weights[feature]:.1f}", "soft small", anchor="end")
    return canvas.svg()


EVALUATION_PICTURES: dict[str, Drawing] = {
    "eval-confusion": _draw_confusion,
    "eval-means": _draw_means,
    "eval-imbalance": _draw_imbalance,
    "eval-calibration": _draw_calibration,
    "eval-wilson": _draw_wilson,
    "eval-bootstrap": _draw_bootstrap,
    "eval-paired": _draw_paired,
    "eval-bleu": _draw_bleu,
    "eval-rouge": _draw_rouge,
    "eval-bits": _draw_bits,
    "eval-baseline": _draw_baseline,
}
