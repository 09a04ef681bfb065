"""The estimator behaves like any other of scikit-learn's."""

import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from data import read_only
from manygp import ManyGPRegressor
from manygp.committee.committee import PARTITIONS
from manygp.kernels import RBF, Constant, Matern, White
from manygp.rules import AGGREGATIONS, CALIBRATIONS, WEIGHTINGS, Information, Softmax
from manygp.settings import SHRINKAGES
from manygp.trend.registry import trend_names
from models import (
    CHOSEN,
    FIXED,
    QUERIES,
    X,
    answers,
    choosing,
    interrupt_after,
    model,
    no_work,
    y,
)

ALPHA = read_only(np.random.default_rng(1).uniform(0.001, 0.1, len(X)))


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, y)


# Each partition is checked, and a few rules with them.
WITH = {
    "kmeans": {"weighting": "softmax", "aggregation": "barycentre", "overlap": 1},
    "random": {"hyperparameters": "shared", "aggregation": "nested", "routing": 2},
}


CHECKS = parametrize_with_checks(
    [
        ManyGPRegressor(),
        ManyGPRegressor(points_per_expert=30, trend="constant", hyperparameters="shared"),
        *(
            model(points_per_expert=10, partition=name, **WITH.get(name, {}))
            for name in PARTITIONS
        ),
        model(points_per_expert=10, hyperparameters="shared", aggregation="grbcm"),
    ],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "weights divide the noise, which is "
        "learned, and are no counts: rows that repeat others exactly tell of less noise"
    },
)


# A list, because scikit-learn 1.6 gives an iterator, of which pytest 9 warns.
@pytest.mark.parametrize(CHECKS.args[0], list(CHECKS.args[1]), **CHECKS.kwargs)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


CHANGES = {
    "kernel": 2.0 * Matern(nu=1.5) + White(0.1),
    "points_per_expert": 7,
    "overlap": 1.5,
    "partition": "kmeans",
    "weighting": Softmax(10.0),
    "temperature": 8.0,
    "calibration": Information(strength=0.5),
    "aggregation": "rbcm",
    "hyperparameters": "shared",
    "routing": 3,
    "trend": "none",
    "prior_mean": None,
    "alpha": 0.25,
    "normalize_X": False,
    "normalize_y": False,
    "columns": "numeric",
    "n_restarts_optimizer": 2,
    "time_budget": 60.0,
    "n_jobs": 2,
    "random_state": 3,
    "verbose": True,
    "optimizer": None,
    "n_targets": 1,
    "copy_X_train": False,
    "noise": "constant",
    "target_transform": "log",
    "bounds": (0, None),
}


def test_every_parameter_can_be_set_and_survives_clone():
    estimator = ManyGPRegressor().set_params(**CHANGES)
    assert estimator.get_params(deep=False) == CHANGES
    assert clone(estimator).get_params(deep=False) == CHANGES
    assert ManyGPRegressor(**CHANGES).get_params(deep=False) == CHANGES


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="points_per_export"):
        ManyGPRegressor().set_params(points_per_export=3)


def test_clone_of_a_fitted_model_is_not_fitted_and_fits_to_the_same_answer(fitted):
    copy = clone(fitted)
    with pytest.raises(NotFittedError):
        copy.predict_interval(QUERIES)
    assert_array_equal(answers(copy.fit(X, y)), answers(fitted))


def test_nested_parameters_of_a_scikit_learn_kernel_reach_the_fit():
    estimator = model(kernel=sk.RBF(1.0, "fixed") + sk.WhiteKernel(0.1, "fixed"))
    estimator.set_params(kernel__k1__length_scale=0.7).fit(X, y)
    assert estimator.experts_[0].kernel.signal == RBF(0.7, "fixed")


def test_fit_leaves_the_parameters_as_they_were():
    kernel = sk.RBF([1.0, 2.0]) + sk.WhiteKernel(0.1)
    estimator = model(kernel=kernel)
    before = kernel.theta.copy()
    estimator.fit(X, y)
    assert estimator.kernel is kernel
    assert_array_equal(kernel.theta, before)


def test_repr_shows_what_was_changed():
    text = repr(ManyGPRegressor(points_per_expert=7, weighting="softmax"))
    assert "points_per_expert=7" in text
    assert "softmax" in text
    assert "calibration" not in text


def test_a_pipeline_equals_its_steps_done_by_hand():
    scaler = MinMaxScaler().fit(X)
    by_hand = model().fit(scaler.transform(X), y)
    pipeline = make_pipeline(MinMaxScaler(), model()).fit(X, y)
    mean, std = pipeline.predict(QUERIES, return_std=True)
    expected = by_hand.predict(scaler.transform(QUERIES), return_std=True)
    assert_array_equal([mean, std], expected)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_over_rules_and_kernels_chooses_the_better_kernel(n_jobs):
    noise = White(0.1, "fixed")
    grid = {
        "weighting": ["entropy", "uniform"],
        # On this length-scale the data is white noise: the other kernel has to win.
        "kernel": [RBF(1.0, "fixed") + noise, RBF(1e-4, "fixed") + noise],
    }
    search = GridSearchCV(model(), grid, cv=3, n_jobs=n_jobs, error_score="raise").fit(X, y)
    assert search.best_params_["kernel"] == grid["kernel"][0]
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert len(search.cv_results_["params"]) == 4


def test_cross_validation_scores_near_the_noise():
    scores = cross_val_score(choosing(), X, y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert np.all(scores > 0.9)


def test_score_is_the_coefficient_of_determination(fitted):
    residual = y - fitted.predict(X)
    expected = 1 - np.sum(residual**2) / np.sum((y - y.mean()) ** 2)
    assert fitted.score(X, y) == pytest.approx(expected, rel=1e-12)


def pickled(estimator, path):
    return pickle.loads(pickle.dumps(estimator))


def joblibbed(estimator, path):
    joblib.dump(estimator, path / "model.joblib", compress=3)
    return joblib.load(path / "model.joblib")


@pytest.mark.parametrize("round_trip", [pickled, joblibbed])
@pytest.mark.parametrize("label", [None, "kx-uni", "gp-pro-sm", "gp-full", "gp-pro-full"])
def test_predictions_survive_a_round_trip_bit_for_bit(round_trip, label, tmp_path):
    if label is None:
        estimator = choosing()
    else:
        estimator = ManyGPRegressor.from_label(label, points_per_expert=30, random_state=0)
    estimator.fit(X, y)
    again = round_trip(estimator, tmp_path)
    assert_array_equal(answers(again), answers(estimator))
    assert [e.hyperparameters for e in again.experts_] == [
        e.hyperparameters for e in estimator.experts_
    ]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("aggregation", [name for name in AGGREGATIONS if name != "grbcm"])
def test_rules_set_after_fit_equal_a_fresh_fit_with_them(weighting, calibration, aggregation):
    rules = {"weighting": weighting, "calibration": calibration, "aggregation": aggregation}
    # Every aggregation can be asked of one kernel and one prior mean.
    settings = {"kernel": FIXED, "hyperparameters": "shared", "trend": "none"}
    changed = model(**settings).fit(X, y)
    experts = changed.experts_
    changed.set_params(**rules)
    assert_array_equal(answers(changed), answers(model(**settings, **rules).fit(X, y)))
    assert changed.experts_ is experts  # the same experts answer by another rule


@pytest.mark.parametrize("routing", [None, 1, 2, 3, 100])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 16.0])
def test_routing_and_temperature_set_after_fit_equal_a_fresh_fit_with_them(routing, temperature):
    settings = {"kernel": FIXED, "weighting": "tempered"}
    rules = {"routing": routing, "temperature": temperature}
    changed = model(**settings).fit(X, y).set_params(**rules)
    assert_array_equal(answers(changed), answers(model(**settings, **rules).fit(X, y)))


def test_the_rows_that_grbcm_needs_are_dealt_out_by_fit():
    changed = model(hyperparameters="shared").fit(X, y).set_params(aggregation="grbcm")
    with pytest.raises(ValueError, match=r"grbcm.*set it before fit"):
        changed.predict(QUERIES)


@pytest.mark.parametrize("aggregation", ["grbcm", "nested"])
@pytest.mark.parametrize("hyperparameters", ["independent", "hierarchical"])
def test_an_aggregation_of_one_kernel_refuses_experts_with_their_own(aggregation, hyperparameters):
    settings = {"hyperparameters": hyperparameters}
    with pytest.raises(ValueError, match=f"{aggregation}.*hyperparameters='shared'"):
        model(aggregation=aggregation, **settings).fit(X, y)
    changed = model(**settings).fit(X, y).set_params(aggregation=aggregation)
    with pytest.raises(ValueError, match=f"{aggregation}.*hyperparameters='shared'.*fit again"):
        changed.predict(QUERIES)


@pytest.mark.parametrize(
    "change",
    [
        {"weighting": "uniform"},
        {"weighting": "variance"},
        {"calibration": "none"},
        {"aggregation": "poe"},
        {"aggregation": "rbcm"},
        {"aggregation": "barycentre"},
        {"weighting": "tempered"},
        {"routing": 1},
    ],
)
def test_rules_set_after_fit_change_the_answer(fitted, change):
    estimator = pickle.loads(pickle.dumps(fitted)).set_params(**change)
    assert not np.allclose(answers(estimator)[1], answers(fitted)[1], rtol=1e-3)


def test_an_unfitted_model_says_so():
    estimator = ManyGPRegressor()
    for method in (
        estimator.predict_interval,
        estimator.predict_dist,
        estimator.predict_experts,
        estimator.calibration_ratio,
    ):
        with pytest.raises(NotFittedError, match="not fitted"):
            method(QUERIES)
    for method in (estimator.log_marginal_likelihood, estimator.loo_predict, estimator.loo_score):
        with pytest.raises(NotFittedError, match="not fitted"):
            method()


TABLES = pytest.mark.parametrize(
    "kind", ["pandas.DataFrame", "polars.DataFrame", "pyarrow.table", "pyarrow.record_batch"]
)


def table_of(kind):
    """The function of a library that makes a table of named columns."""
    library, _, function = kind.partition(".")
    return getattr(pytest.importorskip(library), function)


@TABLES
def test_tables_give_the_answer_of_the_array(kind):
    table = table_of(kind)

    def named(rows, *names):
        return table({name: rows[:, "ab".index(name)] for name in names})

    fitted = model(kernel=FIXED).fit(named(X, "a", "b"), y)
    expected = answers(model(kernel=FIXED).fit(X, y))
    assert_array_equal(answers(fitted, named(QUERIES, "a", "b")), expected)
    assert_array_equal(fitted.feature_names_in_, ["a", "b"])
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(named(QUERIES, "b", "a"))


@TABLES
def test_an_encoded_table_in_another_order_is_refused(kind):
    table = table_of(kind)
    columns = {"a": X[:, 0], "b": X[:, 1], "letter": list("uv") * (len(X) // 2)}
    fitted = model(kernel=FIXED).fit(table(columns), y)
    fitted.predict(table(columns))
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(table({name: columns[name] for name in ("letter", "b", "a")}))


@pytest.mark.parametrize(
    "settings",
    [{**CHOSEN, "partition": name} for name in PARTITIONS]
    + [{"kernel": Constant(1.0) + White(0.1)}, {"kernel": FIXED, "normalize_y": False}]
    + [{"kernel": FIXED, "aggregation": name} for name in ("grbcm", "nested")]
    + [{}],
    ids=str,
)
def test_inputs_are_never_written_to(settings):
    given = [X.copy(), y.copy(), ALPHA.copy(), QUERIES.copy()]
    for writable in (True, False):  # writable data keeps its values, read-only data is no error
        for array in given:
            array.flags.writeable = writable
        fitted = choosing(alpha=given[2], **settings).fit(given[0], given[1])
        answers(fitted, given[3])
        fitted.sample_y(given[3])
        fitted.predict_experts(given[3])
        fitted.predict_interval(given[3])
        fitted.loo_predict()
        for array, original in zip(given, (X, y, ALPHA, QUERIES), strict=True):
            assert_array_equal(array, original)


INTERRUPTED = pytest.mark.parametrize("make", [model, choosing])


@INTERRUPTED
@pytest.mark.parametrize("columns", [2, 3], ids=["same-columns", "one-more-column"])
def test_an_interrupted_refit_leaves_the_old_model(columns, make, monkeypatch):
    fitted = make().fit(X, y)
    before, experts = answers(fitted), fitted.experts_
    interrupt_after(2, monkeypatch)
    other = np.random.default_rng(1).uniform(0, 9, (len(X), columns))
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(other, -5 * y)
    assert fitted.experts_ is experts
    assert_array_equal(answers(fitted), before)


@INTERRUPTED
def test_an_interrupted_first_fit_leaves_the_model_unfitted(make, monkeypatch):
    unfitted = make()
    interrupt_after(2, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(X, y)
    with pytest.raises(NotFittedError):
        unfitted.predict_interval(QUERIES)


def test_a_refused_refit_leaves_the_old_model():
    fitted = model().fit(X, y)
    before = answers(fitted)
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((60, 3), np.nan), y)
    assert_array_equal(answers(fitted), before)


def test_a_numpy_integer_is_an_integer():
    counts = {"points_per_expert": 20, "random_state": 0, "n_jobs": 1, "overlap": 1, "routing": 2}
    for name, value in counts.items():
        expected, given = (model(kernel=FIXED, **{name: one}) for one in (value, np.int64(value)))
        assert_array_equal(answers(given.fit(X, y)), answers(expected.fit(X, y)))


def test_std_and_cov_at_once_are_refused(fitted):
    with pytest.raises(RuntimeError, match="return_std or return_cov"):
        fitted.predict(QUERIES, return_std=True, return_cov=True)


RULES = {
    "partition": PARTITIONS,
    "weighting": WEIGHTINGS,
    "calibration": CALIBRATIONS,
    "aggregation": AGGREGATIONS,
    "hyperparameters": SHRINKAGES,
    "trend": trend_names(),
}


@pytest.mark.parametrize("name", ["nonsense", "", 3])
@pytest.mark.parametrize("rule", RULES)
def test_an_unknown_rule_is_an_error_before_the_work_that_lists_the_known_ones(rule, name):
    settings = {"partition": no_work, rule: name}
    with pytest.raises(ValueError, match=f"{rule} must be one of .*{', '.join(RULES[rule])}"):
        model(**settings).fit(X, y)
    if rule in ("weighting", "calibration", "aggregation"):
        with pytest.raises(ValueError, match=f"{rule} must be one of"):
            model(kernel=FIXED).fit(X, y).set_params(**{rule: name}).predict(QUERIES)


@pytest.mark.parametrize("value", [-1, 2.5, "20", None, np.nan])
@pytest.mark.parametrize(
    ("name", "least"), [("points_per_expert", 1), ("n_restarts_optimizer", 0)]
)
def test_counts_must_be_integers(name, least, value):
    for bad in (value, least - 1):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least {least}"):
            model(**{"partition": no_work, name: bad}).fit(X, y)


@pytest.mark.parametrize("value", [-1, -0.5, np.nan, np.inf, "4", None, True, [1.0]], ids=str)
@pytest.mark.parametrize("name", ["overlap", "temperature"])
def test_amounts_must_be_numbers_that_are_not_negative(name, value):
    with pytest.raises(ValueError, match=f"{name} must be 'auto' or a number of at least 0"):
        model(**{"partition": no_work, name: value}).fit(X, y)


@pytest.mark.parametrize("value", [0, -1, 1.5, 0.0, 1.0, np.nan, "4", True, [1]], ids=str)
def test_routing_must_be_a_number_of_experts_or_a_neglected_weight(value):
    with pytest.raises(ValueError, match="routing must be 'auto', None, a neglected weight"):
        model(partition=no_work, routing=value).fit(X, y)
    changed = model(kernel=FIXED).fit(X, y).set_params(routing=value)
    with pytest.raises(ValueError, match="routing must be 'auto', None, a neglected weight"):
        changed.predict(QUERIES)


@pytest.mark.parametrize(
    "alpha",
    [-1.0, np.nan, np.inf, "x", None, np.ones(3), np.ones((60, 1)), np.linspace(-1, 1, 60)],
    ids=["negative", "nan", "inf", "string", "none", "short", "2-d", "one negative row"],
)
def test_alpha_must_be_a_variance_or_one_per_row(alpha):
    with pytest.raises(ValueError, match="alpha"):
        model(alpha=alpha, partition=no_work).fit(X, y)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([np.arange(37), np.arange(38, 60)], "row 37"),
        ([np.arange(60), []], "empty"),
        ([], "empty"),
    ],
    ids=["lost-row", "empty-part", "no-parts"],
)
def test_a_partition_that_loses_rows_or_has_empty_parts_is_refused(parts, message):
    with pytest.raises(ValueError, match=f"partition .*{message}"):
        model(partition=lambda *_: parts).fit(X, y)


def test_cross_validation_cuts_the_noise_of_rows_with_them():
    from sklearn import config_context
    from sklearn.model_selection import cross_validate

    noises = np.linspace(0.1, 0.2, len(X))
    seen = []

    class Spy(ManyGPRegressor):
        def fit(self, X, y, *, alpha=None, checkpoint=None):
            seen.append(alpha)
            return super().fit(X, y, alpha=alpha, checkpoint=checkpoint)

    with config_context(enable_metadata_routing=True):
        estimator = Spy(kernel=FIXED, points_per_expert=20, trend="none", random_state=0)
        estimator.set_fit_request(alpha=True, checkpoint=False)
        cross_validate(estimator, X, y, cv=3, params={"alpha": noises}, error_score="raise")
    assert [len(one) for one in seen] == [len(X) - len(X) // 3] * 3
    assert_array_equal(np.sort(np.concatenate(seen)), np.sort(np.tile(noises, 2)))


def test_a_transformed_target_regressor_is_told_what_to_do_instead():
    parameters = {"kernel": 2.0 * RBF() + White(0.1), "optimizer": None}
    wrapped = TransformedTargetRegressor(
        ManyGPRegressor(**parameters), func=np.log, inverse_func=np.exp
    )
    wrapped.fit(X, np.exp(y))
    with pytest.raises(
        AttributeError, match=r"two arrays.*transform the ends of predict_interval"
    ):
        wrapped.predict(QUERIES, return_std=True)
    both = ManyGPRegressor(**parameters).fit(X, y).predict(QUERIES, return_std=True)
    assert isinstance(both, tuple)
    assert np.ndim(both) == 2
    assert not hasattr(both, "ndim")
