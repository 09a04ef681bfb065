"""A module imports only from modules above it, and the package only what it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import manygp

ROOT = Path(manygp.__file__).parent

# In the order of reading: each imports only from those above it. Place a new module here.
LAYERS = [
    "types",
    "machine",
    "words",
    "files",
    "progress",
    "container",
    "linalg",
    "parallel",
    "scaling",
    "partition",
    "kernel",
    "kernels",
    "conversion",
    "grammar",
    "likelihood",
    "expert",
    "checkpoint",
    "covariance",
    "committee",
    "fitting",
    "workshop",
    "weighting",
    "calibration",
    "aggregation",
    "rules",
    "judging",
    "selection",
    "budget",
    "training",
    "labels",
    "validation",
    "metrics",
    "parameters",
    "predictor",
    "plain",
    "persistence",
    "regressor",
    "__init__",  # what `from manygp import ...` gives
    "plotting",
    "page",
    "report",
    "tables",
    "csv_tables",
    "parquet_tables",
    "reading",
    "encoding",
    "tabular",
    "writing",
    "data_files",
    "datasets",
    "experiments",  # with all of its modules, which may import one another
    "cli",
]


def module_name(path):
    """Of a file below the package, with dots: "expert", "experiments.demo"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def layer(module):
    return module.split(".")[0]


def imported_modules(source, modules, package=()):
    """Names of the package's modules that a source text imports, wherever in it.

    `package` is where the source itself lies below manygp: ("experiments",) or nothing.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            dotted = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                start = ("manygp", *package)[: len(package) + 2 - node.level] + start
            dotted = [(*start, alias.name) for alias in node.names]
        else:
            continue
        for top, *rest in dotted:
            if top == "manygp":
                while rest and ".".join(rest) not in modules:
                    rest.pop()  # a name of the module, not a module
                found.add(".".join(rest) or "__init__")
    return found


def test_imports_are_found_in_all_their_forms():
    modules = {"types", "expert", "experiments", "experiments.demo"}
    source = (
        "import manygp.types\nfrom manygp.expert import Expert\n"
        "def lazily():\n    from manygp import ManyGPRegressor, experiments\n"
        "from .demo import main\nfrom numpy import types"
    )
    expected = {"types", "expert", "__init__", "experiments", "experiments.demo"}
    assert imported_modules(source, modules, package=("experiments",)) == expected


def test_every_module_has_one_place_in_the_layers():
    assert sorted(LAYERS) == sorted({layer(module) for module in MODULES})


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_from_modules_above_it(module):
    path = MODULES[module]
    package = path.parent.relative_to(ROOT).parts
    above = LAYERS[: LAYERS.index(layer(module))]
    for imported in imported_modules(path.read_text(encoding="utf-8"), MODULES, package):
        inside = layer(imported) == layer(module) and "." in module + imported
        assert inside or layer(imported) in above, f"{module} imports {imported}"


# Optional packages are hidden, and those that ask for them are told apart: scikit-learn imports
# pandas and rich where it finds them.
WITHOUT_OPTIONAL_PACKAGES = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"matplotlib", "pandas", "torch", "rich"}:
            frame = sys._getframe(1)
            while frame.f_globals["__name__"].startswith("importlib"):
                frame = frame.f_back
            if frame.f_globals["__name__"].startswith("manygp"):
                print(frame.f_globals["__name__"], "imports", name)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
import manygp
"""


def test_importing_the_package_asks_for_no_optional_package():
    command = [sys.executable, "-c", WITHOUT_OPTIONAL_PACKAGES]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout == ""
