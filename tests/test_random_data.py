"""What holds for random data of every kind: `MANYGP_FITS=2000 make test-slow` for 2,000 fits."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest

from manygp import ManyGPRegressor, load

FITS_EACH = 4
N_CASES = int(os.environ.get("MANYGP_FITS", "300")) // FITS_EACH
COLUMNS = {
    "uniform": lambda rng, n: rng.uniform(size=n),
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda _, n: np.full(n, 3.0),
    "huge": lambda rng, n: 1e12 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-12 * rng.normal(size=n),
    "few values": lambda rng, n: rng.integers(0, 3, n).astype(float),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
}
TARGETS = {
    "noise": lambda rng, Z: rng.normal(size=len(Z)),
    "smooth": lambda _, Z: np.sin(2 * Z[:, 0]) + Z.sum(axis=1),
    "noisy": lambda rng, Z: np.sin(2 * Z[:, 0]) + 0.3 * rng.normal(size=len(Z)),
    "step": lambda rng, Z: (Z[:, 0] > 0) + 0.1 * rng.normal(size=len(Z)),
    "heavy tails": lambda rng, Z: Z[:, 0] + rng.standard_t(2, len(Z)),
}


def random_case(seed):
    """Rows, targets and rows to ask about."""
    rng = np.random.default_rng(seed)
    n = int(np.exp(rng.uniform(np.log(5), np.log(500)))) if seed % 10 == 0 else rng.integers(5, 80)
    names = rng.choice(list(COLUMNS), rng.integers(1, 7))
    X = np.column_stack([COLUMNS[name](rng, n + 10) for name in names])
    if rng.random() < 0.2:
        X = np.column_stack([X, X[:, 0]])
    if rng.random() < 0.3:
        X[: n // 3] = X[n // 3 : 2 * (n // 3)]
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    kinds = rng.choice(list(TARGETS), 2 if rng.random() < 0.2 else 1)
    Y = np.column_stack([TARGETS[kind](rng, Z) for kind in kinds])
    y = Y[:, 0] if len(kinds) == 1 else Y
    if rng.random() < 0.2:
        X = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    return X[:n], y[:n], X[n:]


def some(X, rows):
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def answers(X, y, queries, **parameters):
    """A fitted model, and its mean and std of the queries."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        model = ManyGPRegressor(random_state=0, **parameters).fit(X, y)
    return model, *model.predict(queries, return_std=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_CASES))
def test_what_holds_for_data_of_every_kind(seed, tmp_path):
    X, y, queries = random_case(seed)
    model, mean, std = answers(X, y, queries)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std))
    assert np.all(std > 0)
    one_mean, one_std = model.predict(some(queries, [0]), return_std=True)
    np.testing.assert_allclose(one_mean[0], mean[0], rtol=1e-9, atol=1e-9 * std.max())
    np.testing.assert_allclose(one_std[0], std[0], rtol=1e-9)
    model.save(tmp_path / "model.manygp")
    np.testing.assert_array_equal(load(tmp_path / "model.manygp").predict(queries), mean)
    _assert_nested(model, queries)
    order = np.random.default_rng(seed).permutation(len(y))
    _, other, _ = answers(some(X, order), y[order], queries)
    assert np.all(np.abs(other - mean) < 0.1 * std), "the order of rows"
    _, other, _ = answers(X, 8 * y + 5, queries)
    digits = 1e-8 * np.ptp(y, axis=0)  # adding 5 rounds y, as a std of no noise may show
    assert np.all(np.abs(other - (8 * mean + 5)) < 0.1 * 8 * std + digits), "units of y"
    _, other, _ = answers(X, y, queries, n_jobs=2)
    np.testing.assert_array_equal(other, mean)


def _assert_nested(model, queries):
    lower, upper = model.predict_interval(queries, 0.5)
    wide_lower, wide_upper = model.predict_interval(queries, 0.8)
    assert np.all(wide_lower <= lower)
    assert np.all(upper <= wide_upper)
