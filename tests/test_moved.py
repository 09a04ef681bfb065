"""Old names of modules keep working until version 0.5, and say the new ones."""

import subprocess
import sys
from importlib import import_module

import pytest

import manygp  # noqa: F401 (it knows the old names)
from manygp._moved import MOVED

# What was public under an old name: see the API reference of version 0.2.
PUBLIC = {
    "manygp.distribution": ["PredictiveDistribution"],
    "manygp.findings": ["Alternative", "CalibrationReport", "Plan"],
    "manygp.rules.weighting": ["WEIGHTINGS", "Softmax", "Tempered", "entropy"],
    "manygp.rules.calibration": ["CALIBRATIONS", "Information"],
    "manygp.rules.aggregation": ["AGGREGATIONS", "gpoe", "normalise"],
    "manygp.rules.records": ["ExpertPredictions", "Gaussian", "needs"],
    "manygp.rules.partition": ["PARTITIONS", "balltree", "kmeans"],
}


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_works_and_says_the_new_one(old, monkeypatch):
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(FutureWarning, match=rf"{old} is now {MOVED[old]}; .*version 0\.5"):
        found = import_module(old)
    new = import_module(MOVED[old])
    for name in PUBLIC.get(old, []):
        assert getattr(found, name) is getattr(new, name)


@pytest.mark.parametrize("old", PUBLIC)
def test_an_old_statement_works_in_a_new_process_and_warns_where_it_stands(old, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"from {old} import {PUBLIC[old][0]}\nprint({PUBLIC[old][0]})\n")
    run = [sys.executable, "-W", "default::FutureWarning", str(program)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "manygp" in done.stdout or PUBLIC[old][0].isupper()
    assert done.stderr.count("FutureWarning") == 1
    assert "program.py:1: FutureWarning" in done.stderr


def test_a_name_that_there_never_was_is_missing():
    with pytest.raises(ModuleNotFoundError, match=r"manygp\.nothing"):
        import_module("manygp.nothing")
