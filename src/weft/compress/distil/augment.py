"""More training texts by replacing words with a masked language model's suggestions (TinyBERT, Jiao et al. 2020,
algorithm 1), for tasks with few examples. The teacher labels the new texts, so they need not keep the old label.

The suggestions for all words of a text come from one pass over the text as it is; the word itself is left out. (In the
paper the text stands beside the one with the mask, one pass per word.) Words of several tokens stay. Without a masked
language model, the suggestions are the words whose embeddings in the teacher are most alike. (The paper takes the
neighbours in GloVe for words of several tokens.)
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.nn.functional import normalize

from weft.compress.distil.student import check_same_tokenizer, has_same_tokens
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
from weft.tokenizer.read import load_tokenizer

FEW_EXAMPLES = 10_000
AUGMENTED_TASKS = ("classify", "pair", "similarity", "tag")


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
    section = augmentation(run)
    if section is None:
        return examples
    place = base_of(run.teacher) if section.model is None else run.base / section.model
    whose = "words alike in the teacher's embeddings" if place is None else f"the words of {place}"
    say(f"New training texts: {section.copies} of each of {len(examples):,}, with {whose} ...")
    texts = [one.given if isinstance(one.given, tuple) else (one.given,) for one in examples]
    flat = list(dict.fromkeys(text for row in texts for text in row))
    count = section.candidates
    if place is None:
        rows = neighbours(run.teacher, flat, count)
    else:
        rows = suggestions(LoadedModel.load(place, run.teacher.device), flat, count)
    words = dict(zip(flat, rows, strict=True))
    found = list(examples)
    for copy in range(section.copies):
        for number, (example, row) in enumerate(zip(examples, texts, strict=True)):
            rng = sample_generator(run.section.seed, copy, number)
            changed = tuple(replaced_words(text, words[text], section.probability, rng) for text in row)
            if changed != row:
                found.append(replace(example, given=changed if isinstance(example.given, tuple) else changed[0]))
    say(f"{len(found):,} training texts.")
    return found


def check_augment(section: DistilSection, teacher: LoadedModel, base: Path) -> None:
    """Raises if the recipe asks for new texts that cannot be made."""
    said, task = section.augment, teacher.required_task
    if not said:
        return
    check_augment_settings(said, "several labels" if task.several else task.name, base)
    if said.model is not None:
        check_same_tokenizer(load_tokenizer(base / said.model), teacher, base / said.model)


def check_augment_settings(said: AugmentSection, task: str, base: Path) -> None:
    """Raises for what is wrong whatever the teacher is."""
    if task not in AUGMENTED_TASKS:
        raise RecipeError(f"distil.augment is for {', '.join(AUGMENTED_TASKS)}, not for {task}.")
    if said.model is not None and "masked" not in read_outline(base / said.model)[0].heads:
        raise InputError(f"distil.augment.model {base / said.model} is not a masked language model.")


def augmentation(run: AugmentRun) -> AugmentSection | None:
    """The settings; None if there are no new texts."""
    said = run.section.augment
    if said is False or run.task.name not in AUGMENTED_TASKS or run.task.several:
        return None
    if said is None and len(run.splits.train.examples) >= FEW_EXAMPLES:
        return None
    return said or AugmentSection()


def base_of(teacher: LoadedModel) -> Path | None:
    """The masked language model that the teacher was tuned from, if its weft.json names it and it is still there with
    the same tokens: the teacher's vocabulary may have been pruned since.
    """
    found: Any = {} if teacher.folder is None else known_facts(teacher.folder)
    for key in ("recipe", "finetune", "model"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or not Path(found).is_absolute():
        return None
    place = Path(found)
    try:
        is_masked = "masked" in read_outline(place)[0].heads
        return place if is_masked and has_same_tokens(load_tokenizer(place), teacher) else None
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
            for place in _single_words(encoding, usable):
                if place < len(rows):
                    names = tuple(tokenizer.decode([token]).strip() for token in rows[place].tolist())
                    found[index].append(Word(*encoding.offsets[place], names))
    return found


@torch.inference_mode()
def neighbours(model: LoadedModel, texts: Sequence[str], count: int) -> list[list[Word]]:
    """The words of each text that are one token, with the `count` words whose embeddings are most alike."""
    encoded = model.tokenizer.engine.encode_batch(list(texts))
    usable = _whole_words(model)
    places = [_single_words(one, usable) for one in encoded]
    tokens = sorted({one.ids[place] for one, row in zip(encoded, places, strict=True) for place in row})
    alike = dict(zip(tokens, _most_alike(model, tokens, usable, count), strict=True))
    return [
        [Word(*one.offsets[place], alike[one.ids[place]]) for place in row]
        for one, row in zip(encoded, places, strict=True)
    ]


def _single_words(encoding: Any, usable: torch.Tensor) -> list[int]:
    """Places of the tokens that are whole words."""
    pieces = np.bincount([word for word in encoding.word_ids if word is not None], minlength=1)
    return [
        place
        for place, (token, word) in enumerate(zip(encoding.ids, encoding.word_ids, strict=True))
        if word is not None and pieces[word] == 1 and bool(usable[token])
    ]


def _most_alike(model: LoadedModel, tokens: Sequence[int], usable: torch.Tensor, count: int) -> list[tuple[str, ...]]:
    table = normalize(model.network.embed.tokens.weight.cpu().float(), dim=1)
    numbers = usable.nonzero()[:, 0]
    others = table[numbers].T.contiguous()
    found: list[tuple[str, ...]] = []
    for part in torch.tensor(tokens).split(512):
        likeness = table[part] @ others
        likeness[part[:, None] == numbers] = -torch.inf
        for row in numbers[likeness.topk(min(count, len(numbers) - 1)).indices].tolist():
            found.append(tuple(model.tokenizer.decode([one]).strip() for one in row))
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
        if word.candidates and rng.random() < probability:
            parts += [text[end : word.start], word.candidates[int(rng.integers(len(word.candidates)))]]
            end = word.end
    return "".join([*parts, text[end:]])
