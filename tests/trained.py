"""Small language models that have really learnt something, for what only trained weights show."""

from pathlib import Path

import weft
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain

EXAMPLES = Path(__file__).parents[1] / "examples"
RECIPE = """
name: {name}
corpus:
  sources: [{{path: {text}}}]
  splits: {{validation: 0.1}}
tokenizer: {{kind: {kind}, vocab_size: {vocabulary}}}
model: {{family: {family}, layers: 2, width: 64, heads: 2}}
pretrain: {{sequence_length: 64, batch_tokens: 2048, budget: {steps} steps, seed: 1}}
"""


def train(place: Path, kind: str, family: str, vocabulary: str = "null", steps: int = 120) -> weft.Model:
    text = EXAMPLES / "alice.txt"
    recipe = place / "recipe.yml"
    values = {"text": text, "kind": kind, "family": family, "vocabulary": vocabulary, "steps": steps}
    recipe.write_text(RECIPE.format(name=kind, **values))
    pretrain(read_recipe(recipe), place, place / "run")
    return weft.load(place / "run/model")
