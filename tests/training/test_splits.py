"""Rows are left out by group or by time, and what a model promises then holds for these."""

import numpy as np
import pandas as pd
import pytest

import manygp
from manygp import ManyGPRegressor
from manygp.tables import TableEncoder
from manygp.training.splits import by_group, by_time, group_numbers, moments_of


def people(n_groups, each=5, seed=0):
    """Rows of people, whose effects two of the columns can tell apart."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), each)
    own = rng.uniform(size=(n_groups, 2))
    X = np.column_stack([rng.uniform(size=(len(groups), 2)), own[groups]])
    effects = 0.7 * rng.normal(size=n_groups)
    y = np.sin(4 * X[:, 0]) + X[:, 1] + effects[groups] + 0.3 * rng.normal(size=len(groups))
    return X, y, groups


def fitted(X, y, n_jobs=1, **given):
    model = ManyGPRegressor(trend="constant", random_state=0, n_jobs=n_jobs)
    return model.fit(X, y, **given)


@pytest.fixture(scope="module")
def grouped():
    X, y, groups = people(34, each=6)
    return fitted(X, y, groups=groups), (X, y, groups)


def test_what_is_promised_holds_for_new_groups(grouped):
    model, (X, y, _) = grouped
    by_row = fitted(X, y)
    new, y_new, _ = people(500, seed=1)

    def gap(one):
        mean, std = one.predict(new, return_std=True)
        got = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_new - mean) / std) ** 2)
        return got - one.loo_score()["nll"]

    assert gap(model) < 0.2 < gap(by_row)
    lower, upper = model.predict_interval(new)
    assert np.mean((lower <= y_new) & (y_new <= upper)) > 0.85


def test_left_out_rows_are_predicted_without_their_group(grouped):
    model, (X, y, groups) = grouped
    mean, std = model.loo_predict()
    assert mean.shape == std.shape == y.shape
    score = model.loo_score()
    assert score["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    one = np.flatnonzero(groups == 7)
    np.testing.assert_array_equal(model.loo_predict(one)[0], mean[one])
    # Nothing of a person's own effect is known.
    effect = y - np.sin(4 * X[:, 0]) - X[:, 1]
    assert np.corrcoef(mean - np.sin(4 * X[:, 0]) - X[:, 1], effect)[0, 1] < 0.3


def test_the_file_of_a_grouped_model_says_the_same(grouped, tmp_path):
    model, (X, _, _) = grouped
    model.save(tmp_path / "model.manygp")
    loaded = manygp.load(tmp_path / "model.manygp")
    np.testing.assert_array_equal(loaded.loo_predict(), model.loo_predict())
    np.testing.assert_array_equal(loaded.predict_interval(X[:9]), model.predict_interval(X[:9]))
    with pytest.raises(ValueError, match="fitted with groups"):
        loaded.partial_fit(X[:1], [0.0])


def test_the_names_of_groups_and_the_jobs_do_not_matter():
    X, y, groups = people(4, each=3)
    names = np.array([f"person {one}" for one in groups])
    one, other = fitted(X, y, groups=groups), fitted(X, y, n_jobs=2, groups=names)
    np.testing.assert_array_equal(other.predict(X[:20]), one.predict(X[:20]))


def test_folds_hold_whole_groups_and_about_as_many_rows():
    groups = np.repeat(np.arange(23), np.arange(1, 24))
    splits = by_group(groups)
    sizes = []
    for known, asked in splits.pairs:
        assert not set(groups[known]) & set(groups[asked])
        assert len(known) + len(asked) == len(groups)
        sizes.append(len(asked))
    assert max(sizes) - min(sizes) <= 23


def test_the_past_is_known_and_equal_times_stay_together():
    time = np.random.default_rng(0).integers(0, 12, size=200)
    splits = by_time(time.astype(float))
    for known, asked in splits.pairs:
        assert time[known].max() < time[asked].min()
    asked = np.concatenate([one for _, one in splits.pairs])
    assert len(set(asked)) == len(asked) > 80
    assert np.all(np.diff(splits.together[asked[np.argsort(time[asked], kind="stable")]]) >= 0)


@pytest.mark.parametrize(
    "time",
    [
        pd.Series(pd.date_range("2020-01-01", periods=4)),
        pd.Series(pd.date_range("2020-03-28", periods=4, freq="24h", tz="Europe/Berlin")),
        np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]),
        [pd.Timestamp(f"2020-01-0{k}") for k in range(1, 5)],
        [1, 2, 3, 4],
        2**62 + np.arange(4),
    ],
)
def test_times_are_dates_text_or_numbers(time):
    moments = moments_of(time, 4)
    assert np.ptp(np.diff(moments)) == 0 < moments[1] - moments[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": [1, 2]}, "groups must have one value for each of the 6 rows"),
        ({"groups": ["a", None, "b", "c", "d", "e"]}, "groups has no value in row 1"),
        ({"groups": np.ones(6)}, "one group only"),
        ({"time": np.zeros(6)}, "tell early rows from late ones"),
        ({"time": [1, 2, 3, np.nan, 5, 6]}, "time has no value in row 3"),
        ({"time": ["a", "b", "c", "d", "e", "f"]}, "numbers, or dates such as"),
        ({"time": np.arange(6), "groups": np.arange(6)}, "groups or time, not both"),
        ({"time": np.arange(6) + 1j}, "numbers, or dates such as"),
        ({"time": np.ma.masked_less(np.arange(6), 2)}, "time is a masked array"),
        ({"groups": np.ma.masked_less(np.arange(6), 2)}, "groups is a masked array"),
        ({"groups": [{}] * 6}, "groups has no value in row 0"),
        ({"groups": ["a", pd.NA, "b", "c", "d", "e"]}, "groups has no value in row 1"),
        ({"sample_weight": np.ma.masked_less(np.arange(6), 2)}, "sample_weight is a masked"),
        ({"sample_weight": np.arange(6) + 1j}, "sample_weight must be"),
        ({"alpha": np.ma.masked_less(np.arange(6), 2)}, "alpha is a masked array"),
    ],
)
def test_bad_groups_and_times_are_named(given, message):
    X = np.arange(6.0)[:, None]
    with pytest.raises(ValueError, match=message):
        ManyGPRegressor().fit(X, np.sin(X[:, 0]), **given)


def test_missing_groups_are_named():
    assert group_numbers(pd.Series(["b", "a", "b"]), 3).tolist() == [0, 1, 0]
    assert group_numbers([1, "1", (1,), 2**53, 2**53 + 1, 0.5], 6).tolist() == [*range(6)]
    assert group_numbers(pd.Series([pd.Timestamp(0)] * 2), 2).tolist() == [0, 0]
    with pytest.raises(ValueError, match="row 1"):
        group_numbers(pd.Series([pd.Timestamp(0), pd.NaT]), 2)
    with pytest.raises(ValueError, match="row 2"):
        group_numbers(pd.Series([1.0, 2.0, np.nan]), 3)


def test_the_future_is_doubted_where_the_past_has_drifted():
    rng = np.random.default_rng(2)
    n = 120
    X = np.column_stack([np.arange(n) / n, rng.uniform(size=(n, 2))])
    walk = np.cumsum(rng.normal(size=n)) * 2 / np.sqrt(n)
    y = np.sin(4 * X[:, 1]) + walk + 0.3 * rng.normal(size=n)
    model, by_row = fitted(X, y, time=X[:, 0]), fitted(X, y)
    assert model.loo_score()["rmse"] > 1.3 * by_row.loo_score()["rmse"]
    with pytest.raises(ValueError, match="no earlier ones"):
        model.loo_predict([0])
    assert model.loo_predict([n - 1])[0].shape == (1,)


def test_a_category_of_one_group_tells_nothing_about_others():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 4)
    y = np.repeat(rng.normal(size=30), 4) + 0.1 * rng.normal(size=120)
    town = [f"town {one % 12}" for one in groups]
    table = pd.DataFrame({"person": [f"p{one}" for one in groups], "town": town})
    encoder = TableEncoder()
    own, towns = encoder.fit_transform(table, y, groups=groups).T
    assert np.ptp(own) == 0
    assert np.ptp(towns) > 0
    for one in range(30):  # no target of a person is in the code of that person's town
        assert np.ptp(towns[groups == one]) == 0


def test_weights_of_zero_leave_groups_out():
    X, y, groups = people(4, each=4)
    weights = np.where(groups < 3, 1.0, 0.0)
    given = {"sample_weight": weights, "groups": groups}
    model = fitted(X, y, **given)
    assert len(model.loo_predict()[0]) == 12
