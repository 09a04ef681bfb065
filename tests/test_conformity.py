"""How errors are spread in units of the std: it may differ between small and large std."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from manygp import ManyGPRegressor, load
from manygp.calibration import ConformalScores, fit_conformal_scores, fit_tail

N = 6000
STD = np.exp(np.random.default_rng(0).normal(size=N))


def errors(seed, heavy):
    """Normal errors, but Student-t ones where the std is large, if these are heavy."""
    rng = np.random.default_rng(seed)
    normal, student = rng.normal(size=N), rng.standard_t(2.5, size=N)
    return np.where((np.median(STD) < STD) & heavy, student, normal)


def test_one_group_is_one_quantile_and_one_tail_for_all_rows():
    z = errors(1, heavy=True)
    found = ConformalScores.of(z[None], STD)
    assert_array_equal(found.errors[0], np.sort(np.abs(z)))
    widths = np.array([[0.1], [1.0], [10.0]])
    assert_array_equal(
        found.reach(0.9, widths), np.sort(np.abs(z))[int(np.ceil(0.9 * (N + 1))) - 1]
    )
    tail, spread = fit_tail(z), found.distribution(np.zeros(3), widths[:, 0], np.ones(1))
    assert_allclose((spread.dof, spread.scale), tail)


def test_groups_are_learned_only_where_errors_differ():
    assert len(fit_conformal_scores(errors(2, heavy=False)[None], STD).places) == 1
    found = fit_conformal_scores(errors(2, heavy=True)[None], STD)
    assert len(found.places) >= 2
    dof = found.distribution(np.zeros(2), np.quantile(STD, [0.05, 0.95]), np.ones(1)).dof
    assert dof[0] > 15
    assert dof[1] < 5


def test_std_that_differ_by_rounding_are_one_group():
    std = 1 + 1e-15 * np.random.default_rng(9).integers(0, 4, N)
    heavy = np.where(std > 1 + 1.5e-15, errors(10, heavy=False), 3 * errors(11, heavy=False))
    assert len(fit_conformal_scores(heavy[None], std).places) == 1
    assert len(fit_conformal_scores(heavy[None], 1 + 1e14 * (std - 1)).places) > 1


def test_few_rows_are_one_group():
    few = slice(900)
    assert len(fit_conformal_scores(errors(2, heavy=True)[None, few], STD[few]).places) == 1


def test_intervals_of_groups_hold_the_promise_for_small_and_for_large_std():
    found = fit_conformal_scores(errors(3, heavy=True)[None], STD)
    new = np.abs(errors(4, heavy=True))
    inside = new <= found.reach(0.95, STD[:, None])[:, 0]
    for part in np.array_split(np.argsort(STD), 4):
        assert abs(inside[part].mean() - 0.95) < 0.02  # two and a half standard errors, or more
    one = ConformalScores.of(errors(3, heavy=True)[None], STD)
    pooled = new <= one.reach(0.95, STD[:, None])[:, 0]
    assert pooled[np.argsort(STD)[: N // 4]].mean() > 0.98  # what groups are for


def test_intervals_grow_with_their_coverage_also_where_a_group_has_too_few_rows():
    found = ConformalScores.of(errors(5, heavy=True)[None], STD, 8)
    levels = [0.9, 0.99, 1 - 9 / N, 1 - 7 / N, 1 - 2 / N]  # a group promises up to 1 - 8 / N
    widths = [found.reach(level, np.array([[0.1], [1.0], [10.0]])) for level in levels]
    assert np.all(np.diff(widths, axis=0) >= 0)
    assert np.all(widths[-1] >= np.sort(np.abs(errors(5, heavy=True)))[N - 2])
    with pytest.raises(ValueError, match="can promise a coverage of at most"):
        found.require(1 - 0.5 / N)


def test_what_rows_get_does_not_jump_between_groups():
    found = ConformalScores.of(errors(6, heavy=True)[None], STD, 4)
    line = np.exp(np.linspace(-4, 4, 4000))[:, None]
    steps = np.abs(np.diff(found.reach(0.9, line)[:, 0]))
    assert steps.max() < 0.01


def test_several_targets_have_groups_of_their_own_errors():
    both = np.array([errors(7, heavy=True), errors(7, heavy=False)])
    found = ConformalScores.of(both, STD, 2)
    spread = found.distribution(np.zeros((2, 2)), np.array([[0.1, 1.0], [10.0, 100.0]]),
                                np.array([1.0, 10.0]))  # fmt: skip
    assert spread.dof[1, 0] < 5 < 15 < min(spread.dof[0, 0], *spread.dof[:, 1])


def test_a_model_with_groups_is_saved_and_answers_the_same(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.random((2400, 1))
    noise = np.where(X[:, 0] > 0.5, 0.3 * rng.standard_t(2.5, 2400), 0.05 * rng.normal(size=2400))
    settings = {"trend": "constant", "overlap": 0, "hyperparameters": "independent"}
    model = ManyGPRegressor(random_state=0, **settings).fit(X, np.sin(6 * X[:, 0]) + noise)
    assert len(model.model_.conformal_scores.places) > 1
    queries = np.linspace(0, 1, 7)[:, None]
    expected = [*model.predict_interval(queries, 0.8), model.predict_dist(queries).ppf(0.95)]
    model.save(tmp_path / "model.gp")
    same = load(tmp_path / "model.gp")
    found = [*same.predict_interval(queries, 0.8), same.predict_dist(queries).ppf(0.95)]
    assert_array_equal(found, expected)
    assert model.predict_dist(queries).dof.shape == (7,)
