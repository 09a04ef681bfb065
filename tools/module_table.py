"""The table of modules on the design page, made from the first lines of their docstrings.

python -m tools.module_table           # print it
python -m tools.module_table --write   # and put it into docs/design.md
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "manygp"
PAGE = ROOT / "docs" / "design.md"
MARKS = ("<!-- modules: python -m tools.module_table --write -->\n", "<!-- end of modules -->\n")

# The floors of the house, from the ground up: a floor imports from those below it, and from
# itself. `tests/test_architecture.py` sees to that.
FLOORS = [
    ("arrays", "_moved"),
    ("runtime",),
    ("dual", "inputs", "checks"),
    ("rules", "kernels", "tables"),
    ("gp", "fit_report", "paper"),
    ("trend", "committee", "calibration"),
    ("noise", "targets"),
    ("settings", "relevance", "metrics"),
    ("steps", "prior"),
    ("model",),
    ("answers",),
    ("paths", "learning_curve"),
    ("training", "storage", "sklearn_compat"),
    ("outofcore", "updating"),
    ("regressor",),
    ("emulator",),
    ("__init__",),  # what `from manygp import ...` gives
    ("dask", "optimise", "river"),
    ("botorch",),
    ("display",),
    ("cli",),
    ("_entry_point",),
    ("__main__",),
]


def purpose(path):
    """The first paragraph of a module's docstring, or None if it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return None if text is None else " ".join(text.split("\n\n")[0].split())


def rows(part):
    """The row of a module, or those of a folder and its modules: lists of cells."""
    folder = PACKAGE / part
    if not folder.is_dir():
        return [[f"`{part}.py`", "", purpose(folder.with_suffix(".py"))]]
    found = [[f"`{part}/`", "", purpose(folder / "__init__.py")]]
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        text = purpose(path)
        if name != "__init__" and text is not None:
            found.append(["", f"`{name.removesuffix('/__init__')}`", text])
    return found


def table():
    """All modules, from the ground up, as Markdown."""
    lines = ["| floor | module | purpose |", "|---|---|---|"]
    for names in FLOORS:
        for part in names:
            lines += [f"| {' | '.join(cells)} |" for cells in rows(part)]
    return "\n".join(lines).replace("|  |", "| |") + "\n"


def rewritten(page):
    """The text of the page with the table as it is now between its marks."""
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}{table()}{MARKS[1]}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
