"""Prediction against `transformers.pipeline` at batch 32: the same folder, the same texts, from text to label.

    python benchmarks/predict_vs_pipeline.py [--data ../shared/data] [--rounds 5] [--quick]

The folder is MiniLM with a fresh head, written by weft: what the labels mean does not matter, only that both give the
same. The pipeline gets truncation and sorting by nobody, as people use it. Without the data, paragraphs of the shipped
books stand in.
"""

import argparse
import tempfile
from pathlib import Path

import transformers

from contest import race, report
from finetune_vs_trainer import LENGTH, MODEL, examples
from weft.recipe import Recipe
from weft.tasks.build import from_folder, reader_for
from weft.tasks.classify import Classify
from weft.tasks.evaluation import Subject
from weft.tasks.predict import predict_texts
from weft.tasks.saving import write_task_model
from weft.tokenizer.read import load_tokenizer
from weft.train.memory import keep_freed_memory

ASKED = {"batch_size": 32, "truncation": True, "max_length": LENGTH}
COMPARISONS = {"short": ("SST-2", 1000), "long": ("newsgroup messages of at most 256 tokens", 200)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a few texts: does it run, not how fast")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    keep_freed_memory()
    for name, (what, count) in COMPARISONS.items():
        found = examples(name, options.data)
        texts = [example.given for example in found[: 40 if options.quick else count]]
        task = Classify().settle(found)
        with tempfile.TemporaryDirectory() as place:
            built = from_folder(MODEL, task, None, 0)
            reader = reader_for(built.saved, built.description, load_tokenizer(MODEL), LENGTH)
            write_task_model(task, built, reader, Path(place) / "model", Recipe(), {})
            subject = Subject.load(Path(place) / "model")
            pipeline = transformers.pipeline("text-classification", f"{place}/model", device="cpu")
            ours, theirs = predict_texts(subject, texts), pipeline(texts, **ASKED)
            assert [one["label"] for one in ours] == [one["label"] for one in theirs], "the labels differ"
            contestants = {
                "weft": lambda subject=subject, texts=texts: predict_texts(subject, texts),
                "pipeline": lambda pipeline=pipeline, texts=texts: pipeline(texts, **ASKED),
            }
            rates = race(contestants, rounds=2 if options.quick else options.rounds, work=len(texts))
        report(f"predicting with MiniLM, {what}, pipeline at batch 32", rates, "pipeline", 2.0, unit="texts/s")


if __name__ == "__main__":
    main()
