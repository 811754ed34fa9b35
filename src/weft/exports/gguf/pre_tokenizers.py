"""How byte-level BPE splits a text before it merges: llama.cpp's names, with what `tokenizers` writes for the same.

A pre-tokenizer is compared as a whole, with ignore_merges (whether a word that is itself a token is taken as it is).
"""

from typing import Any

GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _REST
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _REST
_QWEN35 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


_DIGITS = {"type": "Digits", "individual_digits": True}
# llama.cpp's name -> the steps before bytes, whether GPT-2's regex is one of them, ignore_merges
_KNOWN: dict[str, tuple[list[dict[str, Any]], bool, bool]] = {
    "gpt-2": ([], True, False),
    "llama-bpe": ([_split(_LLAMA3)], False, True),
    "smaug-bpe": ([_split(_LLAMA3)], False, False),
    "qwen2": ([_split(_QWEN2)], False, False),
    "qwen35": ([_split(_QWEN35)], False, False),
    "gpt-4o": ([_split(_GPT4O)], False, False),
    "smollm": ([_DIGITS], True, False),
}
# Other names for the same; an imported file may have any of them.
_ALIASES = {
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "dbrx": "smaug-bpe",
    "deepseek-r1-qwen": "qwen2",
    "megrez": "qwen2",
    "stablelm2": "qwen2",
    "llama4": "gpt-4o",
    "starcoder": "smollm",
    "refact": "smollm",
    "command-r": "smollm",
    "phi-2": "gpt-2",
    "mpt": "gpt-2",
    "olmo": "gpt-2",
    "jais": "gpt-2",
    "modern-bert": "gpt-2",
    "roberta-bpe": "gpt-2",
}


def flattened(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, in order."""
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [one for part in step.get("pretokenizers", step.get("normalizers", [])) for one in flattened(part)]


def find_pre_tokenizer(step: dict[str, Any] | None, *, ignore_merges: bool) -> str | None:
    """llama.cpp's name for what splits like this."""
    *before, last = flattened(step)
    if last["type"] != "ByteLevel":
        return None
    wanted = _essences(before), bool(last.get("use_regex", True)), ignore_merges
    found = (name for name, (steps, *flags) in _KNOWN.items() if (_essences(steps), *flags) == wanted)
    return next(found, None)


def _essences(steps: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [_essence(step) for step in steps]


def _essence(step: dict[str, Any]) -> tuple[Any, ...]:
    if step["type"] == "Split":
        return "Split", step["pattern"].get("Regex"), step["behavior"], step["invert"]
    return step["type"], step.get("individual_digits")


def known_pre_tokenizer(name: str) -> tuple[dict[str, Any], bool] | None:
    """What `tokenizers` writes for llama.cpp's name, and ignore_merges. None: not known."""
    found = _KNOWN.get(_ALIASES.get(name, name))
    if found is None:
        return None
    steps, use_regex, ignore_merges = found
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return ({"type": "Sequence", "pretokenizers": [*steps, last]} if steps else last), ignore_merges
