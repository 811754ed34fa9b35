"""The folder of a fine-tuned model: a plain one of its family, plus what only weft knows (the task, a CRF)."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.folders import replace_folder, to_json
from weft.interchange.folder import MODEL_FILES, write_model
from weft.recipe.recipe import Recipe
from weft.tasks.input_spec import InputSpec
from weft.tasks.learning.build import plain_network
from weft.tasks.learning.lora import plain_state
from weft.tasks.task import Task
from weft.train.build import Built

TOKENIZER_CONFIG = "tokenizer_config.json"


def write_task_model(
    task: Task,
    built: Built,
    input_spec: InputSpec,
    folder: Path,
    recipe: Recipe,
    results: dict[str, Any],
    more_facts: dict[str, Any] | None = None,
) -> None:
    """`more_facts`: others for weft.json."""
    files = {**input_spec.tokenizer.saved_files()}
    if TOKENIZER_CONFIG in files:  # transformers truncates (truncation=True) at the length of training
        settings = json.loads(files[TOKENIZER_CONFIG])
        files[TOKENIZER_CONFIG] = to_json({**settings, "model_max_length": input_spec.most_tokens})
    files |= task.files(built.network)
    description = built.description
    config = {**description.config, **task.config()}
    facts = {
        "recipe": recipe.given_settings(),
        "task": {**task.facts(), "sequence_length": input_spec.most_tokens},
        "results": results,
        **(more_facts or {}),
    }
    network = plain_network(built.saved, plain_state(built.network))
    described = replace(
        description, labels=task.labels, config=config, generation=task.generation_config(description.generation)
    )
    write_model(network, described, folder, files=files, facts=facts)


def copy_model(source: Path, folder: Path) -> None:
    with replace_folder(folder, mark="config.json", ours=MODEL_FILES) as new:
        shutil.copytree(source, new, dirs_exist_ok=True)
