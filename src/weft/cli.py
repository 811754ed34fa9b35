"""The command line: one function per command, each a few lines. Heavy imports stay inside, so `--help` is instant.

Results go to standard output, everything else to standard error. Exit code 0 for success, 2 for what the user can
put right, 1 for the rest. An error is a sentence; `--debug` anywhere on the line shows the traceback as well.
"""

import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.commands.printing import as_json_line, print_facts, print_lines, print_next
from weft.errors import InputError, WeftError, refuse_address
from weft.progress import say
from weft.terminal import for_standard_output

app = typer.Typer(
    name="weft",
    help="weft turns text into language models.",
    epilog="Every command takes --json (one JSON object on standard output) and --debug (tracebacks).",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ROW_FORMAT = "csv, tsv, jsonl, json, parquet, conll, conllu or text. Default: by the file's ending."
FORMAT = "Of all files: text, jsonl, json, csv, tsv, parquet, html, warc or wet. Default: by their endings."


def _output(what: str) -> Any:
    """-o of every command that writes: a path on this machine."""
    return typer.Option("--output", "-o", help=what, callback=lambda path: path and refuse_address(path))


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        from weft.version import VERSION

        print(VERSION)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


@app.command()
def info(
    path: Annotated[
        Path | None,
        typer.Argument(help="A folder (model, tokenizer, run) or a recipe (.yml). Without it: this installation."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Argument(help="key=value, changes to the recipe.")] = None,
    as_json: AsJson = False,
) -> None:
    """What is in this folder: family, sizes, parameters, vocabulary, memory, files. Alone: what weft computes with
    here, and which of its kernels serve.
    """
    from weft.commands.info import describe, describe_machine

    print_facts(describe_machine() if path is None else describe(path, settings or ()), as_json)


@app.command()
def corpus(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="A recipe (.yml) with key=value changes; or files, folders, patterns, http(s) addresses, .urls lists, "
            "- for standard input. Or: report DIR.",
            metavar="RECIPE|SOURCE...",
        ),
    ],
    output: Annotated[Path | None, _output("The folder to write.")] = None,
    documents: Annotated[str | None, typer.Option(help="What a document of a .txt is: file, line or block.")] = None,
    text: Annotated[str | None, typer.Option(help="The key or column that holds the text (text).")] = None,
    format: Annotated[str | None, typer.Option(help=FORMAT)] = None,
    languages: Annotated[str | None, typer.Option(help="Those to keep: en,zh.")] = None,
    validation: Annotated[float | None, typer.Option(help="The share that is held out to validate on (0.05).")] = None,
    mask: Annotated[bool, typer.Option("--mask", help="Mask e-mail addresses; phone, card, bank, id numbers.")] = False,
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Drop nothing for its quality.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes (one for each core).")] = None,
    against: Annotated[Path | None, typer.Option(help="With report: an earlier corpus to compare with.")] = None,
    no_examples: Annotated[
        bool, typer.Option("--no-examples", help="With report: leave texts out of the page, to pass it on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a clean corpus: read, extract, clean, filter, deduplicate, split; with a report to look at."""
    from weft.commands.corpus import build_from_recipe, build_from_sources, report_on_corpus

    is_report = sources[0] == "report" and output is None
    if not is_report and (against is not None or no_examples):
        raise InputError("--against and --no-examples go with: weft corpus report DIR.")
    if is_report:
        print_facts(report_on_corpus(sources[1:], against, examples=not no_examples), as_json)
        return
    options: dict[str, Any] = {"documents": documents, "text": text, "format": format}
    options |= {"languages": languages, "validation": validation, "mask": mask or None, "no_filter": no_filter or None}
    options = {key: value for key, value in options.items() if value is not None}
    if sources[0].endswith((".yml", ".yaml")):
        results = build_from_recipe(Path(sources[0]), sources[1:], options, output, workers)
    else:
        results = build_from_sources(sources, options, output, workers)
    print_facts(results, as_json)
    print_next(f"weft tokenizer {results['corpus']} -o tokenizer", f"{results['report']} shows it.", quiet=as_json)


@app.command()
def tokenizer(
    sources: Annotated[
        list[Path], typer.Argument(help="Files (text, .jsonl, .csv, .parquet, pages …; also packed), folders, or -.")
    ],
    output: Annotated[Path, _output("The folder to write.")],
    format: Annotated[str | None, typer.Option(help=FORMAT)] = None,
    kind: Annotated[str, typer.Option(help="bpe, wordpiece, unigram or char.")] = "bpe",
    vocab_size: Annotated[int | None, typer.Option(help="Tokens, special ones included (8000; char: all).")] = None,
    family: Annotated[str | None, typer.Option(help="The model family whose special tokens it gets.")] = None,
    cased: Annotated[bool, typer.Option("--cased", help="WordPiece: keep upper case and accents.")] = False,
    limit_bytes: Annotated[int | None, typer.Option(help="Learn from at most so much text.")] = None,
    as_json: AsJson = False,
) -> None:
    """Learn a vocabulary from text, and report how well it fits."""
    from weft.commands.corpus import reading_in
    from weft.tokenizer.build import build_tokenizer

    options: dict[str, Any] = {
        "vocabulary": vocab_size,
        "family": family,
        "lowercase": not cased,
        "most_bytes": limit_bytes,
    }
    print_facts(build_tokenizer(sources, output, kind, reading_in(format), **options), as_json)


@app.command()
def pretrain(
    recipe: Annotated[Path, typer.Argument(help="A recipe (.yml).")],
    settings: Annotated[list[str] | None, typer.Argument(help="key=value, changes to the recipe.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
    output: Annotated[Path | None, _output("The run folder (runs/NAME).")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a language model from scratch, or further: tokenizer, tokens, training, a folder that opens anywhere."""
    from weft.recipe.file import read_recipe
    from weft.train.pretrain import pretrain

    read = read_recipe(recipe, settings or ())
    folder = output or Path("runs") / read.name
    results = pretrain(read, recipe.parent, folder, resume=resume)
    print_facts(results, as_json)
    print_next(f"weft info {results['model']}", f"{folder}/report.html has the curves.", quiet=as_json)


@app.command()
def finetune(
    recipe: Annotated[Path, typer.Argument(help="A recipe (.yml) with a finetune section.")],
    settings: Annotated[list[str] | None, typer.Argument(help="key=value, changes to the recipe.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
    output: Annotated[Path | None, _output("The run folder (runs/NAME).")] = None,
    as_json: AsJson = False,
) -> None:
    """Teach a model a task: classify, tag, answer, translate …; with a report beside a classical method."""
    from weft.commands.tasks import print_judged
    from weft.recipe.file import read_recipe
    from weft.tasks.learning.finetune import finetune

    read = read_recipe(recipe, settings or ())
    folder = output or Path("runs") / read.name
    results = finetune(read, recipe.parent, folder, resume=resume)
    print_judged(results, as_json=as_json)
    print_next(f"weft predict {results['model']} TEXT", quiet=as_json)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[list[Path], typer.Argument(help="A file of examples; or two parallel texts.")],
    task: Annotated[str | None, typer.Option(help="What it is to do; as it was fine-tuned, if left out.")] = None,
    train: Annotated[
        list[Path] | None, typer.Option(help="What a classical method learns from, to stand beside; may be repeated.")
    ] = None,
    column: Annotated[list[str] | None, typer.Option(help="role=column, such as text=sentence; repeated.")] = None,
    encoding: Annotated[str, typer.Option(help="Of the files.")] = "utf-8",
    format: Annotated[str | None, typer.Option(help=ROW_FORMAT)] = None,
    output: Annotated[Path | None, _output("A folder for report.html and .json.")] = None,
    as_json: AsJson = False,
) -> None:
    """How good a model is at its task: metrics with intervals, the hardest mistakes, cost, a baseline beside it."""
    from weft.commands.tasks import evaluate_model, print_judged

    results = evaluate_model(model, data, task, train or [], column or [], encoding, format, output)
    print_judged(results, as_json=as_json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[list[str] | None, typer.Argument(help="What to answer; of a pair, its texts one by one.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="A file of rows (.txt: lines; .csv, .jsonl …), or - for standard input.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="What it is to do; as it was fine-tuned, if left out.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="role=column, such as text=sentence; repeated.")] = None,
    encoding: Annotated[str, typer.Option(help="Of the file.")] = "utf-8",
    format: Annotated[str | None, typer.Option(help=ROW_FORMAT)] = None,
    details: Annotated[bool, typer.Option("--details", help="All labels, the next best answers.")] = False,
    with_text: Annotated[bool, typer.Option("--with-text", help="Repeat the given text in each line.")] = False,
    output: Annotated[Path | None, _output("A file for the answers (.jsonl).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on behind what --output holds already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer texts, or every row of a file: one JSON line each."""
    from weft.commands.tasks import predict_given, predict_rows

    if (file is None) == (not texts):
        raise InputError("Give texts, or --file, one of them.")
    if file is None:
        if output is not None or resume or column or format or encoding != "utf-8":
            raise InputError("--output, --resume, --column, --encoding and --format go with --file.")
        answers = predict_given(model, texts or [], task, details=details, with_text=with_text)
        if as_json:
            print(as_json_line({"answers": answers}))
        else:
            print_lines(answers)
        return
    if as_json and output is None:
        raise InputError("--json prints one object; give the answers a file with --output.")
    options: dict[str, Any] = {"details": details, "with_text": with_text, "resume": resume}
    facts = predict_rows(model, file, task, column or [], encoding, format, output, print_lines, **options)
    if as_json:
        print(as_json_line(facts))


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe (.yml).")],
    settings: Annotated[list[str] | None, typer.Argument(help="key=value, changes to the recipe.")] = None,
    output: Annotated[Path | None, _output("The run folder (runs/NAME).")] = None,
    as_json: AsJson = False,
) -> None:
    """The whole recipe: what is done is skipped, what was stopped goes on, what is out of date is done anew."""
    from weft.commands.run import run
    from weft.recipe.file import read_recipe

    read = read_recipe(recipe, settings or ())
    results = run(read, recipe.parent, output or Path("runs") / read.name)
    if {"figures", "cost"} <= set(results):
        from weft.commands.tasks import print_judged

        print_judged(results, as_json=as_json)
    else:
        print_facts(results, as_json)


@app.command()
def generate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="What to go on from, or to write from; without one, a conversation.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file with a prompt in every line.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="greedy, sample or beam; told from the rest if left out.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="At most so many (64, or what fits).")] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="No end token before so many.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--n", help="Answers to each prompt (1).")] = None,
    temperature: Annotated[float | None, typer.Option(help="Below 1 bolder, above 1 wilder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Only the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only the likeliest that make up p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Only those p times as likely as the likeliest.")] = None,
    typical_p: Annotated[float | None, typer.Option(help="Only the most typical that make up p.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same samples.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1: repeats are less likely.")] = None,
    frequency_penalty: Annotated[float | None, typer.Option(help="Off the score, for each time written.")] = None,
    beams: Annotated[int | None, typer.Option(help="Texts followed side by side (4).")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Above 0 favours long texts (1).")] = None,
    groups: Annotated[int | None, typer.Option(help="Groups of beams that keep apart.")] = None,
    diversity: Annotated[float | None, typer.Option(help="How much groups keep apart (0.5).")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End the text before this; may be given again.")] = None,
    ban: Annotated[list[str] | None, typer.Option(help="Never write this token; may be given again.")] = None,
    choose: Annotated[list[str] | None, typer.Option(help="Choose among these answers; given once for each.")] = None,
    slide: Annotated[
        bool, typer.Option("--slide", help="Go on beyond the context, forgetting its older half.")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Weights in whole bytes: nearly the same; faster in batches.")
    ] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print the text as it is written.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write: continue a prompt, translate or summarize a source, choose among answers."""
    from weft.commands.generate import as_lines, choose_answers, converse, write_answers

    given: dict[str, Any] = {
        "strategy": strategy, "max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens, "n": n,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p,
        "seed": seed, "repetition_penalty": repetition_penalty, "frequency_penalty": frequency_penalty,
        "beams": beams, "length_penalty": length_penalty, "groups": groups, "diversity": diversity,
        "stop": stop or None, "banned": ban or None, "slide": slide or None,
    }  # fmt: skip
    settings = {name: value for name, value in given.items() if value is not None}
    if stream and as_json:
        raise InputError("--stream prints text as it comes, --json one object at the end: give one of them.")
    if not prompts and file is None:
        if as_json or choose:
            raise InputError("--json and --choose need a prompt, or --file.")
        converse(model, int8=int8, settings=settings)
        return
    if choose:
        if settings or stream or int8:
            raise InputError("--choose scores given answers; the settings of writing do not go with it.")
        results = choose_answers(model, prompts or [], file, choose)
    else:
        results = write_answers(model, prompts or [], file, stream=stream, int8=int8, settings=settings)
    if as_json:
        print(as_json_line(results))
    elif results:
        print(for_standard_output(as_lines(results, one_line_each=file is not None)))


@app.command()
def families(as_json: AsJson = False) -> None:
    """The model families and their published sizes, with parameter counts."""
    from weft.model.families import FAMILIES
    from weft.model.network import count_parameters, outline

    print_facts(
        {
            name: {size: count_parameters(outline(family.sized(size).architecture())) for size in family.sizes}
            for name, family in FAMILIES.items()
        },
        as_json,
    )


@app.command()
def schema(as_json: AsJson = False) -> None:
    """The JSON Schema of recipes, for editors. It is JSON either way."""
    from weft.recipe.recipe import recipe_schema

    print(json.dumps(recipe_schema()))


def main() -> None:
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name in Chinese on an ASCII terminal is no reason to stop
    try:
        if app(arguments, standalone_mode=False) == 130:  # typer has swallowed Ctrl-C and gives its code
            raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            say(traceback.format_exc())
        sys.exit(_explain(error))


def _explain(error: BaseException) -> int:
    """Say what happened on standard error; returns the exit code."""
    match error:
        case WeftError():
            say(f"weft: {error}")
            return error.exit_code
        case KeyboardInterrupt():
            say("weft: interrupted.")
            return 130
        case BrokenPipeError():  # the reader of our output went away, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        case OSError():
            say(f"weft: {error.filename or 'standard output'}: {error.strerror or error}.")
            return 2
    if hasattr(error, "format_message"):  # the command line itself was off; click and typer each have such a class
        say(f"weft: {error.format_message()} (weft --help shows the commands)")
        return 2
    say(f"weft: {type(error).__name__}: {error}. This is a fault in weft; --debug shows where.")
    return 1
