"""Figures as people read them: their names, and as many digits as are worth reading."""

from collections.abc import Sequence

NAMES = {
    "f1": "F1", "f1_macro": "macro F1", "f1_micro": "micro F1", "f1_weighted": "weighted F1",
    "mcc": "Matthews correlation", "exact": "exact match", "bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum", "pearson": "Pearson", "spearman": "Spearman",
    "slot_f1": "slot F1", "intent": "intent accuracy", "rmse": "RMSE", "mae": "mean absolute error",
    "f1_raw": "F1 from raw text", "slot_f1_raw": "slot F1 from raw text",
    "hits_at_1": "hits@1", "bits_per_byte": "bits per byte of the right reply",
    "distinct": "different texts",
}  # fmt: skip


def name_of(figure: str, task: str) -> str:
    """F1 is the mean of the classes' where there are classes, and counts entities or words elsewhere."""
    return "macro F1" if figure == "f1" and task in ("classify", "pair") else NAMES.get(figure, figure)


def number(figure: str, value: float) -> str:
    return f"{value:.1f}" if figure in ("bleu", "chrf", "perplexity") else f"{value:.3f}"


def between(figure: str, ends: Sequence[float]) -> str:
    return " – ".join(number(figure, end) for end in ends)
