"""weft turns text into language models.

    import weft
    result = weft.pretrain("recipe.yml")     # or finetune; a run folder with a model in it
    model = weft.load(result.model)          # or any Hugging Face folder of a family weft knows
    model.fill("The [MASK] sat.")            # a masked language model's best words
    model.generate("Once upon a time")       # text
    model.predict(["one text", "another"])   # a fine-tuned model's answers
    model.embed(["one text", "another"])     # a vector per text
    weft.SearchIndex.build(model, texts)     # then .search("a question")
    weft.evaluate(model, "test.tsv")         # how good it is
    weft.prune(model, "folder", speedup="2x")  # fewer layers, neurons, heads
    weft.quantize(model, "folder", bits=8)   # int8 or int4 weights
    weft.compare(["a", "b"], data="test.tsv")  # what compression from a to b cost
    weft.export(model, "gguf", "folder")     # for llama.cpp; or "onnx", "ctranslate2"

Importing weft imports nothing heavy; torch comes with the first model. A program that imports torch itself should
import weft first, which sets how torch's threads wait for each other (docs/budget.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.errors import FolderError, InputError, RecipeError, WeftError
from weft.threads import prepare_openmp
from weft.version import VERSION

if TYPE_CHECKING:
    from weft.api.fill import Filled
    from weft.api.model import Model, create, load
    from weft.api.search import SearchIndex
    from weft.commands.compare import compare_folders as compare
    from weft.commands.evaluate import evaluate_model as evaluate
    from weft.commands.export import import_file as import_gguf
    from weft.commands.prune import prune_model as prune
    from weft.commands.quantize import quantize_model as quantize
    from weft.commands.stages import distil_recipe as distil
    from weft.commands.stages import finetune_recipe as finetune
    from weft.commands.stages import pretrain_recipe as pretrain
    from weft.exports.run import export_model as export

prepare_openmp()  # before torch is imported

__version__ = VERSION
__all__ = [
    "Filled", "FolderError", "InputError", "Model", "RecipeError", "SearchIndex", "WeftError",
    "compare", "create", "distil", "evaluate", "export", "finetune", "import_gguf", "load", "pretrain", "prune",
    "quantize",
]  # fmt: skip

_LAZY = {
    "Filled": "api.fill:Filled",
    "Model": "api.model:Model",
    "SearchIndex": "api.search:SearchIndex",
    "create": "api.model:create",
    "load": "api.model:load",
    "pretrain": "commands.stages:pretrain_recipe",
    "finetune": "commands.stages:finetune_recipe",
    "distil": "commands.stages:distil_recipe",
    "prune": "commands.prune:prune_model",
    "quantize": "commands.quantize:quantize_model",
    "compare": "commands.compare:compare_folders",
    "evaluate": "commands.evaluate:evaluate_model",
    "export": "exports.run:export_model",
    "import_gguf": "commands.export:import_file",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    return getattr(import_module(f"weft.{module}"), attribute)
