"""The tree that sorts rows into groups of neighbours."""

import numpy as np
import pytest

from manygp.outofcore.groups import grow


def with_lots(U, seed=0):
    return np.column_stack([U, np.random.default_rng(seed).random(len(U))])


@pytest.mark.parametrize("n_groups", [1, 2, 3, 7, 16])
def test_groups_hold_about_as_many_rows_each_of_the_sample_and_of_others(n_groups):
    rng = np.random.default_rng(0)
    tree = grow(with_lots(rng.random((4000, 3))), n_groups)
    assert tree.n_groups == n_groups
    sizes = np.bincount(tree.group_of(with_lots(rng.random((40_000, 3)))), minlength=n_groups)
    assert np.all(np.abs(sizes * n_groups / 40_000 - 1) < 0.3)


def test_the_group_of_a_row_does_not_depend_on_others():
    rng = np.random.default_rng(0)
    tree, U = grow(with_lots(rng.random((500, 2))), 9), with_lots(rng.random((100, 2)))
    alone = [tree.group_of(row[None])[0] for row in U]
    np.testing.assert_array_equal(tree.group_of(U), alone)


def test_rows_that_are_all_equal_are_spread_by_lot():
    tree = grow(with_lots(np.zeros((1000, 2))), 8)
    sizes = np.bincount(tree.group_of(with_lots(np.zeros((8000, 2)), 1)), minlength=8)
    assert sizes.min() > 700


def test_half_of_the_rows_being_equal_makes_no_giant_group():
    rng = np.random.default_rng(0)
    U = rng.random((4000, 2))
    U[:2000] = 0.5
    sizes = np.bincount(grow(with_lots(U), 16).group_of(with_lots(U)), minlength=16)
    assert sizes.max() < 3 * 4000 / 16


def test_fewer_rows_than_groups_have_fewer_groups():
    tree = grow(with_lots(np.arange(3.0)[:, None]), 8)
    assert tree.n_groups == 3
