"""Every assignment of rows to experts."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.cluster.vq import kmeans2

from manygp import paper
from manygp.committee import committee as partition
from manygp.committee.committee import PARTITION, PARTITIONS

N = 47
EVERY = pytest.mark.parametrize("name", PARTITIONS)
EQUAL_SIZES = pytest.mark.parametrize("name", ["balltree", "random"])
LOCAL = pytest.mark.parametrize("name", [name for name in PARTITIONS if name != "random"])
N_PARTS = pytest.mark.parametrize("n_parts", [1, 2, 5, 8, 30, N - 1, N])


def inputs():
    """Read-only X of N rows, by what is special about them."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(N, 3))
    found = {
        "normal": normal,
        "one-column": normal[:, :1],
        "fortran-order": np.asfortranarray(normal),
        "duplicate-rows": normal[np.arange(N) % 6],
        "constant": np.full((N, 2), 0.3),
        "constant-column": normal * [1.0, 0.0, 1.0],
        "outliers": normal * np.where(np.arange(N) % 9, 1.0, 1e6)[:, None],
        # Distinct, but their squared distances are 0.
        "nearly-equal": np.where(np.arange(N)[:, None] % 2, normal * 1e-200, 1.0),
    }
    for X in found.values():
        X.flags.writeable = False
    return found


INPUTS = inputs()
EVERY_INPUT = pytest.mark.parametrize("kind", INPUTS)


def parts_of(name, X, n_parts, seed=0):
    return PARTITIONS[name](X, n_parts, np.random.default_rng(seed))


def sizes(parts):
    return np.array([len(part) for part in parts])


@EVERY
@EVERY_INPUT
@N_PARTS
def test_parts_are_disjoint_cover_the_data_and_are_not_empty(name, kind, n_parts):
    parts = parts_of(name, INPUTS[kind], n_parts)
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    assert sizes(parts).min() > 0
    assert all(np.issubdtype(part.dtype, np.integer) for part in parts)


@EVERY
@EVERY_INPUT
def test_parts_depend_on_the_generator_and_on_nothing_else(name, kind):
    first = parts_of(name, INPUTS[kind], 5)
    np.random.seed(1)  # noqa: NPY002 (the global state must have no influence)
    second = parts_of(name, INPUTS[kind], 5)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert_array_equal(one, other)


@EQUAL_SIZES
@EVERY_INPUT
@N_PARTS
def test_sizes_differ_by_at_most_one(name, kind, n_parts):
    parts = parts_of(name, INPUTS[kind], n_parts)
    assert len(parts) == n_parts
    assert np.ptp(sizes(parts)) <= 1


@EVERY
def test_one_row_is_one_part(name):
    (part,) = parts_of(name, np.zeros((1, 2)), 1)
    assert_array_equal(part, [0])


@EVERY
def test_another_generator_gives_other_parts(name):
    X = np.random.default_rng(0).normal(size=(200, 2))
    first, second = (parts_of(name, X, 9, seed) for seed in (0, 1))
    assert {tuple(part) for part in first} != {tuple(part) for part in second}


@LOCAL
@pytest.mark.parametrize("n_blobs", [2, 4])
def test_blobs_far_apart_are_the_parts(name, n_blobs):
    rng = np.random.default_rng(0)
    blob = rng.permutation(np.repeat(np.arange(n_blobs), 20))
    X = 100.0 * blob[:, None] + rng.normal(size=(20 * n_blobs, 2))
    found = {tuple(part) for part in parts_of(name, X, n_blobs)}
    assert found == {tuple(np.flatnonzero(blob == b)) for b in range(n_blobs)}


@LOCAL
def test_parts_are_tighter_than_random_ones(name):
    X = np.random.default_rng(0).uniform(size=(600, 2))

    def spread(parts):
        return sum(X[part].var(axis=0).sum() * len(part) for part in parts) / len(X)

    assert spread(parts_of(name, X, 13)) < 0.4 * spread(parts_of("random", X, 13))


def uneven(kind):
    """X and n_parts whose plain k-means clusters are of the wrong sizes."""
    rng = np.random.default_rng(0)
    if kind == "tiny":  # lone rows far away from two blobs
        blobs = rng.normal(size=(200, 2)) + np.repeat([[0.0, 0.0], [50.0, 0.0]], 100, axis=0)
        return np.concatenate([blobs, 1e3 * rng.normal(size=(6, 2))]), 8
    if kind == "oversized":  # nine in ten rows are in a tight blob
        far = np.repeat(1e3 * rng.normal(size=(9, 2)), 10, axis=0) + rng.normal(size=(90, 2))
        return np.concatenate([1e-3 * rng.normal(size=(900, 2)), far]), 10
    return np.repeat(rng.normal(size=(12, 2)), [1] * 11 + [200], axis=0), 12  # one row 200 times


def plain_kmeans_sizes(X, n_parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = kmeans2(X, n_parts, minit="++", rng=np.random.default_rng(0))[1]
    return np.bincount(labels, minlength=n_parts)


@pytest.mark.parametrize("kind", ["tiny", "oversized", "repeated"])
def test_kmeans_mends_clusters_of_the_wrong_size(kind):
    X, n_parts = uneven(kind)
    mean_size = len(X) / n_parts

    def wrong(sizes):
        small, large = (
            PARTITION.smallest_cluster * mean_size,
            PARTITION.largest_cluster * mean_size,
        )
        return (sizes < max(1.0, small)) | (sizes > large)

    assert np.any(wrong(plain_kmeans_sizes(X, n_parts))), "the data no longer make k-means fail"
    parts = partition.kmeans(X, n_parts, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(X)))
    assert not np.any(wrong(sizes(parts)))


def test_kmeans_leaves_out_empty_clusters_and_sends_tiny_ones_to_the_nearest_centre(monkeypatch):
    centres = np.array([[0.0], [10.0], [12.0], [12.1]])  # many rows, many, one, none
    labels = np.repeat([0, 1, 2], [30, 30, 1])
    X = centres[labels] + np.linspace(0, 0.1, 61)[:, None]
    monkeypatch.setattr("scipy.cluster.vq.kmeans2", lambda X, k, **_: (centres, labels.copy()))
    first, second = partition.kmeans(X, 4, np.random.default_rng(0))
    assert_array_equal(first, np.arange(30))
    assert_array_equal(second, np.arange(30, 61))


def test_kmeans_cuts_an_oversized_cluster_along_its_widest_column():
    rng = np.random.default_rng(0)
    line = np.column_stack([rng.uniform(0, 1, 190), rng.uniform(0, 0.01, 190)])
    far = np.array([[1e3, 1e3], [-1e3, 1e3], [1e3, -1e3], [-1e3, -1e3]])
    X = np.concatenate([line, np.repeat(far, 5, axis=0)])
    parts = partition.kmeans(X, 5, np.random.default_rng(0))
    inside = sorted((X[part, 0].min(), X[part, 0].max()) for part in parts if part[0] < 190)
    assert len(inside) > 1
    assert all(high <= low for (_, high), (low, _) in pairwise(inside))


def test_one_part_holds_all_rows_whatever_is_asked_for():
    (part,) = paper.one_part(INPUTS["normal"], 5, np.random.default_rng(0))
    assert_array_equal(part, np.arange(N))


def test_full_parts_hold_all_rows_and_are_one_array():
    parts = paper.full_parts(INPUTS["normal"], 5, np.random.default_rng(0))
    assert len(parts) == 5
    assert_array_equal(parts[0], np.arange(N))
    assert all(part is parts[0] for part in parts), "the same array is fitted once"


@pytest.mark.parametrize("n_parts", [129, 200, 1000])
def test_many_clusters_are_parts_of_similar_size_that_hold_each_row_once(n_parts):
    X = np.random.default_rng(0).normal(size=(5000, 3))
    parts = partition.kmeans(X, n_parts, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(5000))
    assert abs(len(parts) - n_parts) <= 0.1 * n_parts
    assert max(map(len, parts)) <= 1 + 2 * partition.PARTITION.largest_cluster * 5000 / n_parts
    again = partition.kmeans(X, n_parts, np.random.default_rng(0))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_many_clusters_are_as_compact_as_few():
    """Their rows are nearer to the centre than those of random parts by as much as k-means'."""
    X = np.random.default_rng(0).uniform(size=(6000, 2))

    def spread(parts):
        return sum(((X[part] - X[part].mean(axis=0)) ** 2).sum() for part in parts)

    many = partition.kmeans(X, 150, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = kmeans2(X, 150, minit="++", rng=np.random.default_rng(0))[1]
    plain = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    assert spread(many) < 1.2 * spread(plain)


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_many_parts_of_rows_that_are_mostly_equal(share):
    X = np.random.default_rng(0).normal(size=(2000, 2))
    X[: int(share * 2000)] = 1.0
    parts = partition.kmeans(X, 200, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(2000))
