"""The special tokens each family needs, in the order in which they open the vocabulary, and where they stand."""

from dataclasses import dataclass

from weft.tokenizer.tokenizer import Role

SENTINELS = tuple(f"<extra_id_{number}>" for number in range(100))  # T5's marks for what was cut out


@dataclass(frozen=True)
class Specials:
    roles: dict[Role, str]
    extra: tuple[str, ...] = ()
    before: tuple[Role, ...] = ()  # around a single text
    after: tuple[Role, ...] = ()
    between: tuple[Role, ...] = ()  # two texts of a pair

    @property
    def tokens(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.extra]))


_BERT: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_END: dict[Role, str] = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}

SPECIALS: dict[str, Specials] = {
    "bert": Specials(_BERT, before=("cls",), after=("sep",), between=("sep",)),
    "roberta": Specials(
        {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>"},
        before=("bos",),
        after=("eos",),
        between=("eos", "eos"),
    ),
    "gpt2": Specials(_END),
    "t5": Specials({"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}, extra=SENTINELS, after=("eos",), between=("eos",)),
    "transformer": Specials({"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, after=("eos",), between=("eos",)),
    "llama": Specials({"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, before=("bos",), between=("bos",)),
}
SPECIALS |= {
    "distilbert": SPECIALS["bert"],
    "modernbert": SPECIALS["bert"],
    "qwen3": SPECIALS["gpt2"],
    "lstm": SPECIALS["gpt2"],
}
