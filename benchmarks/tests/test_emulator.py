"""The study of many outputs."""

import csv

import numpy as np
import pytest

from benchmarks.studies import emulator as study
from benchmarks.studies.emulator import SIMULATORS, Case, read, run, table


@pytest.mark.parametrize("name", SIMULATORS)
def test_simulators_give_finite_curves_that_depend_on_every_input(name):
    P = np.random.default_rng(0).uniform(size=(4, 6))
    Y = SIMULATORS[name](P)
    assert np.isfinite(Y).all()
    for j in range(6):
        changed = P.copy()
        changed[:, j] = 1 - P[:, j]
        assert np.abs(SIMULATORS[name](changed) - Y).max() > 1e-3


def test_cells_are_computed_once_and_written(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "TEST_RUNS", 20)
    path = tmp_path / "results.csv"
    case = Case("advection", 25, 0)
    run([case], ("scikit-learn on components",), path)
    (line,) = read(path)
    assert set(study.FIELDS) == line.keys()
    assert 0 < float(line["rmse"]) < 1.5
    before = path.read_bytes()
    run([case], ("scikit-learn on components",), path)
    assert path.read_bytes() == before
    assert "| advection | 25 | scikit-learn on components | 1 | 10 |" in table(read(path))


def test_committed_results_are_of_these_fields():
    with study.RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(set(study.FIELDS) == row.keys() for row in rows)
    assert {row["simulator"] for row in rows} == set(SIMULATORS)
