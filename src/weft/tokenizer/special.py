"""The special tokens of each family, in vocabulary order, and their positions around texts."""

from dataclasses import dataclass

from weft.tokenizer.tokenizer import SpecialRole

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # T5's placeholders for masked spans


@dataclass(frozen=True)
class SpecialTokens:
    roles: dict[SpecialRole, str]
    extra: tuple[str, ...] = ()
    before: tuple[SpecialRole, ...] = ()  # around a single text
    after: tuple[SpecialRole, ...] = ()
    between: tuple[SpecialRole, ...] = ()  # the two texts of a pair

    @property
    def tokens(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.extra]))


_BERT: dict[SpecialRole, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_END: dict[SpecialRole, str] = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}

FAMILY_SPECIALS: dict[str, SpecialTokens] = {
    "bert": SpecialTokens(_BERT, before=("cls",), after=("sep",), between=("sep",)),
    "roberta": SpecialTokens(
        {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>"},
        before=("bos",),
        after=("eos",),
        between=("eos", "eos"),
    ),
    "gpt2": SpecialTokens(_END),
    "t5": SpecialTokens(
        {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, extra=SENTINELS, after=("eos",), between=("eos",)
    ),
    "transformer": SpecialTokens({"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, after=("eos",), between=("eos",)),
    "llama": SpecialTokens({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, before=("bos",), between=("bos",)),
}
FAMILY_SPECIALS |= {
    "distilbert": FAMILY_SPECIALS["bert"],
    "modernbert": FAMILY_SPECIALS["bert"],
    "qwen3": FAMILY_SPECIALS["gpt2"],
    "lstm": FAMILY_SPECIALS["gpt2"],
}
