"""A recipe has one strictly typed section per stage. `recipe_schema()` is its JSON Schema, for editors."""

from typing import Any

from pydantic import Field

from weft.recipe.compress import CompareSection, PruneSection, QuantizeSection
from weft.recipe.corpus import CorpusSection
from weft.recipe.distil import DistilSection
from weft.recipe.finetune import FinetuneSection
from weft.recipe.model import ModelSection, TokenizerSection
from weft.recipe.pretrain import PretrainSection
from weft.recipe.processes import ProcessesSection
from weft.recipe.section import Section


class Recipe(Section):
    name: str = Field("weft", min_length=1, description="name of the run and of its folder")
    corpus: CorpusSection | None = Field(None, description="texts to train on")
    tokenizer: TokenizerSection | None = Field(None, description="tokenizer to train or to load")
    model: ModelSection | None = Field(None, description="model to build or to load")
    pretrain: PretrainSection | None = Field(None, description="pre-training on plain text")
    finetune: FinetuneSection | None = Field(None, description="training on labelled data")
    distil: DistilSection | None = Field(None, description="a smaller model that learns from a trained one")
    prune: PruneSection | None = Field(None, description="cutting what matters least in a model (weft run)")
    quantize: QuantizeSection | None = Field(None, description="weights as int8 or int4 (weft run)")
    compare: CompareSection | None = Field(None, description="the card over all models of the recipe (weft run)")

    processes: ProcessesSection | None = Field(None, description="how several processes share a model (torchrun)")

    def given_settings(self) -> dict[str, Any]:
        """The settings that are not null, as plain values. In `corpus.build` null is kept: it switches a rule off."""
        tree = self.model_dump(exclude_none=True)
        if self.corpus is not None and self.corpus.build is not None:
            tree["corpus"]["build"] = self.corpus.build.model_dump(exclude_unset=True)
        return tree


def recipe_schema() -> dict[str, Any]:
    return Recipe.model_json_schema()
