"""More training texts by replacing words with a masked language model's suggestions (TinyBERT, Jiao et al. 2020,
algorithm 1), for tasks with few examples. The teacher labels the new texts, so they need not keep the old label.

The suggestions for all words of a text come from one pass over the text as it is; the word itself is left out. (In the
paper the text stands beside the one with the mask, one pass per word.) Words of several tokens stay.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from weft.compress.distil.student import check_same_tokenizer
from weft.errors import InputError, RecipeError, WeftError
from weft.folders import known_facts
from weft.interchange.folder import read_outline
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.objectives.catalog import vocabulary_of
from weft.objectives.objective import sample_generator
from weft.progress import say
from weft.recipe.distil import AugmentSection, DistilSection
from weft.tasks.batches import ANSWERED_TOKENS
from weft.tasks.example import Example
from weft.tasks.learning.splits import Splits
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

FEW_EXAMPLES = 10_000
AUGMENTED_TASKS = ("classify", "pair", "similarity")


class AugmentRun(Protocol):
    @property
    def section(self) -> DistilSection: ...
    @property
    def base(self) -> Path: ...
    @property
    def teacher(self) -> LoadedModel: ...
    @property
    def task(self) -> Task: ...
    @property
    def splits(self) -> Splits: ...


class Word(NamedTuple):
    start: int  # characters of the text
    end: int
    candidates: tuple[str, ...]


def augment_examples(run: AugmentRun) -> list[Example]:
    """The training examples, followed by the new ones."""
    examples = run.splits.train.examples
    section, wanted = _wanted(run, len(examples))
    if section is None or wanted is None:
        return examples
    model = LoadedModel.load(wanted)
    check_same_tokenizer(model.own_tokenizer, run.teacher, wanted)
    say(f"New training texts: {section.copies} of each of {len(examples):,}, with the words of {wanted} ...")
    texts = [one.given if isinstance(one.given, tuple) else (one.given,) for one in examples]
    flat = list(dict.fromkeys(text for row in texts for text in row))
    words = dict(zip(flat, suggestions(model, flat, section.candidates), strict=True))
    found = list(examples)
    for copy in range(section.copies):
        for number, (example, row) in enumerate(zip(examples, texts, strict=True)):
            rng = sample_generator(run.section.seed, copy, number)
            changed = tuple(replaced_words(text, words[text], section.probability, rng) for text in row)
            if changed != row:
                found.append(replace(example, given=changed if len(row) > 1 else changed[0]))
    say(f"{len(found):,} training texts.")
    return found


def check_augment(section: DistilSection, task: Task, base: Path) -> None:
    """Raises if the recipe asks for new texts that cannot be made."""
    said = section.augment
    if not said:
        return
    if task.name not in AUGMENTED_TASKS or task.several:
        raise RecipeError(f"distil.augment is for {', '.join(AUGMENTED_TASKS)}, not for {task.name}.")
    if said.model is not None and "masked" not in read_outline(base / said.model)[0].heads:
        raise InputError(f"distil.augment.model {base / said.model} is not a masked language model.")


def _wanted(run: AugmentRun, count: int) -> tuple[AugmentSection | None, Path | None]:
    """The settings and the model; (None, None) if there is nothing to do."""
    said = run.section.augment
    if said is False or run.task.name not in AUGMENTED_TASKS or run.task.several:
        return None, None
    if said is None and count >= FEW_EXAMPLES:
        return None, None
    section = said or AugmentSection()
    if section.model is not None:
        return section, run.base / section.model
    base = _base_of(run.teacher)
    if base is None and said is not None:
        raise RecipeError("distil.augment.model is missing: the folder of a masked language model.")
    return section, base


def _base_of(teacher: LoadedModel) -> Path | None:
    """The masked language model that the teacher was tuned from, if its weft.json names it and it is still there."""
    found: Any = {} if teacher.folder is None else known_facts(teacher.folder)
    for key in ("recipe", "finetune", "model"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or not Path(found).is_absolute():
        return None
    try:
        return Path(found) if "masked" in read_outline(Path(found))[0].heads else None
    except WeftError:
        return None


@torch.inference_mode()
def suggestions(model: LoadedModel, texts: Sequence[str], count: int) -> list[list[Word]]:
    """The words of each text that are one token, with the `count` most probable other words for each."""
    network, tokenizer = model.network.eval(), model.tokenizer
    encoded = tokenizer.engine.encode_batch(list(texts))
    limit = model.longest or 512
    ids = [one.ids[:limit] for one in encoded]
    usable = _whole_words(model)
    found: list[list[Word]] = [[] for _ in texts]
    order = order_by_length(ids)
    for part in group_by_tokens([len(ids[i]) for i in order], ANSWERED_TOKENS):
        picked = [order[i] for i in part]
        batch = pack([ids[i] for i in picked]).to(model.device)
        logits = network.head("masked")(network(batch), batch).float()
        logits[:, ~usable] = -torch.inf
        logits.scatter_(1, batch.tokens[:, None], -torch.inf)
        best = batch.split(logits.topk(min(count, int(usable.sum()) - 1)).indices)
        for index, rows in zip(picked, best, strict=True):
            encoding = encoded[index]
            pieces = np.bincount([word for word in encoding.word_ids if word is not None], minlength=1)
            for place, row in enumerate(rows.tolist()):
                word = encoding.word_ids[place]
                if word is not None and pieces[word] == 1 and bool(usable[ids[index][place]]):
                    start, end = encoding.offsets[place]
                    names = tuple(tokenizer.decode([token]).strip() for token in row)
                    found[index].append(Word(start, end, names))
    return found


def _whole_words(model: LoadedModel) -> torch.Tensor:
    """Which tokens are words of letters."""
    tokenizer = model.tokenizer
    vocabulary = vocabulary_of(tokenizer)
    usable = torch.zeros(model.network.architecture.vocabulary, dtype=torch.bool)
    for number in range(tokenizer.vocabulary):
        is_inner = vocabulary.continues is not None and bool(vocabulary.continues[number])
        usable[number] = not is_inner and tokenizer.decode([number]).strip().isalpha()
    usable[list(tokenizer.special_ids)] = False
    return usable


def replaced_words(text: str, words: Sequence[Word], probability: float, rng: np.random.Generator) -> str:
    parts, end = [], 0
    for word in words:
        if rng.random() < probability:
            parts += [text[end : word.start], word.candidates[int(rng.integers(len(word.candidates)))]]
            end = word.end
    return "".join([*parts, text[end:]])
