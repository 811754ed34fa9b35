"""The pictures of the chapter on learning."""

from functools import cache
from math import sqrt

import numpy as np
import torch

from weft.charts import Curve
from weft.theory.drawing import WIDTH, Canvas, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.written.learning import cross_entropy, loss_gradient, smoothed_cross_entropy, smoothed_target, softmax
from weft.train.exact_update import ExactAdamW, clip_gradients
from weft.train.loop import patience_rule
from weft.train.optimizers import orthogonal
from weft.train.schedules import Schedule
from weft.train.state import TrainState


def _draw_cross_entropy(language: Language) -> str:
    english = language == "en"
    plain, smooth = [], []
    for step in range(121):
        margin = -2 + step * 0.1
        z = [margin, 0.0, 0.0, 0.0]
        plain.append((margin, cross_entropy(z, 0)))
        smooth.append((margin, smoothed_cross_entropy(z, 0, 0.1)))
    return curve_chart(
        "Loss and margin" if english else "损失与差距",
        [Curve("ε = 0", "a", plain), Curve("ε = 0.1", "b", smooth)],
        "logit of the right token, the other three being 0" if english else "正确词元的 logit（其余三个为 0）",
        "loss" if english else "损失",
        300,
    )


def _draw_gradient(language: Language) -> str:
    """The gradient of four logits: bars down are pushed up."""
    z = [2.0, 1.0, 0.5, -1.0]
    english = language == "en"
    canvas = Canvas(WIDTH, 250, "Gradient of the logits" if english else "logit 的梯度")
    names = ("softmax p", "target t", "gradient p − t") if english else ("softmax p", "目标 t", "梯度 p − t")
    p, t = softmax(z), smoothed_target(4, 1, 0.0)
    for place, (name, values) in enumerate(zip(names, (p, t, loss_gradient(z, 1, 0.0)), strict=True)):
        left = 24 + 182 * place
        canvas.text(left + 74, 28, name)
        base = 180 if place < 2 else 124
        canvas.line([(left, base), (left + 150, base)], "line")
        for v, value in enumerate(values):
            x, size = left + 6 + 37 * v, 100 * abs(value)
            canvas.rect(x, base - size if value >= 0 else base, 28, max(size, 0.5), "b" if value < 0 else "a", 0.75)
            canvas.text(x + 14, base - size - 6 if value >= 0 else base + size + 17, f"{value:.2f}", "small")
            canvas.text(x + 14, 238, f"z{v + 1}", "soft small")
    return canvas.svg()


@cache  # both languages draw the same runs
def _descend(schedule: Schedule, rate: float, seed: int) -> tuple[float, ...]:
    """The loss ½‖w‖² along a run of weft's AdamW with noisy gradients."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.nn.Parameter(torch.full((64,), 1.0, dtype=torch.float64))
    optimizer = ExactAdamW([{"params": [weight], "weight_decay": 0.0}], lr=rate, betas=(0.9, 0.95), eps=1e-8)
    losses: list[float] = []
    for step in range(schedule.steps):
        losses.append(0.5 * float((weight**2).mean().detach()))
        noise = torch.randn(64, generator=generator, dtype=torch.float64)
        weight.grad = weight.detach() + 0.5 * noise
        optimizer.param_groups[0]["lr"] = rate * schedule(step)
        optimizer.step()
    return tuple(losses)


def _draw_descent(language: Language) -> str:
    """The same noisy bowl with a large, a small and a falling rate."""
    english = language == "en"
    steps = 400
    runs = [
        ("large rate" if english else "大学习率", "b", Schedule(steps, "linear", floor=1.0), 0.05),
        ("small rate" if english else "小学习率", "soft", Schedule(steps, "linear", floor=1.0), 0.003),
        ("falling" if english else "逐渐减小", "a", Schedule(steps, "cosine"), 0.05),
    ]
    curves = []
    for name, colour, schedule, rate in runs:
        mean = np.mean([_descend(schedule, rate, seed) for seed in range(4)], axis=0)
        curves.append(Curve(name, colour, [(step, float(np.log10(mean[step]))) for step in range(0, steps, 4)]))
    title = "A noisy bowl: the loss under three rates" if english else "有噪声的碗：三种学习率下的损失"
    return curve_chart(title, curves, "step" if english else "步", "log₁₀ loss" if english else "log₁₀ 损失", 300)


def _draw_schedules(language: Language) -> str:
    english = language == "en"
    curves = [
        Curve(name, colour, [(step, schedule(step)) for step in range(0, 1000, 5)])
        for name, colour, schedule in (
            ("cosine", "a", Schedule(1000, "cosine", warmup=50)),
            ("linear", "soft", Schedule(1000, "linear", warmup=50)),
            ("wsd", "b", Schedule(1000, "wsd", warmup=50, decay=0.3)),
        )
    ]
    title = "Three schedules" if english else "三种学习率调度"
    return curve_chart(
        title, curves, "step" if english else "步", "share of the peak rate" if english else "占峰值的比例", 280
    )


def _draw_singular_values(language: Language) -> str:
    """What five iterations make of a singular value."""
    english = language == "en"
    before = np.linspace(0.005, 1, 120)
    after = []
    for value in before:
        # A second singular value fills the norm up to 1.
        rest = sqrt(max(1 - value * value, 0.0))
        found = orthogonal(torch.diag(torch.tensor([value, rest], dtype=torch.float64)))
        after.append((float(value), float(found[0, 0])))
    return curve_chart(
        "Singular values before and after" if english else "迭代前后的奇异值",
        [
            Curve("after" if english else "之后", "a", after),
            Curve("before" if english else "之前", "soft", [(float(s), float(s)) for s in (before[0], 1.0)]),
        ],
        "singular value of G / ‖G‖" if english else "G / ‖G‖ 的奇异值",
        "after five iterations" if english else "五次迭代之后",
        280,
    )


def _draw_clipping(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 270, "Clipping by the norm" if english else "按范数裁剪")
    x0, y0, unit = 150.0, 190.0, 62.0
    canvas.circle(x0, y0, unit, "line")
    canvas.text(x0 - 58, y0 + unit + 6, "‖g‖ = 1", "soft small")
    for x, y in ((2.0, 2.4), (0.4, 0.5), (4.5, 0.9)):
        vector = torch.tensor([x, y], dtype=torch.float64)
        kept = vector.clone()
        clip_gradients([kept], 1.0, float(vector.norm()))
        to = (x0 + unit * x, y0 - unit * y)
        canvas.arrow(x0, y0, *to, "stroke-soft")
        canvas.arrow(x0, y0, x0 + unit * float(kept[0]), y0 - unit * float(kept[1]), "stroke-a")
        canvas.text(to[0] + 8, to[1] + 5, f"‖g‖ = {float(vector.norm()):.2f}", "soft small", anchor="start")
    notes = ("blue: after clipping to 1", "the short one stays") if english else ("蓝色：裁剪到 1 之后", "短的保持不变")
    for line, note in enumerate(notes):
        canvas.text(WIDTH - 20, 222 + 22 * line, note, "soft small", anchor="end")
    return canvas.svg()


def _draw_accumulation(language: Language) -> str:
    """How much each of ten tokens counts, for the sum over the step and for a mean of means."""
    english = language == "en"
    canvas = Canvas(WIDTH, 236, "Weight of each token in the loss" if english else "各词元在损失中的份量")
    names = ("divided by the step's count", "mean of means") if english else ("除以整步的个数", "平均的平均")
    for place, (name, shares) in enumerate(zip(names, ([0.1] * 10, [0.5] + [0.5 / 9] * 9), strict=True)):
        left = 22 + 274 * place
        canvas.text(left + 120, 28, name)
        for token, share in enumerate(shares):
            x, kind = left + 24 * token + (10 if token else 0), "b" if token == 0 else "a"
            canvas.rect(x, 190 - 280 * share, 20, 280 * share, kind, 0.75)
        canvas.text(left + 10, 182 - 280 * shares[0], f"{shares[0]:.2f}", "small")
        canvas.text(left + 130, 182 - 280 * shares[1], f"{shares[1]:.2f}", "small")
        canvas.text(left + 10, 210, "1", "soft small")
        canvas.text(left + 130, 210, "2 … 10", "soft small")
    note = (
        "orange: the piece with one token; blue: the piece with nine"
        if english
        else "橙色：只有一个词元的那份；蓝色：有九个的那份"
    )
    canvas.text(WIDTH / 2, 228, note, "soft small")
    return canvas.svg()


def _draw_stopping(language: Language) -> str:
    """The example's validations, judged by weft's own state and rule."""
    english = language == "en"
    losses = (3.0, 2.5, 2.6, 2.5, 2.7)
    canvas = Canvas(WIDTH, 240, "Early stopping with patience 3" if english else "耐心为 3 的早停")
    state, rule = TrainState(), patience_rule(3)
    places = [(90 + 92 * number, 320 - 95 * loss + 60) for number, loss in enumerate(losses)]
    canvas.line(places, "stroke-soft")
    for number, (loss, (x, y)) in enumerate(zip(losses, places, strict=True), 1):
        state.step = number
        state.judge({"validation_loss": loss}, None)
        stops = rule({}, state) is not None
        canvas.circle(x, y, 7, "b" if stops else "a" if state.best == number else "soft")
        canvas.text(x, y - 14, f"{loss:.1f}")
        waited = f"waited {state.waited}" if english else f"已等 {state.waited}"
        canvas.text(x, 206, waited, "soft small")
    note = "blue: the best so far; orange: training stops" if english else "蓝色：迄今最好；橙色：停止"
    canvas.text(WIDTH / 2, 230, note, "soft small")
    return canvas.svg()


LEARNING_PICTURES: dict[str, Drawing] = {
    "cross-entropy": _draw_cross_entropy,
    "gradient": _draw_gradient,
    "descent": _draw_descent,
    "singular-values": _draw_singular_values,
    "schedules": _draw_schedules,
    "clipping": _draw_clipping,
    "accumulation": _draw_accumulation,
    "early-stopping": _draw_stopping,
}
