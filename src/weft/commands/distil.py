"""`weft distil` on the command line."""

from weft.commands import options as opt
from weft.commands.printing import print_facts, print_next


def distil(
    recipe: opt.RecipeOrRun,
    settings: opt.Changes = None,
    resume: opt.Resume = False,
    output: opt.RunFolder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Train a smaller model that learns from a trained one, and compare it with the same model trained alone."""
    from weft.commands.stages import distil_recipe
    from weft.commands.tasks import predict_command, print_judged

    results = distil_recipe(recipe, settings or (), output=output, resume=resume)
    if "figures" in results:
        print_judged(results, as_json=as_json)
        print_next(predict_command(results), quiet=as_json)
    else:
        print_facts(results, as_json)
        print_next(f"weft info {results.model}", quiet=as_json)
