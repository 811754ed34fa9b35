"""Whatever else is being generated, an answer is the one that its prompt gets alone: token for token."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

import oracle
from random_models import make_random
from weft.errors import InputError
from weft.generate.engine import GenerationEngine
from weft.generate.job import Job

FAMILIES = ["gpt2", "llama", "qwen3", "t5", "lstm", "transformer"]
WAYS = [
    {},
    {"strategy": "sample", "seed": 3},
    {"strategy": "sample", "seed": 4, "top_k": 7, "temperature": 0.7},
    {"strategy": "sample", "seed": 5, "top_p": 0.6, "min_p": 0.02},
    {"strategy": "sample", "seed": 6, "n": 3, "typical_p": 0.8},
    {"repetition_penalty": 1.4, "min_new_tokens": 4},
    {"frequency_penalty": 0.7, "presence_penalty": 0.3, "logit_bias": {5: 3.0, 6: -4.0}},
    {"no_repeat_ngram": 2},
    {"beams": 3, "n": 2},
    {"beams": 4, "groups": 2, "diversity": 0.4},
    {"speculate": 4, "strategy": "sample", "seed": 8, "temperature": 0.3},
    {"speculate": 3},
]


@dataclass
class Wish:
    prompt: list[int]
    how: dict
    arrives: int
    leaves: int | None  # cancelled after so many steps


def wishes_for(family: str, seed: int, count: int) -> list[Wish]:
    chance = np.random.default_rng(seed)
    prompts = [list(prompt) for prompt in oracle.sequences(70, seed, count=count, longest=60)]
    if seed % 2:  # some share their beginnings
        prompts = [[*prompts[0], *prompt] if chance.random() < 0.4 else prompt for prompt in prompts]
    ways = [way for way in WAYS if family != "lstm" or "speculate" not in way]
    return [
        Wish(
            prompt[:70],
            {**ways[int(chance.integers(len(ways)))], "max_new_tokens": int(chance.integers(4, 30))},
            int(chance.integers(0, 40)),
            int(chance.integers(1, 20)) if chance.random() < 0.2 else None,
        )
        for prompt in prompts
    ]


def served(engine: GenerationEngine, writer, wishes: list[Wish]) -> list[Job]:
    """Runs all wishes, each from its own step on."""
    jobs = [writer.job(wish.prompt, **wish.how) for wish in wishes]
    due = sorted(range(len(wishes)), key=lambda place: wishes[place].arrives)
    step = 0
    while due or engine.has_work:
        while due and wishes[due[0]].arrives <= step:
            engine.submit(jobs[due.pop(0)])
        for wish, job in zip(wishes, jobs, strict=True):
            if wish.leaves is not None and step == wish.arrives + wish.leaves:
                engine.cancel(job)
        engine.step()
        step += 1
        assert step < 5000
    return jobs


def check(family: str, seed: int, count: int, *, memory: int = 2**22, rows: int = 12, int8: bool = False) -> None:
    model = make_random(family, seed=seed % 5)
    writer = model.writer(int8=int8)
    wishes = wishes_for(family, seed, count)
    engine = writer.engine(memory=memory, rows=rows)
    for wish, job in zip(wishes, served(engine, writer, wishes), strict=True):
        assert job.is_finished
        found = [answer.tokens for answer in job.found]
        alone = model.generate(wish.prompt, int8=int8, **wish.how)
        expected = alone if job.n > 1 else [alone]
        if any(answer.finish == "cancelled" for answer in job.found):
            assert all(one[: len(part)] == part for part, one in zip(found, expected, strict=True))
        else:
            assert found == expected
    load = engine.load
    assert (load.running, load.waiting, load.pages_used) == (0, 0, 0)
    assert len(engine.decoder._free_slots) == len(engine.decoder._tables)
    if engine.decoder.source_pool is not None:
        assert engine.decoder.source_pool.used == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_among_others_are_those_alone(family):
    check(family, seed=1, count=35)


def test_answers_in_int8_among_others_are_those_alone():
    check("llama", seed=3, count=25, int8=True)


@settings(max_examples=8, deadline=None)
@given(
    seed=strategies.integers(0, 10**6),
    family=strategies.sampled_from(FAMILIES),
    rows=strategies.integers(4, 20),
    memory=strategies.sampled_from([2**19, 2**20, 2**22]),
)
def test_any_schedule_in_any_memory_gives_the_same_answers(seed, family, rows, memory):
    check(family, seed, count=12, memory=memory, rows=rows)


def test_equal_beginnings_share_pages_and_change_nothing():
    model = make_random("llama")
    writer, prompt = model.writer(), [int(token) for token in np.random.default_rng(0).integers(0, 70, 60)]
    prompts = [[*prompt, *more] for more in ([], [1], [2, 3, 4], list(range(20)))]
    expected = [model.generate(one, max_new_tokens=9) for one in prompts]
    engine = writer.engine(memory=2**22)
    found, shared = [], []
    for one in prompts:
        job = writer.job(one, max_new_tokens=9)
        engine.submit(job)
        while engine.has_work:
            engine.step()
        found.append(job.found[0].tokens)
        shared.append(job.cached_tokens)
    assert found == expected
    assert shared == [0, 48, 48, 48]


@pytest.mark.parametrize("family", ["gpt2", "llama", "t5"])
def test_guesses_are_accepted_and_change_nothing(family):
    model, draft = make_random(family), make_random("gpt2", seed=1)
    prompt = [1, 2, 3, 4, 5, 6] * 4
    plain = model.generate(prompt, max_new_tokens=40, logit_bias={4: 9.0, 5: 8.8, 6: 9.1})
    writers = [model.writer()] if family == "t5" else [model.writer(), model.writer(draft=draft)]
    if family == "gpt2":
        writers.append(model.writer(draft=model))  # always right
    for writer in writers:
        engine = writer.engine()
        job = writer.job(prompt, max_new_tokens=40, logit_bias={4: 9.0, 5: 8.8, 6: 9.1}, speculate=5)
        engine.submit(job)
        steps = 0
        while engine.has_work:
            engine.step()
            steps += 1
        assert job.found[0].tokens == plain
        assert engine.load.guessed_tokens > 0
    if family == "gpt2":
        assert engine.load.accepted_tokens <= engine.load.guessed_tokens


def test_a_prompt_that_can_never_fit_is_refused():
    writer = make_random("llama").writer()
    with pytest.raises(InputError, match="does not fit into the memory"):
        writer.engine(memory=2**16).submit(writer.job(list(range(60)), max_new_tokens=200))


def test_a_deadline_ends_a_job():
    writer = make_random("gpt2").writer()
    engine, job = writer.engine(), writer.job([1, 2, 3], max_new_tokens=50)
    job.deadline = 0.0
    engine.submit(job)
    engine.step()
    assert job.is_finished
    assert job.found[0].finish == "deadline"


def test_log_probabilities_of_prompt_and_text_are_those_of_score():
    model = make_random("qwen3")
    writer, prompt = model.writer(), [int(token) for token in np.random.default_rng(1).integers(0, 70, 300)]
    engine, job = writer.engine(), writer.job(prompt, max_new_tokens=6, log_probs=True, prompt_log_probs=True)
    engine.submit(job)
    news = []
    while engine.has_work:
        news += [one for _, some in engine.step() for one in some]
    tokens = [token for one in news for token in one.tokens]
    assert [token.id for token in tokens] == job.found[0].tokens
    scored = model.score([*prompt, *job.found[0].tokens]).log_probs
    found = [token.log_prob for token in (*job.prompt_log_probs, *tokens)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(scored)[-len(found) :], atol=1e-4, rtol=1e-4)
    assert [token.id for token in job.prompt_log_probs] == prompt[1:]


def test_diverged_weights_fail_their_own_job_only():
    model = make_random("gpt2")
    with torch.no_grad():
        model.network.embed.tokens.weight[7] = torch.nan
    writer = model.writer()
    engine, good, bad = writer.engine(), writer.job([1, 2, 3], banned=[7]), writer.job([1, 7])
    for job in (bad, good):
        engine.submit(job)
    while engine.has_work:
        engine.step()
    assert "diverged" in str(bad.error)
    assert good.error is not None or len(good.found[0].tokens) == 64


def run_alone(writer, job, **engine) -> Job:
    running = writer.engine(**engine)
    running.submit(job)
    while running.has_work:
        running.step()
    assert running.load.pages_used == 0
    return job


def test_reading_only_ends_a_beam_search_too():
    writer = make_random("gpt2").writer()
    job = run_alone(writer, writer.job([1, 2, 3], beams=4, reads_only=True, prompt_log_probs=True))
    assert len(job.prompt_log_probs) == 2
    assert job.is_finished


def test_a_search_that_finds_too_few_texts_ends_all_the_same():
    model = make_random("gpt2", vocabulary=6)
    writer = model.writer()
    job = run_alone(writer, writer.job([1, 2], beams=10, n=10, max_new_tokens=1))
    assert [answer is not None for answer in job.found] == [True] * 6 + [False] * 4
    assert job.is_finished
    with pytest.raises(InputError, match="exclude all tokens"):
        model.generate([1, 2], beams=2, no_repeat_ngram=1, max_new_tokens=10)
    with pytest.raises(InputError, match="No token can follow"):
        model.generate([1, 2], no_repeat_ngram=1, max_new_tokens=10)


def test_a_prompt_is_scored_once_however_many_waves_of_answers_there_are():
    writer = make_random("gpt2").writer()
    job = writer.job([1, 2, 3, 4, 5], n=5, strategy="sample", seed=1, max_new_tokens=3, prompt_log_probs=True)
    assert [token.id for token in run_alone(writer, job, rows=2).prompt_log_probs] == [2, 3, 4, 5]


def test_scored_prompts_with_equal_beginnings_stay_within_the_memory():
    writer = make_random("llama").writer()
    chance = np.random.default_rng(5)
    beginning = chance.integers(0, 70, 40).tolist()
    page = writer.engine(memory=2**20).decoder.pool.shape.numbers * 4
    for pages in (12, 14, 16, 18):
        engine = writer.engine(memory=pages * page, rows=8)
        for number in range(12):
            n = int(chance.integers(1, 4))
            prompt = [*beginning, *chance.integers(0, 70, int(chance.integers(1, 20))).tolist()]
            how = {"strategy": "sample", "seed": number, "n": n, "max_new_tokens": 12}
            engine.submit(writer.job(prompt, prompt_log_probs=bool(number % 2), **how))
        while engine.has_work:
            engine.step()
        assert engine.load.pages_used == 0


def test_two_threads_may_generate_with_one_model():
    from concurrent.futures import ThreadPoolExecutor

    model = make_random("gpt2")
    prompts = [list(prompt) for prompt in oracle.sequences(70, 9, count=8, longest=60)]
    expected = [model.generate(prompt, max_new_tokens=30) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda prompt: model.generate(prompt, max_new_tokens=30), prompts)) == expected


def test_a_draft_with_a_short_context_or_little_memory_guesses_less():
    model, draft = make_random("llama"), make_random("gpt2", positions=32)
    prompt, how = list(range(60)), {"n": 6, "strategy": "sample", "seed": 2, "max_new_tokens": 10}
    expected = model.generate(prompt, **how)
    for short in (draft, model):
        writer = model.writer(draft=short)
        page = writer.engine(memory=2**20).decoder.pool.shape.numbers * 4
        job = run_alone(writer, writer.job(prompt, speculate=3, **how), memory=20 * page)
        assert [answer.tokens for answer in job.found] == expected


def test_nan_left_in_a_page_reaches_no_other_row_in_torch():
    model = make_random("llama")
    model.network.double()
    writer = model.writer()
    prompts = [[1, 2, 3], list(range(40))]
    found = []
    for rest in (0.0, torch.nan):
        engine = writer.engine(memory=2**20)
        with torch.inference_mode():
            engine.decoder.pool.store.fill_(rest)
        jobs = [writer.job(prompt, max_new_tokens=8) for prompt in prompts]
        for job in jobs:
            engine.submit(job)
        while engine.has_work:
            engine.step()
        found.append([job.found[0].tokens for job in jobs])
    assert found[0] == found[1]
