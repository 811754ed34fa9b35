"""The pictures of the chapter on compression."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from weft.charts import Curve
from weft.compress.prune.compensate import LeastSquares
from weft.compress.prune.depth import block_influence
from weft.compress.prune.fisher import fisher_scores
from weft.compress.prune.select import best_of
from weft.compress.prune.sparse import zero_weights
from weft.compress.quantize.divergence import Reference
from weft.compress.quantize.gptq import round_gptq
from weft.compress.quantize.rounding import round_to_nearest, round_with, search_scales
from weft.compress.quantize.statistics import input_statistics
from weft.model.network import Network
from weft.model.packed import pack
from weft.model.quantized import QuantizedLinear, QuantizedWeight, quantize_weight, weight_bytes
from weft.objectives.distil_losses import soft_kl
from weft.objectives.distil_tasks import uniform_mapping
from weft.objectives.objective import Batch
from weft.progress import quieted
from weft.theory.drawing import WIDTH, Canvas, bar_chart, curve_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import guide_model, guide_text

_LENGTH = 64


def _text_batch(text: str, most: int) -> Batch:
    """Windows of the text; every token but the first of a window is scored."""
    ids = guide_model().tokenizer.encode(text)
    starts = range(0, len(ids) - _LENGTH, _LENGTH)[:most]
    targets = torch.tensor([token for start in starts for token in ids[start + 1 : start + _LENGTH + 1]])
    return Batch(pack([ids[start : start + _LENGTH] for start in starts]), targets, counts={"causal": len(targets)})


@cache
def _batches() -> tuple[Batch, Batch]:
    """Of the chapters that the model knows, and of the one it has not seen."""
    known, unseen = guide_text()
    return _text_batch(known, 48), _text_batch(unseen, 32)


@cache
def _reference() -> Reference:
    return Reference(guide_model().network, [_batches()[1]])


def _change(network: Network) -> float:
    """The KL divergence from the whole model's predictions on the unseen chapter, per token."""
    return _reference().divergence(network)


def _copy() -> Network:
    return copy.deepcopy(guide_model().network)


def _blocks(network: Network) -> list[Any]:
    assert network.decoder is not None
    return list(network.decoder.blocks)


@contextmanager
def _inputs_of(matrix: torch.nn.Linear) -> Iterator[list[Tensor]]:
    taken: list[Tensor] = []
    handle = matrix.register_forward_pre_hook(lambda _, given: taken.append(given[0].detach()))
    try:
        yield taken
    finally:
        handle.remove()


_LABELS = {"sport": ("体育", 5.0), "travel": ("旅行", 4.0), "food": ("美食", 1.0), "law": ("法律", 0.0)}


def _draw_temperature(language: Language) -> str:
    """What a teacher says about a text, at three temperatures."""
    english = language == "en"
    logits = torch.tensor([logit for _, logit in _LABELS.values()], dtype=torch.float64)
    canvas = Canvas(WIDTH, 208, "Soft targets" if english else "软目标")
    for place, temperature in enumerate((1.0, 2.0, 4.0)):
        left = 82 + 162 * place
        canvas.text(left + 45, 30, f"T = {temperature:g}", "strong")
        for row, (name, share) in enumerate(zip(_LABELS, (logits / temperature).softmax(-1).tolist(), strict=True)):
            y = 44 + 34 * row
            if place == 0:
                canvas.text(left - 10, y + 20, name if english else _LABELS[name][0], anchor="end")
            canvas.rect(left, y + 4, max(130 * share, 1), 24, "a", 0.75)
            canvas.text(left + 130 * share + 6, y + 21, f"{share:.3f}".lstrip("0"), "soft small", anchor="start")
    note = "logits 5, 4, 1, 0 of a teacher" if english else "教师的 logit 为 5、4、1、0"
    canvas.text(WIDTH / 2, 196, note, "soft small")
    return canvas.svg()


def _draw_gradient(language: Language) -> str:
    """The size of the gradient at growing temperatures, with T² and without."""
    english = language == "en"
    teacher = torch.tensor([4.0, 2.0, 1.0, -1.0], dtype=torch.float64)
    curves: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for step in range(4, 33):
        temperature = step / 4
        student = torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(soft_kl(student, teacher, temperature), student)
        curves[True].append((temperature, float(slope.norm())))
        curves[False].append((temperature, float(slope.norm()) / temperature**2))
    return curve_chart(
        "Why the square of the temperature" if english else "为什么要乘温度的平方",
        [
            Curve("with T²" if english else "乘 T²", "a", curves[True]),
            Curve("without" if english else "不乘", "b", curves[False]),
        ],
        "temperature T" if english else "温度 T",
        "length of the gradient" if english else "梯度的长度",
        290,
    )


def _draw_layers(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 338, "Which layer learns from which" if english else "哪一层向哪一层学")
    student, teacher = 3, 6
    bottom, step = 290, 40
    canvas.text(150, 26, "teacher, width 6" if english else "教师，宽 6")
    canvas.text(420, 26, "student, width 4" if english else "学生，宽 4")

    def at(layer: int) -> float:
        return bottom - step * layer

    for layer in range(teacher + 1):
        canvas.rect(60, at(layer) - 13, 180, 26, "box")
        name = ("embedding" if english else "嵌入") if layer == 0 else f"h{layer}"
        canvas.text(150, at(layer) + 5, name, "small")
    pairs = [(0, 0), *enumerate(uniform_mapping(student, teacher), 1)]
    for mine, theirs in pairs:
        canvas.rect(360, at(theirs) - 13, 120, 26, "a", 0.35)
        name = ("embedding" if english else "嵌入") if mine == 0 else f"s{mine}"
        canvas.text(420, at(theirs) + 5, name, "small")
        canvas.arrow(356, at(theirs), 246, at(theirs))
        canvas.text(301, at(theirs) - 7, "P" if mine else "P₀", "soft small")
    note = "each state of the student, mapped by P, should equal the teacher's"
    canvas.text(WIDTH / 2, 326, note if english else "学生的状态经 P 映射后，应当等于教师的状态", "soft small")
    return canvas.svg()


@cache
def _head_facts() -> list[tuple[float, float]]:
    """For each head: its Fisher score, and how far predictions on the unseen chapter move without it."""
    network = _copy()
    with quieted():
        scores = fisher_scores(network, [_batches()[0]])
    facts = []
    for number, block in enumerate(_blocks(network)):
        whole = block.attention.out.weight.data.clone()
        for head, score in enumerate(scores[f"decoder.blocks.{number}.attention"].tolist()):
            block.attention.out.weight.data[:, 16 * head : 16 * (head + 1)] = 0
            facts.append((score, _change(network)))
            block.attention.out.weight.data.copy_(whole)
    return facts


def _draw_heads(language: Language) -> str:
    english = language == "en"
    facts = _head_facts()
    canvas = Canvas(WIDTH, 350, "Score and damage of each head" if english else "每个头的得分与损害")
    names = ("score F", "KL without it") if english else ("得分 F", "去掉它后的 KL")
    for x, name in zip((112, 330), names, strict=True):
        canvas.text(x, 30, name, "soft small", anchor="start")
    most = [max(column) for column in zip(*facts, strict=True)]
    for place, fact in enumerate(facts):
        y = 44 + 34 * place
        layer, head = place // 4 + 1, place % 4 + 1
        canvas.text(98, y + 19, f"{layer}.{head}", anchor="end")
        for left, value, top, kind, text in zip(
            (112, 330), fact, most, "ab", (f"{fact[0]:.0f}", f"{fact[1]:.3f}"), strict=True
        ):
            canvas.rect(left, y + 4, max(140 * value / top, 1), 20, kind, 0.75)
            canvas.text(left + max(140 * value / top, 1) + 7, y + 19, text, "soft small", anchor="start")
    note = "2.4: layer 2, head 4" if english else "2.4：第 2 层第 4 个头"
    canvas.text(WIDTH / 2, 338, note, "soft small")
    return canvas.svg()


def _draw_influence(language: Language) -> str:
    """Influence of the two layers, and how far predictions move without either."""
    english = language == "en"
    model = guide_model()
    influence = block_influence(model.network, [_batches()[0]])
    values = [influence["decoder", layer] for layer in range(2)]
    changes = []
    for layer in range(2):
        network = _copy()
        block = _blocks(network)[layer]
        for matrix in (block.attention.out, block.feedforward.down):  # adds nothing: the layer is gone
            matrix.weight.data.zero_()
            matrix.bias.data.zero_()
        changes.append(_change(network))
    names = ["layer 1", "layer 2"] if english else ["第 1 层", "第 2 层"]
    canvas = Canvas(WIDTH, 150, "What a layer changes" if english else "一层改变多少")
    heads = ("influence B", "KL without it") if english else ("影响 B", "去掉它后的 KL")
    for left, head, column, kind in zip((112, 330), heads, (values, changes), "ab", strict=True):
        canvas.text(left, 34, head, "soft small", anchor="start")
        for row, value in enumerate(column):
            y = 50 + 46 * row
            if left == 112:
                canvas.text(98, y + 25, names[row], anchor="end")
            canvas.rect(left, y + 6, max(140 * value / max(column), 1), 28, kind, 0.75)
            canvas.text(left + 140 * value / max(column) + 7, y + 26, f"{value:.2f}", "soft small", anchor="start")
    return canvas.svg()


@cache
def _zero_curves() -> dict[str, list[tuple[float, float]]]:
    """Change of the predictions by the share of weights that stay, chosen by |w| ‖x‖ and by |w| alone."""
    curves: dict[str, list[tuple[float, float]]] = {"both": [], "weights": []}
    for share in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2):
        scored, plain = _copy(), _copy()
        with quieted():
            zero_weights(scored, [_batches()[0]], share)
        for name, matrix in plain.named_modules():
            if isinstance(matrix, torch.nn.Linear) and ".blocks." in name:
                count = round((1 - share) * matrix.in_features)
                matrix.weight.data.scatter_(1, matrix.weight.abs().argsort(dim=1, stable=True)[:, :count], 0.0)
        for name, network in (("both", scored), ("weights", plain)):
            curves[name].append((100 * share, _change(network)))
    return curves


def _draw_zeros(language: Language) -> str:
    english = language == "en"
    curves = _zero_curves()
    return curve_chart(
        "Weights set to zero" if english else "部分权重置零",
        [
            Curve("by |w|" if english else "按 |w|", "b", curves["weights"]),
            Curve("by |w|·‖x‖" if english else "按 |w|·‖x‖", "a", curves["both"]),
        ],
        "share of the weights that stay, %" if english else "留下的权重，%",
        "KL from the whole model" if english else "与完整模型的 KL",
        310,
    )


@cache
def _repaired() -> list[tuple[int, float, float]]:
    """Neurons that stay in the last layer; how far predictions move after the cut, and after the fit."""
    network = _copy()
    known, _ = _batches()
    with quieted():
        scores = fisher_scores(network, [known])["decoder.blocks.1.feedforward"]
    down = _blocks(network)[1].feedforward.down
    whole, bias = down.weight.data.clone(), down.bias.data.clone()
    with torch.inference_mode(), _inputs_of(down) as taken:
        network(known.packed)
    (x,) = taken
    found = []
    for count in (256, 192, 128, 64, 32, 16):
        kept = best_of(scores, count)
        start = torch.cat([whole[:, kept].T, bias[None]])
        sums = LeastSquares.empty(count, len(bias), bias=True)
        sums.add(x[:, kept], x @ whole.T + bias)
        changes = []
        for weights in (start, sums.solve(start, 1e-3)):
            down.weight.data.zero_()
            down.weight.data[:, kept] = weights[:-1].T
            down.bias.data.copy_(weights[-1])
            changes.append(_change(network))
        found.append((count, changes[0], changes[1]))
    return found


def _draw_repair(language: Language) -> str:
    english = language == "en"
    facts = _repaired()
    return curve_chart(
        "Cut, and cut and refitted" if english else "剪了，和剪后再拟合",
        [
            Curve("cut" if english else "只剪", "b", [(count, change) for count, change, _ in reversed(facts)]),
            Curve(
                "refitted" if english else "剪后拟合", "a", [(count, change) for count, _, change in reversed(facts)]
            ),
        ],
        "neurons of layer 2 that stay (of 256)" if english else "第 2 层留下的神经元（共 256）",
        "KL from the whole model" if english else "与完整模型的 KL",
        300,
    )


def _draw_grid(language: Language) -> str:
    """Thirty-two weights of a matrix, and the values that four bits allow: with r = 1, and with the searched scale."""
    english = language == "en"
    weight = _blocks(guide_model().network)[0].feedforward.up.weight[174:175, :32].detach().float()
    largest = float(weight.abs().max())
    searched = float(search_scales(weight, 4, group=32))
    canvas = Canvas(WIDTH, 236, "Rounding to a grid" if english else "舍入到格点")
    reach = 8.4 * largest / 7

    def at(value: float) -> float:
        return 280 + 256 * value / reach

    for place, scale in enumerate((largest / 7, searched)):
        y = 84 + 92 * place
        rounded = scale * round_with(weight, torch.tensor([scale]), 4)
        error = float((weight - rounded).square().sum() / weight.square().sum())
        share = scale * 7 / largest
        text = f"r = {share:.2f}, error {error:.2%}" if english else f"r = {share:.2f}，误差 {error:.2%}"
        canvas.text(24, y - 38, text, "small", anchor="start")
        canvas.line([(16, y), (WIDTH - 16, y)], "line")
        for value in range(-8, 8):
            canvas.line([(at(scale * value), y - 12), (at(scale * value), y + 12)], "stroke")
            if value in (-8, 0, 7):
                canvas.text(at(scale * value), y + 29, str(value), "soft small")
        for number, w in enumerate(weight[0].tolist()):
            canvas.circle(at(w), y - 4 + 4 * (number % 3), 4, "a", 0.65)
    note = "dots: weights; bars: values of 4 bits" if english else "点：权重；竖线：4 比特能表示的值"
    canvas.text(WIDTH / 2, 226, note, "soft small")
    return canvas.svg()


@cache
def _quantized() -> list[float]:
    """How far predictions move with 8 bits; with 4 and a scale per row, in groups of 32, and with error feedback."""
    known, _ = _batches()
    names = [name for name, one in _copy().named_modules() if isinstance(one, torch.nn.Linear) and ".blocks." in name]
    with quieted():
        statistics = input_statistics(_copy(), names, [known], hessians=True)

    def change(kind: str) -> float:
        network = _copy()
        for name in names:
            weight = network.get_parameter(f"{name}.weight")
            match kind:
                case "8":
                    new = quantize_weight(weight)
                case "4, rows":
                    new = round_to_nearest(weight, 4, group=weight.shape[1])
                case "4, groups":
                    new = round_to_nearest(weight, 4)
                case _:
                    hessian = statistics[name].hessian
                    assert hessian is not None
                    new = round_gptq(weight, hessian)
            weight.data.copy_(new.dequantized())
        return _change(network)

    return list(map(change, ("8", "4, rows", "4, groups", "4, feedback")))


def _draw_bits(language: Language) -> str:
    english = language == "en"
    names = (
        ["8 bits", "4 bits, a scale per row", "4 bits, groups of 32", "4 bits, feedback"]
        if english
        else ["8 比特", "4 比特，每行一个比例", "4 比特，32 个一组", "4 比特，误差反馈"]
    )
    return bar_chart(
        "What rounding costs" if english else "舍入的代价",
        names,
        [1000 * change for change in _quantized()],
        digits=2,
        note="KL from the whole model, thousandths of a nat per token"
        if english
        else "与完整模型的 KL，每词元千分之一纳特",
    )


def _draw_bytes(language: Language) -> str:
    """Of BERT-base's largest kind of matrix, 3,072 × 768."""
    english = language == "en"
    rows, columns = 3072, 768
    values, plain = torch.zeros(rows, columns, dtype=torch.int8), torch.nn.Linear(columns, rows, bias=False)
    sizes = [weight_bytes(plain), weight_bytes(plain.half())]
    for bits, groups in ((8, 1), (4, columns // 32)):
        sizes.append(weight_bytes(QuantizedLinear(QuantizedWeight(values, torch.zeros(rows, groups), bits), None)))
    names = ["fp32", "fp16", "int8", "int4, groups of 32"] if english else ["fp32", "fp16", "int8", "int4，32 个一组"]
    note = "megabytes of a matrix of 3,072 × 768" if english else "一个 3072 × 768 矩阵的大小，单位 MB"
    title = "Bytes of a matrix" if english else "一个矩阵的字节数"
    return bar_chart(title, names, [size / 1e6 for size in sizes], digits=2, note=note)


COMPRESSION_PICTURES: dict[str, Drawing] = {
    "compression-temperature": _draw_temperature,
    "compression-gradient": _draw_gradient,
    "compression-layers": _draw_layers,
    "compression-heads": _draw_heads,
    "compression-influence": _draw_influence,
    "compression-zeros": _draw_zeros,
    "compression-repair": _draw_repair,
    "compression-grid": _draw_grid,
    "compression-bits": _draw_bits,
    "compression-bytes": _draw_bytes,
}
