"""The pictures of the chapter on fine-tuning."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import torch

import weft.theory.models
from weft.charts import Curve
from weft.metrics.baselines.classify import TextClassifier
from weft.model.network import create_network
from weft.model.packed import pack
from weft.progress import quieted
from weft.tasks.answer import Answer, SpanTargets
from weft.tasks.classify import Classify
from weft.tasks.crf import allowed_transitions, viterbi
from weft.tasks.example import Example, Input
from weft.tasks.input_spec import input_spec_for
from weft.tasks.intent import Intent
from weft.tasks.labelled.hold_out import hold_out
from weft.tasks.learning.build import from_folder
from weft.tasks.learning.lora import adapt
from weft.tasks.rewrite import Summarize, TextTargets
from weft.tasks.task import TaskObjective
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model, guide_text
from weft.theory.written.fine_tuning import class_shares

_FOLDER = Path(weft.theory.models.__file__).parent / "alice"
_CHAPTERS = {"III": 3, "VII": 7, "IX": 9}
_TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def _paragraphs() -> list[Example]:
    parts = re.split(r"CHAPTER [IVX]+\. .*\n", guide_text()[0])
    return [
        Example(text, name)
        for name, number in _CHAPTERS.items()
        for text in parts[number].split("\n\n")
        if len(text) > 40
    ]


@cache
def _tuned(pretrained: bool) -> list[float]:
    """The accuracy on unseen paragraphs before training and after each of eight epochs."""
    examples = _paragraphs()
    train, asked = examples[::2], examples[1::2]
    task = Classify().with_labels_from(train)
    with quieted():
        built = from_folder(_FOLDER, task, 0.0, 0)
    network = built.network.double()
    if not pretrained:
        network.load_state_dict(create_network(network.architecture, 0).double().state_dict())
    spec = input_spec_for(built.saved, built.description, guide_model().tokenizer, 64)
    objective = TaskObjective(task, task.inputs(train, spec))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    generator, found = np.random.default_rng(0), list[float]()
    for epoch in range(9):
        network.eval()
        found.append(task.figures(asked, task.answers(network, asked, spec)[0])["accuracy"])
        network.train()
        for part in np.array_split(generator.permutation(len(objective)), 7):
            batch = objective.batch(part.tolist(), [epoch] * len(part), 0)
            optimizer.zero_grad()
            objective.loss(network, batch, batch.counts).backward()
            optimizer.step()
    return found


def _draw_parts(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 262, "What is kept and what is new" if english else "留下的和新换的")
    with quieted():
        after = from_folder(_FOLDER, Classify(tuple(_CHAPTERS)), 0.0, 0).network
    before = guide_model().network
    names = ("pre-trained", "to be fine-tuned") if english else ("预训练的模型", "要微调的模型")
    heads = ("next token", "class") if english else ("下一个词元", "类别")
    for place, (network, name, head) in enumerate(zip((before, after), names, heads, strict=True)):
        left = 30 + 290 * place
        canvas.text(left + 105, 30, name, "strong")
        body = sum(x.numel() for part, x in network.named_parameters() if not part.startswith("heads."))
        body -= network.embed.tokens.weight.numel()
        rows = [
            (head, sum(x.numel() for x in network.heads.parameters()), "b" if place else "soft"),
            (
                "two layers, positions" if english else "两层与位置",
                body,
                "a",
            ),
            ("token vectors" if english else "词元向量", network.embed.tokens.weight.numel(), "a"),
        ]
        for row, (part, count, kind) in enumerate(rows):
            y = 46 + 66 * row
            shared = place == 0 and row == 0
            canvas.rect(left, y, 210, 54, kind, 0.3)
            canvas.text(left + 105, y + 24, part)
            note = ("shares the token vectors" if english else "与词元向量共用") if shared else f"{count:,}"
            canvas.text(left + 105, y + 44, note, "soft small")
    for row in (1, 2):
        canvas.arrow(246, 73 + 66 * row, 314, 73 + 66 * row)
    canvas.text(280, 78, "✗", "soft")
    note = "numbers: weights" if english else "数字：权重个数"
    canvas.text(WIDTH / 2, 252, note, "soft small")
    return canvas.svg()


def _draw_curve(language: Language) -> str:
    examples = _paragraphs()
    train, asked = examples[::2], examples[1::2]
    names = list(_CHAPTERS)
    model = TextClassifier.fit([one.given for one in train], [names.index(one.gold) for one in train], 3)
    told = model.probabilities([one.given for one in asked]).argmax(1)
    baseline = float(np.mean([names[number] == one.gold for number, one in zip(told, asked, strict=True)]))
    english = language == "en"
    return curve_chart(
        "Accuracy while fine-tuning" if english else "微调过程中的准确率",
        [
            Curve("pre-trained" if english else "预训练过", "a", list(enumerate(_tuned(True)))),
            Curve("from scratch" if english else "从零开始", "b", list(enumerate(_tuned(False)))),
            Curve("TF-IDF", "soft", [(0, baseline), (8, baseline)]),
        ],
        "epochs" if english else "轮次",
        "accuracy on unseen paragraphs" if english else "没见过的段落上的准确率",
    )


def _draw_leak(language: Language) -> str:
    """Every paragraph stands in the data twice: a part held out at random, and one held out by weft."""
    doubled = [one for one in _paragraphs() for _ in range(2)]
    names = list(_CHAPTERS)
    rng = np.random.default_rng(0)
    groups = []
    for seed in range(4):
        order = rng.permutation(len(doubled)).tolist()
        count = round(len(doubled) / 10)
        found = hold_out(Classify(tuple(names)), doubled, seed, "here")
        groups.append(((order[:count], order[count:]), (found.held, found.kept)))
    accuracy = []
    for way in range(2):
        right = []
        for splits in groups:
            held, kept = splits[way]
            gold = [names.index(doubled[i].gold) for i in kept]
            model = TextClassifier.fit([doubled[i].given for i in kept], gold, 3)
            told = model.probabilities([doubled[i].given for i in held]).argmax(1)
            right += [names[number] == doubled[i].gold for number, i in zip(told, held, strict=True)]
        accuracy.append(float(np.mean(right)))
    english = language == "en"
    return bar_chart(
        "Accuracy with and without a leak" if english else "泄漏与不泄漏时的准确率",
        ["rows at random", "texts as a whole"] if english else ["按行随机留出", "按文本整体留出"],
        accuracy,
        digits=2,
        note="every text stands in the data twice" if english else "每段文本在数据里出现两次",
    )


def _draw_lattice(language: Language) -> str:
    words = ("Ada", "met", "Charles", "Babbage")
    tags = ("O", "B-PER", "I-PER")
    z = np.array([[0.2, 1.5, 0.5], [2.0, 0.1, 0.0], [0.3, 1.4, 0.9], [0.8, 0.9, 0.7]])
    T = np.array([[0.5, 0.4, -9.0], [0.1, -1.0, 1.2], [0.3, -1.0, 0.5]])
    start, end = np.array([0.0, 0.0, -9.0]), np.zeros(3)
    alone, best = z.argmax(1).tolist(), viterbi(z, T, start, end)
    english = language == "en"
    canvas = Canvas(WIDTH, 292, "The lattice of taggings" if english else "标注的网格")

    def at(t: int, j: int) -> tuple[float, float]:
        return 188 + 104 * t, 76 + 66 * j

    for t in range(3):
        for i in range(3):
            for j in range(3):
                if T[i, j] > -5:
                    (x, y), (to_x, to_y) = at(t, i), at(t + 1, j)
                    on_path = best[t] == i and best[t + 1] == j
                    canvas.line([(x + 28, y), (to_x - 28, to_y)], "stroke-a" if on_path else "line")
    for t, word in enumerate(words):
        canvas.text(at(t, 0)[0], 32, word, "strong")
        for j in range(3):
            x, y = at(t, j)
            canvas.rect(x - 28, y - 18, 56, 36, "a" if best[t] == j else "box", 0.35 if best[t] == j else 1)
            canvas.text(x, y + 6, f"{z[t, j]:.1f}")
    for j, tag in enumerate(tags):
        canvas.text(146, 82 + 66 * j, tag, anchor="end")
    rows = (
        (("each word alone", alone), ("the whole sentence", best))
        if english
        else (("逐词取最大", alone), ("整句取最大", best))
    )
    for row, (name, path) in enumerate(rows):
        canvas.text(16, 254 + 26 * row, name, "soft small", anchor="start")
        for t in range(4):
            canvas.text(at(t, 0)[0], 254 + 26 * row, tags[path[t]], "small")
    return canvas.svg()


def _draw_moves(language: Language) -> str:
    allowed, begins = allowed_transitions(_TAGS)
    english = language == "en"
    canvas = Canvas(WIDTH, 318, "Which tag may follow which" if english else "哪个标签可以跟在哪个后面")
    left, top, cell = 190.0, 66.0, 40.0
    canvas.text(left + 2.5 * cell + 30, 24, "next tag" if english else "后一个标签", "soft small")
    rows = [*zip(_TAGS, allowed.tolist(), strict=True), ("(start)" if english else "（句首）", begins.tolist())]
    for column, tag in enumerate(_TAGS):
        canvas.text(left + 60 * column + 28, 52, tag, "small")
    for row, (tag, seen) in enumerate(rows):
        y = top + cell * row
        canvas.text(left - 12, y + 25, tag, anchor="end")
        for column, one in enumerate(seen):
            canvas.rect(left + 60 * column, y, 56, 36, "a" if one else "b", 0.5 if one else 0.15)
            canvas.text(left + 60 * column + 28, y + 24, "✓" if one else "✗")
    return canvas.svg()


def _draw_span(language: Language) -> str:
    context = "The Mock Turtle told his story to Alice and the Gryphon"
    words = context.split()
    starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
    offsets = np.stack([starts, starts + [len(word) for word in words]], 1)
    first = [0.1, -0.3, -1, -2, -1, -1, -0.5, 2.1, -1, 0.4, 0.3]
    last = [-2, -2, -1, -1, 0, -0.5, -1, 0.9, -1, 0, 2.0]
    z = np.array([first, last]).T
    one = Input(0, np.arange(len(words)), None, SpanTargets(offsets, (0, 0)))
    best = Answer().join(Example(("?", context), None), [(one, z)])[0]
    english = language == "en"
    canvas = Canvas(WIDTH, 252, "First and last token of an answer" if english else "答案的首尾词元")
    shares = [class_shares(z[:, side].tolist()) for side in (0, 1)]
    widths = [14 + 8.6 * len(word) for word in words]
    for side, (name, kind) in enumerate(zip(("first", "last") if english else ("首", "尾"), ("a", "b"), strict=True)):
        canvas.rect(20 + 110 * side, 16, 16, 16, kind, 0.75)
        canvas.text(44 + 110 * side, 30, name, anchor="start")
    for place, word in enumerate(words):
        left, width = 14 + sum(widths[:place]), widths[place]
        for side, kind in enumerate("ab"):
            height = 120 * shares[side][place]
            canvas.rect(left + width / 2 - 15 + 16 * side, 176 - height, 14, max(height, 1), kind, 0.75)
        inside = best.start <= starts[place] < best.end
        canvas.text(left + width / 2, 198, word, "small strong" if inside else "small soft")
    question = "Whom did he tell his story?"
    canvas.text(WIDTH / 2, 234, f"{question} → {best.text}")
    return canvas.svg()


def _draw_frames(language: Language) -> str:
    source, target = ["long", "text", "→"], ["short", "text", "."]
    ids = np.arange(3, dtype=np.int32)
    inputs = [Input(0, np.arange(5, dtype=np.int32), None, TextTargets(ids, None, 3))]
    rows = Summarize(head="causal").batch(inputs, pack([inputs[0].ids])).rows
    assert rows is not None
    scored = set(rows.tolist())
    english = language == "en"
    canvas = Canvas(WIDTH, 192, "Only the target counts" if english else "只有目标计分")
    for place, word in enumerate([*source, *target[:-1]]):
        x = 118 + 86 * place
        canvas.rect(x, 106, 76, 38, "box" if place < 3 else "a", 1 if place < 3 else 0.25)
        canvas.text(x + 38, 131, word)
        if place in scored:
            canvas.arrow(x + 38, 102, x + 38, 66)
            canvas.rect(x, 24, 76, 38, "a", 0.6)
            canvas.text(x + 38, 49, target[place - 2])
    for y, name in ((49, "predicted" if english else "要预测的"), (131, "read" if english else "读到的")):
        canvas.text(104, y, name, "soft small", anchor="end")
    canvas.text(118 + 128, 172, "source" if english else "原文", "soft small")
    canvas.text(118 + 86 * 4 - 5, 172, "target" if english else "目标", "soft small")
    return canvas.svg()


def _draw_command(language: Language) -> str:
    words = "turn on the lamp in the bedroom".split()
    tags = ["O", "O", "O", "B-device", "O", "O", "B-room"]
    gold = Intent().normalized([Intent().example({"words": words, "tags": tags, "intent": "turn_on"}, with_gold=True)])
    english = language == "en"
    canvas = Canvas(WIDTH, 172, "A command: intent and slots" if english else "一条指令：意图与槽位")
    x = 24.0
    for word, tag in zip(["[CLS]", *words], [f"{gold[0].gold.intent}", *gold[0].gold.tags], strict=True):
        width = max(12 + 9.2 * max(len(word), len(tag) * 0.95), 46)
        kind = "b" if word == "[CLS]" else "a" if tag != "O" else "line"
        canvas.rect(x, 96, width, 34, "box")
        canvas.text(x + width / 2, 118, word, "small")
        canvas.arrow(x + width / 2, 93, x + width / 2, 68)
        canvas.rect(x, 32, width, 34, kind, 0.4 if kind != "line" else 0.8)
        canvas.text(x + width / 2, 54, tag, "small")
        x += width + 5
    canvas.text(WIDTH / 2, 158, "one output layer for both" if english else "两者共用一个输出层", "soft small")
    return canvas.svg()


def _draw_adapter(language: Language) -> str:
    english = language == "en"
    task = Classify(tuple(_CHAPTERS))
    counts = []
    for rank in (0, 8, 2):
        with quieted():
            network = from_folder(_FOLDER, task, 0.0, 0).network
        if rank:
            adapt(network, rank, 0)
        counts.append(sum(x.numel() for x in network.parameters() if x.requires_grad))
    names = ["all weights", "LoRA, r = 8", "LoRA, r = 2"] if english else ["全部权重", "LoRA，r = 8", "LoRA，r = 2"]
    title = "Weights that are trained" if english else "参与训练的权重"
    note = "thousand weights of the small guide model" if english else "本书的小模型，单位：千个权重"
    return bar_chart(title, names, [count / 1000 for count in counts], digits=1, note=note)


FINE_TUNING_PICTURES: dict[str, Drawing] = {
    "tuning-parts": _draw_parts,
    "tuning-curve": _draw_curve,
    "tuning-leak": _draw_leak,
    "crf-lattice": _draw_lattice,
    "crf-moves": _draw_moves,
    "tuning-span": _draw_span,
    "tuning-frames": _draw_frames,
    "tuning-command": _draw_command,
    "tuning-adapter": _draw_adapter,
}
