"""A recipe: a section per stage, strictly typed. `schema()` is its JSON Schema, for editors."""

from typing import Any

from pydantic import Field

from weft.recipe.corpus import CorpusSection
from weft.recipe.finetune import FinetuneSection
from weft.recipe.model import ModelSection, TokenizerSection
from weft.recipe.pretrain import PretrainSection
from weft.recipe.section import Section


class Recipe(Section):
    name: str = Field("weft", min_length=1, description="what the run is called")
    corpus: CorpusSection | None = None
    tokenizer: TokenizerSection | None = None
    model: ModelSection | None = None
    pretrain: PretrainSection | None = None
    finetune: FinetuneSection | None = None

    def given_settings(self) -> dict[str, Any]:
        """What was said, as plain values. In a build a null is said on purpose: it switches something off."""
        tree = self.model_dump(exclude_none=True)
        if self.corpus is not None and self.corpus.build is not None:
            tree["corpus"]["build"] = self.corpus.build.model_dump(exclude_unset=True)
        return tree


def recipe_schema() -> dict[str, Any]:
    return Recipe.model_json_schema()
