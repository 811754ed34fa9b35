"""Words as vectors: from one-hot to hidden states."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.words import WORDS_PICTURES
from weft.theory.written.words import (
    bag_of,
    cosine_of,
    indicator,
    look_up,
    mean_state,
    skip_gram_loss,
    states_after,
    weighted_bag,
    with_word_pairs,
    word_pairs_within,
)

WORDS_CHAPTER = Chapter(
    "words",
    (
        GuideEntry(
            "one-hot",
            r"""
e_v = (0, \dots, 0, 1, 0, \dots, 0) \in \mathbb{R}^V, \qquad (e_v)_u = [u = v]
""",
            (SourceLines("weft.metrics.baselines.classify:one_hot"),),
            (indicator,),
            "words-lookup",
            rows=(37,),
        ),
        GuideEntry(
            "bag-of-words",
            r"""
b = \sum_{g \in G} e_g, \qquad
x_g = \frac{y_g}{\lVert y \rVert}, \qquad
y_g = [b_g > 0]\, (1 + \ln b_g) \left(1 + \ln \frac{1 + N}{1 + N_g}\right)
""",
            (
                SourceLines("weft.metrics.baselines.vectors:grams_of"),
                SourceLines("weft.metrics.baselines.vectors:WordVectors.fit", "vectorizer ="),
            ),
            (with_word_pairs, bag_of, weighted_bag),
            "words-bags",
            rows=(37,),
        ),
        GuideEntry(
            "embedding",
            r"""
x_i = s\, e_{w_i}^\top E = s\, E_{w_i}, \qquad E \in \mathbb{R}^{V \times d}
""",
            (
                SourceLines(
                    "weft.model.embeddings:Embeddings.forward", "x = self.tokens(batch.tokens)", "if self.spec.scaled"
                ),
            ),
            (look_up,),
            "words-lookup",
            rows=(37,),
        ),
        GuideEntry(
            "skip-gram",
            r"""
L = -\frac{1}{|D|} \sum_{(w, c) \in D} \ln p(c \mid w), \qquad
p(c \mid w) = \frac{\exp(u_c \cdot x_w)}{\sum_{v=1}^{V} \exp(u_v \cdot x_w)}
""",
            (
                SourceLines("weft.model.loss:_VocabularyLoss.forward", "logits = torch", "total += loss"),
                SourceLines("weft.model.loss:_VocabularyLoss.forward", "return total * scale"),
            ),
            (word_pairs_within, skip_gram_loss),
            "words-skip-gram",
            rows=(37,),
        ),
        GuideEntry(
            "cosine",
            r"""
\cos(u, v) = \frac{u \cdot v}{\lVert u \rVert\, \lVert v \rVert}
""",
            (SourceLines("weft.metrics.baselines.frozen:row_cosines"),),
            (cosine_of,),
            "words-neighbours",
            rows=(37,),
        ),
        GuideEntry(
            "hidden-states",
            r"""
H^{(0)} = X, \qquad H^{(\ell)} = f_\ell\left(H^{(\ell - 1)}\right), \qquad
h_\theta(X) = H^{(L)} \in \mathbb{R}^{n \times d}
""",
            (
                SourceLines("weft.model.network:Network.forward", "return self.decoder(self.embed(batch)"),
                SourceLines("weft.model.stack:Stack.forward", "x = x_TW", "return self.dropout(x if"),
            ),
            (states_after,),
            "words-states",
            rows=(24,),
        ),
        GuideEntry(
            "text-vector",
            r"""
\bar h = \frac{1}{n} \sum_{i=1}^{n} h_i, \qquad h_\theta(X) = (h_1, \dots, h_n)
""",
            (SourceLines("weft.model.heads:mean_of_each"),),
            (mean_state,),
            "words-states",
            rows=(24,),
            equivalent={"-1 → 1": "the hidden states have two dimensions, so the last one is number 1"},
        ),
    ),
    WORDS_PICTURES,
)
