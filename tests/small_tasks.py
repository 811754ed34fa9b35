"""Made-up data of every task, small enough to be learnt from in a second, and the command line without a process."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from weft import cli

PEOPLE = ("Anna", "Bob", "Cleo")
GOOD, BAD = ("good", "great", "lovely"), ("bad", "awful", "poor")
FAMILIES = {"translate": "t5", "summarize": "t5", "reply": "gpt2"}  # of fresh models; others: bert
SHAPE = {"layers": 1, "width": 32, "heads": 2}


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Of standard output, which must be JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def sentence(self) -> str:
        """Why not: one sentence at the end of standard error, and nothing on standard output."""
        assert self.code == 2, self
        assert self.out == ""
        *_, last = self.err.splitlines()
        assert last.startswith("weft: ") and last.endswith((".", "?"))
        assert "Traceback" not in self.err and "bug in weft" not in self.err
        return last.removeprefix("weft: ")


def weft(*arguments: Any, encoding: str = "utf-8") -> Said:
    """What the command says; `encoding` is that of standard output."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding), io.StringIO()
    code, argv = 0, sys.argv
    sys.argv = ["weft", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = argv
    out.flush()
    return Said(code, out.buffer.getvalue().decode(encoding), err.getvalue())


def rows_of(task: str, count: int = 40) -> list[dict[str, Any]]:
    return [_row(task, number) for number in range(count)]


def _row(task: str, number: int) -> dict[str, Any]:
    who, is_good = PEOPLE[number % 3], number % 2 == 0
    praise = f"a {(GOOD if is_good else BAD)[number % 3]} film, number {number}"
    match task:
        case "classify":
            return {"text": praise, "label": "pos" if is_good else "neg"}
        case "several":
            return {"text": praise, "label": ["pos" if is_good else "neg", *(["odd"] if number % 3 else [])]}
        case "pair":
            return {"text": praise, "second": f"{who} saw it", "label": "yes" if is_good else "no"}
        case "similarity":
            return {"text": praise, "second": f"{who} saw it", "score": float(number % 5)}
        case "tag":
            return {"words": [who, "lives", "in", "New", "York"], "tags": ["B-PER", "O", "O", "B-LOC", "I-LOC"]}
        case "answer":
            context = f"In house {number} lives {who} with a cat."
            answers = [{"text": who, "answer_start": context.index(who)}]
            return {"question": "Who lives here?", "context": context, "answers": answers}
        case "translate":
            return {"source": f"the cat {number} sees {who}", "target": f"die Katze {number} sieht {who}"}
        case "summarize":
            return {"source": f"{who} has cat {number}. It runs. It sleeps.", "target": f"{who} has cat {number}."}
        case "extract":
            return {"source": f"It rains. {who} has cat {number}. It sleeps.", "target": f"{who} has cat {number}."}
        case "reply":
            return {"source": f"hello, it is {who}, {number}", "target": f"hello {who}"}
        case "intent":
            words, tags = ("turn on the kitchen lamp", "O O O B-room O") if is_good else ("play jazz", "O B-genre")
            return {"words": words.split(), "tags": tags.split(), "intent": "light" if is_good else "music"}
        case "embed":
            return {"text": praise, "second": f"{who} saw film {number}"}
    raise ValueError(task)


TASKS = (
    "classify", "several", "pair", "similarity", "tag", "answer", "translate", "summarize", "reply", "intent", "embed",
    "extract",
)  # fmt: skip
GOLDS = ("label", "score", "tags", "answers", "target", "intent")


def without_gold(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in GOLDS}


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_recipe(folder: Path, task: str, **settings: Any) -> Path:
    """A recipe that learns a little of the task from `data` (made up, if it is not said), with a fresh model."""
    folder.mkdir(parents=True, exist_ok=True)
    data = settings.pop("data", None) or {"train": str(write_rows(folder / "train.jsonl", rows_of(task)))}
    usual = {
        "task": "classify" if task == "several" else task,
        "model": {"family": FAMILIES.get(task, "bert"), **SHAPE},
        "budget": "3 steps",
        "batch": 8,
        "sequence_length": 48,
        "precision": "float32",  # which is faster is a matter of luck with models as small as these
        "baseline": False,
        "data": data,
    }
    recipe = folder / "recipe.yml"
    recipe.write_text(yaml.safe_dump({"name": task, "finetune": {**usual, **settings}}))
    return recipe


def finetune(folder: Path, task: str, *arguments: Any, **settings: Any) -> Said:
    """The run folder is `folder`/run."""
    return weft("finetune", write_recipe(folder, task, **settings), "-o", folder / "run", *arguments)


def learnt(folder: Path, task: str, **settings: Any) -> dict[str, Any]:
    """The report of a run that must go well."""
    said = finetune(folder, task, **settings)
    assert said.code == 0, said.err
    return report_of(folder / "run")


def refused(folder: Path, task: str, *arguments: Any, **settings: Any) -> str:
    """Why there is no run; nothing is left behind."""
    sentence = finetune(folder, task, *arguments, **settings).sentence
    assert not (folder / "run").exists()
    return sentence


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())
