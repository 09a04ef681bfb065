"""Models that are saved, and all that must be the same when they are read again."""

from functools import partial

import numpy as np
import pandas as pd
from numpy.testing import assert_array_equal
from sklearn.gaussian_process import kernels as sk

import manygp
from manygp.kernels import Matern, White
from manygp.kernels.sklearn_kernel import as_kernel
from manygp.storage import check_model
from models import choosing

RNG = np.random.default_rng(0)
X = RNG.random((90, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
QUERIES = RNG.uniform(-0.2, 1.2, size=(70, 2))
FIXED = Matern(0.3, "fixed") + White(0.1, "fixed")  # nothing to fit
SHARED = {"hyperparameters": "shared"}
model = partial(choosing, points_per_expert=22)


def named(rows, *names):
    return pd.DataFrame(rows, columns=list(names))


def answers(fitted, rows):
    """All numbers that a model gives for some rows."""
    found = [
        fitted.predict(rows),
        *fitted.predict(rows, return_std=True),
        *fitted.predict(rows, return_std=True, latent=True),
        *fitted.predict(rows[:20], return_cov=True),
        *fitted.predict_interval(rows, 0.8),
        *fitted.loo_predict(),
        fitted.sample_y(rows[:9], 3, random_state=1),
        fitted.log_marginal_likelihood(),
        fitted.calibration_ratio(rows),
        *fitted.loo_score().values(),
    ]
    if len(fitted._model.y_scaling.scale) == 1:
        found += fitted.predict_experts(rows)[:5]
    return found


def parameters(fitted):
    """As they are after a file: kernels are manygp's, one noise per row is an array."""
    found = fitted.get_params(deep=False)
    if isinstance(found["kernel"], sk.Kernel):
        found["kernel"] = as_kernel(found["kernel"], fitted.n_features_in_)
    if np.ndim(found["alpha"]):
        found["alpha"] = np.asarray(found["alpha"], dtype=float).tolist()
    return found


def assert_same(first, second, rows=QUERIES):
    for one, other in zip(answers(first, rows), answers(second, rows), strict=True):
        assert_array_equal(one, other, strict=True)
    assert parameters(first) == parameters(second)
    assert first.model_.kernel == second.model_.kernel
    assert first.nearest_ == second.nearest_
    assert repr(first.plan_) == repr(second.plan_)
    assert str(first.plan_) == str(second.plan_)
    assert str(first.calibration_report_) == str(second.calibration_report_)
    assert first.calibration_report_ == second.calibration_report_
    assert first.n_features_in_ == second.n_features_in_
    assert hasattr(first, "feature_names_in_") == hasattr(second, "feature_names_in_")
    if hasattr(first, "feature_names_in_"):
        assert_array_equal(first.feature_names_in_, second.feature_names_in_, strict=True)
    for one, other in zip(first.experts_, second.experts_, strict=True):
        for value, same in zip(facts_of(one), facts_of(other), strict=True):
            if isinstance(value, np.ndarray):
                assert_array_equal(value, same, strict=True)
            else:
                assert value == same
        assert one.hyperparameters == other.hyperparameters
        assert one.log_marginal_likelihood == other.log_marginal_likelihood


def facts_of(expert):
    """What an expert knows and has computed, wherever that is kept."""
    kept = [value for name, value in vars(expert).items() if name not in ("source", "basis")]
    return [*kept, expert.mean, expert.jitter, *expert.factor.arrays]


def there_and_back(fitted, folder):
    """The model after a file; written again, that is the same file."""
    fitted.save(folder / "model.gp")
    loaded = manygp.load(folder / "model.gp")
    loaded.save(folder / "again.gp")
    assert (folder / "again.gp").read_bytes() == (folder / "model.gp").read_bytes()
    check_model(folder / "model.gp")
    return loaded


def error_of(function):
    try:
        function()
    except ValueError as error:
        return str(error)
    return ""
