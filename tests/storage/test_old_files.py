"""What version 0.1 has written: model files still load, checkpoints are refused by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manygp
from manygp import ManyGPRegressor
from manygp.storage import check_model
from manygp.training.checkpoint import IDENTITY

FOLDER = Path(__file__).parent / "version_0_1"
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
QUERIES = np.array(ANSWERS.pop("queries"))


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_file_of_version_0_1_answers_as_it_did(name):
    loaded = manygp.load(FOLDER / f"{name}.manygp")
    found = (*loaded.predict(QUERIES, return_std=True), *loaded.predict_interval(QUERIES, 0.8))
    for array, expected in zip(found, ANSWERS[name], strict=True):
        assert_allclose(array, expected, rtol=1e-6)


def test_what_has_another_name_now_is_read_by_its_new_name():
    manifest = check_model(FOLDER / "default.manygp")
    assert manifest["schema"] == 1
    assert "pull" in manifest["report"]["chosen"]
    loaded = manygp.load(FOLDER / "default.manygp")
    assert "shrinkage" in loaded.calibration_report_.chosen
    assert not any(one.parameter == "pull" for one in loaded.calibration_report_.alternatives)
    assert loaded.plan_.shrinkages


def test_a_file_of_version_0_1_can_be_saved_again(tmp_path):
    for name in ANSWERS:
        manygp.load(FOLDER / f"{name}.manygp").save(tmp_path / "again")
        again = manygp.load(tmp_path / "again")
        assert_allclose(again.predict(QUERIES), ANSWERS[name][0], rtol=1e-6)
    assert len(again.experts_) > 1


def test_a_checkpoint_of_version_0_1_is_refused_by_name(tmp_path):
    (tmp_path / IDENTITY).write_text(json.dumps({"schema": 1, "manygp": "0.1.0", "seed": 5}))
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"another version of manygp \(0\.1\.0.*another folder"):
        ManyGPRegressor().fit(rng.random((20, 1)), rng.random(20), checkpoint=tmp_path)
