"""The pictures of the chapter on language models."""

import math
from functools import cache

import numpy as np

from weft.metrics.ngram import NGram
from weft.theory.drawing import WIDTH, Canvas, bar_chart
from weft.theory.entry import Drawing, Language
from weft.theory.models import EXAMPLE_SENTENCE, example_tokens, guide_model, guide_text
from weft.theory.written.language_models import bits_per_character


def _draw_chain(language: Language) -> str:
    _, words = example_tokens(EXAMPLE_SENTENCE)
    probabilities = [math.exp(one) for one in guide_model().score(EXAMPLE_SENTENCE).log_probs]
    english = language == "en"
    title = "Probability of each token given those before it" if english else "每个词元在前文之下的概率"
    note = "each bar: p(token | all tokens above it)" if english else "每一条：p(词元 | 它上面的所有词元)"
    return bar_chart(title, words, probabilities, note=note)


def _draw_next(language: Language) -> str:
    """The eight most probable tokens after a text."""
    ids, _ = example_tokens("said the")
    logits = guide_model().logits([ids])[0][-1].astype(float)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    best = np.argsort(-p)[:8]
    names = [guide_model().tokenizer.decode([int(token)]).strip() or "↵" for token in best]
    english = language == "en"
    title = "The likeliest tokens after “said the”" if english else "“said the” 之后最可能的词元"
    note = (
        "p(token | said the); 1,992 other tokens share the rest"
        if english
        else "p(词元 | said the)；其余概率由另外 1992 个词元分享"
    )
    return bar_chart(title, names, p[best].tolist(), note=note)


def _draw_shift(language: Language) -> str:
    """Inputs above, targets below, one step to the left."""
    words = ("I", "beg", "your", "pardon")
    targets = (*words[1:], ",'")
    english = language == "en"
    canvas = Canvas(WIDTH, 190, "Inputs and targets, shifted by one" if english else "错开一位的输入与目标")
    for place, (word, target) in enumerate(zip(words, targets, strict=True)):
        x = 150 + 108 * place
        canvas.rect(x - 46, 28, 92, 38, "box")
        canvas.text(x, 52, word)
        canvas.rect(x - 46, 124, 92, 38, "a", 0.2)
        canvas.text(x, 148, target)
        canvas.arrow(x, 68, x, 122)
        if place:
            canvas.line([(x - 62, 124), (x - 40, 68)], "stroke-soft dashed", 0.6)
    for y, name in ((52, "input x" if english else "输入 x"), (148, "target y" if english else "目标 y")):
        canvas.text(16, y, name, "soft small", anchor="start")
    note = "dashed: a target is the next input" if english else "虚线：目标就是下一个输入"
    canvas.text(WIDTH / 2 + 30, 183, note, "soft small")
    return canvas.svg()


@cache
def losses_on_unseen_text() -> dict[str, float]:
    """Bits per character on the last chapter of the book: n-grams of the chapters before it, and the model."""
    model = guide_model()
    known, unseen = guide_text()
    counted, asked = (np.array(model.tokenizer.encode(text)) for text in (known, unseen))
    found = {}
    for n in range(1, 5):
        loss = NGram(counted, model.tokenizer.vocabulary, n).loss(asked)
        found[f"{n}-gram"] = bits_per_character(loss, len(asked), len(unseen))
    score = model.score(unseen)
    loss = -score.log_prob / len(score.log_probs)
    found["GPT"] = bits_per_character(loss, len(asked), len(unseen))
    return found


def _draw_ngrams(language: Language) -> str:
    found = losses_on_unseen_text()
    english = language == "en"
    title = "Bits per character on unseen text" if english else "在未见文本上的每字符比特数"
    note = "bits per character on chapter XII; shorter is better" if english else "第十二章上的每字符比特数，越短越好"
    return bar_chart(title, list(found), list(found.values()), digits=2, note=note)


LANGUAGE_MODELS_PICTURES: dict[str, Drawing] = {
    "chain-rule": _draw_chain,
    "next-token": _draw_next,
    "shift": _draw_shift,
    "ngrams": _draw_ngrams,
}
