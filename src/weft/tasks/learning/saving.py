"""A fine-tuned model as a folder: a plain one of its family, and beside it what only weft knows (the task, a CRF)."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save

from weft.folders import replace_folder, to_json
from weft.interchange.folder import OURS, write_model
from weft.recipe.recipe import Recipe
from weft.tasks.catalog import facts_of
from weft.tasks.crf import CRF_FILE, crf_of
from weft.tasks.learning.build import plain_network, task_config
from weft.tasks.learning.lora import plain_state
from weft.tasks.rewrite import Rewrite
from weft.tasks.tag import Tag
from weft.tasks.task import InputSpec, Task
from weft.train.build import Built

TOKENIZER_CONFIG = "tokenizer_config.json"


def write_task_model(
    task: Task, built: Built, reader: InputSpec, folder: Path, recipe: Recipe, results: dict[str, Any]
) -> None:
    files = {**reader.tokenizer.saved_files()}
    if TOKENIZER_CONFIG in files:  # so that transformers cuts texts (truncation=True) where they were cut in training
        settings = json.loads(files[TOKENIZER_CONFIG])
        files[TOKENIZER_CONFIG] = to_json({**settings, "model_max_length": reader.most_tokens})
    if isinstance(task, Tag) and task.crf:
        weights = crf_of(built.network).named_parameters()
        files[CRF_FILE] = save({name: weight.detach().cpu() for name, weight in weights})
    description = built.description
    generation = dict(description.generation)
    if isinstance(task, Rewrite):  # so that transformers writes as it was measured: with these tokens, in our way
        generation = {key: value for key, value in generation.items() if key.endswith(("token_id", "_ids"))}
        generation |= task.way_of_writing()
    config = {**description.config, **task_config(task)}
    facts = {
        "recipe": recipe.given_settings(),
        "task": {**facts_of(task), "sequence_length": reader.most_tokens},
        "results": results,
    }
    network = plain_network(built.saved, plain_state(built.network))
    described = replace(description, labels=task.labels, config=config, generation=generation)
    write_model(network, described, folder, files=files, facts=facts)


def copy_model(source: Path, folder: Path) -> None:
    with replace_folder(folder, mark="config.json", ours=OURS) as new:
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, new / file.name)
