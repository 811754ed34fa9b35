"""weft turns text into language models.

    import weft
    model = weft.load("runs/x/model")        # any Hugging Face folder of a family weft knows
    model.fill("The [MASK] sat.")            # a masked language model's best words
    model.embed(["one text", "another"])     # a vector per text
    model.logits([[1, 2, 3], [4, 5]])        # raw numbers, from token ids of unequal lengths

Importing weft imports nothing heavy; torch comes with the first model. A program that imports torch itself should
import weft first, which sets how torch's threads wait for each other (docs/budget.md).
"""

from typing import TYPE_CHECKING, Any

from weft.errors import FolderError, InputError, RecipeError, WeftError
from weft.threads import prepare_openmp
from weft.version import VERSION

if TYPE_CHECKING:
    from weft.api.fill import Filled
    from weft.api.model import Model, create, load

prepare_openmp()  # before torch is imported

__version__ = VERSION
__all__ = ["Filled", "FolderError", "InputError", "Model", "RecipeError", "WeftError", "create", "load"]


def __getattr__(name: str) -> Any:
    if name in ("Filled", "Model", "create", "load"):
        from weft.api import model

        return getattr(model, name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
