"""Losses and gradients of a packed batch: those of transformers, one example after another; and of a step in pieces,
those of the whole.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from task_models import PAIRS, TEXTS, WORDS, in_text, make, save
from weft.interchange.folder import DIALECTS
from weft.interchange.weight_map import plan
from weft.objectives.objective import head_scores, scaled_loss
from weft.tasks.answer import Answer, Gold
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.example import Example
from weft.tasks.intent import Intent, IntentGold
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.tasks.task import Task, TaskObjective, batch_of
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

LABELS, WEIGHTS = ("bad", "good", "so-so"), (0.2, 1.7, 3.0)
TAGS = ("O", "B-PER", "I-PER")
SHORT = [text for text in TEXTS if len(text) < 100]
TAGGED = [
    Example(words, tuple(TAGS[place % 3] if place % 4 else "B-PER" for place in range(len(words)))) for words in WORDS
]
Theirs = Callable[[Any, Any, Example], dict[str, tuple[torch.Tensor, int]]]


@dataclass(frozen=True)
class Case:
    name: str
    family: str
    task: Task
    examples: list[Example]
    opens_as: str  # in transformers
    theirs: Theirs  # of a model, a tokenizer and an example: the sum of each loss, and of how many things
    smoothing: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}-{self.family}"


def golds(given, labels) -> list[Example]:
    return [Example(one, labels[number % len(labels)]) for number, one in enumerate(given)]


def by_label(name: str, make_label: Callable[[Example], Any]) -> Theirs:
    """The loss that the model itself has for one text, or for a pair."""

    def loss(model, tokenizer, example):
        texts = [example.given] if isinstance(example.given, str) else list(example.given)
        encoded = tokenizer(*texts, truncation=True, return_tensors="pt")
        return {name: (model(**encoded, labels=torch.tensor([make_label(example)])).loss, 1)}

    return loss


def by_logits(name: str, measure: Callable[[torch.Tensor, Example], torch.Tensor]) -> Theirs:
    def loss(model, tokenizer, example):
        return {
            name: (measure(model(**tokenizer(example.given, truncation=True, return_tensors="pt")).logits, example), 1)
        }

    return loss


def number_of(example: Example) -> int:
    return LABELS.index(example.gold)


def flags(example: Example) -> list[float]:
    return [float(label in example.gold) for label in LABELS]


def weighed(smoothing: float) -> Callable[[torch.Tensor, Example], torch.Tensor]:
    """torch's own. It is divided by examples, not by the sum of their weights: a step in pieces could not know that."""

    def loss(logits, example):
        gold = torch.tensor([number_of(example)])
        return F.cross_entropy(logits, gold, torch.tensor(WEIGHTS), reduction="sum", label_smoothing=smoothing)

    return loss


def weighed_flags(logits, example):
    wanted = torch.tensor([flags(example)]) * 0.9 + 0.05
    return F.binary_cross_entropy_with_logits(logits, wanted, pos_weight=torch.tensor(WEIGHTS))


def token_rows(model, tokenizer, words) -> tuple[torch.Tensor, list[int]]:
    """Of all tokens; and where the first piece of each word is."""
    encoded = tokenizer(in_text(tokenizer, words), is_split_into_words=True, return_tensors="pt")
    numbers = encoded.word_ids(0)
    return model(**encoded).logits[0], [numbers.index(word) for word in range(len(words))]


def tags_of_transformers(model, tokenizer, example):
    encoded = tokenizer(in_text(tokenizer, example.given), is_split_into_words=True, return_tensors="pt")
    numbers = encoded.word_ids(0)
    first = [number is not None and number not in numbers[:place] for place, number in enumerate(numbers)]
    labels = [
        TAGS.index(example.gold[number]) if begins else -100 for number, begins in zip(numbers, first, strict=True)
    ]
    return {"tag": (model(**encoded, labels=torch.tensor([labels])).loss * len(example.given), len(example.given))}


def weighed_tags(model, tokenizer, example):
    logits, rows = token_rows(model, tokenizer, example.given)
    right = torch.tensor([TAGS.index(tag) for tag in example.gold])
    loss = F.cross_entropy(logits[rows], right, torch.tensor(WEIGHTS), reduction="sum", label_smoothing=0.2)
    return {"tag": (loss, len(rows))}


def intent_and_slots(whole: int) -> Theirs:
    """`whole` is the token that has read all."""

    def loss(model, tokenizer, example):
        logits, rows = token_rows(model, tokenizer, example.given)
        tags = torch.tensor([TAGS.index(tag) for tag in example.gold.tags])
        intent = torch.tensor([("off", "on").index(example.gold.intent)])
        return {
            "slots": (F.cross_entropy(logits[rows][:, :3], tags, reduction="sum"), len(rows)),
            "intent": (F.cross_entropy(logits[[whole], 3:], intent), 1),
        }

    return loss


def span_of_transformers(model, tokenizer, example):
    encoded = tokenizer(*example.given, return_tensors="pt")
    begin = end = 0
    if example.gold:
        start = example.gold[0].start
        begin = encoded.char_to_token(0, start, sequence_index=1)
        end = encoded.char_to_token(0, start + len(example.gold[0].text) - 1, sequence_index=1)
    found = model(**encoded, start_positions=torch.tensor([begin]), end_positions=torch.tensor([end]))
    return {"answer": (found.loss, 1)}


def written_by_encoder_decoder(model, tokenizer, example):
    labels = tokenizer(example.gold, return_tensors="pt").input_ids  # with the end
    loss = model(**tokenizer(example.given, return_tensors="pt"), labels=labels).loss
    return {"seq2seq": (loss * labels.shape[1], labels.shape[1])}


def written_by_decoder(model, tokenizer, example):
    prompt = tokenizer(example.given + tokenizer.eos_token).input_ids
    target = tokenizer(example.gold + tokenizer.eos_token, add_special_tokens=False).input_ids
    labels = torch.tensor([[-100] * len(prompt) + target])
    loss = model(input_ids=torch.tensor([prompt + target]), labels=labels).loss
    return {"causal": (loss * len(target), len(target))}


ANSWERS = [
    Example(("Who?", "The White Rabbit said so."), (Gold("White Rabbit", 4),)),
    Example(("Why?", "Down, down, down."), ()),
    Example(("Where was she?", "She sat on the bank, with closed eyes."), (Gold("the bank", 11),)),
]
REWRITES = [Example(source, target) for source, target in zip(SHORT, reversed(SHORT), strict=True)]
INTENTS = [replace(one, gold=IntentGold(("off", "on")[number % 2], one.gold)) for number, one in enumerate(TAGGED)]
SEVERAL = [Example(text, LABELS[: number % 4]) for number, text in enumerate(TEXTS)]
CLASSES, PLAIN = golds(TEXTS, LABELS), Classify(LABELS)
WEIGHED, SEVERAL_WEIGHED = replace(PLAIN, weights=WEIGHTS), MultiLabel(LABELS, weights=WEIGHTS)
SCORED, SIMILARITY = golds(PAIRS, (0.5, 3.0, 5.0)), Similarity(("score",))
TAG, TAG_WEIGHED = Tag(TAGS, entities=True), Tag(TAGS, entities=True, weights=WEIGHTS)
INTENT, ANSWER = Intent((*TAGS, "intent:off", "intent:on")), Answer(with_none=True)
SEQUENCE, TOKEN, SPAN = "SequenceClassification", "TokenClassification", "QuestionAnswering"
CASES = [
    Case("classes", "bert", PLAIN, CLASSES, SEQUENCE, by_label("classify", number_of)),
    Case("classes", "gpt2", PLAIN, CLASSES, SEQUENCE, by_label("classify", number_of)),
    Case("weighed", "bert", WEIGHED, CLASSES, SEQUENCE, by_logits("classify", weighed(0.0))),
    Case("smoothed", "bert", WEIGHED, CLASSES, SEQUENCE, by_logits("classify", weighed(0.1)), 0.1),
    Case("several", "roberta", MultiLabel(LABELS), SEVERAL, SEQUENCE, by_label("classify", flags)),
    Case("several-weighed", "bert", SEVERAL_WEIGHED, SEVERAL, SEQUENCE, by_logits("classify", weighed_flags), 0.1),
    Case("pair", "bert", Pair(LABELS), golds(PAIRS, LABELS), SEQUENCE, by_label("pair", number_of)),
    Case("values", "modernbert", SIMILARITY, SCORED, SEQUENCE, by_label("similarity", lambda one: one.gold)),
    Case("tags", "distilbert", TAG, TAGGED, TOKEN, tags_of_transformers),
    Case("tags", "llama", TAG, TAGGED, TOKEN, tags_of_transformers),
    Case("tags-weighed", "bert", TAG_WEIGHED, TAGGED, TOKEN, weighed_tags, 0.2),
    Case("intent", "bert", INTENT, INTENTS, TOKEN, intent_and_slots(0)),
    Case("intent", "gpt2", INTENT, INTENTS, TOKEN, intent_and_slots(-1)),
    Case("spans", "bert", ANSWER, ANSWERS, SPAN, span_of_transformers),
    Case("spans", "gpt2", ANSWER, ANSWERS, SPAN, span_of_transformers),
    Case("written", "t5", Translate(), REWRITES, "Seq2SeqLM", written_by_encoder_decoder),
    Case("written", "llama", Reply(head="causal"), REWRITES, "CausalLM", written_by_decoder),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_and_gradients_are_those_of_transformers_one_by_one(case, tmp_path):
    built, reader = make(case.task, case.family, length=64)
    folder = save(case.task, built, reader, tmp_path / "model")
    theirs = getattr(transformers, f"AutoModelFor{case.opens_as}").from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    batch = batch_of(case.task, case.task.inputs(case.examples, reader))
    ours = scaled_loss(built.network, batch, batch.counts, case.smoothing)
    ours.backward()
    sums: dict[str, list] = {}
    for example in case.examples:
        for kind, (loss, count) in case.theirs(theirs, tokenizer, example).items():
            entry = sums.setdefault(kind, [0.0, 0])
            entry[0], entry[1] = entry[0] + loss, entry[1] + count
    assert {kind: count for kind, (_, count) in sums.items()} == batch.counts
    expected = sum(total / count for total, count in sums.values())
    expected.backward()

    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    compare_gradients(built, theirs)
    if not case.smoothing:  # as it is measured on validation
        found = head_scores(built.network, batch)
        assert sum(found[f"loss/{kind}"] / count for kind, count in batch.counts.items()) == pytest.approx(
            expected.item(), rel=1e-4
        )


def compare_gradients(built, theirs) -> None:
    dialect, network = DIALECTS[theirs.config.model_type], built.network
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    reached = 0
    for entry in plan(network, dialect.links(built.saved, dialect.prefix(built.description.head))).entries:
        gradient, wanted = network.get_parameter(entry.ours).grad, [expected[name] for name in entry.theirs]
        if gradient is None or any(part is None for part in wanted):
            assert gradient is None or not gradient.any()
            continue
        joined = entry.join(wanted, gradient.shape)
        assert (gradient - joined).norm() <= 1e-3 * joined.norm() + 1e-6, entry.ours
        reached += bool(joined.any())
    assert reached > 10


WITH_CRF = Case("crf", "bert", replace(TAG, crf=True), TAGGED, TOKEN, tags_of_transformers)


@pytest.mark.parametrize("case", [*CASES, WITH_CRF], ids=str)
def test_a_step_in_pieces_has_the_gradient_of_the_whole(case):
    built, reader = make(case.task, case.family, length=64)
    case.task.prepare(built.network, case.examples)
    inputs = case.task.inputs(case.examples, reader)
    found = []
    for pieces, parts in ((1, 1), (2, 1), (len(inputs), 1), (1, 2), (1, len(inputs))):
        network = copy.deepcopy(built.network)
        spec = TrainSpec(1, len(inputs), Schedule(1, "linear"), pieces=pieces, accumulation=parts)
        objective = TaskObjective(case.task, inputs, smoothing=case.smoothing)
        engine = Engine(Step(network, objective), OptimizerSpec(), clip=0.0, pieces=pieces)
        engine.optimizers = [torch.optim.SGD([{"params": list(network.parameters()), "peak": 1.0}], lr=1.0)]
        step = StepBatches([objective], Order((len(inputs),), (1.0,), 0), spec)(0)
        loss, norm = engine.take_step(step, 0)
        assert [len(piece.batches) for piece in step] == [parts] * pieces
        assert norm > 0
        moved = {name: before - network.get_parameter(name) for name, before in built.network.named_parameters()}
        found.append((loss, moved))
    for loss, moved in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        for name, step in moved.items():
            torch.testing.assert_close(step, found[0][1][name], atol=2e-5, rtol=1e-4)


def test_balanced_weights_are_those_of_sklearn():
    from sklearn.utils.class_weight import compute_class_weight

    labels = ["a"] * 7 + ["b"] * 2 + ["c"]
    task = Classify(balanced=True).with_labels_from([Example("", label) for label in labels])
    expected = compute_class_weight("balanced", classes=np.asarray(task.labels), y=np.asarray(labels))
    np.testing.assert_allclose(task.weights, expected)
