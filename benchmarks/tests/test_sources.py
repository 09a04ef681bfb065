"""The benchmarks keep the rule of the package: functions are small."""

from pathlib import Path

import pytest

from test_architecture import check_sizes

FOLDER = Path(__file__).parents[1]
SOURCES = [path for path in sorted(FOLDER.rglob("*.py")) if path.parent.name != "tests"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_functions_are_small(path):
    # The suite of scikit-learn has an estimator of its own, with scikit-learn's parameters.
    check_sizes(path.read_text(encoding="utf-8"), ("__init__",) if "sklearn" in path.name else ())
