"""What the guide must cover: the formulas (1–24) and procedures (25–49) that articles about pre-training usually give.

`printed` is the formula as it is commonly printed, in our notation. `wrong` says what is wrong with it, where it is:
the chapter shows the printed form, why it does not hold, and what does.
"""

from typing import NamedTuple

FORMULAS, PROCEDURES = range(1, 25), range(25, 50)


class Topic(NamedTuple):
    title: str
    chapters: tuple[str, ...]  # each has an entry for this row
    printed: str = ""
    wrong: str = ""


CHECKLIST: dict[int, Topic] = {
    1: Topic("masked input", ("bert",), r"X = \{x_1, \dots, x_n\} \to \tilde{X}, \quad \tilde{x}_i = \text{[MASK]}"),
    2: Topic(
        "masks that cover every token", ("bert",), r"Y = Y^{(\text{mask}_1)}, \dots, Y^{(\text{mask}_m)}, \quad m \ge 1"
    ),
    3: Topic(
        "sentence pair and its label",
        ("bert",),
        r"Y' = Y'_1 \dots Y'_n, \quad \text{label} \in \{0, 1\}",
        "the label is said to mean 'from the same document'; BERT's means 'the second sentence follows the first'",
    ),
    4: Topic(
        "input padded to one length",
        ("no-padding",),
        r"X_{\text{pe}} \in \mathbb{R}^{L \times d_{\text{pos}}}",
        "padding is an artefact of dense arrays, not part of the model, and a position vector is as wide as the model",
    ),
    5: Topic(
        "input plus positions",
        ("positions",),
        r"X'_{\text{pe}} = X_{\text{pe}} + P, \quad P \in \mathbb{R}^{L \times d}",
    ),
    6: Topic(
        "attention of one head, then concatenation",
        ("attention",),
        r"w^{(\ell)} = \operatorname{softmax}\left(Q' K'^\top / \sqrt{d}\right)",
    ),
    7: Topic(
        "feed-forward layer",
        ("layer",),
        r"y = \max(0, \sigma(W z + b))",
        "a sigmoid is never negative, so the ReLU around it does nothing; the layer has two matrices",
    ),
    8: Topic(
        "attention in matrix form, with shapes",
        ("attention",),
        r"\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d}}\right) V",
    ),
    9: Topic(
        "weights by cosine",
        ("attention",),
        r"\operatorname{softmax}\left(\frac{q \cdot k}{\lVert q \rVert \lVert k \rVert}\right)",
        "cosines lie between -1 and 1, so the weights stay nearly even; the Transformer divides by √D",
    ),
    10: Topic(
        "loss of a language model",
        ("language-models",),
        r"L = -\sum_t l(y_t, \hat{y}_t)",
        "l is already the loss, so the minus sign would make it be maximised",
    ),
    11: Topic("loss of a character model", ("language-models",), r"L = \sum_t l(y_t, \hat{y}_t)"),
    12: Topic(
        "attention scaled by the root of the width", ("attention",), r"\operatorname{softmax}(Q K^\top / \sqrt{d_k}) V"
    ),
    13: Topic("projections", ("attention",), r"Q = X W^Q, \quad K = X W^K, \quad V = X W^V"),
    14: Topic("score", ("attention",), r"e_{ij} = q_i^\top k_j"),
    15: Topic(
        "weight, written out",
        ("attention",),
        r"\alpha_{ij} = \frac{\exp(e_{ij} / \sqrt{d_k})}{\sum_m \exp(e_{im} / \sqrt{d_k})}",
    ),
    16: Topic("output of a query", ("attention",), r"z_i = \sum_j \alpha_{ij} v_j"),
    17: Topic(
        "many heads",
        ("attention",),
        r"\operatorname{MultiHead}(Q, K, V) = \operatorname{Concat}(\text{head}_1, \dots",
        "often breaks off after the concatenation: the output matrix is missing",
    ),
    18: Topic(
        "a hidden layer",
        ("layer",),
        r"[x] = W [h] + b",
        "input and hidden state are exchanged, so the shapes do not fit; the activation is missing",
    ),
    19: Topic(
        "number of parameters",
        ("cost",),
        r"N = V + T^2 \cdot d_{\text{model}} + O(\log T)",
        "the square of the length is memory for activations, not weights; the layers' matrices are missing",
    ),
    20: Topic("chain rule", ("language-models",), r"P(w_1 \dots w_n) = \prod_i P(w_i \mid w_1 \dots w_{i-1})"),
    21: Topic("projections, column form", ("attention",), r"q_i = W_q x_i, \quad k_i = W_k x_i, \quad v_i = W_v x_i"),
    22: Topic(
        "weight with an index used twice",
        ("attention",),
        r"a_{ij} = \frac{\exp(q_i^\top k_j)}{\sum_k \exp(q_i^\top k_k)}",
        "k is both the key and the index of the sum",
    ),
    23: Topic("output of a query, column form", ("attention",), r"y_i = \sum_j a_{ij} v_j"),
    24: Topic("hidden states and their shapes", ("words",), r"h_\theta(X) \in \mathbb{R}^{n \times d}"),
    25: Topic("a large corpus: collect, clean, mix by weight", ("text",)),
    26: Topic("masked language model: 15 %, mask, replace or keep, cross-entropy", ("bert",)),
    27: Topic("next sentence, and the sum of both losses", ("bert",)),
    28: Topic("add and norm, layer norm, dropout", ("layer",), wrong="the formula of layer norm is usually left out"),
    29: Topic("teacher forcing: inputs and targets shifted by one", ("encoder-decoder",)),
    30: Topic("relative positions", ("positions",)),
    31: Topic("encoder and decoder, future masked, cross-attention", ("encoder-decoder", "attention")),
    32: Topic("GPT: the most probable next token is the least cross-entropy", ("gpt",)),
    33: Topic(
        "LSTM, and a learning rate between two values",
        ("lstm", "learning"),
        wrong="'5e-4 to 5e-5' does not say how the rate falls, and is not the LSTM's",
    ),
    34: Topic("GPT-3: sizes, search for hyper-parameters, tasks", ("gpt",)),
    35: Topic(
        "TF-IDF and a classifier as the older way; distillation",
        ("evaluation", "compression"),
        wrong="distillation is not a kind of pre-training text, and BERT does need fine-tuning",
    ),
    36: Topic("pre-train, then fine-tune", ("fine-tuning",)),
    37: Topic("one-hot, bag of words, skip-gram, embeddings", ("words",)),
    38: Topic("learning rate, Adam, shuffling, early stopping", ("learning", "text")),
    39: Topic(
        "gradient clipping",
        ("learning",),
        wrong="'gradients that are too small are enlarged': clipping never enlarges",
    ),
    40: Topic("cross-entropy and label smoothing", ("learning",)),
    41: Topic("beam search and sampling", ("generation",)),
    42: Topic("classification by a linear layer and softmax", ("fine-tuning",)),
    43: Topic("discriminative models: CRF, maximum entropy", ("fine-tuning",)),
    44: Topic("BERT's recipe: sizes, batch, checkpoints", ("bert",)),
    45: Topic("20 Newsgroups: headers removed, 80/20, 3 epochs", ("fine-tuning",)),
    46: Topic("tasks: generation, entities, sentiment, translation, summary, answers, dialogue", ("fine-tuning",)),
    47: Topic("accuracy, F1, BLEU; time and parameters", ("evaluation",)),
    48: Topic("distillation, pruning, data and model parallelism", ("compression", "processes")),
    49: Topic("data quality, robustness, commands, interpretability", ("text", "fine-tuning")),
}
