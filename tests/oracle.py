"""Models of `transformers` with random shapes and weights, and what they compute: the truth weft is compared with."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


@dataclass(frozen=True)
class Case:
    """One transformers class with one random shape."""

    class_name: str
    seed: int
    extra: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        marks = "".join(f"-{key}={value}" for key, value in self.extra.items())
        return f"{self.class_name}{marks}-{self.seed}"


CLASSES = {
    "bert": ["BertForMaskedLM", "BertForPreTraining", "BertForNextSentencePrediction", "BertModel"],
    "roberta": ["RobertaForMaskedLM", "RobertaModel"],
    "distilbert": ["DistilBertForMaskedLM", "DistilBertModel"],
    "gpt2": ["GPT2LMHeadModel", "GPT2Model"],
    "t5": ["T5ForConditionalGeneration", "T5Model", "T5EncoderModel"],
    "marian": ["MarianMTModel", "MarianModel"],
    "llama": ["LlamaForCausalLM", "LlamaModel"],
    "qwen3": ["Qwen3ForCausalLM", "Qwen3Model"],
    "modernbert": ["ModernBertForMaskedLM", "ModernBertModel"],
}
TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
for _name, _stem in {
    "bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "gpt2": "GPT2", "t5": "T5", "llama": "Llama",
    "qwen3": "Qwen3", "modernbert": "ModernBert",
}.items():  # fmt: skip
    CLASSES[_name] += [_stem + task for task in TASKS]

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "BertForMaskedLM": [{"tie_word_embeddings": False}, {"hidden_act": "relu"}],
    "BertForPreTraining": [{"tie_word_embeddings": False}],
    "RobertaForMaskedLM": [{"tie_word_embeddings": False}, {"type_vocab_size": 1, "pad_token_id": 5}],
    "DistilBertForMaskedLM": [{"tie_word_embeddings": False}],
    "GPT2LMHeadModel": [{"tie_word_embeddings": False}, {"n_inner": 48, "scale_attn_weights": False}],
    "T5ForConditionalGeneration": [
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"num_decoder_layers": 1, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12},
        {"feed_forward_proj": "gated-silu"},
    ],
    "MarianMTModel": [
        {"tie_word_embeddings": False},
        {"share_encoder_decoder_embeddings": False},
        {"scale_embedding": True, "activation_function": "swish", "decoder_layers": 1, "decoder_ffn_dim": 40},
    ],
    "LlamaForCausalLM": [
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
        {
            "num_key_value_heads": 1, "head_dim": 10,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        },
        {
            "rope_parameters": {
                "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16, "rope_theta": 1000.0,
            }
        },
    ],
    "Qwen3ForCausalLM": [{"tie_word_embeddings": True, "attention_bias": True}, {"num_key_value_heads": 1}],
    "ModernBertForMaskedLM": [
        {"tie_word_embeddings": False, "local_attention": 6},
        {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False},
        {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_hidden_layers": 3,
            "local_attention": 4,
        },
    ],
    "ModernBertForSequenceClassification": [{"classifier_pooling": "mean"}],
}  # fmt: skip

CASES = [
    Case(name, seed, extra)
    for names in CLASSES.values()
    for name in names
    for seed, extra in enumerate([{}, {}, *VARIANTS.get(name, [])])
]


def build(case: Case) -> transformers.PreTrainedModel:
    """A transformers model whose every parameter is random, norms and biases too."""
    chance = random.Random(str(case))
    cls = getattr(transformers, case.class_name)
    shape = _shape(cls.config_class.model_type, chance)
    if case.class_name.endswith("ForQuestionAnswering"):
        shape["num_labels"] = 2  # start and end
    config = cls.config_class(**{**shape, **case.extra})
    torch.manual_seed(case.seed)
    model = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
                parameter.copy_(torch.randn_like(parameter) * scale + (0.5 if parameter.dim() == 1 else 0.0))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model


def _shape(model_type: str, chance: random.Random) -> dict[str, Any]:
    heads = chance.choice([1, 2, 4])
    width = heads * chance.choice([6, 8, 16])
    vocabulary, layers, inner = chance.randint(20, 90), chance.randint(1, 3), chance.randint(5, 70)
    labels = chance.choice([1, 3, 5])
    common = {
        "vocab_size": vocabulary, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner, "max_position_embeddings": 64, "num_labels": labels,
    }  # fmt: skip
    match model_type:
        case "bert":
            return common
        case "roberta":
            return {**common, "type_vocab_size": 2}
        case "distilbert":
            return {
                "vocab_size": vocabulary, "dim": width, "n_layers": layers, "n_heads": heads, "hidden_dim": inner,
                "max_position_embeddings": 64, "num_labels": labels,
            }  # fmt: skip
        case "gpt2":
            return {
                "vocab_size": vocabulary, "n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 64,
                "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "num_labels": labels,
            }  # fmt: skip
        case "t5":
            return {
                "vocab_size": vocabulary, "d_model": width, "d_kv": chance.choice([4, 10]), "d_ff": inner,
                "num_layers": layers, "num_heads": heads, "decoder_start_token_id": 0, "num_labels": labels,
            }  # fmt: skip
        case "marian":
            return {
                "vocab_size": vocabulary, "d_model": width, "encoder_layers": layers, "decoder_layers": layers,
                "encoder_attention_heads": heads, "decoder_attention_heads": 1, "encoder_ffn_dim": inner,
                "decoder_ffn_dim": inner, "max_position_embeddings": 64, "pad_token_id": vocabulary - 1,
                "decoder_start_token_id": vocabulary - 1, "eos_token_id": 0, "forced_eos_token_id": 0,
            }  # fmt: skip
        case "llama" | "qwen3":
            groups = chance.choice([heads, 1])
            size = {"head_dim": chance.choice([4, 10])} if model_type == "qwen3" else {}
            return {**common, **size, "num_key_value_heads": groups, "pad_token_id": 0}
        case "modernbert":
            special = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
            return {**common, **dict.fromkeys(special, 0), "local_attention": 8}
    raise AssertionError(model_type)


def sequences(vocabulary: int, seed: int, *, end: int = 9, count: int = 5, longest: int = 30) -> list[list[int]]:
    """Token ids of unequal lengths, two of them equal, none of them special but the last, which is `end`."""
    chance = random.Random(seed)
    lengths = [chance.randint(2, longest) for _ in range(count - 1)]
    lengths.append(lengths[0])
    return [[chance.randint(8, vocabulary - 2) for _ in range(length - 1)] + [end] for length in lengths]


def pad(rows: list[list[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [value] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def run(model, sources: list[list[int]], targets: list[list[int]] | None = None, segments=None):
    """transformers' padded batch, as people call it."""
    value = model.config.pad_token_id or 0
    ids, mask = pad(sources, value)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if segments is not None:
        inputs["token_type_ids"] = pad(segments, 0)[0]
    if targets is not None:
        inputs["decoder_input_ids"], inputs["decoder_attention_mask"] = pad(targets, value)
    return model(**inputs)


def rows(tensor: torch.Tensor, lengths: list[int]) -> list[np.ndarray]:
    return [tensor[i, :length].detach().numpy() for i, length in enumerate(lengths)]


def save(model, folder: Path, **options) -> Path:
    model.save_pretrained(folder, **options)
    return folder
