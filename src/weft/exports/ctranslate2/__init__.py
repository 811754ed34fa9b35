"""CTranslate2: a fast runtime for Transformers on CPUs and GPUs. Its models are written from weft's own weights.

refusal     what cannot be exported, and why
write       the folder: `assemble` and `layers` make the model, `vocabulary` its token strings, `heads` the rest
readme      the README, with a program from `usage`
compare     the export in CTranslate2 against weft
"""

import json
import shlex
from pathlib import Path
from typing import Any

from weft.api.model import Model
from weft.exports.ctranslate2.refusal import reason_against
from weft.exports.target import Comparison, ExportTarget


def _write(model: Model, folder: Path, precision: str) -> dict[str, Any]:
    from weft.exports.ctranslate2.write import write_ctranslate2

    return write_ctranslate2(model, folder, precision)


def _compare(model: Model, folder: Path, precision: str) -> Comparison:
    from weft.exports.ctranslate2.compare import compare_ctranslate2

    return compare_ctranslate2(model, folder, precision)


def _next_step(model: Model, folder: Path) -> str:
    """A command with the tokens of a short text. The README has a whole program."""
    from weft.exports.ctranslate2.readme import runner_name
    from weft.exports.ctranslate2.vocabulary import token_strings

    tokenizer, strings = model.own_tokenizer, token_strings(model)
    ids = [1 % len(strings.tokens)] if tokenizer is None else tokenizer.encode("Once upon a time")
    known = [strings.tokens[number] for number in ids if number < len(strings.tokens)]
    tokens = json.dumps([known], ensure_ascii=False)
    call = {
        "Encoder": f"forward_batch({tokens}).last_hidden_state",
        "Generator": f"generate_batch({tokens}, max_length=32)[0]",
        "Translator": f"translate_batch({tokens})[0].hypotheses",
    }
    runner = runner_name(model)
    lines = [
        f"folder = {json.dumps(str(folder), ensure_ascii=False)}",
        f"found = ctranslate2.{runner}(folder).{call[runner]}",
    ]
    if runner == "Generator" and tokenizer is not None:
        decoded = 'tokenizers.Tokenizer.from_file(folder + "/tokenizer.json").decode(found.sequences_ids[0])'
        lines = ["import ctranslate2, tokenizers", *lines, f"print({decoded})"]
    else:
        lines = ["import ctranslate2", *lines, f"print({'found.sequences' if runner == 'Generator' else 'found'})"]
    return f"python -c {shlex.quote('; '.join(lines))}"


CTRANSLATE2 = ExportTarget(
    name="ctranslate2",
    title="CTranslate2",
    packages=("ctranslate2", "safetensors"),
    runtime="ctranslate2",
    precisions=("fp32", "int8", "f16"),
    why_not=reason_against,
    write=_write,
    compare=_compare,
    next_step=_next_step,
)
