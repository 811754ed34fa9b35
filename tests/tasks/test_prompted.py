"""Language models at tasks with labels, asked by prompts: log-probabilities of the labels, the shots, the report."""

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from small_tasks import report_of, rows_of, without_gold, write_rows
from small_tasks import weft as command
from task_models import tokenizer_of
from weft.errors import InputError
from weft.generate.framing import Framing
from weft.model.packed import pack
from weft.tasks.classify import Classify
from weft.tasks.example import Example
from weft.tasks.judging.mask_prompted import MaskPromptedModel
from weft.tasks.judging.prompted import PromptedModel, draw_shots
from weft.tasks.pair import Pair

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("bad", "good", "very good indeed")
TEXTS = ("a dull film", "lovely", "It was the best\nof   times. " * 2, "so, so")
SHAPE = {"layers": 2, "width": 32, "heads": 4, "seed": 3}


@cache
def language_model(family: str, positions: int | None = 256) -> weft.Model:
    more = {} if family in ("t5", "lstm") else {"positions": positions}
    shape = {"layers": 1, "width": 32} if family == "lstm" else SHAPE
    return weft.create(family, tokenizer=tokenizer_of(family), **shape, **more)


def shots_of(task: str) -> list[Example]:
    givens = [("one film", "another one"), ("Curious.", "A cat.")] if task == "pair" else ["one film", "Curious."]
    return [Example(given, label) for given, label in zip(givens, LABELS, strict=False)]


def questions(task: str) -> list[Example]:
    return [Example((text, "A hat.") if task == "pair" else text, None) for text in TEXTS]


@pytest.mark.parametrize("family", ["gpt2", "llama", "lstm"])
@pytest.mark.parametrize(("task", "count"), [(Classify(LABELS), 0), (Classify(LABELS), 2), (Pair(LABELS), 2)])
def test_the_shares_are_those_of_the_log_probabilities_of_whole_texts(family, task, count):
    """Per token of the label: `score` reads prompt and label as one text, without what the prompts share."""
    model = language_model(family)
    asked = PromptedModel(model, task, shots=shots_of(task.name)[:count])
    examples = questions(task.name)
    answers, cut = asked.answers_and_cut(examples)
    assert cut == 0
    for example, answer in zip(examples, answers, strict=True):
        prompt, merits = asked.prompt(example)[0], []
        assert prompt.endswith("\nLabel:") and "  " not in prompt and prompt.count("Label:") == count + 1
        for label in LABELS:
            tokens = len(model.tokenizer.encode(f"{prompt} {label}")) - len(model.tokenizer.encode(prompt))
            merits.append(np.mean(model.score(f"{prompt} {label}").log_probs[-tokens:]))
        expected = np.exp(merits) / np.exp(merits).sum()
        np.testing.assert_allclose(answer, expected, atol=1e-5)
        assert asked.answers([example])[0] == pytest.approx(answer, abs=1e-5)  # alone as among others


@pytest.mark.parametrize("family", ["t5", "transformer"])
def test_an_encoder_decoder_answers_a_source(family, tmp_path):
    language_model(family).save(tmp_path)
    model = weft.load(tmp_path)  # with its start token
    asked = PromptedModel(model, Classify(LABELS), shots=shots_of("classify"))
    for example, answer in zip(questions("classify"), asked.answers(questions("classify")), strict=True):
        prompt = asked.prompt(example)[0]
        found = {one.option: one.probability for one in model.choose(prompt, LABELS, normalize="tokens", details=True)}
        np.testing.assert_allclose(answer, [found[label] for label in LABELS], atol=1e-6)


def test_the_prompt_is_as_documented():
    shots = [Example("a lovely film", "pos"), Example("dull", "neg")]
    asked = PromptedModel(language_model("gpt2"), Classify(("neg", "pos")), ("negative", "positive"), shots)
    assert asked.prompt(Example("so  so", None)) == (
        "Text: a lovely film\nLabel: positive\n\nText: dull\nLabel: negative\n\nText: so so\nLabel:", False
    )  # fmt: skip
    assert asked.options == [" negative", " positive"]
    pair = PromptedModel(language_model("gpt2"), Pair(("no", "yes")))
    assert pair.shown_prompt == "Text: <text>\nSecond: <second>\nLabel:"


@pytest.mark.parametrize("task", [Classify(LABELS), Pair(LABELS)])
@pytest.mark.parametrize("words", [3, 30, 300])
def test_long_texts_are_cut_to_the_room_that_is_left(task, words):
    model = language_model("gpt2", 192)
    long = " ".join(f"curious{number}" for number in range(words))
    given = (long, "A hat.") if task.name == "pair" else long
    asked = PromptedModel(model, task, shots=[*shots_of(task.name), Example(given, "bad")])
    prompt, was_cut = asked.prompt(Example(given, None))
    most = max(len(model.tokenizer.encode(prompt + option)) for option in asked.options)
    assert was_cut == (words > 3) and most <= 192 and prompt.startswith(asked.prefix)
    assert not was_cut or most > 192 - 24
    assert asked.answers_and_cut([Example(given, None)])[1] == int(was_cut)
    with pytest.raises(InputError, match="A prompt with 40 examples does not fit into the 192 tokens"):
        PromptedModel(model, task, shots=shots_of(task.name) * 20).answers([Example(given, None)])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), min_size=1), st.sets(st.integers(0, 30)),
       st.integers(0, 12), st.integers(0, 5))  # fmt: skip
def test_shots_are_balanced_different_and_never_judged(rows, judged, count, seed):
    task = Classify(("a", "b", "c"))
    train, test = [Example(f"T {text}", label) for text, label in rows], [Example(f"t {one}", "a") for one in judged]
    free = {text: label for text, label in rows if text not in judged}
    if len(free) < count:
        with pytest.raises(InputError, match=f"there are {len(free)}"):
            draw_shots(task, train, test, count, seed)
        return
    shots = draw_shots(task, train, test, count, seed)
    assert shots == draw_shots(task, train, test, count, seed)
    assert len({one.given for one in shots}) == count and set(shots) <= set(train)
    assert not {one.given.casefold() for one in shots} & {one.given for one in test}
    given_of, left = Counter(one.gold for one in shots), Counter(free.values())
    for label in left:  # no label has two more than one of which there was another
        for other in left:
            assert given_of[label] <= given_of[other] + 1 or given_of[other] == left[other]


def tuned_to_prompts(folder):
    """A small GPT that has read prompts with labels: it knows them without a head for the task."""
    model = weft.create("gpt2", tokenizer=tokenizer_of("gpt2"), positions=256, layers=1, width=64, heads=4, seed=0)
    network, rows = model.network, rows_of("classify", 48)
    texts = [f"Text: {row['text']}\nLabel: {row['label']}" for row in rows]
    ids = [model.tokenizer.encode(text) for text in texts]
    last = [len(model.tokenizer.encode(text.rsplit(" ", 1)[0])) for text in texts]
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for step in range(40):
        some = range(step % 3, 48, 3)
        batch = pack([ids[i][:-1] for i in some])
        starts = np.cumsum([0, *[len(ids[i]) - 1 for i in some]])[:-1]
        rows_at = np.concatenate([np.arange(start + last[i] - 1, start + len(ids[i]) - 1)
                                  for start, i in zip(starts, some, strict=True)])  # fmt: skip
        targets = torch.tensor([token for i in some for token in ids[i][last[i] :]])
        logits = network.head("causal")(network(batch), batch, torch.as_tensor(rows_at))
        loss = torch.nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    model.save(folder)
    return folder


def test_a_model_that_knows_the_labels_is_found_good_beside_the_usual_baseline(tmp_path):
    model = tuned_to_prompts(tmp_path / "model")
    test = write_rows(tmp_path / "test.jsonl", rows_of("classify", 60)[48:])
    train = write_rows(tmp_path / "train.jsonl", rows_of("classify", 48))
    said = command("evaluate", model, test, "--task", "classify", "--shots", 0, "--train", train, "--json", "-o",
                   tmp_path / "report")  # fmt: skip
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["figures"]["accuracy"] == 1.0 and found["intervals"]["accuracy"][1] == 1.0
    assert "TF-IDF" in found["verdict"] and found["baseline"]["figures"]
    assert found["shots"] == 0 and found["prompt"] == "Text: <text>\nLabel:"
    assert "it chose a label after a prompt" in (tmp_path / "report/report.html").read_text()
    assert report_of(tmp_path / "report")["figures"] == found["figures"]
    exchanged = weft.evaluate(model, test, task="classify", shots=0, labels={"pos": "neg", "neg": "pos"})
    assert exchanged["figures"]["accuracy"] == 0.0  # what is written is what counts


def test_shots_of_the_training_data_are_in_the_prompt(tmp_path):
    model = tmp_path / "model"
    language_model("gpt2").save(model)
    test = write_rows(tmp_path / "test.jsonl", rows_of("pair", 6))
    train = write_rows(tmp_path / "train.jsonl", rows_of("pair", 30)[6:])
    options = ["--task", "pair", "--shots", 4, "--train", train, "--label", "yes=true", "--json"]
    said = command("evaluate", model, test, *options)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert Counter(line for line in found["prompt"].splitlines() if line.startswith("Label:")) == {
        "Label: true": 2, "Label: no": 2, "Label:": 1
    }  # fmt: skip
    assert (
        found["notes"][0].endswith("after a prompt with 4 labelled examples of train.jsonl.") and found["examples"] == 6
    )
    assert json.loads(command("evaluate", model, test, *options).out)["figures"] == found["figures"]


def test_what_cannot_be_asked_is_said(tmp_path, tuned):
    model = tmp_path / "model"
    language_model("gpt2").save(model)
    test = write_rows(tmp_path / "test.jsonl", rows_of("classify", 6))
    same = write_rows(tmp_path / "same.jsonl", rows_of("classify", 1))
    unlabelled = write_rows(tmp_path / "unlabelled.jsonl", [without_gold(row) for row in rows_of("classify", 2)])

    def refused(*options, model=model, data=test):
        return command("evaluate", model, data, *options).sentence

    asked = ("--task", "classify", "--shots", 0)
    assert refused("--shots", 0) == "--shots goes with a task whose answer is a label: --task classify or --task pair."
    assert refused("--shots", 0, "--task", "tag").startswith("--shots goes with a task whose answer is a label")
    assert "(did you mean classify?)" in refused("--shots", 0, "--task", "clasify")
    assert "name it with --train" in refused("--task", "classify", "--shots", 2)
    assert "there are 0." in refused("--task", "classify", "--shots", 2, "--train", test)
    assert "has no head of a language model" in refused(*asked, model=tuned("classify") / "model")
    assert refused("--task", "classify").endswith("or evaluate it by prompts: weft evaluate --shots 0.")
    assert refused("--label", "pos=good") == "--label is for prompts: it goes with --shots."
    assert "is not label=words" in refused(*asked, "--label", "pos")
    assert "(did you mean pos?)" in refused(*asked, "--label", "poss=good")
    assert "the same words" in refused(*asked, "--label", "pos=neg")
    assert "at least two labels are needed" in refused(*asked, data=same)
    assert "label" in refused(*asked, data=unlabelled)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_a_masked_model_says_which_label_fills_the_mask(family):
    """Alone or with others, also if the text has a mask of its own or is too long."""
    model = weft.create(family, tokenizer=tokenizer_of(family), positions=64, **SHAPE)
    mask = model.tokenizer.special["mask"]
    asked = MaskPromptedModel(model, Classify(("a", "b", "c")), ("was", "said", "little"))
    examples = [Example(text, None) for text in (*TEXTS, f"An {mask} film.", "curious " * 100)]
    answers, cut = asked.answers_and_cut(examples)
    assert cut == 1 and asked.shown_prompt == f"<text> This is about {mask}."
    for example, answer in zip(examples, answers, strict=True):
        prompt = asked.prompt(example)[0]
        assert prompt.endswith(f" This is about {mask}.") and len(model.tokenizer.encode(prompt)) <= 64
        ids = list(model.tokenizer.encode(prompt))
        place, batch = len(ids) - 1 - ids[::-1].index(model.tokenizer.id_of("mask")), pack([ids])
        with torch.inference_mode():
            logits = model.network.head("masked")(model.network(batch), batch, torch.tensor([place]))[0]
        shares = np.exp([float(logits[model.tokenizer.encode(f"so {word}")[-2]]) for word in asked.words])
        np.testing.assert_allclose(answer, shares / shares.sum(), atol=1e-5)
        if family == "bert" and example.given == "lovely":  # other vocabularies have words without a space, too
            best = next(one.word for one in model.fill(prompt, 500) if one.word in asked.words)
            assert asked.words[answer.argmax()] == best


def test_a_masked_model_is_asked_for_labels_of_one_token_without_examples(tmp_path):
    weft.create("bert", tokenizer=tokenizer_of("bert"), positions=64, **SHAPE).save(tmp_path / "model")
    test = write_rows(tmp_path / "test.jsonl", rows_of("classify", 8))
    train = write_rows(tmp_path / "train.jsonl", rows_of("classify", 40)[8:])
    asked = ("evaluate", tmp_path / "model", test, "--task", "classify", "--train", train, "--json")
    words = ("--label", "pos=little", "--label", "neg=was")
    said = command(*asked, "--shots", 0, *words)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["prompt"] == "<text> This is about [MASK]." and found["examples"] == 8
    assert "asked without examples: --shots 0." in command(*asked, "--shots", 2, *words).sentence
    assert (
        "has no single token for the label 'very good'"
        in command(*asked, "--shots", 0, *words[2:], "--label", "pos=very good").sentence
    )
    pairs = write_rows(tmp_path / "pairs.jsonl", rows_of("pair", 8))
    said = command("evaluate", tmp_path / "model", pairs, "--task", "pair", "--shots", 0)
    assert "can be asked for classify only" in said.sentence


def test_a_model_tuned_to_reply_reads_the_prompt_as_it_was_tuned(tuned):
    model = weft.load(tuned("reply") / "model")
    assert Framing.of(model.facts["task"]) is not None
    asked = PromptedModel(model, Classify(("neg", "pos")))
    (answer,) = asked.answers([Example("a good film", None)])
    prompt = asked.prompt(Example("a good film", None))[0]
    found = {
        one.option: one.probability for one in model.choose(prompt, ["neg", "pos"], normalize="tokens", details=True)
    }
    assert answer == pytest.approx([found["neg"], found["pos"]], abs=1e-6)
