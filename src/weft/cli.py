"""The command line: one function per command, each a few lines. Heavy imports are inside, so that `--help` is fast.

Results go to standard output, everything else to standard error. The exit code is 0 for success, 2 for an error that
the user can correct, 1 for any other. An error is a sentence; `--debug` also prints the traceback.
"""

import errno
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.commands import options as opt
from weft.commands.chat_options import chat
from weft.commands.compare import compare
from weft.commands.distil import distil
from weft.commands.export_options import export, import_model
from weft.commands.page_options import watch_page
from weft.commands.printing import as_json_line, print_facts, print_lines, print_next, silent_beside_first
from weft.commands.prune import prune
from weft.commands.quantize import quantize
from weft.commands.search_options import search
from weft.commands.serve_options import serve
from weft.commands.theory import theory
from weft.errors import InputError, WeftError
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
def info(path: opt.InfoPath = None, settings: opt.Changes = None, as_json: opt.AsJson = False) -> None:
    """Describe a folder or a recipe: family, size, task, labels, score, memory, files.

    Without a path: the versions, devices and kernels of this installation.
    """
    from weft.commands.info import describe, describe_machine

    print_facts(describe_machine() if path is None else describe(path, settings or ()), as_json)


@app.command()
def corpus(
    sources: opt.CorpusSources,
    output: opt.CorpusFolder = None,
    documents: opt.DocumentUnit = None,
    text: opt.TextColumn = None,
    format: opt.TextFormat = None,
    languages: opt.Languages = None,
    validation: opt.ValidationShare = None,
    mask: opt.MaskPersonal = False,
    no_filter: opt.NoFilter = False,
    workers: opt.Workers = None,
    against: opt.Against = None,
    no_examples: opt.NoExamples = False,
    as_json: opt.AsJson = False,
) -> None:
    """Build a clean corpus and its report: read, extract, clean, filter, deduplicate, split."""
    from weft.commands.corpus import build_from_recipe, build_from_sources, report_on_corpus

    is_report = sources[0] == "report" and output is None
    if not is_report and (against is not None or no_examples):
        raise InputError("--against and --no-examples need: weft corpus report DIR.")
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
    print_next(f"weft tokenizer {results['corpus']} -o tokenizer", f"Report: {results['report']}.", quiet=as_json)


@app.command()
def tokenizer(
    sources: opt.TextFiles,
    output: opt.OutputFolder,
    format: opt.TextFormat = None,
    kind: opt.TokenizerType = "bpe",
    vocab_size: opt.VocabSize = None,
    family: opt.FamilyTokens = None,
    cased: opt.Cased = False,
    limit_bytes: opt.TrainBytes = None,
    as_json: opt.AsJson = False,
) -> None:
    """Train a tokenizer, and report how well it fits the text."""
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
    recipe: opt.RecipeOrRun,
    settings: opt.Changes = None,
    resume: opt.Resume = False,
    output: opt.RunFolder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Pre-train a language model, from scratch or from an existing one, with its tokenizer."""
    from weft.commands.stages import pretrain_recipe

    results = pretrain_recipe(recipe, settings or (), output=output, resume=resume)
    print_facts(results, as_json)
    report = results.model.parent / "report.html"
    print_next(f"weft info {results.model}", f"Training curves: {report}.", quiet=as_json)


@app.command()
def finetune(
    recipe: opt.RecipeOrRun,
    settings: opt.Changes = None,
    resume: opt.Resume = False,
    output: opt.RunFolder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Train a model for a task (classify, tag, answer, translate …) and compare it with a baseline."""
    from weft.commands.stages import finetune_recipe
    from weft.commands.tasks import predict_command, print_judged

    results = finetune_recipe(recipe, settings or (), output=output, resume=resume)
    print_judged(results, as_json=as_json)
    print_next(predict_command(results), quiet=as_json)


@app.command()
def evaluate(
    model: opt.ModelFolder,
    data: opt.TestFiles,
    task: opt.TaskOption = None,
    train: opt.BaselineFiles = None,
    column: opt.ColumnNames = None,
    encoding: opt.Encoding = None,
    format: opt.RowFileFormat = None,
    limit_bytes: opt.EvaluationBytes = None,
    shots: opt.ShotCount = None,
    label: opt.LabelWords = None,
    output: opt.ReportFolder = None,
    precision: opt.PrecisionName = None,
    device: opt.DeviceName = None,
    as_json: opt.AsJson = False,
) -> None:
    """Evaluate a model on labelled data: metrics with confidence intervals, a baseline, mistakes, speed.

    A language model is evaluated on plain text: perplexity and bits per byte, or accuracy on masked tokens; with
    --shots, on labelled data, by prompts that hold so many labelled examples.
    """
    from weft.commands.evaluate import evaluate_model, print_evaluation

    options: dict[str, Any] = {"encoding": encoding, "format": format, "output": output, "limit_bytes": limit_bytes}
    options |= {"precision": precision, "shots": shots, "labels": label or []}
    results = evaluate_model(model, data, task=task, train=train or [], columns=column or [], **options)
    print_evaluation(results, as_json=as_json)


@app.command()
def predict(
    model: opt.ModelFolder,
    texts: opt.InputTexts = None,
    file: opt.RowFile = None,
    task: opt.TaskOption = None,
    column: opt.ColumnNames = None,
    encoding: opt.Encoding = None,
    format: opt.RowFileFormat = None,
    details: opt.AllLabels = False,
    with_text: opt.WithText = False,
    precision: opt.PrecisionName = None,
    device: opt.DeviceName = None,
    output: opt.AnswerFile = None,
    resume: opt.ContinueOutput = False,
    as_json: opt.AsJson = False,
) -> None:
    """Predict labels, tags, answers … for texts or for every row of a file. Prints one JSON line each."""
    from weft.commands.tasks import predict_given, predict_rows
    from weft.sources.standard_input import texts_or_file

    texts, file = texts_or_file(texts, file)
    if (file is None) == (not texts):
        raise InputError("Give either texts or --file.")
    if file is None:
        if output is not None or resume or column or format or encoding:
            raise InputError("--output, --resume, --column, --encoding and --format need --file.")
        answers = predict_given(model, texts, task, details=details, with_text=with_text, precision=precision)
        if as_json:
            print(as_json_line({"answers": answers}))
        else:
            print_lines(answers)
        return
    if as_json and output is None:
        raise InputError("--json prints one object, so the predictions need a file: --output.")
    options: dict[str, Any] = {"details": details, "with_text": with_text, "resume": resume}
    options["precision"] = precision
    facts = predict_rows(model, file, task, column or [], encoding, format, output, print_lines, **options)
    if as_json:
        print(as_json_line(facts))


@app.command()
def fill(
    model: opt.ModelFolder,
    texts: opt.MaskedTexts = None,
    file: opt.MaskedFile = None,
    top: opt.Top = 5,
    precision: opt.PrecisionName = None,
    device: opt.DeviceName = None,
    as_json: opt.AsJson = False,
) -> None:
    """Fill in [MASK]: the most probable words, with their probabilities."""
    from weft.commands.fill import fill_texts, filled_lines

    results = fill_texts(model, texts or [], file, top, precision)
    print(as_json_line(results) if as_json else for_standard_output(filled_lines(results)))


@app.command()
def run(
    recipe: opt.RecipeFile, settings: opt.Changes = None, output: opt.RunFolder = None, as_json: opt.AsJson = False
) -> None:
    """Run a whole recipe: skip finished stages, resume stopped ones, repeat those whose settings or data changed."""
    from weft.commands.run import run_recipe
    from weft.commands.stages import open_recipe, run_folder_of

    read, base = open_recipe(recipe, settings or ())
    results = run_recipe(read, base, run_folder_of(read, output))
    if {"figures", "cost"} <= set(results):
        from weft.commands.tasks import print_judged

        print_judged(results, as_json=as_json)
    else:
        print_facts(results, as_json)


@app.command()
def generate(
    model: opt.ModelFolder,
    prompts: opt.PromptTexts = None,
    file: opt.PromptFile = None,
    strategy: opt.StrategyName = None,
    n: opt.AnswerCount = None,
    choose: opt.Choices = None,
    stream: opt.Stream = False,
    int8: opt.Int8 = False,
    device: opt.DeviceName = None,
    as_json: opt.AsJson = False,
    max_new_tokens: opt.MaxNewTokens = None,
    min_new_tokens: opt.MinNewTokens = None,
    stop: opt.Stop = None,
    ban: opt.Ban = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    frequency_penalty: opt.FrequencyPenalty = None,
    presence_penalty: opt.PresencePenalty = None,
    no_repeat_ngram: opt.NoRepeatNGram = None,
    json_schema: opt.JsonSchema = None,
    regex: opt.Regex = None,
    one_of: opt.OneOf = None,
    speculate: opt.Speculate = None,
    draft: opt.Draft = None,
    slide: opt.Slide = False,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    min_p: opt.MinP = None,
    typical_p: opt.TypicalP = None,
    seed: opt.Seed = None,
    beams: opt.Beams = None,
    length_penalty: opt.LengthPenalty = None,
    groups: opt.BeamGroups = None,
    diversity: opt.Diversity = None,
) -> None:
    """Generate text: continue a prompt, translate or summarize a source, choose among given answers."""
    from weft.commands.generate import generate_and_print

    given: dict[str, Any] = {
        "strategy": strategy, "max_new_tokens": max_new_tokens, "min_new_tokens": min_new_tokens, "n": n,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical_p,
        "seed": seed, "repetition_penalty": repetition_penalty, "frequency_penalty": frequency_penalty,
        "beams": beams, "length_penalty": length_penalty, "groups": groups, "diversity": diversity,
        "stop": stop or None, "banned": ban or None, "slide": slide or None, "presence_penalty": presence_penalty,
        "no_repeat_ngram": no_repeat_ngram, "json_schema": json_schema, "regex": regex, "choice": one_of or None,
        "speculate": speculate,
    }  # fmt: skip
    settings = {name: value for name, value in given.items() if value is not None}
    generate_and_print(
        model, prompts or [], file, settings, choices=choose or [], stream=stream, int8=int8, draft=draft,
        as_json=as_json,
    )  # fmt: skip


for command in (chat, search, distil, serve, export, prune, quantize, compare, theory):
    app.command()(command)
app.command("page")(watch_page)
app.command("import")(import_model)


@app.command()
def families(as_json: opt.AsJson = False) -> None:
    """List the model families and their published sizes, with parameter counts."""
    from weft.commands.info import family_sizes

    print_facts(family_sizes(), as_json)


@app.command()
def schema(as_json: opt.AsJson = False) -> None:
    """Print the JSON Schema of recipes, for editors. The output is always JSON."""
    from weft.recipe.recipe import recipe_schema

    print(json.dumps(recipe_schema()))


def main() -> None:
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal must not fail on a Chinese name
    try:
        with silent_beside_first():
            if app(arguments, standalone_mode=False) == 130:  # typer catches Ctrl-C and returns its code
                raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as error:
        if debug:
            say(traceback.format_exc())
        sys.exit(_explain(error))


_OUT_OF_MEMORY = (
    "The memory is not enough. In training, try accumulation=4 (a step in four pieces), then a smaller sequence_length "
    "or batch (docs/troubleshooting.md). In a corpus build, fewer --workers."
)


def _is_out_of_memory(error: BaseException) -> bool:
    """torch raises a RuntimeError on the CPU, and one of its subclasses on a GPU."""
    if isinstance(error, RuntimeError):
        return type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator: " in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def _explain(error: BaseException) -> int:
    """Print the error to standard error. Returns the exit code."""
    if _is_out_of_memory(error):
        say(f"weft: {_OUT_OF_MEMORY}")
        return 2
    match error:
        case WeftError():
            say(f"weft: {error}")
            return error.exit_code
        case KeyboardInterrupt():
            say("weft: interrupted.")
            return 130
        case BrokenPipeError():  # the reader of our output has ended, as `| head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        case OSError():
            say(f"weft: {error.filename or 'standard output'}: {error.strerror or error}.")
            return 2
    if hasattr(error, "format_message"):  # a usage error; click and typer each have such a class
        say(f"weft: {error.format_message()} (weft --help shows the commands)")
        return 2
    say(f"weft: {type(error).__name__}: {error}. This is a bug in weft; --debug shows where.")
    return 1
