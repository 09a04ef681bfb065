"""The house: floors that import downwards only, small functions, and a light front door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import manygp
from tools import module_table
from tools.module_table import FLOORS

ROOT = Path(manygp.__file__).parent

FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}


def module_name(path):
    """The dotted name of a file below the package: "model", "gp.expert"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def part_of_the_house(module):
    return module.split(".")[0]


def imported_modules(source, modules, package=()):
    """Names of the package's modules that a source text imports, wherever in it.

    `package` is where the source itself lies below manygp: ("gp",) or nothing.
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
    modules = {"types", "expert", "display", "display.plots"}
    source = (
        "import manygp.types\nfrom manygp.expert import Expert\n"
        "def lazily():\n    from manygp import ManyGPRegressor, display\n"
        "from .plots import draw\nfrom numpy import types"
    )
    expected = {"types", "expert", "__init__", "display", "display.plots"}
    assert imported_modules(source, modules, package=("display",)) == expected


def test_every_folder_and_module_has_one_place_in_the_house():
    named = [name for names in FLOORS for name in names]
    assert len(set(named)) == len(named)
    assert set(named) == {part_of_the_house(module) for module in MODULES}


def test_the_page_of_the_house_has_the_table_of_its_modules():
    page = module_table.PAGE.read_text(encoding="utf-8")
    command = "run python -m tools.module_table --write"
    assert page == module_table.rewritten(page), command


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_they_are_for_and_are_not_long(module):
    text = MODULES[module].read_text(encoding="utf-8")
    assert module.endswith("__main__") or ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 800


@pytest.mark.parametrize("part", FLOOR_OF)
def test_a_floor_imports_only_from_floors_below_it(part):
    for module, path in MODULES.items():
        if part_of_the_house(module) != part:
            continue
        package = path.parent.relative_to(ROOT).parts
        for imported in imported_modules(path.read_text(encoding="utf-8"), MODULES, package):
            other = part_of_the_house(imported)
            allowed = other == part or FLOOR_OF[other] < FLOOR_OF[part]
            assert allowed, f"{module} imports {imported}"


# The measure of a knot: one, and one more for each of these. Nested functions count.
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.BoolOp, ast.comprehension,
    ast.Assert,
)  # fmt: skip
MOST_BRANCHES = 12
MOST_PARAMETERS = 6


def functions(source):
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]


def parameters_of(function):
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [one.arg for one in every if one.arg not in ("self", "cls")]


def is_command(function):
    """Whether click passes the parameters, each of which is an option."""
    return any("click.command" in ast.unparse(one) or ".command(" in ast.unparse(one)
               for one in function.decorator_list)  # fmt: skip


def check_sizes(source, estimator=()):
    """Functions are small; those of an estimator, by name, may have many parameters."""
    for function in functions(source):
        branches = 1 + sum(isinstance(node, BRANCHES) for node in ast.walk(function))
        assert branches <= MOST_BRANCHES, f"{function.name} has {branches} branches"
        if not (function.name in estimator or is_command(function)):
            assert len(parameters_of(function)) <= MOST_PARAMETERS, function.name


@pytest.mark.parametrize("module", MODULES)
def test_functions_are_small(module):
    estimator = ("__init__", "fit", "predict") if module in ("regressor", "dask") else ()
    check_sizes(MODULES[module].read_text(encoding="utf-8"), estimator)


# scikit-learn's own signature, which users know.
AS_IN_SCIKIT_LEARN = {
    ("regressor", "predict"), ("sklearn_compat", "log_marginal_likelihood"), ("dask", "predict"),
    ("emulator.estimator", "predict"),
}  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_no_boolean_is_passed_by_position(module):
    for function in functions(MODULES[module].read_text(encoding="utf-8")):
        estimator = function.name == "__init__" or (module, function.name) in AS_IN_SCIKIT_LEARN
        if estimator or is_command(function):
            continue
        for one in (*function.args.posonlyargs, *function.args.args):
            is_bool = one.annotation is not None and ast.unparse(one.annotation) == "bool"
            assert not is_bool, f"{function.name}({one.arg})"


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
from manygp import ManyGPRegressor
"""


def printed(program):
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_the_estimator_asks_for_no_optional_package():
    assert printed(WITHOUT_OPTIONAL_PACKAGES) == ""


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import manygp", ["numpy", "sklearn", "scipy", "matplotlib", "pandas"]),
        ("import manygp.storage", ["sklearn", "matplotlib", "manygp.tables", "manygp.display"]),
        (
            "from manygp import ManyGPRegressor",
            ["sklearn.linear_model", "sklearn.ensemble", "sklearn.gaussian_process",
             "matplotlib", "manygp.tables", "manygp.display"],
        ),
        ("import manygp.tables", ["sklearn", "scipy", "pandas", "pyarrow", "matplotlib"]),
        ("import manygp.cli", ["scipy", "sklearn", "matplotlib", "pyarrow", "manygp.regressor"]),
    ],
)  # fmt: skip
def test_an_import_brings_only_what_it_needs(statement, absent):
    program = f"{statement}\nimport sys\nprint([n for n in {absent} if n in sys.modules])"
    assert printed(program) == "[]"
