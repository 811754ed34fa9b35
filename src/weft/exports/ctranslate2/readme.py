"""The README of an export: what the folder is, a program that uses it, its files, and what to know."""

from pathlib import Path

from weft.api.model import Model
from weft.exports.ctranslate2.heads import HEAD_WEIGHTS_FILE, HEADS_FILE
from weft.exports.ctranslate2.usage import usage_code
from weft.exports.ctranslate2.vocabulary import TokenStrings
from weft.version import VERSION

README_FILE = "README.md"
_PRECISIONS = {"fp32": "32-bit floats", "int8": "int8 weights, 32-bit floats elsewhere", "f16": "16-bit floats"}
_FILES = {
    "model.bin": "the weights",
    "config.json": "CTranslate2's settings of the model",
    "vocabulary.json": "token strings, in the order of their ids",
    "shared_vocabulary.json": "token strings, in the order of their ids",
    HEADS_FILE: "the heads, which CTranslate2's format has no place for",
    HEAD_WEIGHTS_FILE: "their arrays",
    "tokenizer.json": "the tokenizer, for Hugging Face's `tokenizers`",
    "generation_config.json": "recommended settings of generation, for your program to read",
    "chat_template.jinja": "how a conversation is written as one text",
}


def runner_name(model: Model) -> str:
    """The class of CTranslate2 that opens the export."""
    architecture = model.network.architecture
    if architecture.decoder is None:
        return "Encoder"
    return "Generator" if architecture.encoder is None else "Translator"


def readme_text(model: Model, strings: TokenStrings, precision: str, files: list[str], notes: list[str]) -> str:
    packages = "ctranslate2" if model.own_tokenizer is None else "ctranslate2 tokenizers"
    packages += " numpy safetensors" if model.network.architecture.decoder is None else ""
    name = "A model" if model.folder is None else _plain(model.folder)
    rows = [f"| `{file}` | {_FILES[file]} |" for file in files if file in _FILES]
    return "\n".join(
        [
            f"# {name} for CTranslate2",
            "",
            f"A {model.family} with {model.parameters_count:,} parameters ({_PRECISIONS[precision]}), written by weft "
            f"{VERSION} for [CTranslate2](https://github.com/OpenNMT/CTranslate2).",
            "",
            f"    pip install {packages}",
            "",
            "```python",
            usage_code(model, strings).rstrip("\n"),
            "```",
            "",
            "| file | what it is |",
            "| --- | --- |",
            *rows,
            *(["", *(f"- {note}" for note in notes)] if notes else []),
            "",
        ]
    )


def export_notes(model: Model, strings: TokenStrings, precision: str) -> list[str]:
    """What a user of the export should know."""
    architecture, notes = model.network.architecture, []
    if precision == "f16":
        notes.append("16-bit floats are for GPUs: on a CPU CTranslate2 converts them to 32 bits when it loads them.")
    if model.own_tokenizer is None:
        notes.append('The model has no tokenizer, so the token strings are the numbers: "0", "1", …')
    if architecture.decoder is not None:
        if len(strings.ends) > 1:
            notes.append("The model has several end tokens, and config.json holds one: pass them as end_token.")
        if strings.has_added_row:
            notes.append(f"The model has no end token. `{strings.ends[0]}` stands for it and is never written.")
        if len(strings.banned) > strings.has_added_row:
            notes.append("Tokens that the model must not write (bad_words_ids) have a low bias in the weights.")
        if architecture.encoder is None:
            notes.append("In a batch with a prompt of one token, CTranslate2 returns all prompts with their answers.")
    elif any(model.network.head(kind).out is not None for kind in model.network.heads):
        notes.append(f"CTranslate2 runs the encoder; {HEADS_FILE} and the README's program compute the head in numpy.")
    return notes


def _plain(folder: Path) -> str:
    """The folder's name, or that of the run for a run's `model`, without Markdown's own characters."""
    name = folder.resolve().name
    name = folder.resolve().parent.name if name == "model" else name
    return "".join(letter if letter.isalnum() or letter in " .-" else "\\" + letter for letter in name)
