"""The pictures of the chapter on several processes."""

import torch

from weft.model.families import design
from weft.model.network import outline
from weft.model.tensor_parallel import network_of_peer
from weft.theory.drawing import WIDTH, Canvas
from weft.theory.entry import Drawing, Language
from weft.train.gradients import Branch, TreeSum, branches_of
from weft.train.local import shared_rows
from weft.train.processes import Processes

_PIECES = 8
_LOOKS = (("a", 0.9), ("b", 0.85), ("soft", 0.6), ("a", 0.35), ("b", 0.35))  # of processes


def _owner(piece: int, world: int) -> int:
    return next(rank for rank in range(world) if piece in Processes(rank, world).own_pieces(_PIECES))


def _draw_pieces(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(
        WIDTH, 256, "Eight pieces in one, two, three and five processes" if english else "八份，由几个进程分"
    )
    for line, world in enumerate((1, 2, 3, 5)):
        y = 40 + 48 * line
        name = f"{world} process{'es' * (world > 1)}" if english else f"{world} 个进程"
        canvas.text(128, y + 22, name, "", anchor="end")
        for piece in range(_PIECES):
            colour, opacity = _LOOKS[_owner(piece, world)]
            canvas.rect(144 + 49 * piece, y, 46, 34, colour, opacity)
            canvas.text(144 + 49 * piece + 23, y + 23, str(piece), "strong")
    note = "numbers: pieces of a step; a colour: one process" if english else "数字：一步里的份；一种颜色：一个进程"
    canvas.text(WIDTH / 2, 246, note, "soft small")
    return canvas.svg()


def _draw_tree(language: Language) -> str:
    """What three processes add for themselves, and what they exchange."""
    english, world = language == "en", 3
    canvas = Canvas(WIDTH, 336, "The tree of sums of eight pieces" if english else "八份梯度相加的树")
    ranges = [Processes(rank, world).own_pieces(_PIECES) for rank in range(world)]
    own = {branch: rank for rank, pieces in enumerate(ranges) for branch in _sums_of(pieces)}
    for height in range(4):
        size = 2**height
        for first in range(0, _PIECES, size):
            x, y = 45 + 67 * (first + (size - 1) / 2), 262 - 72 * height
            if height:
                for half in (first, first + size // 2):
                    canvas.line([(x, y), (45 + 67 * (half + (size // 2 - 1) / 2), y + 72)], "stroke")
    for height in range(4):
        size = 2**height
        for first in range(0, _PIECES, size):
            x, y = 45 + 67 * (first + (size - 1) / 2), 262 - 72 * height
            name = f"g{'₀₁₂₃₄₅₆₇'[first]}" if size == 1 else f"{first}–{first + size - 1}"
            canvas.rect(x - 29, y - 18, 58, 36, "card")
            if (first, size) in own:
                canvas.rect(x - 29, y - 18, 58, 36, *_LOOKS[own[first, size]])
            else:
                canvas.rect(x - 29, y - 18, 58, 36, "box")
            canvas.text(x, y + 6, name, "strong" if (first, size) in own else "")
    note = (
        "a colour: summed inside one process; white: exchanged"
        if english
        else "一种颜色：一个进程内部相加；白色：交换之后相加"
    )
    canvas.text(WIDTH / 2, 322, note, "soft small")
    return canvas.svg()


def _sums_of(pieces: range) -> set[tuple[int, int]]:
    """All branches that a process adds up on the way: first piece and size."""
    found = set()
    for end in range(pieces.start + 1, pieces.stop + 1):
        found |= set(branches_of(range(pieces.start, end)))
        found.add((end - 1, 1))
    return found


def shares_that_differ(elements: int = 20_000) -> dict[int, tuple[float, float]]:
    """Of sums of eight random numbers, how many differ in their bits from those of one process: when each process adds
    its own and these sums are added, and along the tree.
    """
    g = (torch.rand(_PIECES, elements, generator=torch.Generator().manual_seed(1)) - 0.5) / 3
    found = {}
    whole = _in_turn(list(g))
    tree = _along_the_tree(g, 1)
    for world in (2, 3, 4, 5):
        ranges = [Processes(rank, world).own_pieces(_PIECES) for rank in range(world)]
        usual = _in_turn([_in_turn([g[piece] for piece in pieces]) for pieces in ranges])
        ours = _along_the_tree(g, world)
        found[world] = float((usual != whole).double().mean()), float((ours != tree).double().mean())
    return found


def _in_turn(tensors: list[torch.Tensor]) -> torch.Tensor:
    total = tensors[0].clone()
    for one in tensors[1:]:
        total += one
    return total


def _along_the_tree(g: torch.Tensor, world: int) -> torch.Tensor:
    total = TreeSum()
    for rank in range(world):
        own = TreeSum()
        for piece in Processes(rank, world).own_pieces(_PIECES):
            own.add(Branch(piece, 1, [g[piece].clone()]))
        for branch in own.branches:
            total.add(branch)
    return total.total()[0]


def _draw_rounding(language: Language) -> str:
    english = language == "en"
    canvas = Canvas(WIDTH, 262, "Sums whose bits differ" if english else "位不相同的和")
    names = ("each adds its own first", "along the tree") if english else ("各自先加", "沿树相加")
    for place, (name, colour) in enumerate(zip(names, ("b", "a"), strict=True)):
        canvas.rect(24 + 260 * place, 16, 18, 18, colour, 0.85)
        canvas.text(50 + 260 * place, 31, name, anchor="start")
    for line, (world, shares) in enumerate(shares_that_differ().items()):
        y = 52 + 46 * line
        canvas.text(138, y + 22, f"{world} processes" if english else f"{world} 个进程", "", anchor="end")
        for place, (share, colour) in enumerate(zip(shares, ("b", "a"), strict=True)):
            canvas.rect(150, y + 18 * place, max(520 * share, 1), 16, colour, 0.85)
            canvas.text(158 + 520 * share, y + 14 + 18 * place, f"{share:.0%}", "small", anchor="start")
    note = (
        "sums of eight numbers that differ from those of one process"
        if english
        else "八个数之和，与单个进程算出的不同的占多少"
    )
    canvas.text(WIDTH / 2, 250, note, "soft small")
    return canvas.svg()


def _draw_memory(language: Language) -> str:
    """Bytes of weights, gradients and AdamW's state in one of eight processes."""
    english, world = language == "en", 8
    network = outline(design("gpt2", "gpt3-6.7b")[1])
    shapes = [weight.shape for weight in network.parameters()]
    whole = sum(shape.numel() for shape in shapes)
    shard = sum(len(shared_rows(shape[0], 0, world)) * shape[1:].numel() for shape in shapes)
    tensor = sum(one.numel() for one in network_of_peer(network, Processes(0, world)).parameters())
    rows = [
        ("all whole" if english else "全部完整", (whole, whole, whole)),
        ("ZeRO 1", (whole, whole, shard)),
        ("ZeRO 2", (whole, shard, shard)),
        ("sharded" if english else "分片", (shard, shard, shard)),
        ("tensor: 8", (tensor, tensor, tensor)),
    ]
    title = "Memory of one of eight processes" if english else "八个进程之一的内存"
    canvas, at = Canvas(WIDTH, 310, title), 24.0
    names = ("weights", "gradients", "AdamW's state") if english else ("权重", "梯度", "AdamW 的状态")
    for name, (colour, opacity) in zip(names, _LOOKS, strict=False):
        canvas.rect(at, 16, 18, 18, colour, opacity)
        canvas.text(at + 25, 31, name, "small", anchor="start")
        at += 140
    for line, (name, counts) in enumerate(rows):
        y, x = 52 + 45 * line, 116.0
        canvas.text(106, y + 23, name, "", anchor="end")
        for count, size, (colour, opacity) in zip(counts, (4, 4, 8), _LOOKS, strict=False):
            length = 3.3 * count * size / 1e9
            canvas.rect(x, y, max(length - 1, 1), 34, colour, opacity)
            x += length
        total = sum(count * size for count, size in zip(counts, (4, 4, 8), strict=True)) / 1e9
        canvas.text(x + 8, y + 23, f"{total:.1f} GB", "small", anchor="start")
    note = "a model of 6.7 billion weights; without activations" if english else "67 亿参数的模型；不含激活值"
    canvas.text(WIDTH / 2, 298, note, "soft small")
    return canvas.svg()


def _draw_peers(language: Language) -> str:
    """One layer in two peers."""
    english = language == "en"
    network = outline(design("gpt2", layers=1, width=64, heads=4, vocabulary=2000, positions=64)[1])
    part = network_of_peer(network, Processes(0, 2))
    assert part.decoder is not None
    block = part.decoder.blocks[0]
    matrices = ("attention.qkv", "attention.out", "feedforward.up", "feedforward.down")
    sizes = [block.get_parameter(f"{name}.weight").shape for name in matrices]
    canvas = Canvas(WIDTH, 336, "One layer in two peers" if english else "两个进程合算一层")
    names = ("heads", "W_O", "up", "down") if english else ("各头", "W_O", "上升", "下降")
    lefts = (70, 168, 318, 416)
    for rank in range(2):
        y, (colour, opacity) = 60 + 120 * rank, _LOOKS[rank]
        canvas.text(18, y + 42, f"{rank}", "strong", anchor="start")
        for left, name, (rows, columns) in zip(lefts, names, sizes, strict=True):
            canvas.rect(left, y, 84, 72, colour, 0.5 * opacity)
            canvas.text(left + 42, y + 32, name, "strong")
            canvas.text(left + 42, y + 55, f"{rows}×{columns}", "small")
        canvas.arrow(32, y + 36, 66, y + 36)
        for left in (154, 402):
            canvas.arrow(left, y + 36, left + 13, y + 36)
        for at in (252, 500):
            canvas.line([(at, y + 36), (at + 22, 138)], "stroke")
            canvas.line([(at + 42, 138), (at + 54 if at < 500 else at + 44, y + 36 if at < 500 else 138)], "stroke")
    for at in (284, 532):
        canvas.circle(at, 138, 15, "box")
        canvas.text(at, 144, "+", "strong")
    for line in (304, 306):
        canvas.line([(line, 96), (316, 96)] if line == 304 else [(line, 216), (316, 216)], "stroke")
    note = (
        "inside, each peer has its half; at + the halves are added"
        if english
        else "里面每个进程各有一半；到 + 处把两半相加"
    )
    canvas.text(WIDTH / 2, 306, note, "soft small")
    return canvas.svg()


PROCESSES_PICTURES: dict[str, Drawing] = {
    "processes-pieces": _draw_pieces,
    "processes-rounding": _draw_rounding,
    "processes-tree": _draw_tree,
    "processes-memory": _draw_memory,
    "processes-peers": _draw_peers,
}
