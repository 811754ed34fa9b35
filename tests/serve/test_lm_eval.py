"""lm-eval's local-completions against the service: its log-likelihoods are those of the library."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import Running

import weft

lm_eval = pytest.importorskip("lm_eval")
pytest.importorskip("tenacity", reason="needs lm-eval[api]")

QUESTIONS = [
    {"question": "Alice was beginning to get very", "choices": [" tired", " sleepy and stupid", " happy"], "gold": 0},
    {"question": "The Rabbit took a watch out of its", "choices": [" waistcoat-pocket", " hat"], "gold": 0},
    {"question": "What is the use of a book", "choices": [" with pictures", " without pictures?"], "gold": 1},
]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where files are; nothing is fetched, and datasets keeps its files here, too."""
    import datasets

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def local_completions(running: Running, model: str, folder: Path, **options: Any) -> Any:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    running.service.models[model].model.save(folder)
    return LocalCompletionsAPI(
        base_url=f"{running.address}/v1/completions",
        model=model,
        tokenizer=str(folder),
        tokenizer_backend="huggingface",
        max_length=256,
        max_retries=1,
        **options,
    )


def log_prob_after(model: weft.Model, prompt: str, text: str) -> float:
    """Of a text after a prompt, whose tokens are those of the prompt alone and then some."""
    before = len(model.tokenizer.encode(prompt))
    ids = model.tokenizer.encode(prompt + text)
    return sum(model.score(ids).log_probs[before - len(ids) :])


def test_a_task_gets_the_log_likelihoods_of_the_library(running: Running, offline: Path):
    (offline / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    task = {
        "task": "alice",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(offline / "questions.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}",
        "target_delimiter": "",
    }
    served = local_completions(running, "talk", offline / "talk", add_bos_token=True, num_concurrent=4, batch_size=2)
    found = lm_eval.simple_evaluate(served, tasks=[task], bootstrap_iters=0)
    model = running.service.models["talk"].model
    samples = sorted(found["samples"]["alice"], key=lambda sample: sample["doc_id"])
    for asked, sample in zip(QUESTIONS, samples, strict=True):
        expected = [log_prob_after(model, asked["question"], choice) for choice in asked["choices"]]
        assert [log_prob for log_prob, _ in sample["filtered_resps"]] == pytest.approx(expected, abs=1e-4)
    right = [model.choose(one["question"], one["choices"]) == one["choices"][one["gold"]] for one in QUESTIONS]
    assert found["results"]["alice"]["acc,none"] == pytest.approx(sum(right) / len(right))


def test_whole_texts_have_the_log_likelihoods_of_score(running: Running, offline: Path):
    from lm_eval.api.instance import Instance

    texts = [one["question"] + one["choices"][0] for one in QUESTIONS]
    requests = [Instance("loglikelihood_rolling", {}, (text,), number) for number, text in enumerate(texts)]
    served = local_completions(running, "story", offline / "story")
    expected = [score.log_prob for score in running.service.models["story"].model.score(texts)]
    assert served.loglikelihood_rolling(requests, disable_tqdm=True) == pytest.approx(expected, abs=1e-4)
