"""The student's shape: its family's settings, and the layers of the teacher that it starts from."""

from dataclasses import dataclass, fields, replace
from typing import Any

from weft.errors import RecipeError
from weft.model.families import Family, find_family
from weft.model.families.family import head_width
from weft.model.network import Architecture, count_parameters, outline
from weft.model.positions import longest
from weft.model.stack import StackSpec
from weft.recipe.distil import StudentSection
from weft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class StudentShape:
    family: Family
    sources: dict[str, tuple[int, ...]]  # by stack: the teacher's layer that each of the student's starts from


def student_shape(
    section: StudentSection, teacher: Family, architecture: Architecture, tokenizer: Tokenizer | None
) -> StudentShape:
    """Raises RecipeError if the family has no such model, or if it is larger than the teacher. `tokenizer`: the
    teacher's; None if it is yet to be made.
    """
    sources = {}
    for name, stack in (("encoder", architecture.encoder), ("decoder", architecture.decoder)):
        if stack is not None:
            wanted = section.layers
            if name == "decoder" and architecture.is_encoder_decoder:
                wanted = section.decoder_layers or section.layers
            sources[name] = taken_layers(section.take, wanted or stack.layers, stack.layers)
    if section.decoder_layers is not None and not architecture.is_encoder_decoder:
        raise RecipeError("distil.student.decoder_layers belongs to an encoder–decoder; give layers.")
    if section.family in (None, teacher.name):
        _check_not_larger(section, architecture)
        family = replace(teacher, **_changes(section, teacher, architecture, sources))
    else:
        family = _other_family(section, teacher, architecture, tokenizer)
    return StudentShape(family, sources)


def student_architecture(shape: StudentShape, head: str | None = None, outputs: int = 2) -> Architecture:
    """Raises RecipeError if the family has no such architecture. Default of `head`: the family's."""
    try:
        return shape.family.architecture(head, outputs)
    except RecipeError as error:
        raise RecipeError(f"distil.student: {error}") from None


def taken_layers(take: str | list[int], count: int, available: int) -> tuple[int, ...]:
    if isinstance(take, list):
        if len(take) != count or not all(0 <= layer < available for layer in take):
            raise RecipeError(
                f"distil.student.take names {len(take)} layers; it must name {count} from 0 to {available - 1}."
            )
        return tuple(take)
    if take == "upper":
        return tuple(max(0, available - count + layer) for layer in range(count))
    if take == "lower" or count == 1:
        return tuple(min(layer, available - 1) for layer in range(count))
    return tuple(round(layer * (available - 1) / (count - 1)) for layer in range(count))


def _check_not_larger(section: StudentSection, teacher: Architecture) -> None:
    encoder, decoder = teacher.encoder, teacher.decoder
    stack = encoder or decoder
    assert stack is not None
    block = stack.blocks[0]
    limits = {
        "layers": (section.layers, max(part.layers for part in (encoder, decoder) if part is not None)),
        "decoder_layers": (section.decoder_layers, decoder.layers if decoder is not None else None),
        "width": (section.width, teacher.width),
        "inner": (section.inner, block.feedforward.inner),
    }
    for name, (wanted, most) in limits.items():
        if wanted is not None and most is not None and wanted > most:
            raise RecipeError(
                f"distil.student.{name} is {wanted:,}, the teacher's {most:,}: a student is smaller than its teacher."
            )


def check_size(student: Architecture, teacher: Architecture) -> None:
    """Raises RecipeError if the student has more parameters than the teacher."""
    counts = [count_parameters(outline(one)) for one in (student, teacher)]
    if counts[0] > counts[1]:
        raise RecipeError(
            f"distil.student has {counts[0]:,} parameters, the teacher {counts[1]:,}: a student is not larger than its "
            "teacher."
        )


def _changes(
    section: StudentSection, teacher: Family, architecture: Architecture, sources: dict[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The settings of the teacher's family that differ."""
    names = {knob.name for knob in fields(teacher)}
    stack = architecture.encoder or architecture.decoder
    assert stack is not None
    block, width = stack.blocks[0], section.width or architecture.width
    main = "encoder" if architecture.encoder is not None else "decoder"
    changed: dict[str, Any] = {"layers": len(sources[main]), "width": width}
    changed["heads"] = section.heads or _heads_for(teacher, width, architecture.width, block.attention.heads)
    scaled = round(block.feedforward.inner * width / architecture.width)
    changed["inner"] = section.inner or scaled
    if "decoder_layers" in names:
        changed["decoder_layers"] = len(sources["decoder"])
    changed |= {name: None for name in ("decoder_heads", "decoder_inner") if name in names}
    if "key_value_heads" in names:
        groups = block.attention.key_value_heads
        changed["key_value_heads"] = groups if changed["heads"] % groups == 0 else changed["heads"]
    if "local_layers" in names:
        changed["local_layers"] = _local_layers(stack, sources[main])
    return changed


def _heads_for(teacher: Family, width: int, teacher_width: int, heads: int) -> int:
    """As wide as the teacher's, if the width allows; otherwise as many."""
    given = getattr(teacher, "head_width", None)
    if given is not None:
        return heads
    size = teacher_width // heads
    if width % size == 0:
        return width // size
    head_width(teacher.name, width, heads)  # raises if the width is not a multiple
    return heads


def _local_layers(stack: StackSpec, sources: tuple[int, ...]) -> tuple[int, ...]:
    local = () if stack.local is None else stack.local.layers
    return tuple(layer for layer, source in enumerate(sources) if source in local)


def _other_family(
    section: StudentSection, teacher: Family, architecture: Architecture, tokenizer: Tokenizer | None
) -> Family:
    assert section.family is not None
    kind = find_family(section.family)
    if kind.default_head.split("+")[0] != teacher.default_head.split("+")[0]:
        raise RecipeError(
            f"distil.student.family {kind.name} has a {kind.default_head} head, the teacher ({teacher.name}) a "
            f"{teacher.default_head} head: they do not predict the same."
        )
    stack = architecture.encoder or architecture.decoder
    assert stack is not None
    block, width = stack.blocks[0], section.width or architecture.width
    names = {knob.name for knob in fields(kind)}
    settings: dict[str, Any] = {
        "vocabulary": architecture.vocabulary,
        "layers": section.layers or stack.layers,
        "width": width,
        "heads": section.heads or block.attention.heads,
        "inner": section.inner or round(block.feedforward.inner * width / architecture.width),
        "tied": teacher.tied,
    }
    if "pad" in names and tokenizer is not None and (pad := tokenizer.id_of("pad")) is not None:
        settings["pad"] = pad
    if "positions" in names:
        settings["positions"] = (longest(architecture.embedding.positions) or 512) + settings.get("pad", -1) + 1
    return kind(**{name: value for name, value in settings.items() if name in names})
