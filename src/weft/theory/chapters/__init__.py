"""The chapters: one module each, with its table of entries.

A chapter exists when its module is here. Its text is in docs/theory, in both languages.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from weft.theory.entry import Chapter, Language


class Title(NamedTuple):
    en: str
    zh: str

    def of(self, language: Language) -> str:
        return self.en if language == "en" else self.zh


# In the order of the guide.
CHAPTER_TITLES: dict[str, Title] = {
    "language-models": Title("Language models and the chain rule", "语言模型与链式法则"),
    "text": Title("From pages to tokens", "从网页到词元"),
    "words": Title("Words as vectors", "词的向量"),
    "attention": Title("Attention", "注意力"),
    "positions": Title("Positions", "位置"),
    "layer": Title("Residual, norm, feed-forward, dropout", "残差、归一化、前馈与暂退"),
    "encoder-decoder": Title("Encoder and decoder", "编码器与解码器"),
    "bert": Title("BERT: masked words", "BERT：掩码语言模型"),
    "gpt": Title("GPT: the next token", "GPT：下一个词元"),
    "t5": Title("T5 and denoising", "T5 与去噪"),
    "lstm": Title("The LSTM before", "此前的 LSTM"),
    "learning": Title("Learning", "学习"),
    "cost": Title("How many parameters, FLOPs and bytes", "多少参数、多少运算、多少字节"),
    "generation": Title("Writing text", "生成文本"),
    "fine-tuning": Title("Fine-tuning, heads, CRF", "微调、输出头与 CRF"),
    "evaluation": Title("Evaluation", "评测"),
    "no-padding": Title("No padding", "无填充"),
    "exact-continuation": Title("Exact continuation", "精确续训"),
    "compression": Title("Compression", "压缩"),
    "processes": Title("Several processes", "多进程训练"),
    "glossary": Title("Glossary", "术语表"),
}


def written_chapters() -> list[str]:
    """The slugs of the chapters that exist, in order."""
    return [slug for slug in CHAPTER_TITLES if (Path(__file__).parent / f"{_module(slug)}.py").is_file()]


@cache
def read_chapter(slug: str) -> Chapter:
    """The chapter's module holds it as a constant: `ATTENTION_CHAPTER` in attention.py."""
    module = importlib.import_module(f"weft.theory.chapters.{_module(slug)}")
    chapter: Chapter = getattr(module, f"{_module(slug).upper()}_CHAPTER")
    return chapter


def _module(slug: str) -> str:
    return slug.replace("-", "_")
