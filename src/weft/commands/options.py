"""The options of the command line, each with its help text; `cli.py` says which command takes which."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.errors import refuse_address

_ROW_FORMATS = "Format: csv, tsv, jsonl, json, parquet, conll, conllu or text. Default: by the file extension."
_TEXT_FORMATS = (
    "Format of all files: text, jsonl, json, csv, tsv, parquet, html, warc or wet. Default: by the file extension."
)
_LENGTH, _SAMPLING, _BEAMS = "Length and content", "Sampling", "Beam search"  # panels of `weft generate --help`


def _output(what: str) -> Any:
    """-o of every command that writes: a path on this machine."""
    return typer.Option("--output", "-o", help=what, callback=lambda path: path and refuse_address(path))


def use_device(name: str | None) -> str | None:
    """What --device does: weft reads this variable wherever no device is named (weft.devices)."""
    if name is not None:
        os.environ["WEFT_DEVICE"] = name
    return name


def _in_panel(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per answer and nothing else.")]
OutputFolder = Annotated[Path, _output("The folder to write.")]
CorpusFolder = Annotated[Path | None, _output("The folder to write.")]
RunFolder = Annotated[Path | None, _output("The run folder. Default: runs/NAME.")]
ReportFolder = Annotated[Path | None, _output("A folder for report.html and report.json.")]
AnswerFile = Annotated[Path | None, _output("A file for the predictions (.jsonl).")]
FoundPage = Annotated[Path | None, _output("An HTML page with the passages.")]

ModelFolder = Annotated[Path, typer.Argument(help="A model folder.")]
RecipeFile = Annotated[Path, typer.Argument(help="A recipe (.yml).")]
RecipeOrRun = Annotated[
    Path, typer.Argument(help="A recipe (.yml); with --resume also the run folder.", metavar="RECIPE")
]
Changes = Annotated[list[str] | None, typer.Argument(help="Changes to the recipe: key=value, such as model.layers=6.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the newest complete checkpoint.")]
InfoPath = Annotated[
    Path | None,
    typer.Argument(help="A folder (model, tokenizer, corpus, run) or a recipe (.yml)."),
]

# weft corpus, weft tokenizer
CorpusSources = Annotated[
    list[str],
    typer.Argument(
        help="A recipe (.yml) with key=value changes; or files, folders, patterns, http(s) addresses, .urls files "
        "(an address per line), - for standard input. Or: report DIR, to write a corpus's report again.",
        metavar="RECIPE|SOURCE...",
    ),
]
TextFiles = Annotated[
    list[Path],
    typer.Argument(
        help="Files (text, .jsonl, .csv, .parquet, web pages …; may be compressed), folders, or - for stdin."
    ),
]
TextFormat = Annotated[str | None, typer.Option(help=_TEXT_FORMATS)]
DocumentUnit = Annotated[
    str | None,
    typer.Option(help="What is one document of a text file: file, line or block. Default: file."),
]
TextColumn = Annotated[str | None, typer.Option(help="The key or column that holds the text. Default: text.")]
Languages = Annotated[str | None, typer.Option(help="Languages to keep: en,zh.")]
ValidationShare = Annotated[float | None, typer.Option(help="Share held out for validation. Default: 0.05.")]
MaskPersonal = Annotated[
    bool, typer.Option("--mask", help="Mask e-mail addresses and phone, card, bank and ID numbers.")
]
NoFilter = Annotated[bool, typer.Option("--no-filter", help="Keep documents of low quality.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one per core.")]
Against = Annotated[Path | None, typer.Option(help="With report: an earlier corpus to compare with.")]
NoExamples = Annotated[bool, typer.Option("--no-examples", help="With report: leave example texts out of the page.")]
TokenizerType = Annotated[str, typer.Option(help="Kind: bpe, wordpiece, unigram or char.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Vocabulary size, including special tokens. Default: 8000; char: all characters.")
]
FamilyTokens = Annotated[str | None, typer.Option(help="Use the special tokens of this model family.")]
Cased = Annotated[bool, typer.Option("--cased", help="WordPiece: keep upper case and accents.")]
TrainBytes = Annotated[int | None, typer.Option(help="Train on at most this many bytes of text.")]

# weft evaluate, weft predict, weft fill
TestFiles = Annotated[
    list[Path],
    typer.Argument(help="Labelled examples (a file or two parallel texts). Language models: plain text. - is stdin."),
]
TaskOption = Annotated[
    str | None, typer.Option(help="Task (classify, pair, tag …). Default: the one the model was tuned for.")
]
BaselineFiles = Annotated[list[Path] | None, typer.Option(help="Training data for the baseline. Repeatable.")]
ColumnNames = Annotated[
    list[str] | None, typer.Option(help="Name a column: role=column, such as text=sentence. Repeatable.")
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Character encoding of the files. Default: that of the model's training data, or utf-8.",
        show_default=False,
    ),
]
RowFileFormat = Annotated[str | None, typer.Option(help=_ROW_FORMATS)]
EvaluationBytes = Annotated[int | None, typer.Option(help="Language models: read at most this many bytes of text.")]
ShotCount = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Ask a language model by prompts with so many labelled examples of --train, or none (0). "
        "With --task classify or pair.",
    ),
]
LabelWords = Annotated[
    list[str] | None,
    typer.Option(help="With --shots: how a label is written: label=words, such as 1=positive. Repeatable."),
]
InputTexts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts to predict for. A pair takes two texts; a question also takes its context."),
]
RowFile = Annotated[
    Path | None, typer.Option(help="A file with one input per row (.csv, .jsonl …) or line (.txt). - is stdin.")
]
PrecisionName = Annotated[
    str | None,
    typer.Option(help="fp32, bf16, auto, or on a CPU int8. Default: fp32, or what the model was quantized to."),
]
DeviceName = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1 or mps. Default: the GPU if there is one.", callback=use_device),
]
AllLabels = Annotated[
    bool, typer.Option("--details", help="Add the probabilities of all labels, or the next best answers.")
]
WithText = Annotated[bool, typer.Option("--with-text", help="Include the input text in each line.")]
ContinueOutput = Annotated[bool, typer.Option("--resume", help="Continue after the rows already in --output.")]
MaskedTexts = Annotated[list[str] | None, typer.Argument(help="Texts with [MASK] in them. - reads lines from stdin.")]
MaskedFile = Annotated[Path | None, typer.Option(help="A file with one text per line. - is stdin.")]
Top = Annotated[int, typer.Option(min=1, help="Number of words per mask.")]

# weft generate
PromptTexts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts to continue, or sources to translate, summarize … Default: chat in the terminal."),
]
PromptFile = Annotated[Path | None, typer.Option(help="A file with one prompt per line. - is stdin.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print the text while it is generated.")]
Int8 = Annotated[bool, typer.Option("--int8", help="int8 weights: nearly the same output, faster.")]
Choices = Annotated[
    list[str] | None, typer.Option(help="A candidate answer; the most probable one is printed. Repeatable.")
]
StrategyName = Annotated[
    str | None, typer.Option(help="Decoding: greedy, sample or beam. Default: inferred from the other options.")
]
AnswerCount = Annotated[int | None, typer.Option("-n", "--n", help="Texts per prompt. Default: 1.")]
MaxNewTokens = Annotated[int | None, _in_panel(_LENGTH, "Maximum number of new tokens. Default: 64, or what fits.")]
MaxAnswerTokens = Annotated[  # of weft chat
    int | None,
    _in_panel(
        _LENGTH,
        "Maximum number of tokens per answer. Default: 512, or what fits.",
        "--max-new-tokens",
        "--max-tokens",
    ),
]
MinNewTokens = Annotated[int | None, _in_panel(_LENGTH, "No end token before this many new tokens.")]
Stop = Annotated[list[str] | None, _in_panel(_LENGTH, "End the text before this string. Repeatable.")]
Ban = Annotated[list[str] | None, _in_panel(_LENGTH, "Never generate this token. Repeatable.")]
RepetitionPenalty = Annotated[
    float | None, _in_panel(_LENGTH, "Above 1: tokens that occurred before are less probable.")
]
FrequencyPenalty = Annotated[
    float | None, _in_panel(_LENGTH, "Subtracted from a token's score for each earlier occurrence.")
]
PresencePenalty = Annotated[
    float | None, _in_panel(_LENGTH, "Subtracted from a token's score once it has occurred in the text.")
]
NoRepeatNGram = Annotated[int | None, _in_panel(_LENGTH, "No n tokens in a row occur twice.")]
JsonSchema = Annotated[
    str | None, _in_panel(_LENGTH, "Write JSON that fits this schema: a file, or the schema itself.")
]
Regex = Annotated[str | None, _in_panel(_LENGTH, "Write a text that matches this regular expression.")]
OneOf = Annotated[list[str] | None, _in_panel(_LENGTH, "Write one of these texts. Repeatable.")]
Speculate = Annotated[
    int | None, _in_panel(_LENGTH, "Tokens to guess ahead in each step: the same text, often sooner.")
]
Draft = Annotated[
    Path | None, _in_panel(_LENGTH, "A smaller model with the same tokenizer that guesses. Default: n-grams.")
]
Slide = Annotated[
    bool, _in_panel(_LENGTH, "Continue beyond the context: when it is full, drop its older half.", "--slide")
]
Temperature = Annotated[float | None, _in_panel(_SAMPLING, "Below 1: more predictable; above 1: more random.")]
TopK = Annotated[int | None, _in_panel(_SAMPLING, "Sample from the k most probable tokens.")]
TopP = Annotated[float | None, _in_panel(_SAMPLING, "Sample from the fewest tokens whose probabilities add up to p.")]
MinP = Annotated[
    float | None, _in_panel(_SAMPLING, "Sample from tokens at least p times as probable as the most probable one.")
]
TypicalP = Annotated[
    float | None,
    _in_panel(_SAMPLING, "Locally typical sampling: the most typical tokens whose probabilities add up to p."),
]
Seed = Annotated[int | None, _in_panel(_SAMPLING, "The same seed gives the same samples.")]
Beams = Annotated[int | None, _in_panel(_BEAMS, "Hypotheses kept at each step. Default: 4.")]
LengthPenalty = Annotated[float | None, _in_panel(_BEAMS, "Above 0 favours long texts. Default: 1.")]
BeamGroups = Annotated[int | None, _in_panel(_BEAMS, "Diverse beam search: number of groups of beams.")]
Diversity = Annotated[
    float | None, _in_panel(_BEAMS, "Penalty for a token that an earlier group chose in the same step. Default: 0.5.")
]
