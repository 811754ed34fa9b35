"""Draw the packages of weft and who imports whom, from the imports themselves: docs/architecture.svg.

    python scripts/architecture.py            # write the picture
    python scripts/architecture.py --check    # exit 1 if the picture is out of date

The order of the packages is the contract in pyproject.toml, which `lint-imports` checks. A row is a package with its
purpose, the first sentence of its docstring. A dot means that the package of the row imports from the package of the
column. A package imports only from packages above it, so all dots lie below the diagonal.
"""

import ast
import sys
import tomllib
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/weft"
PICTURE = ROOT / "docs/architecture.svg"
ROOT_MODULES = "root modules"
ROW, CELL, LEFT, TOP, RIGHT = 46, 34, 560, 118, 90


def main() -> None:
    picture = draw(packages_in_reading_order(), find_imports())
    if "--check" in sys.argv:
        sys.exit(PICTURE.read_text("utf-8") != picture and f"{PICTURE.name} is out of date: run this without --check.")
    PICTURE.write_text(picture, "utf-8")


def packages_in_reading_order() -> list[str]:
    """The layers of the contract, first the ones that everybody may import. Single modules before them are one."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    lowest_first = [layer for layer in reversed(layers) if layer != "__main__"]
    first_package = next(i for i, layer in enumerate(lowest_first) if (PACKAGE / layer).is_dir())
    return [ROOT_MODULES, *lowest_first[first_package:]]


def find_imports() -> set[tuple[str, str]]:
    """Pairs of an importing package and the package it imports from."""
    graph = grimp.build_graph("weft", cache_dir=None)
    packages = set(packages_in_reading_order())

    def package_of(module: str) -> str:
        part = module.split(".")[1] if "." in module else ROOT_MODULES
        return part if part in packages else ROOT_MODULES

    found = set()
    for importer in graph.modules - {"weft", "weft.__main__"}:
        for imported in graph.find_modules_directly_imported_by(importer):
            if package_of(importer) != package_of(imported):
                found.add((package_of(importer), package_of(imported)))
    return found


def purpose(package: str) -> str:
    if package == ROOT_MODULES:
        return "errors, progress, folders, words, threads, pages, charts"
    file = PACKAGE / package / "__init__.py" if (PACKAGE / package).is_dir() else PACKAGE / f"{package}.py"
    docstring = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").split(". ")[0].rstrip(".")


def contents(package: str) -> str:
    """The folders in the package; for a single module, its file name."""
    folder = PACKAGE / package
    if not folder.is_dir():
        return "" if package == ROOT_MODULES else f"{package}.py"
    inner = sorted(item.name for item in folder.iterdir() if item.is_dir() and (item / "__init__.py").is_file())
    return ", ".join(f"{name}/" for name in inner)


def draw(packages: list[str], imports: set[tuple[str, str]]) -> str:
    width, height = LEFT + CELL * len(packages) + RIGHT, TOP + ROW * len(packages) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<title>The packages of weft in reading order, and what each imports</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="16" y="{TOP - 20}" font-size="13" fill="#666">packages in reading order</text>',
        f'<text x="{LEFT}" y="20" font-size="13" fill="#666">imports from</text>',
    ]
    for column, package in enumerate(packages):
        x = LEFT + CELL * column + CELL / 2
        parts.append(
            f'<text x="{x:.0f}" y="{TOP - 12}" font-size="12" fill="#333" '
            f'transform="rotate(-45 {x:.0f} {TOP - 12})">{escape(package)}</text>'
        )
    for row, package in enumerate(packages):
        y = TOP + ROW * row
        shade = "#f6f8fb" if row % 2 == 0 else "#fff"
        parts += [
            f'<rect x="0" y="{y}" width="{width}" height="{ROW}" fill="{shade}"/>',
            f'<text x="16" y="{y + 19}" font-size="15" font-weight="bold" fill="#1b4f8a">{escape(package)}</text>',
            f'<text x="{LEFT - 16}" y="{y + 19}" font-size="11" fill="#888" text-anchor="end">'
            f"{escape(contents(package))}</text>",
            f'<text x="16" y="{y + 37}" font-size="12.5" fill="#333">{escape(purpose(package))}</text>',
            f'<rect x="{LEFT + CELL * row + 9}" y="{y + ROW / 2 - 8:.0f}" width="16" height="16" fill="#d5dde8"/>',
        ]
        for column, other in enumerate(packages):
            if (package, other) in imports:
                x = LEFT + CELL * column + CELL / 2
                parts.append(
                    f'<circle cx="{x:.0f}" cy="{y + ROW / 2:.0f}" r="6" fill="#1b4f8a">'
                    f"<title>{escape(package)} imports from {escape(other)}</title></circle>"
                )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
