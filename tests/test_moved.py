"""Old names of modules and methods keep working until version 0.5, and say the new ones."""

import pickle
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp import ManyGPRegressor, answers
from manygp._moved import METHODS, MOVED, PROPERTIES
from manygp.outofcore import files

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


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).random((40, 1))
    return ManyGPRegressor(trend="none", random_state=0).fit(X, np.sin(5 * X[:, 0])).model_


@pytest.mark.parametrize("name", METHODS + PROPERTIES)
def test_an_answer_is_a_method_until_version_0_5(name, fitted):
    message = rf"FittedModel\.{name} is now .* manygp\.answers\.{name}; .*version 0\.5"
    with pytest.warns(FutureWarning, match=message):
        old = getattr(fitted, name)
    assert (name in PROPERTIES) or old.func is getattr(answers, name)


def test_an_old_method_gives_the_same_answer(fitted):
    with pytest.warns(FutureWarning, match="predict") as caught:
        old = fitted.predict(np.array([[0.5]]), latent=True)
    assert caught[0].filename == __file__
    assert_array_equal(old, answers.predict(fitted, np.array([[0.5]]), latent=True))
    with pytest.warns(FutureWarning, match="tails"):
        assert_array_equal(fitted.tails, answers.tails(fitted))


def test_a_model_has_no_other_methods_and_keeps_its_answers_out_of_pickles(fitted):
    before = pickle.dumps(fitted)
    scores = answers.conformal_scores(fitted)
    assert answers.conformal_scores(fitted) is scores
    assert pickle.dumps(fitted) == before
    assert not hasattr(pickle.loads(before), "forecast")


def test_the_old_name_of_a_table_on_a_disk_works_and_says_the_new_one():
    with pytest.warns(FutureWarning, match="Source is now TableSource"):
        from manygp.outofcore.files import Source
    assert Source is files.TableSource
    with pytest.raises(AttributeError, match="no attribute 'Sauce'"):
        _ = files.Sauce
