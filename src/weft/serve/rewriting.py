"""Translations, summaries and replies as jobs of the generation engine, with the task's own settings.

The prompts are token ids, framed by the task as in training, and the answers those of `Model.predict`.
"""

from collections.abc import Sequence
from typing import Any

from weft.errors import InputError
from weft.tasks.example import Unusable
from weft.tasks.loaded import LoadedModel


class Rewriter:
    def __init__(self, model: LoadedModel) -> None:
        self.task: Any = model.required_task  # one that writes
        self.spec = model.input_spec

    def prompts(self, texts: Sequence[str], *, truncate: bool = False) -> tuple[list[list[int]], int]:
        """The token ids of each prompt, and how many texts lost a part. Raises InputError."""
        examples = []
        for number, text in enumerate(texts):
            try:
                examples.append(self.task.example({self.task.roles[0]: text}, with_gold=False))
            except Unusable as reason:
                raise InputError(f"Input {number} {reason}.") from None
        inputs = self.task.inputs(examples, self.spec)
        cut = [one.example for one in inputs if one.was_cut]
        if cut and not truncate:
            raise InputError(
                f"Input {cut[0]} is too long; this model reads at most {self.spec.most_tokens:,} tokens. Shorten it, "
                "or set truncate to true."
            )
        return [one.ids.tolist() for one in inputs], len(cut)

    def settings(self, max_new_tokens: int | None = None, beams: int | None = None, n: int = 1) -> dict[str, Any]:
        """Of the writer. Recommendations of the folder are left out, as `Model.predict` does."""
        most = {"max_new_tokens": max_new_tokens or self.task.most_new}
        if beams is None and self.task.sample:
            return {"repetition_penalty": 1.0, "temperature": 1.0, **self.task.writing_settings, **most, "n": n}
        beams = max(beams or self.task.beams, n)
        search = {"beams": beams, "n": n} if beams > 1 else {"strategy": "greedy"}
        return {"repetition_penalty": 1.0, **search, **most}

    def text(self, tokens: Sequence[int]) -> str:
        ends = set(self.spec.ends.end_ids)
        return self.spec.tokenizer.decode([token for token in tokens if token not in ends]).strip()
