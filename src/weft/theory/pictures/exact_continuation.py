"""The pictures of the chapter on exact continuation."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from weft.api.model import create
from weft.charts import Curve
from weft.generate.next_token import uniforms
from weft.model.dropout import dropout_mask
from weft.objectives.causal import Causal
from weft.splitmix64 import mix64
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model, guide_text
from weft.theory.written.exact_continuation import epoch_keys, feistel_permuted, mixed_bits
from weft.tokens.keyed_shuffle import KeyedShuffle
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import Engine, piece_seed
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step


def _draw_bits(language: Language) -> str:
    """Sixteen counters in binary, before and after mixing: the last 32 of 64 bits."""
    english, count, cell = language == "en", 16, 8
    canvas = Canvas(WIDTH, 236, "Counters before and after mixing" if english else "混合之前与之后的计数")
    counters = np.arange(1, count + 1, dtype=np.uint64)
    names = ("1, 2, 3, … in binary", "mixed") if english else ("1, 2, 3, … 的二进制", "混合之后")
    for panel, (name, values) in enumerate(zip(names, (counters, mix64(counters)), strict=True)):
        left = 14 + 276 * panel
        canvas.text(left + 16 * cell, 30, name)
        for line, value in enumerate(values.tolist()):
            for bit in range(32):
                on = value >> (31 - bit) & 1
                x, y = left + cell * bit, 44 + 10 * line
                canvas.rect(x, y, cell - 1, 9, "a" if on else "soft", 0.9 if on else 0.12)
    note = "row: the last 32 bits of a number; blue: 1" if english else "一行：一个数的最后 32 位；蓝色：1"
    canvas.text(WIDTH / 2, 224, note, "soft small")
    return canvas.svg()


def _draw_uniforms(language: Language) -> str:
    """Each of 300 numbers with its successor, for two keys."""
    english, size = language == "en", 236
    canvas = Canvas(WIDTH, 316, "Numbers and their successors" if english else "随机数与它的下一个")
    for panel, key in enumerate((1, 2)):
        left, top = 24 + 276 * panel, 42
        canvas.text(left + size / 2, 28, f"k = {key}")
        canvas.rect(left, top, size, size, "box")
        u = uniforms([key] * 301, range(301))
        for x, y in pairwise(u):
            canvas.circle(left + size * x, top + size * (1 - y), 2.2, "b" if panel else "a", 0.8)
    note = "across: the number of step t; up: that of step t + 1" if english else "横：第 t 步的数；纵：第 t + 1 步的数"
    canvas.text(WIDTH / 2, 302, note, "soft small")
    return canvas.svg()


def _draw_feistel(language: Language) -> str:
    """Four rounds for one number of four bits."""
    english, x, half = language == "en", 6, 2
    keys = epoch_keys(0, 0)
    canvas = Canvas(WIDTH, 376, "Four rounds" if english else "四轮")
    left, right = x >> half, x % 2**half
    middle = 216
    canvas.text(middle, 28, f"{x} = {left:02b} {right:02b}")
    for round_number in range(5):
        y = 42 + 64 * round_number
        for place, value in ((middle - 70, left), (middle + 70, right)):
            canvas.rect(place - 32, y, 64, 30, "box")
            canvas.text(place, y + 21, f"{value:02b}")
        canvas.text(middle - 120, y + 21, f"L{round_number}", "soft small", anchor="end")
        canvas.text(middle + 120, y + 21, f"R{round_number}", "soft small", anchor="start")
        if round_number < 4:
            mixed = mixed_bits((right + keys[round_number]) % 2**64) % 2**half
            canvas.arrow(middle + 54, y + 30, middle - 54, y + 62, "stroke")
            canvas.arrow(middle - 54, y + 30, middle + 54, y + 62, "stroke-a")
            text = f"⊕ mix(R{round_number} + K{round_number}) = {mixed:02b}"
            canvas.text(middle + 150, y + 52, text, "small", anchor="start")
            left, right = right, left ^ mixed
    result = feistel_permuted(x, keys, half)
    canvas.text(middle, 360, f"{left:02b} {right:02b} = {result}", "strong")
    return canvas.svg()


def _draw_shuffle(language: Language) -> str:
    """The ten positions of an epoch, and where each walks within sixteen numbers."""
    english, size, half = language == "en", 10, 2
    keys, cell, left = epoch_keys(0, 0), 42, 124
    walks = []
    for position in range(size):
        walk = [feistel_permuted(position, keys, half)]
        while walk[-1] >= size:
            walk.append(feistel_permuted(walk[-1], keys, half))
        walks.append(walk)
    assert [walk[-1] for walk in walks] == KeyedShuffle(size, 0)[range(size)].tolist()
    steps = max(map(len, walks))
    canvas = Canvas(WIDTH, 114 + 46 * (steps + 1), "Ten positions" if english else "十个位置")
    names = ["position" if english else "位置", *(f"F{'²³⁴⁵'[n - 2] if n > 1 else ''}" for n in range(1, steps + 1))]
    for line, name in enumerate(names):
        canvas.text(left - 20, 46 + 46 * line, name, "soft small", anchor="end")
    y = 46 + 46 * (steps + 1)
    canvas.text(left - 20, y, "sample" if english else "样本", "strong", anchor="end")
    for position, walk in enumerate(walks):
        x = left + cell * position + cell / 2
        canvas.text(x, 46, str(position), "soft")
        for line, value in enumerate(walk, 1):
            inside = value < size
            canvas.rect(x - 18, 24 + 46 * line, 36, 32, "a" if inside else "b", 0.25)
            canvas.text(x, 46 + 46 * line, str(value))
        canvas.text(x, y, str(walk[-1]), "strong")
    note = "orange: 10 or more, so once again" if english else "橙色：不小于 10，再走一步"
    canvas.text(WIDTH / 2, canvas.height - 18, note, "soft small")
    return canvas.svg()


def _draw_steps(language: Language) -> str:
    """Three epochs of ten samples, in steps of four."""
    english, size, each = language == "en", 10, 4
    found = Order((size,), (1.0,), 0)[range(24)]
    cell, left = 42, 28
    canvas = Canvas(WIDTH, 246, "Steps and epochs" if english else "步与轮")
    for number, index in enumerate(found):
        x, y = left + cell * (number % 12), 52 + 98 * (number // 12)
        canvas.rect(x + 2, y, cell - 4, 38, ("a", "b", "soft")[index.epoch], 0.3)
        canvas.text(x + cell / 2, y + 25, str(index.sample))
        if number % each == 0:
            canvas.line([(x + 4, y - 6), (x + cell * each - 4, y - 6)], "stroke")
            name = f"step {number // each}" if english else f"第 {number // each} 步"
            canvas.text(x + cell * each / 2, y - 14, name, "small")
        if number % size == 0:
            name = f"epoch {index.epoch}" if english else f"第 {index.epoch} 轮"
            canvas.text(x + 4, y + 56, name, "soft small", anchor="start")
    note = "numbers: samples; a new colour: a new epoch" if english else "数字：样本；换颜色：新的一轮"
    canvas.text(WIDTH / 2, 234, note, "soft small")
    return canvas.svg()


def _draw_dropout(language: Language) -> str:
    """The first mask of three steps, and of step 2 once more after a resume."""
    english, cell, side = language == "en", 14, 8
    canvas = Canvas(WIDTH, 208, "Masks of steps" if english else "各步的掩码")
    names = [f"step {t}" if english else f"第 {t} 步" for t in (0, 1, 2)]
    names.append("step 2 again" if english else "再来第 2 步")
    for panel, (name, step) in enumerate(zip(names, (0, 1, 2, 2), strict=True)):
        left = 16 + 136 * panel
        torch.manual_seed(piece_seed(0, step, 0))
        mask = dropout_mask(torch.Size((side, side)), 0.25, torch.float64)
        canvas.text(left + cell * side / 2 + 4, 30, name, "" if panel < 3 else "strong")
        for i, row in enumerate(mask.tolist()):
            for j, kept in enumerate(row):
                shade = 0.75 if kept else 0.15
                canvas.rect(left + 4 + cell * j, 46 + cell * i, cell - 2, cell - 2, "a" if kept else "soft", shade)
    note = "grey: dropped, p = 0.25" if english else "灰色：置 0，p = 0.25"
    canvas.text(WIDTH / 2, 192, note, "soft small")
    return canvas.svg()


_STEPS, _KILLED = 60, 30


def _engine(seed: int) -> Engine:
    network = create("gpt2", vocabulary=2000, layers=1, width=8, heads=2, positions=16, dropout=0.1, seed=0).network
    return Engine(Step(network.double().train(), _objective()), _spec().optimizer, seed=seed)


def _objective() -> Causal:
    tokens: Any = np.array(guide_model().tokenizer.encode(guide_text()[0][:6000]))  # as good as shards of a file
    return Causal(tokens, 16)


def _spec() -> TrainSpec:
    return TrainSpec(_STEPS, 4, Schedule(_STEPS))


def _weights(engine: Engine) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in engine.weights])


def _draw_resume(language: Language) -> str:
    """How far the weights of three resumed runs are from those of a run that nobody stopped."""
    english, spec = language == "en", _spec()
    objective = _objective()
    pieces = StepBatches([objective], Order((len(objective),), (1.0,), 0), spec)
    whole = _engine(0)
    states, kept = {}, None
    for t in range(_STEPS):
        if t == _KILLED:
            kept = copy.deepcopy((whole.step.network.state_dict(), whole.optimizers[0].state_dict()))
        whole.take_step(pieces(t), t, spec.schedule(t))
        states[t + 1] = _weights(whole).clone()
    assert kept is not None
    names = ("exact", "no Adam state", "other seed") if english else ("精确续训", "丢了 Adam 的状态", "换了种子")
    curves = []
    for name, colour, seed, has_optimizer in zip(names, ("a", "b", "soft"), (0, 0, 1), (1, 0, 1), strict=True):
        engine = _engine(seed)
        engine.step.network.load_state_dict(kept[0])
        if has_optimizer:
            engine.optimizers[0].load_state_dict(copy.deepcopy(kept[1]))
        points = [(float(_KILLED), 0.0)]
        for t in range(_KILLED, _STEPS):
            engine.take_step(pieces(t), t, spec.schedule(t))
            points.append((float(t + 1), float((_weights(engine) - states[t + 1]).norm())))
        curves.append(Curve(name, colour, points))
    return curve_chart(
        "Resumed at step 30" if english else "从第 30 步续训",
        curves,
        "step" if english else "步",
        "distance of the weights from the run that was not stopped" if english else "权重离没有中断的那次有多远",
        300,
    )


EXACT_CONTINUATION_PICTURES: dict[str, Drawing] = {
    "continuation-bits": _draw_bits,
    "continuation-uniforms": _draw_uniforms,
    "continuation-feistel": _draw_feistel,
    "continuation-shuffle": _draw_shuffle,
    "continuation-steps": _draw_steps,
    "continuation-dropout": _draw_dropout,
    "continuation-resume": _draw_resume,
}
