"""Libraries that take an estimator, each with the real one: `make test-clients`."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import cross_val_score

from data import read_only
from manygp import ManyGPRegressor
from manygp.kernels import Matern, White

# Warnings of other libraries are theirs.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]

rng = np.random.default_rng(0)
X = read_only(rng.uniform(0, 1, (120, 2)))
y = read_only(np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=120))
TRAIN, TEST = slice(0, 80), slice(80, 120)


def model(kernel=None, **settings):
    return ManyGPRegressor(kernel, random_state=0, **settings)


@pytest.mark.parametrize(
    "settings",
    [{}, {"points_per_expert": 30}, {"kernel": sk.RBF() + sk.WhiteKernel()}],
    ids=["one-expert", "experts", "scikit-learn-kernel"],
)
def test_skops_dumps_and_loads_a_model(settings):
    from skops import io

    fitted = model(**settings).fit(X, y)
    expected = fitted.predict(X[:9], return_std=True)
    stored = io.dumps(fitted)  # after it was queried
    unknown = io.get_untrusted_types(data=stored)
    assert all(name.startswith(("manygp.", "sklearn.gaussian_process.")) for name in unknown)
    loaded = io.loads(stored, trusted=unknown)
    assert_array_equal(loaded.predict(X[:9], return_std=True), expected)
    assert_array_equal(loaded.predict_interval(X[:9]), fitted.predict_interval(X[:9]))


def minus_square(a, b):
    return -((a - 0.3) ** 2) - (b - 0.5) ** 2


def bayesian_optimisation():
    from bayes_opt import BayesianOptimization

    bounds = {"a": (0, 1), "b": (0, 1)}
    optimiser = BayesianOptimization(minus_square, bounds, random_state=0, verbose=0)
    optimiser._gp = model(sk.Matern(nu=2.5), alpha=1e-6, n_restarts_optimizer=2)
    return optimiser


def test_bayes_opt_finds_the_maximum_and_keeps_its_state(tmp_path):
    optimiser = bayesian_optimisation()
    optimiser.set_gp_params(alpha=1e-5, kernel=sk.Matern(nu=1.5))
    optimiser.maximize(init_points=4, n_iter=8)
    assert optimiser._gp.alpha == 1e-5
    assert optimiser.max["target"] > -0.01
    optimiser.save_state(tmp_path / "state.json")
    other = bayesian_optimisation()
    other.load_state(tmp_path / "state.json")
    assert other._gp.alpha == 1e-5
    other.maximize(init_points=0, n_iter=1)
    assert len(other.res) == 13


@pytest.mark.parametrize(
    ("acquisition", "settings"),
    [("EI", {}), ("LCB", {}), ("PI", {}), ("EI", {"trend": "additive", "points_per_expert": 10})],
)
def test_skopt_follows_gradients_to_the_minimum(acquisition, settings):
    from skopt import Optimizer

    optimiser = Optimizer(
        [(-2.0, 2.0), (0.0, 1.0)],
        model(**settings),
        acq_func=acquisition,
        acq_optimizer="auto",
        n_initial_points=6,
        random_state=0,
    )
    assert optimiser.acq_optimizer == "lbfgs"
    for _ in range(14):
        point = optimiser.ask()
        optimiser.tell(point, (point[0] - 0.3) ** 2 + point[1])
    assert optimiser.get_result().fun < 0.1


def most_uncertain(estimator, pool):
    place = int(np.argmax(estimator.predict(pool, return_std=True)[1]))
    return place, pool[place]


def test_modal_queries_the_row_of_largest_std():
    from modAL.models import ActiveLearner

    learner = ActiveLearner(model(), most_uncertain, X_training=X[:20], y_training=y[:20])
    place, row = learner.query(X[20:])
    assert_array_equal(row, X[20 + place])


@pytest.mark.xfail(raises=TypeError, strict=True, reason="modAL calls check_X_y as it once was")
def test_modal_teaches():
    from modAL.models import ActiveLearner

    learner = ActiveLearner(model(), most_uncertain, X_training=X[:20], y_training=y[:20])
    learner.teach(X[20:22], y[20:22])


def test_mapie_makes_conformal_intervals():
    from mapie.regression import CrossConformalRegressor, SplitConformalRegressor

    split = SplitConformalRegressor(model().fit(X[TRAIN], y[TRAIN]), confidence_level=0.8)
    split.conformalize(X[TEST], y[TEST])
    cross = CrossConformalRegressor(model(), confidence_level=0.8, cv=3)
    cross.fit_conformalize(X, y)
    for one in (split, cross):
        _, intervals = one.predict_interval(X[TEST])
        inside = (intervals[:, 0, 0] <= y[TEST]) & (y[TEST] <= intervals[:, 1, 0])
        assert inside.mean() >= 0.7


def test_crepes_takes_the_std_as_difficulty():
    from crepes import WrapRegressor

    wrapped = WrapRegressor(model())
    wrapped.fit(X[:60], y[:60])

    class Std:
        """What crepes calls a difficulty estimator."""

        def apply(self, rows):
            return wrapped.learner.predict(rows, return_std=True)[1]

    wrapped.calibrate(X[60:], y[60:], de=Std())
    intervals = wrapped.predict_int(X, confidence=0.9)
    assert np.mean((intervals[:, 0] <= y) & (y <= intervals[:, 1])) >= 0.85


def test_uncertainty_toolbox_scores_mean_and_std():
    from uncertainty_toolbox import metrics

    mean, std = model().fit(X[TRAIN], y[TRAIN]).predict(X[TEST], return_std=True)
    assert metrics.mean_absolute_calibration_error(mean, std, y[TEST]) < 0.2
    assert metrics.nll_gaussian(mean, std, y[TEST]) < 0


def test_optuna_searches_a_parameter_of_a_kernel():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    estimator = model(Matern(0.5, "fixed") + White(0.1))

    def score(trial):
        length = trial.suggest_float("length", 1e-3, 2, log=True)
        estimator.set_params(kernel__left__length_scale=length)
        return cross_val_score(estimator, X, y, cv=3).mean()

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    study.optimize(score, n_trials=6)
    assert study.best_params["length"] > 0.02


def wave():
    import pandas as pd

    time = pd.date_range("2024", periods=120, freq="D")
    return pd.Series(np.sin(np.arange(120) / 5) + 0.05 * rng.normal(size=120), index=time)


def test_skforecast_forecasts_with_intervals():
    from skforecast.recursive import ForecasterRecursive

    forecaster = ForecasterRecursive(estimator=model(), lags=8)
    forecaster.fit(wave(), store_in_sample_residuals=True)
    found = forecaster.predict_interval(steps=5, interval=[0.05, 0.95], n_boot=20)
    assert_allclose(found["pred"], np.sin(np.arange(120, 125) / 5), atol=0.3)
    assert np.all(found["lower_bound"] < found["upper_bound"])


def test_skpro_has_a_predictive_distribution():
    import pandas as pd
    from skpro.regression.adapters.sklearn import SklearnProbaReg

    table, targets = pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame({"y": y})
    adapted = SklearnProbaReg(model()).fit(table[:80], targets[:80])
    expected = model().fit(table[:80], y[:80]).predict(table[80:], return_std=True)
    found = adapted.predict_proba(table[80:])
    assert_allclose(found.mean().to_numpy()[:, 0], expected[0])
    assert_allclose(np.sqrt(found.var().to_numpy()[:, 0]), expected[1])
    assert adapted.predict_interval(table[80:], coverage=0.9).shape == (40, 2)


def test_skrub_builds_a_pipeline_around_it():
    import pandas as pd
    import skrub

    table = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0.5, "Ulm", "Bonn")})
    pipeline = skrub.tabular_pipeline(model()).fit(table, y)
    mean, std = pipeline.predict(table, return_std=True)
    assert np.corrcoef(mean, y)[0, 1] > 0.9
    assert np.all(std > 0)


def test_shap_explains_predictions():
    import shap

    fitted = model().fit(X, y)
    explainer = shap.KernelExplainer(fitted.predict, X[:10])
    values = explainer.shap_values(X[:3], silent=True)
    total = values.sum(axis=1) + explainer.expected_value
    assert_allclose(total, fitted.predict(X[:3]), rtol=1e-6)


def test_joblib_fits_experts_on_dask():
    from distributed import Client

    expected = model(points_per_expert=30).fit(X, y)
    local = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with Client(**local, dashboard_address=None), joblib.parallel_config("dask"):
        scores = cross_val_score(model(), X, y, cv=2, n_jobs=2)
        fitted = model(points_per_expert=30, n_jobs=2).fit(X, y)
    assert np.all(scores > 0.5)
    assert_array_equal(fitted.predict(X), expected.predict(X))
