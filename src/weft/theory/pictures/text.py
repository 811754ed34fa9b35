"""The pictures of the chapter on text."""

import hashlib
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from weft.charts import Curve
from weft.corpus.drift import find_drift
from weft.corpus.near_duplicates import BAND_COUNT, SIGNATURE_SIZE, shingles, sign, signature_similarity
from weft.corpus.quality import broken_rule
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_text
from weft.tokenizer.report import report_on_tokenizer
from weft.tokenizer.train import train_tokenizer
from weft.tokens.keyed_shuffle import KeyedShuffle
from weft.tokens.order import Order


def _draw_rules(language: Language) -> str:
    """Five texts, and the first rule that each breaks."""
    english = language == "en"
    prose = guide_text()[0][2000:3000]
    menu = "Please sign in to read the rest of the story\n" * 30
    texts = [
        ("a page of Alice", "《爱丽丝》的一页", prose),
        ("the same line 30 times", "同一行 30 遍", menu),
        ("a table of numbers", "一张数字表", " ".join(f"total {n + 1000} of {n * n + 10000}" for n in range(100))),
        ("a headline", "一行标题", "Ten cats that look like clouds"),
        ("a list of links", "一列链接", "\n".join(f"- read the article about number {n} and more" for n in range(40))),
    ]
    chinese = {
        None: "留下",
        "length": "长度",
        "digits": "数字太多",
        "repeated lines": "行重复",
        "a list": "清单",
        "few stop words": "缺少常用词",
        "word length": "词长",
        "few letters": "字母太少",
    }
    canvas = Canvas(WIDTH, 22 + 40 * len(texts), "Which rule a text breaks" if english else "文本违反了哪条规则")
    for row, (name, zh_name, text) in enumerate(texts):
        y, rule = 14 + 40 * row, broken_rule(text, "en")
        canvas.rect(16, y, WIDTH - 32, 34, "a" if rule is None else "line", 0.35 if rule is None else 0.6)
        canvas.text(30, y + 23, name if english else zh_name, anchor="start")
        verdict = (rule or "stays") if english else chinese[rule]
        canvas.text(WIDTH - 30, y + 23, verdict, "strong" if rule is None else "soft", anchor="end")
    return canvas.svg()


@cache
def _estimates() -> list[tuple[float, float]]:
    """Jaccard index and its estimate, for a passage whose words are replaced more and more."""
    rng = np.random.default_rng(0)
    words = guide_text()[0][3000:9000].split()
    places, found = rng.permutation(len(words)), []
    for share in np.linspace(0, 0.5, 26):
        changed = list(words)
        for place in places[: round(share * len(words))].tolist():
            changed[place] = f"word{place}"
        texts = [" ".join(words).casefold(), " ".join(changed).casefold()]
        one, other = (set(shingles(text).tolist()) for text in texts)
        estimate = signature_similarity(sign(texts), np.array([0]), np.array([1]))[0]
        found.append((len(one & other) / len(one | other), float(estimate)))
    return sorted(found)


def _draw_minhash(language: Language) -> str:
    english = language == "en"
    curves = [
        Curve("exact" if english else "精确值", "soft", [(0.0, 0.0), (1.0, 1.0)]),
        Curve("120 hashes" if english else "120 个散列", "a", _estimates()),
    ]
    x, y = ("Jaccard index J", "share of equal minima") if english else ("Jaccard 系数 J", "最小值相等的比例")
    return curve_chart("Estimates of the Jaccard index" if english else "Jaccard 系数的估计", curves, x, y, 310)


def _draw_banding(language: Language) -> str:
    english = language == "en"
    rows = SIGNATURE_SIZE // BAND_COUNT
    grid = [number / 50 for number in range(51)]
    curves = [
        Curve(
            f"{b} × {r}",
            colour,
            [(J, 1 - (1 - J**r) ** b) for J in grid],
        )
        for b, r, colour in ((BAND_COUNT, rows, "a"), (40, 3, "b"), (10, 12, "soft"))
    ]
    x, y = ("Jaccard index J", "P(J)")
    return curve_chart(
        "Chance to be compared" if english else "被比较的概率", curves, x if english else "Jaccard 系数 J", y, 310
    )


def _draw_split(language: Language) -> str:
    english = language == "en"
    words = sorted({word for word in guide_text()[0].lower().split() if word.isalpha()})[::15][:120]
    canvas = Canvas(WIDTH, 176, "Documents by their hash" if english else "按散列排开的文档")
    parts = [(0.0, 0.1, "validation", "验证"), (0.1, 0.2, "test", "测试"), (0.2, 1.0, "train", "训练")]
    for low, high, name, zh_name in parts:
        x = 20 + 520 * low
        canvas.rect(x, 62, 520 * (high - low) - 2, 50, "a" if high == 1 else "b", 0.25)
        at = (x + 1, "start") if low == 0 else (20 + 520 * (low + high) / 2, "middle")
        lift = 26 if low == 0 else 50
        canvas.text(at[0], lift, name if english else zh_name, anchor=at[1])
    for word in words:
        u = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) / 2**64
        canvas.line([(20 + 520 * u, 66), (20 + 520 * u, 108)], "stroke")
    for value in (0, 0.1, 0.2, 0.5, 1):
        canvas.text(20 + 520 * value, 132, f"{value:g}", "soft small")
    canvas.text(WIDTH / 2, 162, "u of 120 documents" if english else "120 篇文档的 u", "soft small")
    return canvas.svg()


@cache
def _vocabularies() -> tuple[list[tuple[float, float]], list[tuple[int, list[str]]]]:
    """Bytes per token on the unseen chapter by the size of the vocabulary, and how a sentence is cut."""
    known, unseen = guide_text()
    curve, cuts = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "known.txt")
        file.write_text(known, "utf-8")
        for size in (257, 307, 357, 557, 1000, 1500, 2000, 3000, 4000):
            tokenizer = train_tokenizer([file], "bpe", size)
            curve.append((float(size), report_on_tokenizer(tokenizer, [unseen]).bytes_per_token))
            if size in (257, 307, 357, 557):
                tokens = [tokenizer.decode([one]) for one in tokenizer.encode(" said the Mock Turtle")]
                cuts.append((size - 257, tokens))
    return curve, cuts


def _draw_merges(language: Language) -> str:
    english = language == "en"
    _, cuts = _vocabularies()
    canvas = Canvas(WIDTH, 40 + 64 * len(cuts), "How merges join letters" if english else "合并怎样把字母连起来")
    for row, (merges, tokens) in enumerate(cuts):
        y = 34 + 64 * row
        canvas.text(20, y, f"{merges:,} merges" if english else f"合并 {merges} 次", "soft small", anchor="start")
        x = 20.0
        for number, token in enumerate(tokens):
            width = 23.6 * len(token)
            canvas.rect(x, y + 8, width - 3, 30, "a" if number % 2 else "b", 0.3)
            canvas.text(x + width / 2 - 1, y + 29, token.replace(" ", "␣"))
            x += width
    return canvas.svg()


def _draw_vocabulary(language: Language) -> str:
    english = language == "en"
    curve, _ = _vocabularies()
    return curve_chart(
        "Bytes per token" if english else "每词元字节数",
        [Curve("BPE", "a", curve)],
        "size of the vocabulary" if english else "词表大小",
        "bytes per token, unseen chapter" if english else "未见过的一章，每词元字节数",
        300,
    )


def _draw_mixing(language: Language) -> str:
    """The sources of the first 120 samples."""
    english = language == "en"
    weights = (5.0, 3.0, 2.0)
    found = Order((40, 60, 100), weights, 0)[range(120)]
    canvas = Canvas(WIDTH, 226, "Three sources, mixed" if english else "三个来源混在一起")
    for source, kind in enumerate(("a", "b", "soft")):
        canvas.rect(30 + 176 * source, 16, 18, 18, kind, 0.75)
        name = f"source {source + 1}: {weights[source]:g}" if english else f"来源 {source + 1}：{weights[source]:g}"
        canvas.text(56 + 176 * source, 31, name, anchor="start")
    for place, one in enumerate(found):
        x, y = 20 + 26 * (place % 20), 50 + 24 * (place // 20)
        canvas.rect(x, y, 23, 20, ("a", "b", "soft")[one.source], 0.75)
    canvas.text(WIDTH / 2, 214, "the first 120 samples" if english else "最初的 120 个样本", "soft small")
    return canvas.svg()


def _draw_shuffle(language: Language) -> str:
    english = language == "en"
    size = 50
    canvas = Canvas(WIDTH, 300, "Two epochs of a shuffle" if english else "两轮的打乱顺序")
    for epoch in range(2):
        left = 40 + 276 * epoch
        canvas.text(left + 108, 28, f"epoch {epoch}" if english else f"第 {epoch} 轮")
        canvas.rect(left, 40, 216, 216, "box")
        for place, sample in enumerate(KeyedShuffle(size, 0, epoch)[np.arange(size)].tolist()):
            canvas.circle(left + 5 + 4.2 * place, 251 - 4.2 * sample, 3, "ab"[epoch])
    note = "across: position in the epoch; up: number of the sample"
    canvas.text(WIDTH / 2, 284, note if english else "横：在本轮中的位置；纵：样本编号", "soft small")
    return canvas.svg()


def _draw_drift(language: Language) -> str:
    english = language == "en"
    before, now = {"en": 60, "zh": 30, "de": 10}, {"en": 45, "zh": 30, "de": 25}

    def report(shares: dict[str, int]) -> dict[str, object]:
        counts = {"documents": 100, "documents_read": 100, "bytes": 1, "dropped": {}}
        return {"counts": counts, "lengths": {"kept": {}}, "languages": {"kept": shares}, "sources": []}

    change = next(one.change for one in find_drift(report(before), report(now)) if one.what.startswith("languages"))
    canvas = Canvas(WIDTH, 244, "Two corpora" if english else "两个语料")
    names = (
        {"en": "English", "zh": "Chinese", "de": "German"} if english else {"en": "英语", "zh": "汉语", "de": "德语"}
    )
    for row, (key, name) in enumerate(names.items()):
        y = 20 + 58 * row
        canvas.text(100, y + 27, name, anchor="end")
        for line, (counts, kind) in enumerate(((before, "a"), (now, "b"))):
            canvas.rect(112, y + 22 * line, 6 * counts[key], 18, kind, 0.75)
            canvas.text(120 + 6 * counts[key], y + 22 * line + 14, f"{counts[key]} %", "soft small", anchor="start")
    note = f"blue: last month, orange: now; D = {change:.2f}" if english else f"蓝：上月，橙：现在；D = {change:.2f}"
    canvas.text(WIDTH / 2, 226, note, "soft small")
    return canvas.svg()


TEXT_PICTURES: dict[str, Drawing] = {
    "text-rules": _draw_rules,
    "text-minhash": _draw_minhash,
    "text-banding": _draw_banding,
    "text-split": _draw_split,
    "text-merges": _draw_merges,
    "text-vocabulary": _draw_vocabulary,
    "text-mixing": _draw_mixing,
    "text-shuffle": _draw_shuffle,
    "text-drift": _draw_drift,
}
