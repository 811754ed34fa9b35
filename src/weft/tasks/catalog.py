"""The tasks by the names a recipe uses, and the task that a saved model knows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.errors import FolderError, InputError, suggest
from weft.folders import MANIFEST
from weft.interchange.folder import Description
from weft.model.network import Network
from weft.model.positions import longest
from weft.recipe.finetune import FinetuneSection
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.cutting import Cutter
from weft.tasks.intent import PREFIX, Intent
from weft.tasks.pair import Pair
from weft.tasks.rewrite import USUAL_TOKENS, Reply, Rewrite, Summarize, Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.tasks.task import ScoredTask, Task

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classify, Pair, Similarity, Tag, Answer, Translate, Summarize, Reply, Intent)
}
WRITING = {"seq2seq", "causal"}  # heads
UNKNOWN = Cutter("treebank")  # how the words of most taggers' data were cut, where a model does not say


def asked_task(section: FinetuneSection, label: Any) -> Task:
    """The task of a recipe, before it has seen its data but for one `label`: a list of them means several."""
    task = _asked_task(section, label)
    if not isinstance(task, ScoredTask):
        return task
    # Who lets rare classes count as much as frequent ones wants them judged so.
    macro = "f1_macro" if isinstance(task, Tag) else "f1"
    metric = section.metric or (macro if section.balanced else "")
    return replace(task, metric="f1" if metric == "f1_macro" and isinstance(task, Classify) else metric)


def _asked_task(section: FinetuneSection, label: Any) -> Task:
    data = section.data
    kind = TASKS[section.task]
    if kind is Classify:
        columns = tuple(data.label) if isinstance(data.label, list) else ()
        several = bool(columns) or data.separator is not None or isinstance(label, list | tuple)
        if several if data.several is None else data.several:
            return MultiLabel(balanced=section.balanced, separator=data.separator, columns=columns)
    if issubclass(kind, Classify):
        return kind(balanced=section.balanced)
    if kind is Tag:
        return Tag(balanced=section.balanced, crf=section.crf)
    if issubclass(kind, Rewrite):
        return kind(prefix=section.prefix, separator=data.separator, beams=section.beams, sample=section.sample)
    return kind()


def facts_of(task: Task) -> dict[str, Any]:
    """What a model's weft.json keeps of its task. The labels are in its config."""
    metric = {"metric": task.metric} if isinstance(task, ScoredTask) and task.metric else {}
    return {"name": task.name, "several": isinstance(task, MultiLabel), **metric, **task.settings()}


def known_task(network: Network, description: Description, facts: Any, name: str | None = None) -> Task:
    """What a model was fine-tuned for: by its own word (`facts` of its weft.json), or else by its head."""
    if isinstance(facts, dict) and name in (None, facts.get("name")):
        return _read(facts, description)
    return _by_head(network, description, name)


def _read(facts: Mapping[str, Any], description: Description) -> Task:
    name = facts.get("name")
    if not isinstance(name, str) or name not in TASKS:
        raise FolderError(f"{MANIFEST} names the task {name!r}, which this version of weft does not know.")
    kind = MultiLabel if name == "classify" and facts.get("several") else TASKS[name]
    apart = ("name", "several", "sequence_length", "metric")
    settings = {key: value for key, value in facts.items() if key not in apart}
    try:
        task = kind(labels=description.labels).with_settings(settings)
        metric = facts.get("metric")
        if isinstance(task, ScoredTask) and metric in task.known_metrics:
            task = replace(task, metric=metric)
        return task
    except TypeError:
        raise FolderError(f"{MANIFEST} has settings of the task {name} that are not known.") from None


def _by_head(network: Network, description: Description, name: str | None) -> Task:
    if name is not None and name not in TASKS:
        raise InputError(f"There is no task {name!r}{suggest(str(name), TASKS)}. Tasks: {', '.join(TASKS)}.")
    heads = set(network.heads)
    fitting = _fitting(network, description)
    if name is None and fitting and not heads & WRITING:
        return next(iter(fitting.values()))
    has = f"a {', '.join(heads)} head" if heads else "no head"
    if not fitting:
        raise InputError(f"The model has {has}, which does no task; weft finetune gives it another.")
    if name is None:
        raise InputError(f"The model has {has} and was not fine-tuned by weft: say what it is to do (--task).")
    if name not in fitting:
        can = ", ".join(fitting)
        raise InputError(f"The model cannot do {name} as it is: its head fits {can}. weft finetune gives it another.")
    return fitting[name]


def _fitting(network: Network, description: Description) -> dict[str, Task]:
    """The tasks that a head can do."""
    heads, fitting = set(network.heads), dict[str, Task]()
    labels = description.labels or _unnamed(network)
    if network.architecture.is_encoder_decoder and "seq2seq" not in heads:
        return {}
    if "sequence" in heads and network.head("sequence").spec.outputs == 1:
        fitting["similarity"] = Similarity(labels)
    elif "sequence" in heads:
        several = description.config.get("problem_type") == "multi_label_classification"
        fitting["classify"] = MultiLabel(labels) if several else Classify(labels)
        fitting["pair"] = Pair(labels)
    elif "token" in heads and any(label.startswith(PREFIX) for label in labels):
        fitting["intent"] = Intent(labels, cutter=UNKNOWN)
    elif "token" in heads:
        is_entity = "O" in labels and any(label.startswith("B-") for label in labels)
        fitting["tag"] = Tag(labels, entities=is_entity, cutter=UNKNOWN)
    elif "span" in heads:
        fitting["answer"] = Answer()
    elif writes := heads & WRITING:
        limit = longest(network.architecture.embedding.positions)
        most_new = USUAL_TOKENS if limit is None else min(USUAL_TOKENS, limit // 2)
        kinds = (Translate, Summarize, Reply)
        fitting |= {kind.name: kind(head=next(iter(writes)), most_new=most_new) for kind in kinds}
    return fitting


def _unnamed(network: Network) -> tuple[str, ...]:
    """The names that `transformers` gives to labels, and leaves out of the config if there are two."""
    heads = [network.head(kind) for kind in network.heads if kind in ("sequence", "token")]
    return tuple(f"LABEL_{number}" for number in range(heads[0].spec.outputs if heads else 0))
