"""Raw text is cut into words as the training data was, and scored from there."""

import json
from itertools import pairwise

import pytest

import weft as library
from small_tasks import finetune, report_of, write_rows
from weft.folders import read_json, to_json
from weft.tasks.cutting import CHOICE, OLD, Chunk, CutPositions, Cutter, choose_cutter, contexts_of, measure
from weft.tasks.example import Example
from weft.tasks.raw_text import APART, aligned, cut_of, detokenized, from_raw_text
from weft.tasks.tag import Tag

TEXTS = (
    "He lives in the U.S. and doesn't pay $3.50, says bob@example.com (see http://a.b/c?d=e).",
    "नई दिल्ली में। cafe\u0301 _x_ 北京a 3,5 … مُحَمَّد",
    "\u200d \x00 x\u0301\u0301 --- #tag @me 'tis İstanbul",
    "a" * 3000 + "." * 50,
    "",
)


@pytest.mark.parametrize("name", [*CHOICE, OLD])
@pytest.mark.parametrize("rules", [{}, {"aa|a": True, "aA|.": False}])
def test_words_are_all_of_the_text_but_its_spaces(name, rules):
    cutter = Cutter(name, rules)
    for text in TEXTS:
        places = cutter.places(text)
        assert "".join(cutter.words(text)) == "".join(text.split())
        assert all(first < behind for first, behind in places)
        assert all(one[1] <= other[0] for one, other in pairwise(places))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("treebank", "don't you'll it's", "do n't you 'll it 's"),
        ("treebank", "Mr. Bob of the U.S. paid 3.5.", "Mr. Bob of the U.S. paid 3.5 ."),
        ("treebank", "a well-known man, no.", "a well-known man , no ."),
        ("unicode", "a well-known 3.5, 10:30...", "a well - known 3.5 , 10:30 ..."),
        ("unicode", "@me #tag a_b@c.org, www.a.com.", "@me #tag a_b@c.org , www.a.com ."),
        ("unicode", "नई दिल्ली में। 北京a3", "नई दिल्ली में । 北 京 a3"),
        ("characters", "ab 北京", "a b 北 京"),
    ],
)
def test_the_cutters_cut(name, text, words):
    assert Cutter(name).words(text) == tuple(words.split())


def _cuts(sentences, count=40):
    return [cut_of(Example(tuple(words.split("|")), None, text=text)) for text, words in sentences] * count


def test_habits_of_the_data_are_learnt_as_rules_that_hold_for_unseen_words():
    data = _cuts([("the X-ray of 3-year-olds", "the|X-ray|of|3-year-olds"), ("I don't go.", "I|do|n't|go|.")])
    data += _cuts([("co-op it can't", "co-op|it|ca|n't"), ("Gov. Smith ended.", "Gov.|Smith|ended|.")])
    cutter = choose_cutter(data)
    assert cutter.rebuilt == 1 and measure(cutter, data) == (1, 1)
    assert cutter.words("They shan't zig-zag.") == ("They", "sha", "n't", "zig-zag", ".")


def test_a_rule_is_learnt_only_where_it_mends_more_than_it_breaks():
    often, seldom = _cuts([("a-b", "a|-|b")], 9), _cuts([("c-d", "c-d")], 1)
    assert CutPositions(often + seldom).rules("unicode") == {}
    often, seldom = _cuts([("a-b", "a-b")], 9), _cuts([("c-d", "c|-|d")], 1)
    rules = CutPositions(often + seldom).rules("unicode")
    assert Cutter("unicode", rules).words("e-f") == ("e-f",)


def test_without_evidence_punctuation_is_cut_off_and_initials_stay_together():
    assert choose_cutter(_cuts([("to st paul", "to|st|paul")])).words("to Paul.") == ("to", "Paul", ".")
    assert choose_cutter(_cuts([("to st paul", "to|st|paul")])).words("U.S. President") == ("U.S.", "President")
    assert choose_cutter(_cuts([("to ft. paul", "to|ft.|paul")])).name == "spaces"
    assert choose_cutter(_cuts([("a, b", "a|,|b")])).settings()["rules"] == {}
    assert choose_cutter([]) == Cutter("treebank")


def test_a_cutter_is_the_same_after_it_was_saved():
    cutter = choose_cutter(_cuts([("the X-ray", "the|X-ray"), ("I don't", "I|do|n't"), ("x.y. go.", "x.y|.|go|.")]))
    assert cutter.rules and Cutter.of(json.loads(to_json(cutter.settings()))) == cutter
    with pytest.raises(TypeError):
        Cutter.of({"name": "scissors"})


def test_contexts_do_not_grow_with_the_chunk():
    size = 20_000
    assert max(len(context) for one in contexts_of(Chunk("a" * size, "\n")) for context in one) < 60


def test_joined_words_are_written_as_text_and_found_again():
    words = "It 's ( nearly ) \" right \" , they did n't say : 北 京 ! & $ 5".split()
    text = detokenized(words)
    assert text == "It's (nearly) \"right\", they didn't say:北京! & $5"
    assert [text[start:end] for start, end in aligned(words, text)] == words


def test_words_are_aligned_only_with_a_text_that_they_make_up():
    assert aligned(["do", "n't"], " don't ") == ((1, 3), (3, 6))
    for words, text in ((["de", "le"], "du"), (["a"], "a b"), (["a", "b"], "a"), (["b"], "a b")):
        assert aligned(words, text) is None
    with_text = {"words": ["de", "le"], "tags": ["X", "Y"], "text": "du"}
    example = Tag().example(with_text, with_gold=True)
    assert example.repairs == (APART,) and cut_of(example) is None


def _score(cutter, words, text, gold, tags, *, entities):
    example = Example(tuple(words), gold, text=text)
    return from_raw_text(
        cutter, [example], [tags], [gold], lambda asked: [["B-LOC"] * len(asked[0].given)], entities=entities
    )


def test_the_score_from_raw_text_is_that_of_given_words_if_the_words_come_out():
    found = _score(
        Cutter("treebank"),
        ["the", "U.S.", "."],
        "the U.S. .",
        ["O", "B-LOC", "O"],
        ["O", "B-LOC", "B-LOC"],
        entities=True,
    )
    assert found.f1 == pytest.approx(2 / 3) and found.facts["sentences_rebuilt"] == 1
    plain = _score(Cutter("treebank"), ["the", "U.S."], "the U.S.", ["DET", "N"], ["DET", "X"], entities=False)
    assert plain.f1 == 0.5


def test_chinese_that_was_set_apart_by_spaces_is_not_said_to_be_the_text_of_the_data():
    example = Example(tuple("中国人民"), ("B-X", "I-X", "O", "O"), text="中 国 人 民")
    found = from_raw_text(Cutter("characters"), [example], [example.gold], [example.gold], lambda _: [], entities=True)
    assert found.facts["text"] == "words joined as text is written"


def test_words_that_are_cut_wrongly_are_wrong():
    found = _score(Cutter(OLD), ["U.S.", "."], "U.S. .", ["B-LOC", "O"], ["B-LOC", "O"], entities=True)
    assert found.f1 == 0 and found.facts["sentences_rebuilt"] == 0
    assert found.facts["word_f1"] == pytest.approx(2 / 7, abs=1e-4)  # . is right; of five words, and of two


CONLLU = "# text = I don't go.\n" + "".join(
    f"{n}\t{w}\t_\t{t}\t_\t_\t_\t_\t_\t_\n"
    for n, (w, t) in enumerate([("I", "P"), ("do", "A"), ("n't", "R"), ("go", "V"), (".", "U")], 1)
)


def test_a_tagger_is_scored_from_the_raw_text_of_its_data(tmp_path):
    (tmp_path / "train.conllu").write_text((CONLLU + "\n") * 30)
    said = finetune(tmp_path, "tag", data={"train": str(tmp_path / "train.conllu"), "tags": "upos"})
    assert said.code == 0, said.err
    assert (
        "Raw text will be split into words by treebank, which gives exactly the words of the data in 100.0%" in said.err
    )
    report = report_of(tmp_path / "run")
    assert report["figures"]["f1_raw"] == report["figures"]["accuracy"] and "f1_raw" in report["intervals"]
    facts = report["from_raw_text"]
    assert facts["cut_by"] == "treebank" and facts["text"] == "of the data" and facts["left_out"] == 0
    assert "F1 from raw text" in (tmp_path / "run/report.html").read_text()
    assert library.load(tmp_path / "run/model").predict("I can't stop.")["words"] == ["I", "ca", "n't", "stop", "."]


@pytest.mark.parametrize("task", ["tag", "intent"])
def test_what_is_held_out_teaches_no_rule(task, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("weft.tasks.tag.choose_cutter", lambda cut: seen.extend(cut) or Cutter())
    said = finetune(tmp_path, task)
    assert said.code == 0, said.err
    assert len(seen) == report_of(tmp_path / "run")["cost"]["training_examples"] == 36


def test_slots_are_scored_from_raw_text_too(tmp_path):
    assert finetune(tmp_path, "intent").code == 0
    report = report_of(tmp_path / "run")
    assert report["figures"]["slot_f1_raw"] == report["figures"]["slot_f1"]
    assert report["from_raw_text"]["text"] == "words joined as text is written"


@pytest.mark.parametrize(("at_spaces", "words"), [(True, ["the", "U.S."]), (False, ["the", "U", ".", "S", "."])])
def test_models_of_earlier_versions_cut_as_they_did(tmp_path, at_spaces, words):
    assert finetune(tmp_path, "tag").code == 0
    file = tmp_path / "run/model/weft.json"
    facts = read_json(file)
    del facts["task"]["cutter"]
    facts["task"]["at_spaces"] = at_spaces
    file.write_bytes(to_json(facts))
    assert library.load(tmp_path / "run/model").predict("the U.S.")["words"] == words


def test_a_named_text_column_must_be_there(tmp_path):
    rows = [{"words": ["a", "b"], "tags": ["X", "Y"]}] * 8
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows)), "text": "raw"}
    assert "has no column 'raw', which the recipe names as the text." in finetune(tmp_path, "tag", data=data).sentence
