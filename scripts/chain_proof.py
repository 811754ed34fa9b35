"""The chain distil → prune → int8 on SST-2: how small, how fast, how good, on one card.

    python scripts/chain_proof.py --teacher runs/teachers/sst2/model --data ../shared/data/classify/sst2

The teacher is all-MiniLM-L6-v2 tuned for SST-2 (scripts/distil_proof.py makes it). One recipe does the rest, as `weft
run` does; a stopped run goes on. About 12 minutes on two cores; the card is in WORK/card. Exits with a sentence if the
last model is not 8 times smaller and 6 times faster than the teacher with 95 % of its accuracy.
"""

import argparse
import json
import sys
from pathlib import Path

from weft.commands.run import run_recipe
from weft.recipe.file import check_section
from weft.recipe.recipe import Recipe

SMALLER, FASTER, KEPT = 8.0, 6.0, 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a folder with train.tsv and dev.tsv")
    parser.add_argument("--work", type=Path, default=Path("runs/chain"))
    parser.add_argument("--budget", default="5m", help="of the distillation")
    given = parser.parse_args()
    train, test = (str((given.data / name).resolve()) for name in ("train.tsv", "dev.tsv"))
    recipe = {
        "name": "sst2-chain",
        "distil": {
            "teacher": str(given.teacher.resolve()),
            "student": {"layers": 3},
            "data": {"train": train, "test": test},
            "budget": given.budget,
            "yardsticks": False,
        },
        "prune": {"vocabulary": train, "inner": 0.75, "minutes": 2},
        "quantize": {"bits": 8},
        "compare": {"rounds": 9},
    }
    run_recipe(check_section(Recipe, recipe, "recipe"), Path(), given.work)
    card = json.loads((given.work / "card/card.json").read_text())
    before, after = card["models"][0], card["models"][-1]
    smaller = before["disk_bytes"] / after["disk_bytes"]
    faster = after["against"]["together"]["value"]
    kept = after["figures"]["accuracy"] / before["figures"]["accuracy"]
    print(f"{smaller:.1f} times smaller, {faster:.1f} times faster, {kept:.1%} of the accuracy.")
    if smaller < SMALLER or faster < FASTER or kept < KEPT:
        sys.exit(f"Wanted: {SMALLER:g} times smaller, {FASTER:g} times faster, {KEPT:.0%} of the accuracy.")


if __name__ == "__main__":
    main()
