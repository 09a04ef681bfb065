"""Other models: each answers with means and positive std, and a missing library is named."""

import re
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from benchmarks.studies import peers, peers_gp, peers_trees
from benchmarks.studies.answers import (
    Answer,
    conformal_reach,
    conformal_shift,
    hold_out,
    joined,
    scores_of,
)
from benchmarks.studies.names import (
    FOLD_MODELS,
    QUALITY_MODELS,
    SMALL_MODELS,
    SPEED_MODELS,
    TRUST_MODELS,
)
from benchmarks.studies.processes import CannotRunError
from manygp import ManyGPRegressor
from manygp.metrics import log_score, nll, rmse


def smooth(n=120, n_test=40):
    """A noisy function of two columns in [0, 1], standardised: X, y, X_test, y_test."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n + n_test, 2))
    y = np.sin(6 * X[:, 0]) + np.cos(4 * X[:, 1]) + rng.normal(0, 0.1, len(X))
    y = (y - y.mean()) / y.std()
    return X[:n], y[:n], X[n:], y[n:]


def check_sensible(answer, y_test):
    assert answer.mean.shape == answer.std.shape == y_test.shape
    assert np.isfinite(answer.mean).all()
    assert np.isfinite(answer.std).all()
    assert (answer.std > 0).all()
    assert answer.fit_seconds > 0
    assert answer.predict_seconds > 0
    assert rmse(y_test, answer.mean) < y_test.std()


@pytest.mark.parametrize(
    "name", ["exact", "neighbours", "scikit-learn", *list(QUALITY_MODELS)[:3]]
)
def test_peers_predict_better_than_the_mean_with_a_positive_std(name, monkeypatch):
    small = partial(ManyGPRegressor, points_per_expert=40)  # three experts, not one
    monkeypatch.setattr(peers, "ManyGPRegressor", small)
    monkeypatch.setattr(peers_gp, "NEIGHBOURS", 30)
    X, y, X_test, y_test = smooth()
    answer = peers.PEERS[name](X, y, X_test, 0)
    check_sensible(answer, y_test)
    if name.startswith("manygp"):
        assert log_score(y_test, answer.predictive) <= nll(y_test, answer.mean, answer.std) + 0.05
        lower, upper = answer.interval
        assert (lower < upper).all()
        assert np.mean((lower <= y_test) & (y_test <= upper)) > 0.7
        assert re.search(r"\bnearest \d", answer.note)
        assert ("temperature None" in answer.note) == (name != "manygp")
    else:
        assert answer.interval is None
        assert answer.note == ""


def test_this_library_with_one_expert_has_an_interval_and_notes_its_correction():
    X, y, X_test, y_test = smooth(60)
    answer = peers.many(X, y, X_test, 0)
    check_sensible(answer, y_test)
    assert answer.note.startswith("trend constant, correction ")
    assert (answer.interval[0] < answer.interval[1]).all()


def test_an_exact_gp_is_scikit_learns_at_the_same_kernel():
    X, y, X_test, _ = smooth()
    found = peers_gp.exact(X, y, X_test, 0)
    shared = peers_gp.shared_kernel(X, y, 0)
    signal, noise = shared.signal, shared.noise
    kernel = ConstantKernel(signal.left.variance) * Matern(signal.right.length_scale, nu=2.5)
    kernel += WhiteKernel(noise.variance)
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.std, std, rtol=0, atol=1e-6)


def test_more_neighbours_than_rows_are_an_exact_gp_and_fewer_are_not(monkeypatch):
    X, y, X_test, _ = smooth(60)
    exact = peers_gp.exact(X, y, X_test, 0)
    near = peers_gp.neighbours(X, y, X_test, 0)
    np.testing.assert_allclose(near.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(near.std, exact.std, atol=1e-7)
    monkeypatch.setattr(peers_gp, "NEIGHBOURS", 5)
    few = peers_gp.neighbours(X, y, X_test, 0)
    assert (few.std > exact.std - 1e-7).all()  # who knows less is less certain
    assert np.abs(few.mean - exact.mean).max() > 1e-3


def test_costly_peers_answer_the_first_rows_and_scikit_learn_refuses_many(monkeypatch):
    X, y, X_test, _ = smooth(60)
    whole = peers_gp.exact(X, y, X_test, 0)
    monkeypatch.setattr(peers_gp, "MOST_EXACT_ROWS", 8)
    monkeypatch.setattr(peers_gp, "MOST_LOCAL_ROWS", 8)
    for peer in (peers_gp.exact, peers_gp.neighbours):
        np.testing.assert_allclose(peer(X, y, X_test, 0).mean, whole.mean[:8], atol=1e-7)
    with pytest.raises(CannotRunError, match="at most 8 rows"):
        peers_gp.sklearn_gpr(X, y, X_test, 0)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("gpboost", "gpboost"),
        ("svgp", "torch"),
        ("svgp", "gpytorch"),
        ("catboost", "catboost"),
        ("catboost-conformal", "catboost"),
        ("ngboost", "ngboost"),
        ("lightgbm", "lightgbm"),
        ("catboost-quantiles", "catboost"),
        ("lightgbm-quantiles", "lightgbm"),
        ("treeffuser", "treeffuser"),
        ("mapie", "mapie"),
    ],
)
def test_a_library_that_is_not_installed_is_named(name, library, monkeypatch):
    others = {"gpboost", "torch", "gpytorch"} - {library}
    for other in others:
        monkeypatch.setitem(sys.modules, other, object())
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(CannotRunError, match=f"^{library} is not installed$"):
        peers.PEERS[name](*smooth(60)[:3], 0)


@pytest.mark.filterwarnings("ignore")
def test_gpboost_predicts_better_than_the_mean_with_a_positive_std():
    pytest.importorskip("gpboost", reason="GPBoost is not installed")
    X, y, X_test, y_test = smooth()
    check_sensible(peers_gp.gpboost(X, y, X_test, 0), y_test)


@pytest.mark.filterwarnings("ignore")
def test_svgp_predicts_better_than_the_mean_with_a_positive_std(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("gpytorch", reason="GPyTorch is not installed")
    monkeypatch.setattr(peers_gp, "SVGP_POINTS", 30)
    monkeypatch.setattr(peers_gp, "SVGP_STEPS", 200)
    X, y, X_test, y_test = smooth()
    check_sensible(peers_gp.svgp(X, y, X_test, 0), y_test)


# Boosted trees and conformal intervals.


class FakeTrees:
    """A model whose mean is that of the training targets, and which keeps what it was given."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def fit(self, X, y):
        self.mean, self.n_rows = y.mean(), len(y)
        FakeTrees.last = self
        return self

    def predict(self, X):
        if self.parameters.get("loss_function") == "RMSEWithUncertainty":
            return np.column_stack([np.full(len(X), self.mean), np.full(len(X), 7.0)])
        return np.full(len(X), self.mean)

    def virtual_ensembles_predict(self, X, prediction_type, virtual_ensembles_count, thread_count):
        assert (prediction_type, virtual_ensembles_count) == ("TotalUncertainty", 10)
        return np.tile([99.0, 0.09, 0.16], (len(X), 1))  # mean, knowledge, data


def test_the_variance_of_catboost_is_that_of_the_data_and_of_what_it_knows(monkeypatch):
    monkeypatch.setitem(sys.modules, "catboost", SimpleNamespace(CatBoostRegressor=FakeTrees))
    X, y, X_test, _ = smooth()
    answer = peers_trees.catboost_uncertainty(X, y, X_test, 5)
    np.testing.assert_allclose(answer.mean, y.mean())
    np.testing.assert_allclose(answer.std, 0.5)
    assert answer.interval is None
    given = FakeTrees.last.parameters
    assert (given["random_seed"], given["thread_count"]) == (5, 2)
    assert "posterior_sampling" not in given


@pytest.mark.parametrize(
    ("name", "module", "attribute"),
    [
        ("catboost-conformal", "catboost", "CatBoostRegressor"),
        ("lightgbm", "lightgbm", "LGBMRegressor"),
    ],
)
def test_errors_of_rows_that_are_held_out_are_std_and_interval(
    name, module, attribute, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{attribute: FakeTrees}))
    X, y, X_test, _ = smooth()
    answer = peers.PEERS[name](X, y, X_test, 3)
    rows = hold_out(X, y, 3)
    errors = rows.y_held - rows.y.mean()
    assert FakeTrees.last.n_rows == len(rows.y) == 96
    np.testing.assert_allclose(answer.std, np.sqrt(np.mean(errors**2)))
    lower, upper = answer.interval
    np.testing.assert_allclose(upper - answer.mean, conformal_reach(errors))
    np.testing.assert_allclose(answer.mean - lower, conformal_reach(errors))


class FakeQuantiles:
    """Quantiles of all rows: those of LightGBM at one level, or of CatBoost at three."""

    width = 0.1

    def __init__(self, alpha=None, loss_function="", **parameters):
        asked = loss_function.removeprefix("MultiQuantile:alpha=").split(",")
        self.levels = np.array([alpha] if alpha is not None else asked, dtype=float)

    def fit(self, X, y):
        self.median = np.median(y)

    def predict(self, X):
        found = self.median + self.width * np.sign(self.levels - 0.5)
        return np.tile(found, (len(X), 1)) if len(found) == 3 else np.full(len(X), found[0])


@pytest.mark.parametrize(
    ("name", "module", "attribute"),
    [
        ("catboost-quantiles", "catboost", "CatBoostRegressor"),
        ("lightgbm-quantiles", "lightgbm", "LGBMRegressor"),
    ],
)
@pytest.mark.parametrize("width", [0.1, 9.0, -0.1])  # too narrow, too wide, crossing
def test_quantiles_move_to_what_held_out_rows_need(name, module, attribute, width, monkeypatch):
    monkeypatch.setattr(FakeQuantiles, "width", width)
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{attribute: FakeQuantiles}))
    X, y, X_test, _ = smooth()
    answer = peers.PEERS[name](X, y, X_test, 3)
    rows = hold_out(X, y, 3)
    reach = conformal_reach(rows.y_held - np.median(rows.y))
    lower, upper = answer.interval
    np.testing.assert_allclose(answer.mean, np.median(rows.y))
    np.testing.assert_allclose(upper - answer.mean, reach)
    np.testing.assert_allclose(answer.mean - lower, reach)
    np.testing.assert_allclose(answer.predictive.interval(0.9)[1], upper)


def test_an_interval_that_would_be_empty_has_no_width_and_a_small_std(monkeypatch):
    class Fake(FakeQuantiles):
        """Quantiles that are far too wide, but for those of row 30, which are one."""

        def predict(self, X):
            wide = np.where(np.arange(len(X)) == 30, 0.0, 9.0)
            return self.median + wide * np.sign(self.levels - 0.5)[0]

    monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMRegressor=Fake))
    X, y, X_test, _ = smooth()
    assert len(hold_out(X, y, 0).y_held) < 30 < len(X_test)  # only a test row is the exception
    answer = peers.PEERS["lightgbm-quantiles"](X, y, X_test, 0)
    lower, upper = answer.interval
    assert lower[30] == upper[30]
    assert answer.std[30] == pytest.approx(1e-3 * y.std())
    assert (np.delete(answer.std, 30) > 0.1).all()


def test_treeffuser_answers_with_its_draws(monkeypatch):
    class Fake:
        def __init__(self, seed):
            self.seed = seed

        def fit(self, X, y):
            self.mean = y.mean()

        def sample(self, X, n_samples, seed):
            assert seed == self.seed == 4
            return self.mean + np.linspace(-1, 1, n_samples)[:, None] * np.ones(len(X))

    monkeypatch.setitem(sys.modules, "treeffuser", SimpleNamespace(Treeffuser=Fake))
    X, y, X_test, _ = smooth()
    answer = peers.PEERS["treeffuser"](X, y, X_test, 4)
    np.testing.assert_allclose(answer.mean, y.mean())
    np.testing.assert_allclose(answer.interval[1] - answer.mean, 0.9)
    np.testing.assert_allclose(answer.mean - answer.interval[0], 0.9)
    np.testing.assert_allclose(answer.std, np.linspace(-1, 1, 100).std())


def test_the_conformal_reach_is_the_quantile_with_one_row_to_spare():
    assert conformal_reach(np.array([-9.0, *range(1, 9)])) == 9.0  # rank 9 of 9
    assert conformal_reach(np.arange(19.0)) == 17.0  # rank 18 of 19
    assert conformal_shift(np.arange(19.0) - 30) == -13.0


def test_rows_held_out_are_the_others_and_too_few_are_refused():
    X, y, _, _ = smooth()
    rows = hold_out(X, y, 0)
    assert (len(rows.y), len(rows.y_held)) == (96, 24)
    assert sorted([*rows.y, *rows.y_held]) == sorted(y)
    with pytest.raises(CannotRunError, match="needs 45 rows; it has 44"):
        hold_out(X[:44], y[:44], 0)
    assert len(hold_out(X[:45], y[:45], 0).y_held) == 9


def test_histogram_boosting_predicts_better_than_the_mean():
    X, y, X_test, y_test = smooth(300)
    answer = peers_trees.hist_boosting(X, y, X_test, 0)
    check_sensible(answer, y_test)
    assert answer.interval is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("catboost", "catboost"),
        ("catboost-conformal", "catboost"),
        ("ngboost", "ngboost"),
        ("lightgbm", "lightgbm"),
        ("catboost-quantiles", "catboost"),
        ("lightgbm-quantiles", "lightgbm"),
        ("treeffuser", "treeffuser"),
        ("mapie", "mapie"),
    ],
)
def test_boosted_trees_and_mapie_predict_better_than_the_mean(name, library):
    pytest.importorskip(library, reason=f"{library} is not installed")
    X, y, X_test, y_test = smooth(300)
    answer = peers.PEERS[name](X, y, X_test, 0)
    check_sensible(answer, y_test)
    assert (answer.interval is None) == (name in ("catboost", "ngboost"))


def test_a_model_that_is_not_calibrated_has_normal_distributions():
    X, y, X_test, y_test = smooth(60)
    answer = peers.manygp_uncalibrated(X, y, X_test, 0)
    plain = ManyGPRegressor(calibration="none", random_state=0).fit(X, y)
    np.testing.assert_allclose(answer.std, plain.predict(X_test, return_std=True)[1])
    assert log_score(y_test, answer.predictive) == pytest.approx(
        nll(y_test, answer.mean, answer.std)
    )


def test_few_rows_have_distributions_but_no_conformal_interval():
    X, y, X_test, _ = smooth(9)
    assert peers.many(X[:8], y[:8], X_test, 0).interval is None
    assert peers.many(X, y, X_test, 0).interval is not None


def test_every_model_of_a_study_is_a_peer_and_every_peer_takes_part():
    columns = {
        **QUALITY_MODELS, **TRUST_MODELS, **FOLD_MODELS, **SMALL_MODELS, **SPEED_MODELS,
    }  # fmt: skip
    assert set(columns) == set(peers.PEERS)


# Answers.


def test_answers_of_several_fits_are_joined_with_their_own_distributions():
    X, y, X_test, y_test = smooth(40)
    answers = [peers.many(X[:n], y[:n], X_test, 0) for n in (12, 40)]
    both = joined(answers)
    assert both.mean.shape == (80,)
    targets = np.r_[y_test, y_test]
    np.testing.assert_allclose(
        both.predictive.logpdf(targets),
        np.r_[answers[0].predictive.logpdf(y_test), answers[1].predictive.logpdf(y_test)],
    )
    assert both.interval[0].shape == (80,)
    assert both.fit_seconds == sum(answer.fit_seconds for answer in answers)
    assert joined([answers[0], answers[1]._replace(interval=None)]).interval is None


def test_an_answer_without_a_distribution_is_normal():
    answer = Answer(np.zeros(20), np.full(20, 2.0), 1.0, 1.0)
    y = np.linspace(-3, 3, 30)
    found = scores_of(answer, y)
    assert found["n_scored"] == 20
    assert found["log_score"] == pytest.approx(nll(y[:20], answer.mean, answer.std))
    assert found["interval_coverage"] is None
