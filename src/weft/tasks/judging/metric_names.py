"""The names of metrics as people read them."""

TITLES = {
    "f1": "F1", "f1_macro": "macro F1", "f1_micro": "micro F1", "f1_weighted": "weighted F1",
    "mcc": "Matthews correlation", "exact": "exact match", "bleu": "BLEU", "chrf": "chrF", "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum", "pearson": "Pearson", "spearman": "Spearman",
    "slot_f1": "slot F1", "intent": "intent accuracy", "rmse": "RMSE", "mae": "mean absolute error",
    "f1_raw": "F1 from raw text", "slot_f1_raw": "slot F1 from raw text",
    "hits_at_1": "hits@1", "bits_per_byte": "bits per byte of the gold reply",
    "distinct": "distinct texts",
}  # fmt: skip


def metric_title(metric: str, task: str) -> str:
    """F1 is the mean over the classes where there are classes; elsewhere it counts entities or words."""
    return "macro F1" if metric == "f1" and task in ("classify", "pair") else TITLES.get(metric, metric)
