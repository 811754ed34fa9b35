"""Prediction against `transformers.pipeline` at batch 32: the same folder, the same texts, from text to label.

    python benchmarks/predict_vs_pipeline.py [--data ../shared/data] [--rounds 5] [--only short] [--quick]

The folder is MiniLM with a fresh head, saved by weft. The labels have no meaning, but both must give the same. The
pipeline gets the texts in their order, as is usual.
"""

import argparse
import tempfile
from pathlib import Path

import transformers

from contest import race, report
from labelled import SETS, examples, minilm
from weft.recipe.recipe import Recipe
from weft.tasks.judging.predict import predict_texts
from weft.tasks.learning.saving import write_task_model
from weft.tasks.loaded import LoadedModel
from weft.train.plan.memory import keep_freed_memory

WANTED = 2.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few texts, to check that it runs")
    parser.add_argument("--only", choices=SETS, help="run only this comparison")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    keep_freed_memory()
    for name in [options.only] if options.only else SETS:
        texts, found = SETS[name], examples(name, options.data)
        picked = found[:: max(1, len(found) // (40 if options.quick else texts.asked))]
        given = [one.given for one in picked]
        asked = [dict(zip(("text", "text_pair"), one, strict=True)) if isinstance(one, tuple) else one for one in given]
        how = {"batch_size": 32, "truncation": True, "max_length": texts.length}
        task, built, reader = minilm(found, texts.length)
        with tempfile.TemporaryDirectory() as place:
            write_task_model(task, built, reader, Path(place) / "model", Recipe(), {})
            model = LoadedModel.load(Path(place) / "model")
            pipeline = transformers.pipeline("text-classification", f"{place}/model", device="cpu")
            ours, theirs = predict_texts(model, given), pipeline(asked, **how)
            assert [one["label"] for one in ours] == [one["label"] for one in theirs], "the labels differ"
            contestants = {
                "weft": lambda model=model, given=given: predict_texts(model, given),
                "pipeline": lambda pipeline=pipeline, asked=asked, how=how: pipeline(asked, **how),
            }
            rates = race(contestants, rounds=2 if options.quick else options.rounds, work=len(given))
        report(f"predicting with MiniLM, {texts.what}, pipeline at batch 32", rates, "pipeline", WANTED, unit="texts/s")


if __name__ == "__main__":
    main()
