"""Every kernel against the reference, scikit-learn and finite differences."""

from functools import partial

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

import reference
from kernel_cases import ARD, CASES, FIXED, rows
from manygp import kernels
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    White,
    additive,
    default_kernel,
    structured_kernel,
)
from manygp.kernels.base import Kernel, Pair, metric, split_noise
from manygp.kernels.sklearn_kernel import as_kernel

WITH_SKLEARN = [name for name, case in CASES.items() if case.sklearn is not None]
assert_equal = partial(np.testing.assert_allclose, rtol=0, atol=1e-10)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def leaves(kernel):
    return leaves(kernel.left) | leaves(kernel.right) if isinstance(kernel, Pair) else {kernel}


def test_every_kernel_of_the_catalogue_has_a_case():
    catalogue = {getattr(kernels, name) for name in kernels.__all__ if name[0].isupper()}
    abstract_or_pairs = {
        Kernel, kernels.NoisyKernel, kernels.Product, kernels.Stationary, kernels.Sum,
    }  # fmt: skip
    covered = {type(leaf) for case in CASES.values() for leaf in leaves(case.kernel)}
    assert covered == catalogue - abstract_or_pairs


def test_kernel_equals_the_reference(case):
    X, Z = rows(9, case.n_columns), rows(7, case.n_columns, seed=1)
    assert_equal(case.kernel(X), reference.covariance(case.k, X, [case.noise] * 9))
    assert_equal(case.kernel(X, Z), reference.gram(case.k, X, Z))


@pytest.mark.parametrize("name", WITH_SKLEARN)
def test_kernel_equals_scikit_learns(name):
    case = CASES[name]
    X, Z = rows(9, case.n_columns), rows(7, case.n_columns, seed=1)
    assert_equal(case.kernel(X), case.sklearn(X))
    assert_equal(case.kernel(X, Z), case.sklearn(X, Z))
    assert_equal(case.kernel.diag(X), case.sklearn.diag(X))


@pytest.mark.parametrize("name", WITH_SKLEARN)
def test_conversion_from_scikit_learn_gives_the_same_kernel(name):
    assert as_kernel(CASES[name].sklearn) == CASES[name].kernel


def test_cross_is_a_block_of_the_joint_matrix(case):
    X, Z = rows(9, case.n_columns), rows(7, case.n_columns, seed=1)
    joint = case.kernel(np.vstack([X, Z]))
    assert_equal(case.kernel(X, Z), joint[:9, 9:])


def test_diag_is_the_diagonal(case):
    X = rows(9, case.n_columns)
    assert_equal(case.kernel.diag(X), np.diag(case.kernel(X)))


def test_matrix_is_symmetric_and_positive_semidefinite(case):
    K = case.kernel(rows(30, case.n_columns))
    assert_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * len(K)


def test_pullback_equals_finite_differences_for_a_nonsymmetric_cotangent(case):
    X = rows(9, case.n_columns)
    K_bar = np.random.default_rng(2).normal(size=(9, 9))
    K_bar.flags.writeable = False
    theta, at, h = case.kernel.theta, case.kernel.with_theta, 1e-5
    expected = [
        np.sum(K_bar * (at(theta + step)(X) - at(theta - step)(X))) / (2 * h)
        for step in h * np.eye(len(theta))
    ]
    np.testing.assert_allclose(case.kernel.pullback(X, K_bar), expected, rtol=1e-6, atol=1e-7)


def test_theta_bounds_and_names_belong_together(case):
    kernel = case.kernel
    p = len(kernel.theta)
    assert kernel.theta.shape == (p,)
    assert kernel.bounds.shape == (p, 2)
    assert len(kernel.theta_names) == p
    assert kernel.pullback(rows(4, case.n_columns), np.ones((4, 4))).shape == (p,)


def test_with_theta_changes_the_free_hyperparameters_and_nothing_else(case):
    kernel = case.kernel
    moved = kernel.theta + np.linspace(0.1, 0.3, len(kernel.theta))
    other = kernel.with_theta(moved)
    np.testing.assert_allclose(other.theta, moved, rtol=1e-14)
    np.testing.assert_array_equal(other.bounds, kernel.bounds)
    assert other.theta_names == kernel.theta_names
    back = other.with_theta(kernel.theta)
    X = rows(5, case.n_columns)
    assert_equal(back(X), kernel(X))


@pytest.mark.parametrize("excess", [-1, 1])
@pytest.mark.parametrize("name", ["rbf", "rbf-ard", "signal-and-noise"])
def test_with_theta_refuses_a_theta_of_another_length(name, excess):
    kernel = CASES[name].kernel
    with pytest.raises(ValueError, match="theta"):
        kernel.with_theta(np.zeros(len(kernel.theta) + excess))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fixed-signal", ["RBF.length_scale[0]", "RBF.length_scale[1]", "RBF.length_scale[2]",
                          "White.variance"]),
        ("fixed-noise", ["RBF.length_scale"]),
        ("fixed-scale", ["RationalQuadratic.alpha"]),
        ("fixed-shape", ["RationalQuadratic.length_scale", "Periodic.period"]),
        ("fixed-period", ["Periodic.length_scale"]),
        ("all-fixed", []),
    ],
)  # fmt: skip
def test_fixed_parameters_are_not_in_theta(name, expected):
    assert CASES[name].kernel.theta_names == expected


STATIONARY = pytest.mark.parametrize(
    "name", ["rbf", "matern-0.5", "matern-1.5", "matern-2.5", "rational-quadratic"]
)


def two_clusters():
    """Rows whose distances are far larger between the clusters than inside them."""
    X = rows(20, 3).copy()
    X[::2] += 1e5
    return X


@STATIONARY
def test_kernel_is_accurate_between_clusters_many_length_scales_apart(name):
    case, X = CASES[name], two_clusters()
    np.testing.assert_allclose(case.kernel(X), case.sklearn(X), rtol=0, atol=1e-8)


@STATIONARY
def test_diagonal_of_a_stationary_kernel_is_exact_wherever_the_rows_lie(name):
    np.testing.assert_array_equal(np.diag(CASES[name].kernel(two_clusters())), np.ones(20))


def test_converted_kernel_equals_scikit_learns_on_several_columns():
    theirs, X = sk.ExpSineSquared(0.9, 1.3), rows(9, 3)
    assert_equal(as_kernel(theirs, 3)(X), theirs(X))


def test_bounds_may_differ_between_columns():
    pairs = ((0.1, 1.0), (0.2, 3.0), (0.5, 9.0))
    kernel = RBF(ARD, pairs) + White(0.1, (0.01, 1.0))
    np.testing.assert_allclose(np.exp(kernel.bounds), [*pairs, (0.01, 1.0)])
    converted = as_kernel(sk.RBF(ARD, [list(pair) for pair in pairs]))
    assert converted == RBF(ARD, pairs)
    assert as_kernel(sk.RBF(ARD, [(0.1, 9.0)] * 3)) == RBF(ARD, (0.1, 9.0))
    with pytest.raises(ValueError, match="or one per element"):
        RBF(ARD, pairs[:2])
    with pytest.raises(ValueError, match="must be 0 < low <= high"):
        RBF(ARD, (*pairs[:2], (2.0, 1.0)))


@pytest.mark.parametrize("name", ["rbf-ard", "matern-1.5-ard", "additive-2.5", "structured"])
def test_a_kernel_in_other_units_of_the_columns_is_the_same(name):
    case, scale = CASES[name], np.array([10.0, 0.3, 1.0])
    X = rows(9, 3)
    other = case.kernel.in_units(scale)
    assert_equal(other(X * scale), case.kernel(X))
    below, above = np.exp(other.bounds - case.kernel.bounds).T
    np.testing.assert_allclose(below, np.exp(other.theta - case.kernel.theta))
    np.testing.assert_allclose(above, below)
    huge = Matern(1.0, (1e-3, 1e3)).in_units(np.array([1e306, 1e-306]))
    assert np.all(np.isfinite(huge.length_scale_bounds))


def test_a_kernel_is_read_by_name():
    kernel = Constant(2.0) * RBF(ARD) + White(0.1, FIXED)
    parameters = kernel.get_params()
    assert parameters["left__right__length_scale"] == ARD
    assert parameters["right"] == White(0.1, FIXED)
    assert set(kernel.get_params(deep=False)) == {"left", "right"}
    assert kernel.k1.k2.length_scale == ARD
    assert [(one.name, one.n_elements, one.fixed) for one in kernel.hyperparameters] == [
        ("left__left__variance", 1, False),
        ("left__right__length_scale", 3, False),
        ("right__variance", 1, True),
    ]
    other = kernel.set_params(left__left__variance=3.0, right=White(0.5))
    assert other == Constant(3.0) * RBF(ARD) + White(0.5)
    assert kernel == Constant(2.0) * RBF(ARD) + White(0.1, FIXED)
    assert kernel.clone_with_theta(kernel.theta + 1) == kernel.with_theta(kernel.theta + 1)


def test_numbers_multiply_a_kernel_as_constants():
    assert 2.0 * RBF() == Constant(2.0) * RBF()
    assert RBF() * 2.0 == RBF() * Constant(2.0)


def test_splitting_off_the_noise_keeps_the_matrix(case):
    if isinstance(case.kernel, White):
        with pytest.raises(ValueError, match="only noise"):
            split_noise(case.kernel)
        return
    X = rows(6, case.n_columns)
    split = split_noise(case.kernel)
    assert isinstance(split.noise, White)
    assert split.noise.variance == case.noise
    assert not any(isinstance(leaf, White) for leaf in leaves(split.signal))
    assert_equal(split(X), case.kernel(X))


@pytest.mark.parametrize("kernel", [Linear() * White(), RBF() + White() * (RBF() + Linear())])
def test_noise_that_cannot_be_split_off_is_refused(kernel):
    with pytest.raises(ValueError, match=r"noise \(White\) by .*Linear.*differs between rows"):
        split_noise(kernel)


def test_one_length_scale_per_column_is_required_of_every_part():
    kernel = Constant() * (Linear() + RBF((1.0, 2.0)))
    kernel.check_columns(2)
    with pytest.raises(ValueError, match="RBF has 2 length-scales but X has 3"):
        kernel.check_columns(3)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Additive((1.0, 2.0)), "Additive has 2 length-scales but X has 3 columns"),
        (Pairwise(1.0, (1.0, 2.0)), "Pairwise has 2 variances but X has 3 columns"),
    ],
)
def test_one_number_per_column_is_required_of_kernels_of_columns(kernel, message):
    kernel.check_columns(2)
    with pytest.raises(ValueError, match=message):
        kernel.check_columns(3)


def test_pairs_of_one_column_are_refused():
    with pytest.raises(ValueError, match="Pairwise needs two columns or more"):
        (Additive() + Pairwise()).check_columns(1)


@pytest.mark.parametrize("kind", [Additive, Pairwise])
def test_blocks_of_rows_make_the_same_matrix(kind, monkeypatch):
    X, K_bar = rows(100, 3), np.random.default_rng(3).normal(size=(100, 100))
    kernel = kind((0.4, 0.9, 2.1), (0.5, 2.0, 0.02))
    K, gradient = kernel(X), kernel.pullback(X, K_bar)
    monkeypatch.setattr(additive, "BLOCK_NUMBERS", 1)
    assert_equal(kernel(X), K)
    assert_equal(kernel(X, X), K)
    np.testing.assert_allclose(kernel.pullback(X, K_bar), gradient, rtol=1e-10)


def test_metric_ignores_columns_without_variance():
    of_columns = metric(Additive((0.5, 0.1), (4.0, 1e-12)) + White(), 2)
    np.testing.assert_allclose(of_columns, [4.0, 1e-5])
    of_pairs = metric(Pairwise(0.5, (4.0, 1.0, 1e-12)), 3)
    np.testing.assert_allclose(of_pairs, [4.0, 4.0, 0.0], atol=1e-5)


@pytest.mark.parametrize("n_features", [2, 7])
def test_terms_of_the_structured_kernel_start_with_the_variance_of_two_targets(n_features):
    kernel = structured_kernel(n_features, np.linspace(0.1, 0.3, n_features))
    kernel.check_columns(n_features)
    np.testing.assert_allclose(kernel.left.diag(np.zeros((1, n_features))), 2.0)
    low, high = kernel.bounds.T
    assert np.all((low < kernel.theta) & (kernel.theta < high))


def test_structured_kernel_of_one_column_is_the_default():
    assert structured_kernel(1, 0.2) == default_kernel(1, 0.2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RBF(-1.0),
        lambda: Constant(0.0),
        lambda: White(np.nan),
        lambda: Linear(np.inf),
        lambda: RBF((1.0, 0.0)),
        lambda: RBF(1.0, (2.0, 1.0)),
        lambda: RBF(1.0, (0.0, 1.0)),
        lambda: RBF(1.0, "free"),
        lambda: Matern(nu=2.0),
        lambda: Additive(nu=2.0),
        lambda: Pairwise(1.0, (1.0, 0.0)),
    ],
)
def test_impossible_hyperparameters_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()
