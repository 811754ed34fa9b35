"""Language models: the chain rule, the loss, its units, and n-grams."""

from weft.theory.entry import Chapter, GuideEntry, SourceLines
from weft.theory.pictures.language_models import LANGUAGE_MODELS_PICTURES
from weft.theory.written.language_models import (
    bits_per_character,
    language_model_loss,
    perplexity_of,
    text_log_probability,
    witten_bell,
)

_UNUSED = "only avoids a division by zero, for contexts that `known` then leaves out"


LANGUAGE_MODELS_CHAPTER = Chapter(
    "language-models",
    (
        GuideEntry(
            "chain-rule",
            r"""
P(w_1 \dots w_n) = \prod_{i=1}^{n} P(w_i \mid w_1 \dots w_{i-1}),
\qquad \log P(w_1 \dots w_n) = \sum_{i=1}^{n} \log P(w_i \mid w_1 \dots w_{i-1})
""",
            (
                SourceLines("weft.generate.log_probs:_log_probs"),
                SourceLines("weft.generate.log_probs:Score.log_prob", "return math.fsum"),
            ),
            (text_log_probability,),
            "chain-rule",
            rows=(20,),
            equivalent={
                "-1 → 1": "the logits have two dimensions, so the last is number 1",
            },
        ),
        GuideEntry(
            "causal-loss",
            r"""
L = \frac{1}{n} \sum_{t=1}^{n} l(y_t, \hat y_t), \qquad y_t = x_{t+1},
\qquad l(y_t, \hat y_t) = -\log p(y_t \mid x_1 \dots x_t)
""",
            (
                SourceLines("weft.objectives.causal:Causal.batch", "stride =", "targets ="),
                SourceLines("weft.objectives.objective:_vocabulary_scores", "loss = F.cross_entropy"),
            ),
            (language_model_loss,),
            "shift",
            rows=(10, 11),
        ),
        GuideEntry(
            "perplexity",
            r"""
\mathrm{PPL} = e^{L}, \qquad \mathrm{BPC} = \frac{L}{\ln 2} \cdot \frac{n}{c}
""",
            (SourceLines("weft.train.validation:figures_of", "tokens = sum", "def figures"),),
            (perplexity_of, bits_per_character),
            "ngrams",
            rows=(11,),
            equivalent={"700.0 → 701.0": "only guards against overflow: e^700 is more than any perplexity"},
        ),
        GuideEntry(
            "n-gram",
            r"""
p(x \mid h) = \frac{\mathrm{count}(h\,x) + T(h)\, p(x \mid h')}{\mathrm{count}(h) + T(h)}
""",
            (SourceLines("weft.metrics.ngram:NGram.losses"),),
            (witten_bell,),
            "ngrams",
            equivalent={"np.maximum(total + followers, 1) → total + followers": _UNUSED, "1 → 2 #4": _UNUSED},
        ),
    ),
    LANGUAGE_MODELS_PICTURES,
)
