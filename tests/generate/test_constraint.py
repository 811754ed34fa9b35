"""Constrained output: what is written is what was asked for, whatever the tokenizer and however bad the model."""

import json
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

import weft
from constrained_output import is_valid, random_schema
from weft.errors import InputError
from weft.generate.constraint import Constraint, Constraints, constraints_of, fill_bitmasks, mask_scores
from weft.generate.grammars import regex_grammar
from weft.generate.text import new_text
from weft.generate.token_bytes import read_token_bytes
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

TEXT = Path(__file__).parents[2] / "examples" / "alice.txt"
EVERY_KIND = ["bpe", "unigram", "char", "wordpiece"]
MANY = {f"p{number}": {} for number in range(900)}
ASCII = "".join(map(chr, range(32, 127)))
slow_input = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A model of random weights, by the kind of its tokenizer; `padding` adds ids without a token."""
    made = {}

    def make(kind: str, padding: int = 5, text: str = ASCII) -> weft.Model:
        if (kind, padding, text) not in made:
            source = tmp_path_factory.mktemp(kind) / "text.txt"
            # Every character also inside a word, as pieces of one.
            source.write_text(TEXT.read_text()[:40_000] + f"\n{text}\n{' '.join(text)}\n" if text else "only words")
            size = {"bpe": 500, "unigram": 300, "wordpiece": 500, "char": None}[kind]
            tokenizer = train_tokenizer([source], kind, size if text else None, family="gpt2")
            made[kind, padding, text] = weft.create(
                "gpt2", tokenizer=tokenizer, vocabulary=tokenizer.vocabulary + padding, layers=1, width=16, heads=2
            )
        return made[kind, padding, text]

    return make


def all_of(model: weft.Model, ends: bool = True) -> Constraints:
    end = model.tokenizer.id_of("eos")
    return Constraints(model.tokenizer, model.network.architecture.vocabulary, [end] if ends else [])


def sample(constraint: Constraint, constraints: Constraints, scores_of, most: int = 400) -> list[int] | None:
    """Tokens drawn one by one until the text is over; None if it is not after `most` tokens."""
    tokens: list[int] = []
    masks = np.empty((1, -(-constraints.vocabulary // 32)), np.int32)
    while len(tokens) < most:
        if constraint.is_over:
            assert constraint.failure is None
            return tokens
        scores = scores_of(tokens)
        fill_bitmasks([constraint], masks)
        mask_scores(scores, [0], masks)
        token = int(scores.argmax())
        assert scores[0, token] > -math.inf
        if token in constraints.end_ids:
            return tokens
        constraint.accept(token)
        tokens.append(token)
    return None


def noise(seed: int, vocabulary: int):
    """The scores of a model that prefers nothing: the Gumbel noise of sampling."""
    generator = np.random.default_rng(seed)
    return lambda tokens: torch.from_numpy(generator.gumbel(size=(1, vocabulary)).astype(np.float32))


def scores_of_model(model: weft.Model, prompt: list[int], seed: int):
    noisy = noise(seed, model.network.architecture.vocabulary)
    return lambda tokens: torch.from_numpy(model.logits([[*prompt, *tokens]])[0][-1:]) + noisy(tokens)


def written(model: weft.Model, seed: int = 0, ends: bool = True, **asked) -> str:
    """What a model of random weights writes after a prompt, as the reader sees it."""
    constraints = all_of(model, ends)
    prompt = model.tokenizer.engine.encode("so", add_special_tokens=False).ids
    tokens = sample(constraints.start(**asked), constraints, scores_of_model(model, prompt, seed))
    assert tokens is not None
    text = constraints.text(tokens)
    assert new_text(model.tokenizer, prompt, tokens) in (text, f" {text}")
    assert model.tokenizer.decode(tokens) == text
    return text


@slow_input
@given(st.integers(0, 2**32))
def test_json_of_a_byte_level_model_is_valid_for_random_schemas(make, seed):
    schema = random_schema(random.Random(seed))
    assert is_valid(written(make("bpe"), seed, json_schema=schema), schema)


@slow_input
@given(st.integers(0, 2**32), st.sampled_from(["unigram", "char"]))
def test_json_of_other_vocabularies_is_valid_for_random_schemas(make, seed, kind):
    schema = random_schema(random.Random(seed), ascii_only=True)
    assert is_valid(written(make(kind), seed, json_schema=schema), schema)


def test_json_word_by_word_has_a_space_around_every_mark(make):
    """So WordPiece can write numbers and strings that begin and end with a space, but not the name of a property."""
    constraints = all_of(make("wordpiece"))
    numbers = {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0, "maximum": 99}, "maxItems": 4}
    words = {"type": "array", "items": {"enum": [" yes ", " no ", True]}, "minItems": 1, "maxItems": 3}
    for seed, schema in enumerate([numbers, words] * 5):
        assert is_valid(written(make("wordpiece"), seed, json_schema=schema), schema)
    named = {"type": "object", "properties": {"name": {"type": "integer"}}, "required": ["name"]}
    for schema in (named, {"enum": ["yes"]}, {"type": "string", "maxLength": 4}):
        with pytest.raises(InputError, match=r"json_schema cannot be satisfied by this model.*no token to continue"):
            constraints.start(json_schema=schema)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 40])
def test_a_choice_is_one_of_the_choices(make, kind, ends, padding):
    choices = ["yes", "no", "a very good one", "yesterday", "a"]
    found = {written(make(kind, padding), seed, ends, choice=choices) for seed in range(12)}
    assert found <= set(choices) and len(found) > 1


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("regex", [r"[0-9]{3}", "(ab|cd)+e?", "[a-z]+ [a-z_]{2,5}", "^x*y$", "no|yes", "[^a-z ]"])
def test_a_text_matches_its_regular_expression(make, kind, regex):
    for seed in range(3):
        assert re.fullmatch(regex, written(make(kind), seed, regex=regex))


@slow_input
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), min_size=1, max_size=5))
def test_any_text_is_a_choice_or_a_regex_of_a_byte_level_model(make, texts):
    model = make("bpe")
    assert written(model, choice=texts) in texts
    assert written(model, regex="|".join(map(re.escape, texts)).replace("\\ ", " ")) in texts


def test_bytes_of_tokens_that_are_parts_of_characters_or_words():
    """As SentencePiece vocabularies have them: ▁ for a space, <0xE4> for a byte."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁yes", "a", "▁a", "中"]
    engine = tokenizers.Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, []))
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    engine.add_special_tokens(["<unk>", "</s>"])
    found = read_token_bytes(Tokenizer(engine), len(pieces) + 2)
    assert found.starts_with_space and found.has_every_byte
    assert found.tokens[:2] == found.tokens[-2:] == [b"", b""]
    assert found.tokens[258:-2] == [b" ", b" yes", b"a", b" a", "中".encode()]
    assert found.tokens[2:257] == [bytes([byte]) for byte in range(255)]
    constraints = Constraints(Tokenizer(engine), len(pieces) + 2, [1])
    for seed, text in enumerate(["yes", "中文 a", " a", "é😀"] * 3):
        tokens = sample(constraints.start(choice=[text]), constraints, noise(seed, len(pieces) + 2))
        assert engine.decode(tokens) == constraints.text(tokens) == text


def test_odd_characters_of_a_regex_are_its_own():
    assert regex_grammar("a/b\\/c\n\\n[/]\\\\", space=False).endswith("/a\\x2fb\\x2fc\\x0a\\n[\\x2f]\\\\/")


@slow_input
@given(st.integers(0, 2**32), st.sampled_from(["bpe", "unigram"]))
def test_going_back_and_copies_equal_a_fresh_start(make, seed, kind):
    """As speculative decoding and beams do: a random walk with steps back, against the same tokens from the start."""
    model, draw = make(kind), random.Random(seed)
    constraints, schema = all_of(model), random_schema(draw, ascii_only=True)
    walker, tokens = constraints.start(json_schema=schema), list[int]()

    def step(constraint: Constraint, tokens: list[int]) -> None:
        token = draw.choice(constraint.tokens())
        constraint.accept(token)
        tokens.append(token)

    for _ in range(12):
        for _ in range(draw.randint(1, 4)):
            if not tokens or tokens[-1] not in constraints.end_ids:
                step(walker, tokens)
        back = draw.randint(0, min(5, len(tokens)))
        walker.rollback(back)
        del tokens[len(tokens) - back :]
        fresh = constraints.start(json_schema=schema)
        for token in tokens:
            fresh.accept(token)
        other = walker.copy()
        assert walker.tokens() == fresh.tokens() == other.tokens()
        assert walker.is_over == fresh.is_over == other.is_over
        if not other.is_over:  # a copy's steps are its own
            step(other, [])
            assert walker.tokens() == fresh.tokens()


def test_a_dead_end_ends_the_text_and_can_be_left(make, monkeypatch):
    monkeypatch.setattr(Constraints, "_check_writable", lambda *_: None)
    constraints, draw = all_of(make("wordpiece")), random.Random(0)
    constraint = constraints.start(json_schema={"enum": ["yes"]})  # no token for " without a space
    fresh, walked = constraint.tokens(), 0
    while set(allowed := constraint.tokens()) - constraints.end_ids:
        constraint.accept(draw.choice(allowed))
        walked += 1
    assert constraint.is_over and constraint.failure == "The model's vocabulary has no token that may follow."
    assert set(constraint.tokens()) == constraints.end_ids
    constraint.rollback(walked)
    assert constraint.tokens() == fresh and not constraint.is_over and constraint.failure is None


def test_a_token_that_is_not_allowed_ends_the_text(make):
    constraint = all_of(make("bpe")).start(regex="[a-z]+")
    letter, digit = (make("bpe").tokenizer.engine.encode(text).ids[0] for text in "a1")
    for token in (letter, digit, letter):
        constraint.accept(token)
    assert constraint.is_over and "does not allow" in constraint.failure
    constraint.rollback(1)
    assert constraint.failure is not None and constraint.copy().is_over
    constraint.rollback(1)
    assert constraint.failure is None and not constraint.is_over and letter in constraint.tokens()
    with pytest.raises(ValueError, match="only 1 tokens to forget"):
        constraint.rollback(2)


def test_a_grammar_that_becomes_too_complex_ends_the_text(make):
    model = make("bpe")
    constraint = all_of(model).start(json_schema={"properties": MANY})  # any JSON, so trials miss the object
    (brace, quote) = model.tokenizer.engine.encode('{"', add_special_tokens=False).ids
    first = constraint.tokens()
    constraint.accept(brace)
    constraint.accept(quote)
    assert constraint.is_over and "Current row" in constraint.failure
    constraint.rollback(2)
    assert constraint.tokens() == first and constraint.failure is None and not constraint.is_over


def test_masks_of_several_rows_forbid_all_but_what_each_allows(make):
    model = make("bpe", padding=13)
    constraints, vocabulary = all_of(model), model.network.architecture.vocabulary
    asked = [{"choice": ["yes"]}, {"regex": "[a-f]+"}, {"json_schema": {"type": "object"}}]
    rows = [4, 0, 2]
    texts = [constraints.start(**one) for one in asked]
    masks = np.full((3, -(-vocabulary // 32)), -1, np.int32)
    fill_bitmasks(texts, masks)
    for dtype in (torch.float32, torch.float64):
        scores = torch.randn(5, vocabulary, dtype=dtype)
        before = scores.clone()
        mask_scores(scores, rows, masks)
        for row, text in zip(rows, texts, strict=True):
            allowed = torch.zeros(vocabulary, dtype=torch.bool)
            allowed[text.tokens()] = True
            assert torch.equal(scores[row], before[row].masked_fill(~allowed, -math.inf)) and allowed.any()
        assert torch.equal(scores[[1, 3]], before[[1, 3]])


def test_every_end_token_ends_and_no_special_token_is_text(make):
    model = make("bpe", padding=3)
    last = model.network.architecture.vocabulary - 1  # an end token that the tokenizer does not know
    constraints = Constraints(model.tokenizer, last + 1, [0, last])
    constraint = constraints.start(regex="a*")
    assert {0, last} < set(constraint.tokens())
    for end in (0, last):
        constraint.accept(end)
        assert constraint.is_over and constraint.failure is None
        constraint.rollback(1)
        assert not constraint.is_over
    anything = constraints.start(regex="(?s).+").tokens()
    assert set(anything) == set(range(last + 1)) - {0, last, last - 1, last - 2} - {
        number
        for number in range(last)
        if re.search("[ÀÁõ-ÿ]", model.tokenizer.engine.id_to_token(number) or "")  # bytes that are no UTF-8
        or re.match("[\u0080-\u00bf\u0122-\u0143]", model.tokenizer.engine.id_to_token(number) or "")
    }


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "exactly one of json_schema, regex and choice"),
        ({"regex": "a", "choice": ["a"]}, "exactly one"),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"json_schema": "[]"}, "json_schema is a JSON object, not"),
        ({"json_schema": {"type": "objekt"}}, "This json_schema cannot be used: Invalid type: objekt."),
        ({"json_schema": {"not": {}}}, 'keywords that are not supported, "not".'),
        ({"json_schema": {"minimum": math.nan}}, "cannot be written as JSON"),
        ({"json_schema": {"$ref": "file:///etc/hostname"}}, "does not fetch"),
        ({"json_schema": {"type": "integer", "minimum": 2, "maximum": 1}}, "greater than maximum"),
        ({"json_schema": json.loads('{"a":' * 70 + "1" + "}" * 70)}, "more than 64 levels deep"),
        ({"json_schema": '{"a":' * 9000}, "levels deep|not JSON"),
        ({"json_schema": {"enum": ["x" * 300_000]}}, "at most 262,144 are read"),
        ({"json_schema": {"type": "object", "properties": MANY}}, "too complex: Current row has .* use fewer optional"),
        ({"regex": ""}, "regex is empty"),
        ({"regex": "a("}, "This regex cannot be used: unclosed group."),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": r"(a)\1"}, "backreferences are not supported"),
        ({"regex": "(?:)"}, "no text satisfies it, or only the empty one"),
        ({"regex": r"[^\x{0}-\x{10ffff}]"}, "no text satisfies it"),
        ({"regex": "a" * 10_001}, "10,001 characters"),
        ({"choice": []}, "nothing to choose from"),
        ({"choice": "yes"}, "choice is a list of texts"),
        ({"choice": ["a", ""]}, "cannot be an empty text"),
        ({"choice": [str(number) for number in range(1001)]}, "at most 1,000 texts"),
        ({"choice": ["\ud800"]}, "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_asked_for_is_said(make, asked, message):
    with pytest.raises(InputError, match=message) as error:
        all_of(make("bpe")).start(**asked)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_a_vocabulary_that_lacks_characters_is_said_at_the_start(make):
    constraints = all_of(make("char", text=""))
    with pytest.raises(InputError, match=r"cannot write such JSON: its vocabulary has no token for '\{'"):
        constraints.start(json_schema={"type": "object"})
    with pytest.raises(InputError, match=r"The choice 'No' cannot be written by this model.*no token for 'N'"):
        constraints.start(choice=["word", "No"])
    with pytest.raises(InputError, match=r"regex cannot be satisfied by this model.*no token to continue 'wo'"):
        constraints.start(regex="wo[0-9]")
    assert constraints.start(choice=["word"]).tokens()


def test_a_missing_package_is_named(make, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(InputError, match=r'pip install "weft\[constrained\]"'):
        all_of(make("bpe")).start(choice=["a"])


def test_grammars_are_compiled_once_and_few_are_kept(make):
    constraints = all_of(make("bpe"))
    first = constraints.start(regex="a+")._fresh
    assert constraints.start(regex="a+")._fresh is first
    for number in range(100):
        constraints.start(regex=f"b{{{number + 1}}}")
    assert len(constraints._grammars) == 64 and constraints.start(regex="a+")._fresh is not first
    model = make("bpe")
    asked = model.tokenizer, model.network.architecture.vocabulary, [0]
    assert constraints_of(*asked) is constraints_of(*asked)


def test_generate_writes_what_was_asked_for(make):
    """Through the engine: alone and with others, with and without guessing ahead, the same valid texts."""
    model, prompts = make("bpe"), ["a", "so it is", "the cat"]
    for seed in range(4):
        schema = random_schema(random.Random(seed))
        asked = {"json_schema": schema, "strategy": "sample", "seed": seed, "max_new_tokens": 400}
        together = model.generate(prompts, **asked)
        assert all(is_valid(text, schema) for text in together)
        assert together == [model.generate(prompt, **asked) for prompt in prompts]
    asked = {"regex": "(the |cat |so )+", "max_new_tokens": 12}
    assert model.generate("the cat the cat the", speculate=4, **asked) == model.generate("the cat the cat the", **asked)
    choices = ["yes", "no", "maybe"]
    assert set(model.generate("so", choice=choices, n=9, strategy="sample", seed=0)) <= set(choices)
