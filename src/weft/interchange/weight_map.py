"""Which stored tensors make up each parameter.

A family lists `Link`s from weft's modules to Hugging Face's. Several of theirs may be concatenated to one of ours
(query, key and value), and theirs may be stored transposed (GPT-2). A link of a module covers its weight and its bias.
Shapes come from our network: `plan` lists every tensor that a file must hold.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Link:
    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] | None = None  # of each of theirs. Default: equal parts
    transposed: bool = False
    shape: tuple[int, ...] | None = None  # of theirs, if it differs from ours by a reshape
    also: tuple[str, ...] = ()  # other names under which a file may hold the same tensor
    copies: tuple[str, ...] = ()  # names under which it is written as well, because transformers expects them
    or_else: str | None = None  # the name to use if a file lacks the first


def link(ours: str, *theirs: str, **details) -> Link:
    return Link(ours, theirs, **details)


@dataclass(frozen=True)
class Entry:
    """One parameter and the stored tensors it consists of."""

    ours: str
    theirs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    link: Link

    def join(self, tensors: list[Tensor], shape: torch.Size) -> Tensor:
        if self.link.transposed and tensors[0].dim() == 2:
            tensors = [tensor.T for tensor in tensors]
        return torch.cat(tensors).reshape(shape).contiguous()

    def split(self, tensor: Tensor) -> list[Tensor]:
        if self.link.shape is not None:
            return [tensor.reshape(self.link.shape)]
        if self.link.transposed and tensor.dim() == 2:
            return [tensor.T.contiguous()]
        parts = tensor.split(_rows(tensor, self.link))
        return [part.contiguous() for part in parts]


@dataclass(frozen=True)
class Plan:
    entries: list[Entry]
    tied: dict[str, str]  # stored name -> stored name of the same parameter
    aliases: dict[str, str]  # stored name -> stored name of the tensor it must equal, if present
    copies: dict[str, str]

    def adapted(self, names: Container[str]) -> "Plan":
        """The same plan with the names that this file uses."""
        entries = [
            replace(entry, theirs=(entry.link.or_else,))
            if entry.link.or_else and entry.theirs[0] not in names and entry.link.or_else in names
            else entry
            for entry in self.entries
        ]
        return replace(self, entries=entries)

    @property
    def required(self) -> dict[str, tuple[int, ...]]:
        return {name: shape for entry in self.entries for name, shape in zip(entry.theirs, entry.shapes, strict=True)}


def plan(network: nn.Module, links: Iterable[Link]) -> Plan:
    """Apply the links to this network. Each parameter must have exactly one link."""
    owner: dict[int, str] = {}
    entries: dict[str, Entry] = {}
    tied: dict[str, str] = {}
    aliases: dict[str, str] = {}
    copies: dict[str, str] = {}
    parameters = dict(network.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        owner.setdefault(id(parameter), name)
    canonical = {name: owner[id(parameter)] for name, parameter in parameters.items()}
    found = {
        name: (item, suffix)
        for item in links
        for suffix in ("", ".weight", ".bias")
        if (name := item.ours + suffix) in parameters
    }
    for name, (item, suffix) in found.items():
        names = tuple(part + suffix for part in item.theirs)
        if canonical[name] == name:
            shapes = tuple(tuple(part.shape) for part in Entry(name, names, (), item).split(parameters[name]))
            entries[name] = Entry(name, names, shapes, item)
    for name, (item, suffix) in found.items():
        original = entries[canonical[name]].theirs[0]
        if canonical[name] != name:
            tied[item.theirs[0] + suffix] = original
        aliases |= {other + suffix: original for other in item.also}
        copies |= {other + suffix: original for other in item.copies}
    if unlinked := set(canonical.values()) - set(entries):
        raise AssertionError(f"no weight map for {sorted(unlinked)}")
    return Plan(list(entries.values()), tied, aliases, copies)


def _rows(tensor: Tensor, item: Link) -> tuple[int, ...] | int:
    return item.rows or tensor.shape[0] // len(item.theirs)
