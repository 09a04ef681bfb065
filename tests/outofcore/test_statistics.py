"""Sums over blocks: exact, and the same whatever the blocks are."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manygp.inputs import Moments
from manygp.outofcore.statistics import Statistics, exact_sum, fingerprint, row_hashes

floats = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_a_sum_has_no_rounding(values):
    assert exact_sum(np.array(values)) == sum(map(Fraction, values))


@settings(deadline=None)
@given(st.lists(floats, min_size=2, max_size=30), st.integers(1, 29))
def test_statistics_do_not_depend_on_the_blocks(values, cut):
    rows = np.column_stack([np.arange(len(values), dtype=float), values])
    numbers, targets = np.arange(len(rows)), np.array([1])
    whole = Statistics.of(numbers, rows, targets)
    pieces = [
        Statistics.of(numbers[i : i + cut], rows[i : i + cut], targets)
        for i in range(0, len(rows), cut)
    ]
    joined = Statistics.joined(pieces)
    assert (joined.n, joined.sums, joined.squares, joined.digest) == (
        whole.n, whole.sums, whole.squares, whole.digest,
    )  # fmt: skip
    assert whole.squares == (sum(Fraction(y) ** 2 for y in values),)
    for one, other in zip(joined.moments, whole.moments, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_the_scaling_is_that_of_rows_in_memory(scale):
    rng = np.random.default_rng(0)
    Y = scale * (3 + rng.normal(size=(500, 2)))
    found = Statistics.of(np.arange(500), Y, np.arange(2)).moments
    for one, other in zip(found, Moments.of(Y[:, :0], Y), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_a_constant_target_keeps_its_scale():
    Y = np.full((7, 1), 0.1)
    known = Statistics.of(np.arange(7), Y, np.array([0])).moments
    with pytest.warns(UserWarning, match="y is constant"):
        _, found = known.scalings(scale_X=True, scale_y=True)
    np.testing.assert_array_equal(found.half_scale, [0.5])


def test_a_fingerprint_changes_with_any_number_and_with_the_order():
    values = np.random.default_rng(0).random((20, 3))
    numbers = np.arange(20)
    before = fingerprint(numbers, values)
    for row in range(20):
        other = values.copy()
        other[row, 1] = np.nextafter(other[row, 1], 2)
        assert fingerprint(numbers, other) != before
    assert fingerprint(numbers, values[::-1]) != before


def test_hashes_of_rows_are_spread_evenly_and_differ_between_seeds():
    found = row_hashes(np.arange(100_000), 0)
    assert len(np.unique(found)) == 100_000
    counts = np.histogram(found / 2.0**64, 10, (0, 1))[0]
    assert np.all(np.abs(counts - 10_000) < 500)
    assert not np.any(found == row_hashes(np.arange(100_000), 1))
