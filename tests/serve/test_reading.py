"""The queue of what reads: batches of several calls, each with the answer that it gets alone."""

import random
import threading
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_models import GIVEN, MODELS, READ, SENTENCES, small_model

from weft.errors import InputError
from weft.serve.errors import Overloaded, Unavailable
from weft.serve.readers import VectorReader
from weft.serve.reading import ReadCall, ReadingQueue
from weft.tasks.judging.predict import predict_texts


def run(queue: ReadingQueue) -> int:
    """All that waits. Returns the number of steps."""
    steps = 0
    while queue.has_work:
        queue.step()
        steps += 1
    return steps


def ask_vectors(queue: ReadingQueue, texts: list[str]) -> Future:
    return queue.submit(ReadCall(queue.readers.vectors, queue.readers.vectors.inputs(texts).inputs))


def ask_task(queue: ReadingQueue, items: list):
    """A call of the model's own task, and what makes its answers as `Model.predict` shows them."""
    reader = queue.readers.task(queue.readers.own_task)
    roles = [role for role in reader.task.roles if role not in reader.task.gold_roles]
    parts = [[one] if isinstance(one, str) else one for one in items]
    rows = [one if isinstance(one, dict) else dict(zip(roles, one, strict=True)) for one in parts]
    examples = reader.examples(rows)
    inputs = reader.inputs(examples, truncate=True).inputs
    future = queue.submit(ReadCall(reader, inputs))

    def shown():
        answers = reader.answers(examples, inputs, future.result(0))
        return [reader.task.shown(one, answer, details=True) for one, answer in zip(examples, answers, strict=True)]

    return shown


def assert_alike(ours, theirs, tolerance: float = 1e-5) -> None:
    """Equal but for rounding of numbers."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_alike(ours[key], theirs[key], tolerance)
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            assert_alike(*pair, tolerance)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=tolerance)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", READ)
def test_calls_in_one_batch_get_the_answers_of_predict(name):
    model, queue = small_model(name), ReadingQueue(small_model(name))
    calls = [GIVEN[name][:1], GIVEN[name][1:], GIVEN[name], GIVEN[name][::-1]]
    answers = [ask_task(queue, items) for items in calls]
    run(queue)
    for items, answer in zip(calls, answers, strict=True):
        assert_alike(answer(), predict_texts(model, items, details=True))


def test_short_calls_are_read_in_one_batch():
    queue = ReadingQueue(small_model("classify"))
    futures = [ask_vectors(queue, [text]) for text in SENTENCES * 3]
    assert run(queue) == 1
    expected = small_model("classify").embed(SENTENCES * 3)
    np.testing.assert_allclose(np.stack([future.result(0)[0] for future in futures]), expected, atol=1e-5)


def test_two_kinds_are_read_in_two_batches_in_the_order_of_their_first_calls():
    queue = ReadingQueue(small_model("classify"))
    order = []
    for number in range(6):
        call = ask_vectors(queue, SENTENCES[:1]) if number % 2 == 0 else None
        if call is None:
            ask_task(queue, SENTENCES[:1])
        else:
            call.add_done_callback(lambda _, number=number: order.append(number))
    queue.step()
    assert order == [0, 2, 4] and queue.load.waiting == 3
    assert run(queue) == 1


def test_a_large_call_is_cut_and_lets_others_pass():
    queue = ReadingQueue(small_model("classify"), most_tokens=64)
    large, small = ask_vectors(queue, SENTENCES * 10), ask_vectors(queue, SENTENCES[:1])
    queue.step()
    assert not large.done() and not small.done()
    queue.step()
    assert small.done() and not large.done()
    steps = 2 + run(queue)
    np.testing.assert_allclose(large.result(0), small_model("classify").embed(SENTENCES * 10), atol=1e-5)
    assert queue.load.tokens <= steps * 64 and queue.load.waiting_tokens == 0


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.lists(st.integers(1, 60), max_size=8), st.booleans(), st.booleans()), min_size=1, max_size=8),
    st.integers(1, 200),
)
def test_any_calls_and_budget_give_every_result_once_and_bounded_batches(calls, most_tokens):
    """`calls`: the lengths of the sequences, the kind, and whether the call is cancelled."""
    model = small_model("bert")
    queue, seen = ReadingQueue(model, most_tokens=most_tokens), []

    class Spy(VectorReader):
        def read(self, hidden, packed, inputs):
            seen.append(packed.lengths)
            return [int(packed.tokens[start]) for start in packed.starts[:-1]]

    spies = Spy(model), Spy(model)
    futures = []
    for number, (lengths, kind, is_cancelled) in enumerate(calls):
        sequences = [[10 * number + place, *[5] * (length - 1)] for place, length in enumerate(lengths)]
        call = ReadCall(spies[kind], spies[kind].inputs(sequences).inputs)
        futures.append(queue.submit(call))
        if is_cancelled:
            call.future.cancel()
    run(queue)
    for number, ((lengths, _, is_cancelled), future) in enumerate(zip(calls, futures, strict=True)):
        if not is_cancelled:
            assert future.result(0) == [10 * number + place for place in range(len(lengths))]
    assert all(sum(lengths) <= most_tokens or len(lengths) == 1 for lengths in seen)
    assert sum(map(sum, seen)) == sum(sum(lengths) for lengths, _, is_cancelled in calls if not is_cancelled)
    assert queue.load.waiting == queue.load.waiting_tokens == 0


def test_a_cancelled_call_is_not_read():
    queue = ReadingQueue(small_model("classify"), most_tokens=64)
    part_read, gone, kept = (ask_vectors(queue, texts) for texts in (SENTENCES * 5, SENTENCES, SENTENCES[:1]))
    queue.step()
    assert part_read.cancel() and gone.cancel()
    before = queue.load.tokens
    assert run(queue) == 1 and kept.done()
    assert queue.load.tokens - before == len(small_model("classify").tokenizer.encode(SENTENCES[0]))
    with pytest.raises(CancelledError):
        part_read.result(0)


def test_a_full_queue_refuses_and_takes_again_when_a_call_is_cancelled():
    queue = ReadingQueue(small_model("classify"), most_waiting=2)
    futures = [ask_vectors(queue, SENTENCES[:1]) for _ in range(2)]
    with pytest.raises(Overloaded) as refused:
        ask_vectors(queue, SENTENCES[:1])
    assert refused.value.status == 429 and int(refused.value.headers["retry-after"]) >= 1
    futures[0].cancel()
    ask_vectors(queue, SENTENCES[:1])
    run(queue)
    assert futures[1].done()


def test_a_call_of_too_many_tokens_is_taken_only_if_nothing_waits():
    queue = ReadingQueue(small_model("classify"), most_waiting_tokens=50)
    large = ask_vectors(queue, SENTENCES * 5)
    with pytest.raises(Overloaded):
        ask_vectors(queue, SENTENCES[:1])
    run(queue)
    assert large.done()


def test_a_call_that_fails_fails_alone():
    model = small_model("classify")
    queue = ReadingQueue(model)

    class Fragile(VectorReader):
        def read(self, hidden, packed, inputs):
            if any(one.ids[0] == 7 for one in inputs):
                raise ValueError("seven")
            return super().read(hidden, packed, inputs)

    reader = Fragile(model)
    calls = [ReadCall(reader, reader.inputs([[first, 9, 9]]).inputs) for first in (5, 7, 6)]
    for call in calls:
        queue.submit(call)
    run(queue)
    assert [call.future.exception(0) is None for call in calls] == [True, False, True]
    expected = VectorReader(model).inputs([[5, 9, 9]])
    alone = queue.submit(ReadCall(queue.readers.vectors, expected.inputs))
    run(queue)
    np.testing.assert_allclose(calls[0].future.result(0), alone.result(0), atol=1e-6)


def test_after_the_compute_thread_has_died_calls_end_with_503():
    queue = ReadingQueue(small_model("classify"))
    waiting = ask_vectors(queue, SENTENCES)
    queue.abandon(Unavailable("The compute thread is dead."))
    for ask in (lambda: waiting.result(0), lambda: ask_vectors(queue, SENTENCES)):
        with pytest.raises(Unavailable, match="dead"):
            ask()


def test_a_call_whose_first_part_is_being_read_when_the_service_ends_is_not_forgotten():
    model = small_model("classify")
    queue = ReadingQueue(model, most_tokens=64)

    class Last(VectorReader):
        def read(self, hidden, packed, inputs):
            queue.abandon(Unavailable("The service is stopping."))
            return super().read(hidden, packed, inputs)

    reader = Last(model)
    future = queue.submit(ReadCall(reader, reader.inputs(SENTENCES * 5).inputs))
    queue.step()
    assert isinstance(future.exception(0), Unavailable) and not queue.has_work


def test_many_threads_get_the_answers_they_would_get_alone():
    model = small_model("tag")
    queue, stop = ReadingQueue(model, most_tokens=256), threading.Event()
    work = threading.Semaphore(0)
    expected = {text: predict_texts(model, [text], details=True)[0] for text in GIVEN["tag"]}
    vectors = dict(zip(GIVEN["tag"], model.embed(GIVEN["tag"]), strict=True))
    failures: list[BaseException] = []

    def compute() -> None:
        while not stop.is_set() or queue.has_work:
            work.acquire(timeout=1)
            queue.step()

    def client(seed: int) -> None:
        choose = random.Random(seed)
        try:
            for _ in range(12):
                texts = choose.choices(GIVEN["tag"], k=choose.randint(1, 4))
                if choose.random() < 0.3:
                    inputs = queue.readers.vectors.inputs(texts, truncate=True).inputs
                    future = queue.submit(ReadCall(queue.readers.vectors, inputs))
                    work.release()
                    if choose.random() < 0.3:
                        future.cancel()
                    else:
                        np.testing.assert_allclose(future.result(60), [vectors[text] for text in texts], atol=1e-5)
                    continue
                reader = queue.readers.task("tag")
                examples = reader.examples([{"words": text} for text in texts])
                inputs = reader.inputs(examples).inputs
                future = queue.submit(ReadCall(reader, inputs))
                work.release()
                answers = reader.answers(examples, inputs, future.result(60))
                for text, example, answer in zip(texts, examples, answers, strict=True):
                    assert_alike(reader.task.shown(example, answer, details=True), expected[text])
        except BaseException as error:
            failures.append(error)

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    computing = threading.Thread(target=compute)
    for thread in (computing, *clients):
        thread.start()
    for thread in clients:
        thread.join()
    stop.set()
    computing.join()
    assert not failures, failures[0]
    assert queue.load.batches < queue.load.sequences


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_truncated():
    readers, text = ReadingQueue(small_model("classify")).readers, "down the rabbit hole " * 100
    classify = readers.task("classify")
    examples = classify.examples([{"text": "Down."}, {"text": text}])
    for read, given_ in ((readers.vectors.inputs, ["Down.", text]), (classify.inputs, examples)):
        with pytest.raises(InputError, match=r"Input 1 .*set truncate to true"):
            read(given_)
    prepared = readers.vectors.inputs(["Down.", text], truncate=True)
    assert prepared.truncated == 1 and len(prepared.inputs[1].ids) == 128


@pytest.mark.parametrize("side", ["left", "right"])
def test_truncation_keeps_the_side_that_is_asked_for_and_the_special_tokens(side):
    model = small_model("classify")
    text = " ".join(f"{number}" for number in range(200))
    ids = ReadingQueue(model).readers.vectors.inputs([text], truncate=True, side=side).inputs[0].ids.tolist()
    whole = model.tokenizer.encode(text)
    middle = whole[1:127] if side == "right" else whole[-127:-1]
    assert ids == [whole[0], *middle, whole[-1]]


@pytest.mark.parametrize(
    ("name", "abilities"),
    [
        ("classify", ("classify", "pair", "embed")),
        ("similarity", ("similarity", "embed")),
        ("tag", ("tag", "embed")),
        ("intent", ("intent", "embed")),
        ("bert", ("fill", "embed")),
        ("translate", ("translate", "summarize", "reply", "generate", "embed")),
    ],
)
def test_a_model_knows_what_it_can_do(name, abilities):
    readers = ReadingQueue(small_model(name)).readers
    assert readers.abilities == abilities
    with pytest.raises(InputError, match=f"cannot do answer. It can do: {', '.join(abilities)}"):
        readers.task("answer")


def test_a_reader_is_made_once():
    readers = ReadingQueue(small_model("classify")).readers
    assert readers.task("classify") is readers.task("classify") is not readers.logits("classify")
    assert readers.task("pair").task.labels == MODELS["classify"][0].labels


def test_masks_get_the_words_of_fill():
    model = small_model("bert")
    queue = ReadingQueue(model)
    texts = ["The [MASK] sat on the bank.", "[MASK] and [MASK] went down the hole."]
    prepared = queue.readers.masks.inputs(texts, 7)
    future = queue.submit(ReadCall(queue.readers.masks, prepared.inputs))
    run(queue)
    for text, one, masks in zip(texts, prepared.inputs, future.result(0), strict=True):
        expected = model.fill(text, 7)
        for place, (ours, theirs) in enumerate(zip(masks, expected if len(masks) > 1 else [expected], strict=True)):
            found = [queue.readers.masks.filled(one, place, token) for token, _ in ours]
            assert [(word.strip(), whole) for word, whole in found] == [(two.word, two.text) for two in theirs]
            assert [two for _, two in ours] == pytest.approx([two.probability for two in theirs], abs=1e-6)
