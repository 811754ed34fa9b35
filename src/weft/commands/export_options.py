"""`weft export` and `weft import` on the command line: the commands and their options, each with its help text."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.commands import options as opt
from weft.commands.printing import print_facts, print_next
from weft.errors import InputError

_PANEL = "Precision of the weights (default: fp32)"


def _precision(name: str, help: str) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=_PANEL, show_default=False)


Target = Annotated[str, typer.Option("--to", help="What to write: onnx, ctranslate2 or gguf.", show_default=False)]
ExportFolder = Annotated[Path, typer.Option("-o", "--output", help="The folder to write.", show_default=False)]
NoCompare = Annotated[
    bool, typer.Option("--no-compare", help="Do not open the export in its runtime to compare it with weft.")
]
AsInt8 = Annotated[bool, _precision("int8", "int8 weights. ONNX, CTranslate2.")]
AsF16 = Annotated[bool, _precision("f16", "16-bit floats. GGUF, CTranslate2 (for GPUs).")]
AsBf16 = Annotated[bool, _precision("bf16", "bfloat16. GGUF.")]
AsQ8 = Annotated[bool, _precision("q8_0", "8 bits per weight in blocks of 32. GGUF.")]
AsQ5 = Annotated[bool, _precision("q5_0", "5 bits per weight. GGUF. Also --q5_1.")]
AsQ51 = Annotated[bool, typer.Option("--q5_1", hidden=True)]
AsQ4 = Annotated[bool, _precision("q4_0", "4 bits per weight. GGUF. Also --q4_1.")]
AsQ41 = Annotated[bool, typer.Option("--q4_1", hidden=True)]
GgufFile = Annotated[Path, typer.Argument(help="A GGUF file of a Llama-like model.", show_default=False)]


def export(
    model: opt.ModelFolder,
    to: Target,
    output: ExportFolder,
    int8: AsInt8 = False,
    f16: AsF16 = False,
    bf16: AsBf16 = False,
    q8_0: AsQ8 = False,
    q5_0: AsQ5 = False,
    q5_1: AsQ51 = False,
    q4_0: AsQ4 = False,
    q4_1: AsQ41 = False,
    no_compare: NoCompare = False,
    as_json: opt.AsJson = False,
) -> None:
    """Write a model for other programs: ONNX, CTranslate2 or GGUF (llama.cpp); checked in their runtimes."""
    from weft.commands.export import export_folder, shown_facts, steps_here

    flags = {"int8": int8, "f16": f16, "bf16": bf16, "q8_0": q8_0}
    flags |= {"q5_0": q5_0, "q5_1": q5_1, "q4_0": q4_0, "q4_1": q4_1}
    chosen = [name for name, is_set in flags.items() if is_set]
    if len(chosen) > 1:
        raise InputError(f"--{chosen[0]} and --{chosen[1]} do not go together: an export has one precision.")
    facts, next_step = export_folder(model, to, output, chosen[0] if chosen else None, compare=not no_compare)
    print_facts(facts if as_json else shown_facts(facts), as_json)
    for hint, command in steps_here(next_step):
        print_next(command, hint, quiet=as_json)


def import_model(file: GgufFile, output: ExportFolder, as_json: opt.AsJson = False) -> None:
    """Turn a GGUF file (Llama, Qwen3, GPT-2) into a model folder that can be tuned, served and evaluated."""
    from weft.commands.export import import_file

    print_facts(import_file(file, output), as_json)
    print_next(f'weft generate {shlex.quote(str(output))} "Once upon a time"', quiet=as_json)
