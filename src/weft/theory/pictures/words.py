"""The pictures of the chapter on words as vectors."""

from functools import cache

import numpy as np
import torch

from weft.metrics.baselines.classify import one_hot
from weft.metrics.baselines.frozen import row_cosines
from weft.metrics.baselines.vectors import WordVectors
from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.heads import Head, HeadSpec
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.theory.drawing import WIDTH, Canvas, heatmap
from weft.theory.entry import Drawing, Language, Matrix
from weft.theory.models import guide_model
from weft.theory.written.words import cosine_of, word_pairs_within

_TEXTS = ("dog bites man", "man bites dog", "dog bites bone")
_ANIMALS, _CARS = ("cat", "cow", "dog"), ("bus", "car", "van")
_LIKE = ("she was", "she looked", "I should", "you would")


def _draw_lookup(language: Language) -> str:
    """One-hot row times table: only one row of the table is left."""
    words, chosen, V, d = ("the", "cat", "dog", "sat", "mat"), 2, 5, 3
    torch.manual_seed(4)
    table = Embeddings(EmbeddingSpec(V, d)).double()
    torch.nn.init.normal_(table.tokens.weight)
    E = table.tokens.weight.detach().numpy()
    x = table(pack([[chosen]])).detach().numpy()[0]
    english = language == "en"
    canvas = Canvas(WIDTH, 262, "A one-hot vector picks a row" if english else "one-hot 向量选出一行")
    cell, top = 34.0, 52.0
    for place, bit in enumerate(one_hot([chosen], V)[0].tolist()):
        canvas.rect(12 + cell * place, top + cell * chosen, cell - 2, cell - 2, "a" if bit else "line", 0.7)
        canvas.text(12 + cell * (place + 0.5) - 1, top + cell * (chosen + 0.5) + 6, str(int(bit)))
    canvas.text(12 + cell * V / 2, 34, f"e (1 × {V})")
    canvas.text(198, top + cell * (chosen + 0.5) + 6, "×")
    for row, word in enumerate(words):
        canvas.text(258, top + cell * (row + 0.5) + 6, word, "strong" if row == chosen else "soft", anchor="end")
        for column in range(d):
            left, up = 266 + 40 * column, top + cell * row
            canvas.rect(left, up, 38, cell - 2, "a" if row == chosen else "line", 0.5)
            canvas.text(left + 19, up + cell / 2 + 5, f"{E[row, column]:.1f}", "small")
    canvas.text(326, 34, f"E ({V} × {d})")
    canvas.text(404, top + cell * (chosen + 0.5) + 6, "=")
    for column in range(d):
        left, up = 424 + 40 * column, top + cell * chosen
        canvas.rect(left, up, 38, cell - 2, "a", 0.5)
        canvas.text(left + 19, up + cell / 2 + 5, f"{x[column]:.1f}", "small")
    canvas.text(484, 34, f"x (1 × {d})")
    note = "all other rows are multiplied by 0" if english else "其余各行都乘了 0"
    canvas.text(WIDTH / 2, 250, note, "soft small")
    return canvas.svg()


def _draw_bags(language: Language) -> str:
    vectors = WordVectors.fit(_TEXTS)
    features = vectors.vectorizer.get_feature_names_out().tolist()
    order = sorted(range(len(features)), key=lambda place: (" " in features[place], place))
    shown = vectors.of(_TEXTS).toarray()[:, order].tolist()
    english = language == "en"
    title = "Three texts as bags of words" if english else "三个文本的词袋向量"
    note = "row: a text; column: a word or two words in a row" if english else "行：文本；列：词，或者相邻的两个词"
    return heatmap(title, shown, _TEXTS, [features[place] for place in order], note=note)


@cache
def skip_gram_vectors() -> tuple[list[str], Matrix, Matrix]:
    """Words of twelve small sentences, and their vectors before and after training."""
    texts = [f"the {one} {does}" for one in _ANIMALS for does in ("eats", "sleeps")]
    texts += [f"the {one} {does}" for one in _CARS for does in ("starts", "stops")]
    words = sorted({word for text in texts for word in text.split()})
    sentences = ([words.index(word) for word in text.split()] for text in texts)
    pairs = [pair for sentence in sentences for pair in word_pairs_within(sentence, 1)]
    torch.manual_seed(1)
    table = Embeddings(EmbeddingSpec(len(words), 2)).double()
    head = Head(HeadSpec("causal", len(words), bias="none"), 2).double()
    for matrix in (table.tokens.weight, head.out.weight):
        torch.nn.init.normal_(matrix, std=0.5)
    before = table.tokens.weight.detach().numpy().copy()
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], 0.05)
    centres, contexts = zip(*pairs, strict=True)
    for _ in range(300):
        loss = vocabulary_loss(head, table(pack([centres])), torch.tensor(contexts), scale=1 / len(pairs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return words, before, table.tokens.weight.detach().numpy()


def _draw_skip_gram(language: Language) -> str:
    words, before, after = skip_gram_vectors()
    english = language == "en"
    canvas = Canvas(WIDTH, 326, "Word vectors before and after training" if english else "训练前后的词向量")
    names = ("before", "after 300 steps") if english else ("训练前", "训练 300 步后")
    for place, (name, vectors) in enumerate(zip(names, (before, after), strict=True)):
        middle = 140 + 280 * place
        canvas.text(middle, 28, name)
        canvas.line([(middle - 124, 176), (middle + 124, 176)], "line")
        canvas.line([(middle, 46), (middle, 306)], "line")
        clusters: list[tuple[float, float, list[str]]] = []
        for word, (x, y) in zip(words, vectors.tolist(), strict=True):
            at = middle + 30 * x, 176 - 40 * y
            canvas.circle(*at, 5, "a" if word in _ANIMALS else "b" if word in _CARS else "soft", 0.8)
            near = next((c for c in clusters if (c[0] - at[0]) ** 2 + (c[1] - at[1]) ** 2 < 300), None)
            if near is None:
                clusters.append((*at, [word]))
            else:
                near[2].append(word)
        for x, y, together in clusters:
            for line, word in enumerate(together):
                canvas.text(x + 9, y - 1 + 16 * (line - (len(together) - 1) / 2), word, "small", anchor="start")
    return canvas.svg()


def _draw_neighbours(language: Language) -> str:
    """The nearest tokens of three tokens, by the cosine of the model's embeddings."""
    model = guide_model()
    E = model.network.embed.tokens.weight.detach().numpy()
    english = language == "en"
    canvas = Canvas(WIDTH, 258, "The nearest tokens" if english else "最相近的词元")
    for place, word in enumerate((" Queen", " said", " her")):
        (token,) = model.tokenizer.encode(word)
        cosines = row_cosines(np.repeat(E[token : token + 1], len(E), 0), E)
        left = 16 + 184 * place
        canvas.text(left + 76, 30, word.strip(), "strong")
        for line, near in enumerate(np.argsort(-cosines)[1:7].tolist()):
            y = 46 + 30 * line
            canvas.rect(left, y, 164 * float(cosines[near]), 26, "a", 0.35)
            canvas.text(left + 6, y + 19, model.tokenizer.decode([near]).strip(), anchor="start")
            canvas.text(left + 164, y + 18, f"{cosines[near]:.2f}", "small", anchor="end")
    note = "length and number: cosine of the two vectors" if english else "长度和数字：两个向量的余弦"
    canvas.text(WIDTH / 2, 246, note, "soft small")
    return canvas.svg()


def _draw_states(language: Language) -> str:
    """Cosines between the states of “like” in four texts, after each layer."""
    model = guide_model()
    states = model.hidden([model.tokenizer.encode(f"{text} like") for text in _LIKE], layers=(0, 1, 2))
    english = language == "en"
    canvas = Canvas(WIDTH, 234, "States of one word in four texts" if english else "同一个词在四段文本里的隐状态")
    names = ("embedding", "after layer 1", "after layer 2") if english else ("嵌入", "第 1 层之后", "第 2 层之后")
    cell, top = 35.0, 44.0
    for layer, name in enumerate(names):
        left = 104 + 153 * layer
        canvas.text(left + 2 * cell, 30, name, "soft small")
        for row, one in enumerate(states):
            if layer == 0:
                canvas.text(96, top + cell * (row + 0.5) + 5, _LIKE[row], anchor="end")
            for column, other in enumerate(states):
                value = cosine_of(one[layer, -1].astype(float), other[layer, -1].astype(float))
                x, y = left + cell * column, top + cell * row
                canvas.rect(x, y, cell - 2, cell - 2, "a", 0.05 + 0.8 * max(0.0, 2 * value - 1))
                canvas.text(x + cell / 2 - 1, y + cell / 2 + 5, f"{value:.2f}".lstrip("0"), "small")
    note = (
        "cosine of “like” in row and column; columns in the order of the rows"
        if english
        else "行与列中 like 的余弦；列的次序与行相同"
    )
    canvas.text(WIDTH / 2, 218, note, "soft small")
    return canvas.svg()


WORDS_PICTURES: dict[str, Drawing] = {
    "words-lookup": _draw_lookup,
    "words-bags": _draw_bags,
    "words-skip-gram": _draw_skip_gram,
    "words-neighbours": _draw_neighbours,
    "words-states": _draw_states,
}
