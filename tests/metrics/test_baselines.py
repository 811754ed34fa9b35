"""The classical baselines against scikit-learn, counters and brute force, and on data that nobody here wrote."""

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from weft.errors import InputError
from weft.metrics.baselines import rewrite
from weft.metrics.baselines.answer import AnswerContext, AnswerOverlap
from weft.metrics.baselines.classify import LabelsClassifier, TextClassifier
from weft.metrics.baselines.pairs import PairClassifier, PairRegressor, pair_similarity
from weft.metrics.baselines.rewrite import LeadSentences, NearestNeighbour
from weft.metrics.baselines.tag import PerceptronTagger, _features
from weft.metrics.baselines.vectors import ENOUGH_TEXTS, WordVectors, grams_of, pieces_of

DATA = Path(__file__).parents[3] / "shared/data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")

GOOD = ["a warm and funny film", "funny, clever and moving", "a clever film", "warm hearts", "moving and warm"]
BAD = [
    "a dull and lifeless film",
    "dull, stale and boring",
    "a stale mess",
    "boring from start to end",
    "lifeless mess",
]
TEXTS, LABELS = [*GOOD, *BAD], [1] * len(GOOD) + [0] * len(BAD)
CHINESE = ["房间很好，服务周到", "非常好，推荐", "服务好，很满意", "房间太差，很失望", "服务差，不推荐", "太差了，失望"]
ODD = ["", "   ", "!!! …", "xyzzy plugh", "未见过的字符串"]

texts = st.lists(st.text("ab 我们!", max_size=12), min_size=1, max_size=12)


def test_words_and_characters_go_alone_and_in_pairs():
    assert grams_of("The cat, the CAT") == ["the", "cat", "the", "cat", "the cat", "cat the", "the cat"]
    assert grams_of("我们好") == ["我", "们", "好", "我 们", "们 好"]
    assert set(pieces_of("walks")) & set(pieces_of("walked")) == {" wa", "wal", "alk", " wal", "walk"}
    assert " 我们 " in pieces_of("我们好")


def test_rare_words_are_left_out_only_where_there_is_enough_text():
    assert len(WordVectors.fit(["one two"] * 2 + ["three"]).vectorizer.vocabulary_) == 4
    assert set(WordVectors.fit(["one two"] * ENOUGH_TEXTS + ["three"]).vectorizer.vocabulary_) == {
        "one",
        "two",
        "one two",
    }
    unlike = [f"w{number}" for number in range(ENOUGH_TEXTS)]
    assert len(WordVectors.fit(unlike).vectorizer.vocabulary_) == ENOUGH_TEXTS


def test_the_classifier_is_scikit_learns_pipeline():
    oracle = make_pipeline(
        TfidfVectorizer(token_pattern=r"[^\W_]+", ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(solver="liblinear", C=10),
    )
    oracle.fit(TEXTS, LABELS)
    asked = [*TEXTS, "a funny mess", "stale but warm", "xyzzy"]
    found = TextClassifier.fit(TEXTS, LABELS, 2).probabilities(asked)
    np.testing.assert_allclose(found, oracle.predict_proba(asked), atol=2e-3)


@pytest.mark.parametrize(
    ("given", "labels", "asked"),
    [
        (TEXTS, LABELS, [("warm and clever", 1), ("a boring mess", 0)]),
        (CHINESE, [1, 1, 1, 0, 0, 0], [("很好，满意", 1), ("差，太失望", 0)]),
        (
            ["red apple", "red cherry", "blue sky", "blue sea", "green leaf", "green grass"],
            [0, 0, 1, 1, 2, 2],
            [("red", 0), ("blue", 1), ("green", 2)],
        ),
    ],
)
def test_what_can_be_told_apart_is(given, labels, asked):
    model = TextClassifier.fit(given, labels, max(labels) + 1)
    assert model.probabilities(given).argmax(1).tolist() == labels
    assert [int(row.argmax()) for row in model.probabilities([text for text, _ in asked])] == [one for _, one in asked]


@given(texts, st.data())
def test_probabilities_are_probabilities_whatever_the_texts(given, data):
    labels = data.draw(st.lists(st.integers(0, 3), min_size=len(given), max_size=len(given)))
    found = TextClassifier.fit(given, labels, 4).probabilities([*given, *ODD])
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found >= 0).all()
    assert (found[:, sorted({0, 1, 2, 3} - set(labels))] == 0).all()  # never seen
    again = TextClassifier.fit(given, labels, 4).probabilities([*given, *ODD])
    np.testing.assert_array_equal(found, again)


def test_one_class_alone_is_certain():
    np.testing.assert_array_equal(TextClassifier.fit(TEXTS, [2] * 10, 3).probabilities(ODD), [[0, 0, 1]] * len(ODD))


def test_nothing_asked_nothing_said():
    assert TextClassifier.fit(TEXTS, LABELS, 2).probabilities([]).shape == (0, 2)
    assert PairClassifier.fit(TEXTS, TEXTS, LABELS, 2).probabilities([], []).shape == (0, 2)
    assert PairRegressor.fit(TEXTS, TEXTS, LABELS).predict([], []).shape == (0,)
    assert NearestNeighbour.fit(TEXTS, TEXTS).predict([]) == AnswerOverlap().predict([], []) == []
    assert PerceptronTagger.fit([["a"]], [["X"]]).predict([[]]) == [[]]


def test_unknown_words_say_nothing():
    found = TextClassifier.fit(TEXTS, LABELS, 2).probabilities(ODD)
    assert (found == found[0]).all()


def test_each_of_several_labels_is_told_as_if_it_were_alone():
    labels = np.zeros((10, 4), bool)
    labels[:, 0], labels[:, 1], labels[::2, 2] = True, LABELS, True
    found = LabelsClassifier.fit(TEXTS, labels).probabilities([*TEXTS, *ODD])
    assert (found[:, 0] == 1).all() and (found[:, 3] == 0).all()
    for column in (1, 2):
        alone = TextClassifier.fit(TEXTS, labels[:, column].astype(int).tolist(), 2).probabilities([*TEXTS, *ODD])
        np.testing.assert_allclose(found[:, column], alone[:, 1], atol=2e-3)


PREMISES = ["a man plays the guitar", "two dogs run", "the sea is calm", "a woman reads a book", "children sing"]


def test_a_pair_is_judged_by_what_only_the_second_says():
    firsts = PREMISES * 2
    seconds = [*PREMISES, *(f"it is not true that {premise}" for premise in PREMISES)]
    model = PairClassifier.fit(firsts, seconds, [1] * 5 + [0] * 5, 2)
    asked = model.probabilities(["a cat sleeps", "a cat sleeps"], ["a cat sleeps", "it is not true that a cat sleeps"])
    assert asked.argmax(1).tolist() == [1, 0]


def test_a_pair_is_judged_by_its_likeness():
    firsts = [*PREMISES, *CHINESE]
    others = firsts[1:] + firsts[:1]
    model = PairClassifier.fit(firsts * 2, firsts + others, [1] * 11 + [0] * 11, 3)
    found = model.probabilities(["服务周到，很满意"] * 2, ["服务很周到，满意", "太失望"])
    assert found.argmax(1).tolist() == [1, 0]
    assert (found[:, 2] == 0).all()
    assert np.isfinite(model.probabilities(ODD, ODD[::-1])).all()


def test_likeness_is_highest_of_the_same_and_turns_with_the_pair():
    pieces = WordVectors.fit(TEXTS, pieces_of)
    same, there, back = (
        pair_similarity(pieces, TEXTS, TEXTS),
        pair_similarity(pieces, GOOD, BAD),
        pair_similarity(pieces, BAD, GOOD),
    )
    np.testing.assert_allclose(same[:, :5], 1, atol=1e-6)
    np.testing.assert_allclose(there[:, [0, 1, 3, 2, 4, 5, 7, 6]], back, atol=1e-6)


def test_the_regressor_is_ridge_regression():
    rng = np.random.default_rng(0)
    firsts = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(60)]
    seconds = [" ".join(rng.choice(list("abcdefgh"), 5)) for _ in range(60)]
    scores = rng.normal(size=60)
    model = PairRegressor.fit(firsts, seconds, scores.tolist())
    features = pair_similarity(model.pieces, firsts, seconds)
    oracle = Ridge(alpha=1.0).fit(features, scores).predict(features)
    np.testing.assert_allclose(model.predict(firsts, seconds), oracle.clip(scores.min(), scores.max()), atol=1e-6)


def test_scores_stay_within_those_of_training():
    model = PairRegressor.fit(PREMISES * 2, PREMISES + ODD, [5.0] * 5 + [1.0] * 5)
    found = model.predict([*PREMISES, *ODD], [*PREMISES, *TEXTS[:5]])
    assert found.max() <= 5 and found.min() >= 1
    assert found[:5].min() > found[5:].max()


def steps_of_perceptron(words, tags, epochs=8):
    """Collins's algorithm as it is written: the mean of the weights over all steps, kept as dictionaries."""
    names = sorted({tag for its in tags for tag in its})
    counts = Counter(one for sentence in words for at in _features(sentence) for one in at)
    now, total, steps = Counter(), Counter(), 0

    def features(sentence, at, before):
        known = (one for one in list(_features(sentence))[at] if counts[one] > 1)
        return [*known, ("tags", *before)]

    shuffle = np.random.default_rng(0)
    for _ in range(epochs):
        mistakes = 0
        for i in shuffle.permutation(len(words)):
            before = (None, None)
            for at, right in enumerate(tags[i]):
                own = features(words[i], at, before)
                found = max(names, key=lambda tag: sum(now[one, tag] for one in own))
                if found != right:
                    mistakes += 1
                    now.update({(one, right): 1 for one in own})
                    now.subtract({(one, found): 1 for one in own})
                steps += 1
                total.update(now)
                before = (before[1], found)
        if not mistakes:
            break

    def tagged(sentence):
        found, before = [], (None, None)
        for at in range(len(sentence)):
            own = features(sentence, at, before)
            found.append(max(names, key=lambda tag: sum(total[one, tag] for one in own)))
            before = (before[1], found[-1])
        return found

    return tagged


WORDS = "the The cat cats IBM 1980 well-known ran runs".split()
tagged = st.lists(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from("XYZ")), max_size=6), max_size=6)


@settings(deadline=None)
@given(tagged.filter(any), st.lists(st.sampled_from([*WORDS, "new"]), max_size=8))
def test_the_tagger_is_the_averaged_perceptron(sentences, asked):
    words, tags = [[pair[0] for pair in one] for one in sentences], [[pair[1] for pair in one] for one in sentences]
    assert PerceptronTagger.fit(words, tags).predict([asked])[0] == steps_of_perceptron(words, tags)(asked)


def test_the_tagger_uses_endings_neighbours_and_former_tags():
    words = ["we walk home", "they talk home", "we talked home", "they walked home", "a walk helps", "a talk helps"]
    tags = ["P V N", "P V N", "P D N", "P D N", "A N V", "A N V"]
    model = PerceptronTagger.fit([one.split() for one in words * 2], [one.split() for one in tags * 2])
    assert model.predict([["they", "jumped", "home"], ["a", "talk", "helps"], ["we", "talk", "home"]]) == [
        ["P", "D", "N"], ["A", "N", "V"], ["P", "V", "N"],
    ]  # fmt: skip


def test_the_tagger_finds_names_of_characters():
    words = [list("我在浙商银行"), list("他在建设银行"), list("浙商银行在这里"), list("我在这里"), list("他的建设好")]
    tags = [list("OOBIII"), list("OOBIII"), list("BIIIOOO"), list("OOOO"), list("OOOOO")]
    model = PerceptronTagger.fit(words * 2, tags * 2)
    assert model.predict([list("我在建设银行")]) == [list("OOBIII")]


CONTEXT = (
    "The old bridge crosses the river Elbe near Dresden. It was opened in 1893 after two years of work. "
    "Claus Köpcke designed the bridge, and about 2,500 workers built it."
)


@pytest.mark.parametrize(
    ("context", "question", "answer"),
    [
        (CONTEXT, "Who designed the bridge?", "Claus Köpcke"),
        (CONTEXT, "When was it opened?", "1893"),
        (CONTEXT, "How many workers built the bridge?", "2,500"),
        ("小明生于北京。他于1980年毕业。", "他何时毕业？", "1980年"),
        ("", "Who?", ""),
        ("!!", "Who?", ""),
        ("Ann sang.", "Ann sang?", "Ann sang."),
    ],
)
def test_the_answer_is_what_was_asked_for(context, question, answer):
    assert AnswerOverlap().predict([context], [question]) == [answer]


@given(st.text("aB 1.,我在。 the\n", max_size=60), st.text("aB 1我the who?", max_size=20))
def test_an_answer_stands_in_its_context(context, question):
    (answer,) = AnswerOverlap().predict([context], [question])
    assert answer in context


def test_the_rarest_shared_word_decides_which_sentence():
    context = "The cat is on the mat. The dog is on the roof. The bird sings."
    assert AnswerContext(context).sentence_for("What is the dog on?") == "The dog is on the roof. "


def test_leads_are_sentences_or_lines():
    assert LeadSentences(2).predict(["One. Two! Three?", "一。二！三？", ""]) == ["One. Two!", "一。二！", ""]
    assert LeadSentences(2).predict(["A: Hi. Ho.\nB: Hey.\nA: Bye."]) == ["A: Hi. Ho.\nB: Hey."]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_as_many_sentences_are_kept_as_the_targets_have(count):
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(200)]
    sentences = [[" ".join(rng.choice(words, 8)) + "." for _ in range(12)] for _ in range(20)]
    targets = [" ".join(one[:count]) for one in sentences]
    assert LeadSentences.fit([" ".join(one) for one in sentences], targets) == LeadSentences(count)


def test_where_all_of_a_source_is_wanted_it_is_copied():
    sources = [" ".join(f"Sentence {number} of {one}." for number in range(20)) for one in range(5)]
    model = LeadSentences.fit(sources, sources)
    assert model.predict(sources) == sources and model.name == "the source itself"


@given(texts, texts)
def test_the_nearest_neighbour_has_the_highest_cosine(sources, asked):
    model = NearestNeighbour.fit(sources, list(map(str, range(len(sources)))))
    known, new = (model.vectors.of(side).toarray().astype(float) for side in (sources, asked))
    cosines = new @ known.T
    found = list(map(int, model.predict(asked)))
    np.testing.assert_allclose(cosines[np.arange(len(asked)), found], cosines.max(1), atol=1e-6)
    assert all(sources.index(sources[place]) == place for place in found)  # of equals, the first


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    sources = [" ".join(rng.choice(list("abcdefghij"), 6)) for _ in range(200)]
    model = NearestNeighbour.fit(sources[:150], sources[:150])
    whole = model.predict(sources)
    for block in (1, 1000):
        monkeypatch.setattr(rewrite, "_COSINES_AT_ONCE", block)
        assert model.predict(sources) == whole


def test_baselines_need_no_torch():
    rooms = "answer classify pairs rewrite tag vectors".split()
    imports = "; ".join(f"import weft.metrics.baselines.{room}" for room in rooms)
    subprocess.run([sys.executable, "-c", f"{imports}; import sys; assert 'torch' not in sys.modules"], check=True)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(InputError, match=r'sklearn is needed to train .*: pip install "weft\[tasks\]"'):
        TextClassifier.fit(TEXTS, LABELS, 2)


def table(path):
    with (DATA / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@real
def test_chinese_reviews():
    train, test = table("classify/chnsenticorp/train.tsv"), table("classify/chnsenticorp/dev.tsv")
    model = TextClassifier.fit([row["text_a"] for row in train], [int(row["label"]) for row in train], 2)
    said = model.probabilities([row["text_a"] for row in test]).argmax(1)
    assert np.mean(said == [int(row["label"]) for row in test]) > 0.9


@real
def test_likeness_ranks_as_people_do():
    def columns(part):
        rows = table(f"pair/stsb/{part}.tsv")
        return ([row[name] for row in rows] for name in ("sentence1", "sentence2", "score"))

    firsts, seconds, scores = columns("train")
    model = PairRegressor.fit(firsts, seconds, list(map(float, scores)))
    firsts, seconds, scores = columns("dev")
    assert spearmanr(model.predict(firsts, seconds), list(map(float, scores))).statistic > 0.77


@real
def test_parts_of_speech():
    def sentences(part):
        text = (DATA / f"tag/ud-english-ewt-pos/en_ewt-ud-{part}.conllu").read_text(encoding="utf-8")
        blocks = [[line.split("\t") for line in block.splitlines()] for block in text.split("\n\n")]
        rows = [[row for row in block if row[0].isdigit()] for block in blocks]
        return [[row[1] for row in block] for block in rows], [[row[3] for row in block] for block in rows]

    words, tags = sentences("test")
    said = PerceptronTagger.fit(*(part[:2000] for part in sentences("train"))).predict(words)
    assert np.mean([ours == theirs for pair in zip(said, tags) for ours, theirs in zip(*pair)]) > 0.89  # noqa: B905


@real
def test_a_span_answers_better_than_its_sentence():
    articles = json.loads((DATA / "qa/squad-dev-v1.1.json").read_text(encoding="utf-8"))["data"][40:]
    asked = [
        (part["context"], one["question"], [answer["text"] for answer in one["answers"]])
        for article in articles
        for part in article["paragraphs"]
        for one in part["qas"]
    ]

    def f1(said, answers):
        def words(text):
            kept = "".join(letter for letter in text.lower() if letter.isalnum() or letter.isspace())
            return Counter(word for word in kept.split() if word not in ("a", "an", "the"))

        return max(
            2 * (words(said) & words(answer)).total() / max((words(said) + words(answer)).total(), 1)
            for answer in answers
        )

    spans = AnswerOverlap().predict([one[0] for one in asked], [one[1] for one in asked])
    sentences = [AnswerContext(context).sentence_for(question) for context, question, _ in asked]
    answers = [one[2] for one in asked]
    ours, plain = (np.mean([f1(*pair) for pair in zip(side, answers, strict=True)]) for side in (spans, sentences))
    assert ours > 0.32 > 0.25 > plain
