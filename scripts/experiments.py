"""The experiments of docs/results.md, as recipes with places to fill: {data}, {minilm}, a pre-trained model …"""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Experiment:
    title: str
    data: str  # the data set, as the page calls it
    begins: str  # the initial weights, as the page calls them
    score: str
    finetune: dict[str, Any]
    tokenizer: dict[str, Any] | None = None
    score_before: str | None = None  # the metric of old results that do not name theirs, if it was another


# ModernBERT: with rotary positions and pre-norm it learns from context early. After ten minutes BERT's own design still
# predicts by frequency alone.
SMALL = {"family": "modernbert", "layers": 4, "width": 256, "heads": 4, "positions": 128}


def _masked(sources: list[dict[str, Any]], vocabulary: int, budget: str) -> dict[str, Any]:
    return {
        "corpus": {"sources": sources},
        "tokenizer": {"kind": "wordpiece", "vocab_size": vocabulary},
        "model": SMALL,
        "pretrain": {"objective": "masked", "mask_share": 0.3, "budget": budget, "sequence_length": 128},
    }


ENGLISH = [
    {"path": "{data}/lm/gutenberg", "encoding": "latin-1"},
    {"path": "{work}/20news-train.jsonl"},
    {"path": "{data}/lm/wikitext-2-raw/wiki.valid.raw", "weight": 0.25},
    {"path": "{data}/lm/wikitext-2-raw/wiki.test.raw", "weight": 0.25},
    {"path": "{work}/english-texts.txt", "documents": "line", "weight": 3},
]
CHINESE = [
    {"path": "{data}/lm/zh-cluecorpussmall-sample.txt"},
    {"path": "{data}/lm/zh-novels", "weight": 0.3},
    {"path": "{work}/chinese-texts.txt", "documents": "line", "weight": 4},
]
BUDGETS = ("75s", "5m", "20m")
LONGEST = BUDGETS[-1:]
PRETRAINED: dict[str, dict[str, Any]] = {
    **{f"en-bert-{budget}": _masked(ENGLISH, 8000, budget) for budget in BUDGETS},
    "zh-bert-20m": _masked(CHINESE, 5000, "20m"),
}
MINILM, FROM_SCRATCH = "MiniLM", "from scratch"


def _small(name: str, task: Experiment, pretrained: str, budgets: tuple[str, ...]) -> dict[str, Experiment]:
    """The small BERT on a task, from scratch and after pre-training; all with the same vocabulary."""
    tokenizer = {"path": f"{{{pretrained}-{budgets[-1]}}}"}
    found = {f"{name}-0s": replace(task, finetune={**task.finetune, "model": SMALL}, tokenizer=tokenizer)}
    for budget in budgets:
        learnt = {**task.finetune, "model": f"{{{pretrained}-{budget}}}"}
        begins = f"ModernBERT of 4 × 256, {budget} of pre-training"
        found[f"{name}-{budget}"] = replace(task, finetune=learnt, begins=begins)
    return found


EXPERIMENTS: dict[str, Experiment] = {
    "stsb": Experiment(
        "Similarity",
        "STS-B, dev",
        MINILM,
        "spearman",
        {
            "model": "{minilm}",
            "task": "similarity",
            "data": {"train": "{data}/pair/stsb/train.tsv", "test": "{data}/pair/stsb/dev.tsv"},
            "budget": "4 epochs",
        },
    ),
    "stsb-vectors": Experiment(
        "Similarity, by vectors",
        "STS-B, dev",
        MINILM,
        "spearman",
        {
            "model": "{minilm}",
            "task": "embed",
            "data": {"train": "{data}/pair/stsb/train.tsv", "test": "{data}/pair/stsb/dev.tsv"},
            "budget": "3 epochs",
        },
    ),
    "sst2": Experiment(
        "Sentiment",
        "SST-2, dev",
        MINILM,
        "accuracy",
        {
            "model": "{minilm}",
            "task": "classify",
            "data": {"train": "{data}/classify/sst2/train.tsv", "test": "{data}/classify/sst2/dev.tsv"},
            "budget": "1 epochs",
            "batch": 64,
        },
    ),
    "ewt": Experiment(
        "Part of speech",
        "UD English EWT, test",
        MINILM,
        "accuracy",
        {
            "model": "{minilm}",
            "task": "tag",
            "data": {
                "train": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-train.conllu",
                "validation": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-dev.conllu",
                "test": "{data}/tag/ud-english-ewt-pos/en_ewt-ud-test.conllu",
                "tags": "upos",
            },
            "budget": "2 epochs",
        },
    ),
    "multi30k": Experiment(
        "Translation, German to English",
        "Multi30k, test 2016",
        FROM_SCRATCH,
        "bleu",
        {
            "model": {"family": "transformer", "layers": 3, "width": 256, "heads": 4, "inner": 1024},
            "task": "translate",
            "data": {
                name: [f"{{data}}/translate/multi30k/{file}.{side}.gz" for side in ("de", "en")]
                for name, file in (("train", "train"), ("validation", "val"), ("test", "test_2016_flickr"))
            },
            "budget": "5 epochs",
            "label_smoothing": 0.1,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
    ),
    "20news": Experiment(
        "Topic",
        "20 Newsgroups by date, test; headers, footers and quotes removed",
        MINILM,
        "accuracy",
        {
            "model": "{minilm}",
            "task": "classify",
            "data": {"train": "{work}/20news-train.jsonl", "test": "{work}/20news-test.jsonl"},
            "budget": "2 epochs",
            "sequence_length": 256,
            "windows": 2,
            "batch": 16,
        },
    ),
    "wnut17": Experiment(
        "Named entities",
        "WNUT-17, test",
        MINILM,
        "f1",
        {
            "model": "{minilm}",
            "task": "tag",
            "crf": True,
            "data": {
                "train": "{data}/tag/wnut17-ner/wnut17train.conll",
                "validation": "{data}/tag/wnut17-ner/emerging.dev.conll",
                "test": "{data}/tag/wnut17-ner/emerging.test.annotated",
            },
            "budget": "5 epochs",
        },
    ),
    "rte": Experiment(
        "Entailment",
        "RTE, dev",
        MINILM,
        "accuracy",
        {
            "model": "{minilm}",
            "task": "pair",
            "data": {"train": "{data}/pair/rte/train.tsv", "test": "{data}/pair/rte/dev.tsv"},
            "budget": "5 epochs",
        },
    ),
    "squad": Experiment(
        "Answers",
        "SQuAD 1.1 dev, first 40 articles to learn, last 8 to be judged by",
        MINILM,
        "f1",
        {
            "model": "{minilm}",
            "task": "answer",
            "data": {"train": "{work}/squad-train.json", "test": "{work}/squad-test.json", "limit": 7000},
            "budget": "1 epochs",
            "sequence_length": 256,
            "batch": 16,
            "dropout": 0.0,
        },
    ),
    "samsum": Experiment(
        "Summaries",
        "SAMSum, test",
        FROM_SCRATCH,
        "rougeL",
        {
            "model": {"family": "t5", "layers": 3, "width": 256, "heads": 4},
            "task": "summarize",
            "data": {
                "train": "{data}/summarize/samsum/train.csv",
                "validation": "{data}/summarize/samsum/validation.csv",
                "test": "{data}/summarize/samsum/test.csv",
            },
            "budget": "1 epochs",
            "batch": 16,
            "sequence_length": 256,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
    ),
    "samsum-extract": Experiment(
        "Summaries, extracted",
        "SAMSum, test",
        MINILM,
        "rougeL",
        {
            "model": "{minilm}",
            "task": "extract",
            "data": {
                "train": "{data}/summarize/samsum/train.csv",
                "validation": "{data}/summarize/samsum/validation.csv",
                "test": "{data}/summarize/samsum/test.csv",
            },
            "budget": "2 epochs",
            "batch": 16,
        },
    ),
    "intent": Experiment(
        "Commands: intent and slots",
        "smart home, written by hand",
        MINILM,
        "exact",
        {
            "model": "{minilm}",
            "task": "intent",
            "data": {"train": "{examples}/intent.tsv", "test": "{examples}/intent-test.tsv", "tags": "slots"},
            "budget": "10 epochs",
        },
    ),
    "intent-zh": Experiment(
        "Commands, Chinese: intent and slots",
        "smart home, written by hand",
        FROM_SCRATCH,
        "exact",
        {
            "model": {"family": "modernbert", "layers": 2, "width": 64, "heads": 2},
            "task": "intent",
            "data": {"train": "{examples}/intent-zh.tsv", "test": "{examples}/intent-zh-test.tsv", "tags": "slots"},
            "budget": "20 epochs",
            "batch": 16,
            "dropout": 0.2,
        },
    ),
    "cornell": Experiment(
        "Replies",
        "Cornell movie dialogues; trained on its validation file, evaluated on its test file",
        FROM_SCRATCH,
        "hits_at_1",
        {
            "model": {"family": "qwen3", "layers": 4, "width": 256, "heads": 4},
            "task": "reply",
            "data": {
                "train": "{data}/dialogue/cornell/validation.jsonl",
                "test": "{data}/dialogue/cornell/test.jsonl",
            },
            "budget": "4 epochs",
            "sequence_length": 128,
            "max_new_tokens": 40,
        },
        tokenizer={"kind": "bpe", "vocab_size": 8000},
        score_before="chrf",
    ),
}


def _few(task: Experiment, examples: int, epochs: int) -> Experiment:
    """The task with few examples, where pre-training should help; with several seeds, because results are noisy."""
    data = {**task.finetune["data"], "limit": examples}
    settings = {"data": data, "budget": f"{epochs} epochs", "dropout": 0.1, "seeds": 3}
    return replace(task, finetune={**task.finetune, **settings})


SST2, EWT = (replace(EXPERIMENTS[name], begins=FROM_SCRATCH) for name in ("sst2", "ewt"))
CHNSENTICORP = Experiment(
    "Sentiment, Chinese",
    "ChnSentiCorp, test",
    FROM_SCRATCH,
    "accuracy",
    {
        "task": "classify",
        "data": {
            name: f"{{data}}/classify/chnsenticorp/{file}.tsv"
            for name, file in (("train", "train"), ("validation", "dev"), ("test", "test"))
        },
        "budget": "2 epochs",
    },
)
CLUENER = Experiment(
    "Named entities, Chinese",
    "CLUENER, dev",
    FROM_SCRATCH,
    "f1",
    {
        "task": "tag",
        "crf": True,
        "data": {"train": "{data}/tag/cluener-zh/train.jsonl", "test": "{data}/tag/cluener-zh/dev.jsonl"},
        "budget": "4 epochs",
    },
)
# What pre-training is worth: with and without it,
PAIRS = {
    "chnsenticorp": _small("chnsenticorp", CHNSENTICORP, "zh-bert", LONGEST),
    "chnsenticorp-few": _small("chnsenticorp-few", _few(CHNSENTICORP, 1000, 4), "zh-bert", LONGEST),
    "cluener": _small("cluener", CLUENER, "zh-bert", LONGEST),
    "sst2-all": _small("sst2-all", replace(SST2, finetune={**SST2.finetune, "seeds": 3}), "en-bert", LONGEST),
    "ewt-all": _small("ewt-all", EWT, "en-bert", LONGEST),
}
# and by its length.
CURVES = {
    "sst2-few": _small("sst2-few", _few(SST2, 2000, 5), "en-bert", BUDGETS),
    "ewt-few": _small("ewt-few", _few(EWT, 1000, 5), "en-bert", BUDGETS),
}
