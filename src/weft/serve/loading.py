"""From folders to models that are served, with their writers, engines and shares of the memory."""

from pathlib import Path

from weft.api.model import Model, load
from weft.generate.engine import MOST_ROWS
from weft.serve.limits import ServiceLimits
from weft.serve.reading import ReadingQueue
from weft.serve.served import ServedModel
from weft.serve.writing import DELIVERY_SECONDS, WritingQueue


def load_models(
    folders: dict[str, Path],
    *,
    memory: int,
    int8: bool = False,
    precision: str | None = None,
    draft: Path | None = None,
    limits: ServiceLimits | None = None,
) -> list[ServedModel]:
    """`memory`: bytes for keys and values, divided among the models that write. `draft`: a smaller model that guesses
    for them (speculative decoding). `precision`: as in `weft.load`. `int8`: of what is generated.
    """
    models = {name: load(folder, precision=precision) for name, folder in folders.items()}
    guesses = None if draft is None else load(draft)
    return serve_models(models, memory=memory, int8=int8, draft=guesses, limits=limits)


def serve_models(
    models: dict[str, Model],
    *,
    memory: int,
    int8: bool = False,
    draft: Model | None = None,
    limits: ServiceLimits | None = None,
) -> list[ServedModel]:
    limits = limits or ServiceLimits()
    writing = [name for name, model in models.items() if {"causal", "seq2seq"} & set(model.network.heads)]
    found = []
    for name, model in models.items():
        queue = None
        if name in writing:
            writer = model.writer(int8=int8, draft=draft)
            engine = writer.engine(memory=memory // len(writing), rows=MOST_ROWS, tell_seconds=DELIVERY_SECONDS)
            queue = WritingQueue(writer, engine, MOST_ROWS, limits.queue)
        found.append(ServedModel(name, model, ReadingQueue(model, most_waiting=limits.queue), queue))
    return found
