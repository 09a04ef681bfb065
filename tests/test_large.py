"""The large tasks, at full size: minutes, so only with `make test-slow`."""

import pytest

from manygp.data_files import DATA_FILES
from manygp.experiments.grid import Cell, Configuration, run_cell
from manygp.experiments.published import published
from test_data_files import HOME

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", ["rosenbrock", "power", "kin40k", "protein"])
def test_gp_pro_c_is_as_accurate_and_likely_as_the_papers(task):
    if task in DATA_FILES and HOME is None:
        pytest.skip("needs the real data sets: set MANYGP_DATA")
    data_dir = None if HOME is None else str(HOME)
    cell = Cell(task, "bt", "independent", 200, 0)
    scores = run_cell(cell, Configuration(), data_dir)["models"]["bt-ent-c"]
    assert scores["rmse"] <= 1.05 * published()[task, "bt-ent-c", "rmse"]
    assert scores["nll"] <= published()[task, "bt-ent-c", "nll"] + 0.05
