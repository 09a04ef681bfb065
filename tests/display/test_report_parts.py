"""What a report says about columns, slices and rows is what the data hold."""

import re
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from manygp import ManyGPRegressor, answers
from manygp.display import write_report
from manygp.display.charts import number
from manygp.display.report import are_training_rows, effects, trust
from manygp.display.report.columns import Inputs, sources_of, training_inputs
from manygp.display.report.rows import Target, left_out_set, target_names
from manygp.display.report.trust import slices_of
from manygp.storage.model_file import read_model, write_model
from manygp.tables.frames import as_batch

SMALL = {
    "points_per_expert": 75, "hyperparameters": "shared", "overlap": 0, "temperature": 1.0,
    "calibration": "none", "routing": 2, "trend": "none", "random_state": 0,
}  # fmt: skip
N = 300


def houses(seed=0):
    """The price depends on the colour most, on the size, and a little on all else."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["blue", "green", "red"], N),
            "size": rng.uniform(20, 200, N),
            "age": np.where(rng.random(N) < 0.2, np.nan, rng.uniform(0, 99, N)),
            "town": rng.choice([f"town {k:02}" for k in range(25)], N),
            "sold": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 1000, N), "D"),
        }
    )
    price = 3.0 * (frame["colour"] == "red") + frame["size"] / 100 + rng.normal(0, 0.1, N)
    return frame, price.to_numpy().copy()


@pytest.fixture(scope="module")
def model():
    return ManyGPRegressor(**SMALL).fit(*houses()).model_


@pytest.fixture(scope="module")
def sources(model):
    return sources_of(model)


def test_features_belong_to_the_columns_that_they_came_from(model, sources):
    assert [one.name for one in sources] == ["colour", "size", "age", "town", "sold"]
    owned = [model.names[one.place] for one in sources]
    assert owned[0] == ("colour=blue", "colour=green", "colour=red")
    assert owned[2] == ("age", "age (missing)")
    assert owned[3] == ("town (mean)",)
    assert "sold (year, sin)" in owned[4]
    assert sum(map(len, owned)) == model.n_columns


def test_columns_of_an_array_have_names_too():
    X, y = np.random.default_rng(0).random((2, 30))
    fitted = ManyGPRegressor(random_state=0).fit(X[:, None], y).model_
    (source,) = sources_of(fitted)
    assert source.name == "x0"
    assert source.is_number


def test_relevance_of_a_column_is_the_sum_of_its_features(model):
    of_features = answers.feature_relevance(model)
    of_columns = answers.relevance(model, 0.9)
    assert of_columns.column == ("colour", "size", "age", "town", "sold")
    assert of_columns.total.sum() == pytest.approx(0.9)
    assert len(of_features.total) > 5
    assert of_columns.total[0] == pytest.approx(0.9 * of_features.total[:3].sum())
    assert of_columns.total.argmax() == 0


def test_values_of_rows_are_read_back_from_their_features(model, sources):
    frame, _ = houses()
    rows = training_inputs(model).some(np.arange(50))
    colour, size, age, town, sold = (one.words(rows) for one in sources)
    assert colour == frame["colour"][:50].tolist()
    assert [word == "missing" for word in age] == frame["age"][:50].isna().tolist()
    np.testing.assert_allclose([float(word) for word in size], frame["size"][:50], rtol=0.01)
    assert town == frame["town"][:50].tolist()
    unknown = Inputs(rows.X)  # as of a file of manygp 0.2
    assert set(sources[3].words(unknown)) == {"-"}
    assert sold == frame["sold"][:50].dt.strftime("%Y-%m-%d").tolist()


def test_effects_are_averages_of_predictions_with_one_column_changed(model, sources):
    inputs = training_inputs(model)
    X = inputs.X
    relevance = answers.relevance(model, 0.9)
    found = {
        one.change.title: one for one in effects.effects_of(model, sources, relevance, inputs)
    }
    assert next(iter(found)) == "colour"
    colour = found["colour"]
    assert colour.change.words == ["blue", "green", "red"]
    rows = X[np.random.default_rng(0).permutation(N)[: effects.EFFECTS.moved_rows]].copy()
    rows[:, :3] = [0, 0, 1]
    mean, std = answers.predict(model, rows, latent=True)
    assert colour.mean[2, 0] == pytest.approx(mean.mean())
    assert colour.std[2, 0] == pytest.approx(std.mean())
    assert colour.mean[2, 0] - colour.mean[0, 0] == pytest.approx(3, abs=0.5)
    size = found["size"]
    assert (np.diff(size.mean[:, 0]) > 0).mean() > 0.8
    assert 20 < size.change.x.min() < size.change.x.max() < 200


def test_effects_cost_a_bounded_number_of_predictions(model, sources, monkeypatch):
    asked = []
    predict = answers.predict
    monkeypatch.setattr(
        answers, "predict", lambda model, X, **k: asked.append(len(X)) or predict(model, X, **k)
    )
    effects.effects_of(model, sources, answers.relevance(model, 0.9), training_inputs(model))
    most = effects.EFFECTS.columns[0] * effects.EFFECTS.places * effects.EFFECTS.moved_rows
    assert 0 < sum(asked) <= most


def test_many_categories_are_drawn_from_the_lowest_mean_to_the_highest(sources):
    town = sources[3]
    (change,) = effects.changes_of(town, Inputs(np.zeros((1, 10))))
    assert len(change.x) == len(change.words) == effects.EFFECTS.categories
    assert (np.diff(change.features[:, 0]) >= 0).all()
    means = np.array(town.column.means[0])
    assert change.features[[0, -1], 0].tolist() == [means.min(), means.max()]


def test_slices_are_by_std_prediction_numbers_categories_and_the_worst_region(model, sources):
    rows = left_out_set(model, target_names(model, ()))
    groups = slices_of(rows, rows.scored[0], sources)
    worst = "In the region where intervals hold least"
    by = ["std", "prediction", "size", "age", "sold", "colour", "town"]
    assert list(groups) == [*(f"By {name}" for name in by), worst]
    assert 2 < len(groups["By std"]) <= 10
    assert len(groups["By prediction"]) == 5
    assert len(groups["By town"]) == trust.TRUST.categories
    for name in ("By std", "By prediction", "By size", "By age", "By sold", "By colour"):
        held = np.sum([one.rows for one in groups[name]], axis=0)
        assert (held == 1).all()  # each row is in one slice
    assert [one.name for one in groups["By colour"]] == ["blue", "green", "red"]
    frame, _ = houses()
    np.testing.assert_array_equal(groups["By colour"][2].rows, frame["colour"] == "red")


def test_missing_values_are_a_slice(model, sources):
    rows = left_out_set(model, target_names(model, ()))
    found = slices_of(rows, rows.scored[0], [sources[2]])["By age"]
    assert found[-1].name == "missing"
    assert found[-1].rows.sum() == houses()[0]["age"].isna().sum()


def test_training_rows_are_told_from_others(model):
    frame, y = houses()
    X, codes = encoded(model, frame)
    assert are_training_rows(model, X, y, codes).all()
    assert not are_training_rows(model, X, y + 1e-3, codes).any()
    other, other_y = houses(seed=1)
    X, codes = encoded(model, other)
    assert not are_training_rows(model, X, other_y, codes).any()


def encoded(model, frame):
    batch = as_batch(frame)
    return model.encoder.encode(batch).X, model.encoder.codes(batch)


def test_rows_that_differ_in_a_wide_category_only_are_not_training_rows(model):
    frame, y = houses()
    moved = frame.assign(
        town=frame["town"].map(lambda town: f"town {(int(town[5:]) + 1) % 25:02}")
    )
    X, codes = encoded(model, moved)
    assert not are_training_rows(model, X, y, codes).any()


def test_repeated_rows_and_missing_values_of_wide_categories_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    towns = np.array([f"town {k:02}" for k in range(25)], dtype=object)
    frame = pd.DataFrame({"town": rng.choice(towns, 200), "rooms": rng.integers(1, 3, 200)})
    frame.loc[:6, "town"] = None
    frame["rooms"] = frame["rooms"].astype(float)
    y = frame["rooms"].to_numpy() + rng.normal(0, 0.1, 200)
    model = ManyGPRegressor(random_state=0).fit(frame, y)
    html = page_of(model, tmp_path)
    n = 200 - len(frame.drop_duplicates())
    assert f"{n} rows ({n / 2:.1f}%) repeat the columns of another row." in html
    assert "Values are missing: town in 7 rows." in html


def test_what_is_known_of_wide_categories_is_saved_with_the_model(model, tmp_path):
    write_model(tmp_path / "a.manygp", model)
    loaded = read_model(tmp_path / "a.manygp")
    np.testing.assert_array_equal(loaded.encoder.codes_, model.encoder.codes_)
    frame, y = houses()
    X, codes = encoded(loaded, frame)
    assert are_training_rows(loaded, X, y, codes).all()


def test_a_time_is_drawn_as_its_course_and_its_cycles_apart(model, sources):
    sold, rows = sources[4], training_inputs(model)
    course, *cycles = effects.changes_of(sold, rows)
    assert course.title == "sold: over time"
    assert course.places == [sold.place.start]  # the cycles stay as they are
    assert [one.title for one in cycles] == ["sold: within a year", "sold: within a week"]
    year, week = cycles
    names = [model.names[k] for k in year.places]
    assert names == ["sold (year, sin)", "sold (year, cos)"]
    days = [model.names[k] for k in week.places]
    assert days == [f"sold (weekday, {one})" for one in effects.WEEKDAYS]
    assert [effects._word(week, k) for k in range(7)] == list(effects.WEEKDAYS)
    assert (pd.Timestamp("1970-01-01") + pd.Timedelta(days=week.x[0])).day_name() == "Monday"
    assert [effects._word(year, k) for k in (0, -1)] == ["01-01", "01-01"]
    np.testing.assert_array_equal(week.features, np.eye(7))


@pytest.mark.parametrize(
    ("name", "unit"),
    [("speed [m/s]", "m/s"), ("mass (kg)", "kg"), ("price", ""), ("f(x) of y", ""), ("", "")],
)
def test_units_stand_in_brackets_at_the_end_of_a_name(name, unit):
    assert Target.of(name).unit == unit


def page_of(model, tmp_path, **options):
    write_report(model, tmp_path / "page.html", **options)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_worst_rows_are_named_with_their_numbers_and_values(tmp_path):
    frame, y = houses()
    y[[16, 122]] += [40.0, -30.0]
    model = ManyGPRegressor(**SMALL).fit(frame, y)
    html = page_of(model, tmp_path)
    table = html.split("<h3>Largest errors</h3>")[1].split("</table>")[0]
    lines = [re.findall("<t[dh][^>]*>(.*?)</t[dh]>", line) for line in table.split("<tr>")[1:]]
    assert lines[0][:5] == ["row", "actual", "predicted", "std", "z"]
    assert [line[0] for line in lines[1:3]] == ["17", "123"]
    assert float(lines[1][1]) == pytest.approx(y[16], abs=0.5)
    assert lines[1][4].startswith("+")
    assert lines[2][4].startswith("−")
    assert frame["colour"][16] in lines[1]


def test_rows_beyond_the_training_rows_are_counted(tmp_path):
    from manygp.display import Tested

    rng = np.random.default_rng(0)
    X = rng.random((100, 2))
    model = ManyGPRegressor(**SMALL).fit(X, X.sum(axis=1))
    new = rng.uniform(0.2, 0.8, (50, 2))
    new[:3, 0], new[5, 1] = 1.7, -4.0
    mean, std = model.predict(new, return_std=True)
    ends = model.predict_interval(new, 0.9)
    tested = Tested(new.sum(axis=1), mean, std, *ends, 0.9, "new.csv", new)
    html = page_of(model, tmp_path, tested=tested)
    assert "4 of 50 rows (8.0%) have a value outside of the range of the training rows." in html
    section = html.split("Where does the model extrapolate?</h2>")[1].split("</section>")[0]
    lines = [re.findall("<td>(.*?)</td>", line) for line in section.split("<tr>")[2:]]
    found = {line[0]: line[3:] for line in lines}
    assert found["x0"] == ["0", "3", "1.7"]
    assert found["x1"] == ["1", "0", "−4"]


def test_noise_alone_is_said_to_be_near_the_prior(tmp_path):
    rng = np.random.default_rng(0)
    model = ManyGPRegressor(random_state=0).fit(rng.random((60, 1)), rng.normal(size=60))
    html = page_of(model, tmp_path)
    (n,) = re.findall(r"(\d+) of 60 rows [^ ]* have a std of at least 90% of the std of y", html)
    assert int(n) > 40


def test_slices_whose_ends_read_the_same_are_one():
    values = np.r_[np.full(50, 0.2040), np.full(51, 0.2041), np.full(100, 0.3)]
    found = trust._by_quantiles(values, 10, number)
    assert [one.name for one in found] == ["0.204 to 0.3"]
    assert found[0].rows.all()


def test_categories_that_cannot_be_are_refused_with_the_file(model, tmp_path):
    path = tmp_path / "a.manygp"
    for wrong in (model.encoder.codes_ + 25, model.encoder.codes_[1:]):
        encoder = copy(model.encoder)
        encoder.codes_ = wrong
        with pytest.raises(ValueError, match="categor"):
            write_model(path, replace(model, encoder=encoder))
    assert not path.exists()


def test_a_region_where_intervals_fail_is_named(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((600, 2))
    noise = np.where(X[:, 1] > 0.7, 1.5, 0.1)  # that the model does not see
    y = np.sin(6 * X[:, 0]) + noise * rng.normal(size=600)
    fitted = ManyGPRegressor(**SMALL).fit(X, y).model_
    rows = left_out_set(fitted, target_names(fitted, ()))
    groups = slices_of(rows, rows.scored[0], sources_of(fitted))
    (worst,) = groups["In the region where intervals hold least"]
    assert re.search(r"x1 above 0\.(69|7)", worst.name)
    assert (X[worst.rows, 1] > 0.65).all()
    (line,) = re.findall(rf">{worst.name}</span>.*?(\d+\.\d%)( low)?", page_of(fitted, tmp_path))
    assert line[1] == " low"
