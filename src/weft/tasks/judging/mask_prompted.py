"""A masked language model at the task classify, without training: which label fills the mask best?

    a lovely film by the sea. This is about [MASK].

Each label is one token, so the scores of one position decide (Schick & Schütze 2021).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from weft.errors import InputError
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.tasks.batches import ANSWERED_TOKENS
from weft.tasks.example import Example
from weft.tasks.judging.predict import given_roles
from weft.tasks.judging.prompted import AskedModel, given_lines
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task

_STATEMENT = " This is about {mask}."


class MaskPromptedModel(AskedModel):
    def __init__(
        self, model: LoadedModel, task: Task, words: Sequence[str] = (), shots: Sequence[Example] = ()
    ) -> None:
        super().__init__(model, task, words)
        if len(given_roles(task)) > 1:
            raise InputError(f"{self.called} is a masked language model, which can be asked for classify only.")
        if shots:
            raise InputError(f"{self.called} is a masked language model, which is asked without examples: --shots 0.")
        if self.tokenizer.special.get("mask") is None:
            raise InputError(f"The tokenizer of {self.called} has no mask token, so it cannot be asked with --shots.")

    @property
    def shown_prompt(self) -> str:
        return f"<{given_roles(self.required_task)[0]}>{self._statement}"

    @property
    def _statement(self) -> str:
        return _STATEMENT.format(mask=self.tokenizer.special["mask"])

    @cached_property
    def options(self) -> list[int]:
        """Of each label, in a sentence."""
        return [self._token_of(word) for word in self.words]

    def _token_of(self, word: str) -> int:
        engine, unknown = self.tokenizer.engine, self.tokenizer.id_of("unk")
        ids = engine.encode(f" {word}", add_special_tokens=False).ids
        if len(ids) != 1 or ids[0] == unknown:
            raise InputError(
                f"{self.called} has no single token for the label {word!r}, so a mask cannot stand for it: write it in "
                "one common word (--label NAME=WORD)."
            )
        return ids[0]

    def prompt(self, example: Example) -> tuple[str, bool]:
        """And whether the end of its text was cut."""
        (text,), engine = given_lines(example.given), self.tokenizer.engine
        room = self.input_spec.most_tokens - len(engine.encode(self._statement).ids)
        encoded = engine.encode(text, add_special_tokens=False)
        was_cut = len(encoded.ids) > room
        kept = text[: encoded.offsets[max(room, 1) - 1][1]].rstrip() if was_cut else text
        return kept + self._statement, was_cut

    def answers_and_cut(self, examples: Sequence[Example]) -> tuple[list[Any], int]:
        prompts = [self.prompt(example) for example in examples]
        ids = [list(self.tokenizer.encode(text)) for text, _ in prompts]
        found: list[Any] = [None] * len(ids)
        order = order_by_length(ids)
        for part in group_by_tokens([len(ids[place]) for place in order], ANSWERED_TOKENS):
            picked = [order[place] for place in part]
            for place, row in zip(picked, self._shares([ids[place] for place in picked]), strict=True):
                found[place] = row
        return found, sum(was_cut for _, was_cut in prompts)

    @torch.inference_mode()
    def _shares(self, ids: Sequence[list[int]]) -> np.ndarray:
        """(texts, labels)"""
        mask = self.tokenizer.id_of("mask")
        assert mask is not None
        lasts = [len(row) - 1 - row[::-1].index(mask) for row in ids]  # a text may have masks of its own
        begins = np.cumsum([0, *map(len, ids)])[:-1]
        batch = pack(ids).to(self.device)
        places = torch.as_tensor(begins + lasts, device=self.device)
        logits = self.network.head("masked")(self.network.eval()(batch), batch, places)
        return logits[:, self.options].float().softmax(-1).cpu().numpy()
