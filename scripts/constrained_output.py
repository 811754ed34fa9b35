"""Constrained output: is it always valid, and what does it cost?

    python scripts/constrained_output.py [--schemas 1000] [--rounds 9]

1. Samples one JSON document for each of many random schemas with a byte-level model of random weights, which left alone
   would write noise. Every document must parse and validate. `jsonschema` is the judge.
2. Times batches of 16 texts of the same length with and without a constraint, in alternating rounds.

Prints one JSON object.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import torch

import weft
from weft.generate.constraint import Constraints, fill_bitmasks, mask_scores
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

ROOT = Path(__file__).parents[1]
MOST_TOKENS = 900  # more than the longest document of `random_schema` needs
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ODD_TEXTS = ['say "hi"', "back\\slash", "two\nlines", "naïve 中文", "😀", "tab\t", "</x>", "a/b"]
SPEED_SCHEMA = {  # each of its documents is longer than a timed text
    "type": "array",
    "minItems": 20,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "kind": {"enum": ["person", "company", "place"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 8},
        },
        "required": ["name", "kind", "age", "tags"],
        "additionalProperties": False,
    },
}


def random_schema(draw: random.Random, *, ascii_only: bool = False) -> dict[str, Any]:
    """A schema whose documents are short: strings, numbers and arrays have limits."""
    odd = ["plain", "two words", "x-1"] if ascii_only else ODD_TEXTS
    shared = {f"shared{number}": _leaf(draw, odd) for number in range(draw.randint(0, 2))}
    schema = _schema(draw, draw.randint(0, 3), odd, [f"#/$defs/{name}" for name in shared])
    return {**schema, "$defs": shared} if shared else schema


def _schema(draw: random.Random, depth: int, odd: list[str], references: list[str]) -> dict[str, Any]:
    def inner() -> dict[str, Any]:
        return _schema(draw, draw.randint(0, depth - 1), odd, references)

    if depth == 0:
        return {"$ref": draw.choice(references)} if references and draw.random() < 0.2 else _leaf(draw, odd)
    kind = draw.choice(["object", "object", "array", "tuple", "map", "either", "both"])
    if kind == "object":
        names = [_word(draw) if draw.random() < 0.8 else draw.choice(odd) for _ in range(draw.randint(1, 4))]
        properties = {name: inner() for name in names}
        required = [name for name in properties if draw.random() < 0.6]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if kind == "array":
        least = draw.randint(0, 2)
        return {"type": "array", "items": inner(), "minItems": least, "maxItems": least + draw.randint(0, 2)}
    if kind == "tuple":
        parts = [inner() for _ in range(draw.randint(1, 3))]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": draw.randint(0, len(parts))}
    if kind == "map":
        return {
            "type": "object",
            "patternProperties": {f"^{draw.choice(LETTERS)}[a-z]{{1,4}}$": inner()},
            "additionalProperties": False,
            "maxProperties": draw.randint(0, 3),
        }
    if kind == "both":
        low = draw.randint(-500, 500)
        return {"allOf": [{"type": "integer", "minimum": low}, {"maximum": low + draw.randint(0, 300)}]}
    return {"anyOf": [inner() for _ in range(draw.randint(2, 3))]}


def _leaf(draw: random.Random, odd: list[str]) -> dict[str, Any]:
    low = draw.randint(-10_000, 10_000)
    least = draw.randint(0, 4)
    return draw.choice(
        [
            {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 12)},
            {"type": "string", "pattern": draw.choice(["^[A-Z]{2}-[0-9]{3}$", "^(yes|no|maybe)$"])},
            {"type": "string", "format": draw.choice(["date", "uuid", "ipv4", "time"])},
            {"type": "integer", "minimum": low, "maximum": low + draw.randint(0, 5000)},
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1000, "multipleOf": draw.choice([2, 5, 7])},
            {"type": "number", "minimum": low / 8, "maximum": low / 8 + draw.randint(1, 50)},
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["null", "boolean"]},
            {"const": draw.choice([*odd, 3, None, [1, "a"], {"k": False}])},
            {"enum": draw.sample([*odd, 0, -1, 2.5, True, None], k=3)},
        ]
    )


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(LETTERS, k=draw.randint(1, 8)))


def is_valid(text: str, schema: dict[str, Any]) -> bool:
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as error:
        print(f"{text!r} of {json.dumps(schema)}: {error}", file=sys.stderr)
        return False
    return True


def make_model(vocabulary: int, **shape: int) -> weft.Model:
    """A byte-level model of random weights, with the vocabulary of this repository's files."""
    files = [path for folder in ("src", "docs", "examples", "tests") for path in sorted((ROOT / folder).rglob("*.*"))]
    texts = [path.read_text() for path in files if path.suffix in (".py", ".md", ".txt")]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("\n".join(texts))
        tokenizer = train_tokenizer([text], "bpe", vocabulary)
    return weft.create("gpt2", tokenizer=tokenizer, positions=2048, **shape)


def valid_documents(model: weft.Model, count: int) -> dict[str, Any]:
    valid, finished, lengths = 0, 0, []
    for seed in range(count):
        schema = random_schema(random.Random(seed))
        answer = model.generate(
            "JSON: ", json_schema=schema, strategy="sample", seed=seed, max_new_tokens=MOST_TOKENS, details=True
        )
        finished += answer.finish == "end"
        valid += answer.finish == "end" and is_valid(answer.text, schema)
        lengths.append(len(answer.tokens))
    return {
        "schemas": count,
        "valid": valid,
        "finished": finished,
        "median_tokens": statistics.median(lengths),
        "most_tokens": max(lengths),
    }


def cost(model: weft.Model, rounds: int, rows: int = 16, tokens: int = 64) -> dict[str, Any]:
    """Seconds of a batch with a constraint, over those without."""
    prompts = [f"Number {row}: " for row in range(rows)]
    settings = {"strategy": "sample", "seed": 1, "max_new_tokens": tokens, "min_new_tokens": tokens}

    def seconds(**more: Any) -> float:
        start = time.perf_counter()
        answers = model.generate(prompts, details=True, **settings, **more)
        assert all(len(answer.tokens) == tokens for answer in answers)
        return time.perf_counter() - start

    seconds(), seconds(json_schema=SPEED_SCHEMA)
    pairs = [(seconds(), seconds(json_schema=SPEED_SCHEMA)) for _ in range(rounds)]
    ratios = sorted(bound / free for free, bound in pairs)
    free, bound = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "rows": rows,
        "tokens_per_second": round(rows * tokens / free, 1),
        "tokens_per_second_constrained": round(rows * tokens / bound, 1),
        "ratio_of_medians": round(bound / free, 4),
        "ratios": [round(ratio, 4) for ratio in (ratios[0], statistics.median(ratios), ratios[-1])],
        "vocabulary": model.network.architecture.vocabulary,
    }


def mask_cost(tokenizer: Tokenizer, vocabulary: int, rows: int = 16, steps: int = 300) -> dict[str, Any]:
    """Milliseconds of a step for masks alone: filled, applied, and told the chosen token."""
    constraints = Constraints(tokenizer, vocabulary, [tokenizer.id_of("eos") or 0])
    texts = [constraints.start(json_schema=SPEED_SCHEMA) for _ in range(rows)]
    masks = np.zeros((rows, -(-vocabulary // 32)), np.int32)
    draw = torch.Generator().manual_seed(0)
    spent: dict[str, list[float]] = {"fill": [], "apply": [], "accept": []}
    for _ in range(steps):
        scores = torch.randn(rows, vocabulary, generator=draw)
        times = [time.perf_counter()]
        fill_bitmasks(texts, masks)
        times.append(time.perf_counter())
        mask_scores(scores, range(rows), masks)
        times.append(time.perf_counter())
        chosen = scores.argmax(-1).tolist()
        start = time.perf_counter()
        for row, token in enumerate(chosen):
            texts[row].accept(token)
            if texts[row].is_over:
                texts[row] = constraints.start(json_schema=SPEED_SCHEMA)
        for name, used in zip(spent, (*np.diff(times), time.perf_counter() - start), strict=True):
            spent[name].append(used * 1e3)
    return {f"{name}_ms": {"median": round(statistics.median(used), 4), "mean": round(statistics.fmean(used), 4)}
            for name, used in spent.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Validity and cost of constrained output.")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    small = make_model(2000, layers=2, width=32, heads=2)
    found: dict[str, Any] = {"validity": valid_documents(small, asked.schemas)}
    large = make_model(16_000, layers=6, width=384, heads=6)
    assert large.tokenizer is not None
    found |= {"masks": mask_cost(large.tokenizer, 16_000), "cost": cost(large, asked.rounds)}
    print(json.dumps(found, indent=1))
    if found["validity"]["valid"] < asked.schemas:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
