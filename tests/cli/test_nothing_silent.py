"""The command line says what it does with odd tables, and does what it says."""

import json
import warnings

import numpy as np
import pytest

from manygp import ManyGPRegressor, load, metrics
from manygp.kernels import Matern, White

pytest.importorskip("click")
pytest.importorskip("rich")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pandas = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("interruptible")
RNG = np.random.default_rng(0)
SMALL = ("--label", "bt-ent-c", "--points-per-expert", 100, "--jobs", 1)


def frame(n):
    a, b = RNG.random((2, n))
    return pandas.DataFrame({"a": a, "b": b, "y": np.sin(6 * a) + b + 0.1 * RNG.normal(size=n)})


TRAIN, TEST = frame(100), frame(40)


def invoke(*arguments):
    from click.testing import CliRunner

    from manygp.cli import main

    result = CliRunner().invoke(main, [str(one) for one in arguments], prog_name="manygp")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    TRAIN.to_csv(folder / "train.csv", index=False)
    TEST.to_csv(folder / "test.csv", index=False)
    invoke("fit", folder / "train.csv", "--target", "y", "-o", folder / "m", *SMALL)
    return folder


def test_predict_copies_parquet_columns_with_their_own_types(folder, tmp_path):
    kept = {
        "id": pyarrow.array([2**53 + 1, 2**53, *[None] * 38]),
        "when": pyarrow.array(range(40), pyarrow.timestamp("us", "Europe/Berlin")),
    }
    table = pyarrow.table({**kept, "a": TEST.a.to_numpy(), "b": TEST.b.to_numpy()})
    pyarrow.parquet.write_table(table, tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    invoke("predict", folder / "m", tmp_path / "new.parquet", "-o", out, "--keep", "id,when")
    answers = pyarrow.parquet.read_table(out)
    assert answers.select(list(kept)).equals(table.select(list(kept)))


@pytest.mark.parametrize(
    ("options", "name"),
    [(("--quantiles", "0.1,0.1"), "q0.1"), (("--keep", "a,a"), "a"), (("--keep", "mean"), "mean")],
)
def test_two_columns_of_answers_never_have_one_name(folder, options, name):
    result = invoke("predict", folder / "m", folder / "test.csv", *options)
    assert result.exit_code == 2
    assert f"two columns called {name}" in result.stderr


def test_quantiles_that_differ_have_names_that_differ(folder):
    levels = "0.1234567,0.12345671"
    result = invoke("predict", folder / "m", folder / "test.csv", "--quantiles", levels)
    assert result.stdout.startswith("mean,std,lower,upper,q0.1234567,q0.12345671\n")


def test_quantiles_and_intervals_are_of_one_kind(folder, tmp_path):
    out = tmp_path / "out.csv"
    levels = ("--quantiles", "0.05,0.95,0.3")
    invoke("predict", folder / "m", folder / "test.csv", "-o", out, "--coverage", 0.9, *levels)
    answers = pandas.read_csv(out)
    np.testing.assert_array_equal(answers[["q0.05", "q0.95"]], answers[["lower", "upper"]])
    assert (answers["q0.05"] < answers["q0.3"]).all()
    assert (answers["q0.3"] < answers["mean"]).all()


@pytest.mark.parametrize("options", [("--coverage", 0.999), ("--quantiles", "0.0005")])
def test_a_coverage_that_rows_cannot_promise_has_a_remedy(folder, options):
    result = invoke("predict", folder / "m", folder / "test.csv", *options)
    assert result.exit_code == 1
    assert "ask for less, or fit at least 999 rows" in result.stderr


def test_evaluate_says_which_rows_are_training_rows(folder, tmp_path):
    new = invoke("evaluate", folder / "m", folder / "test.csv", "--json")
    assert new.stderr == ""
    assert json.loads(new.stdout)["training_rows"] == 0
    pandas.concat([TRAIN.head(30), TEST]).to_csv(tmp_path / "mixed.csv", index=False)
    mixed = invoke("evaluate", folder / "m", tmp_path / "mixed.csv", "--json")
    assert json.loads(mixed.stdout)["training_rows"] == 30
    assert "30 of 70 rows are training rows, which tell nothing about others" in mixed.stderr
    every = invoke("evaluate", folder / "m", folder / "train.csv")
    assert "all 100 rows are training rows" in every.stderr


def test_evaluate_scores_the_distribution_and_the_intervals(folder, tmp_path):
    scores = json.loads(invoke("evaluate", folder / "m", folder / "test.csv", "--json").stdout)
    model = ManyGPRegressor.load(folder / "m")
    X, y = TEST[["a", "b"]], TEST.y.to_numpy()
    distribution, (lower, upper) = model.predict_dist(X), model.predict_interval(X, coverage=0.9)
    assert scores["log_score"] == pytest.approx(metrics.log_score(y, distribution))
    assert scores["crps_of_distribution"] == pytest.approx(metrics.crps(y, distribution))
    assert scores["width"] == pytest.approx((upper - lower).mean())
    misses = np.where(y < lower, lower - y, np.where(y > upper, y - upper, 0.0))
    assert scores["interval_score"] == pytest.approx((upper - lower + 20 * misses).mean())
    printed = invoke("evaluate", folder / "m", folder / "test.csv").stdout
    for words in ("log score", "of the intervals, mean", "misses times 20"):
        assert words in printed


def check(tmp_path, table, *options):
    table.to_csv(tmp_path / "table.csv", index=False)
    return invoke("check", tmp_path / "table.csv", "--target", "y", *options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": ["x", "z", "w", "v"] * 25, "a=x": TRAIN.b}, "encoded column is called a=x"),
        ({"a": TRAIN.a.mask(TRAIN.a < 0.2), "a (missing)": TRAIN.b}, "called a (missing)"),
        ({"y": TRAIN.y * 1e-310}, "column 'y' varies by"),
    ],
)
def test_check_refuses_what_fit_refuses(tmp_path, change, words):
    table = TRAIN.assign(**change)
    assert words in check(tmp_path, table).stderr
    assert check(tmp_path, table).exit_code == 1
    fit = invoke("fit", tmp_path / "table.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    assert fit.exit_code == 1


def test_check_notices_columns_that_teach_nothing_or_too_much(tmp_path):
    table = TRAIN.assign(
        nothing=1.0, copy=TRAIN.a, leak=TRAIN.y**3, other="x", again=["u", "v"] * 50
    )
    table["mirror"] = table["again"].map({"u": "p", "v": "q"})
    done = check(tmp_path, table, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["notices"] == [
        "column 'nothing' is constant: it teaches nothing",
        "column 'leak' tells the target 'y' exactly: is it known before? If not, leave it out",
        "column 'other' is constant: it teaches nothing",
        "columns 'a' and 'copy' say the same: one is enough",
        "columns 'again' and 'mirror' say the same: one is enough",
    ]
    group = TRAIN.assign(town=list("uvwxy") * 20)
    group["y"] = group["town"].map(dict(zip("uvwxy", [3.0, 1.0, 2.0, 7.0, 0.0], strict=True)))
    assert "Note: column 'town' tells the target" in check(tmp_path, group).stdout
    assert "Note" not in check(tmp_path, TRAIN).stdout


def test_check_notices_a_constant_target(tmp_path):
    assert "the target 'y' is constant" in check(tmp_path, TRAIN.assign(y=2.5)).stdout


def test_the_target_is_no_column_of_its_noise(folder, tmp_path):
    names = ("--target", "y", "--noise-column", "y")
    result = invoke("fit", folder / "train.csv", *names, "-o", tmp_path / "m")
    assert result.exit_code == 1
    assert "'y' cannot be both the target and the column of its noise" in result.stderr


@pytest.mark.parametrize("column", ["b", "y"])
def test_integers_of_400_digits_are_refused_in_one_line(folder, tmp_path, column):
    table = TRAIN.astype({column: object})
    table[column] = "1" * 400
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = invoke("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m")
    assert "100 of 100 values have no finite size" in fit.stderr
    command = "evaluate" if column == "y" else "predict"
    answered = invoke(command, folder / "m", tmp_path / "t.csv")
    assert answered.exit_code == 1
    assert "is too large for a float" in answered.stderr


def test_a_single_row_has_no_score(tmp_path):
    TRAIN.head(1).to_csv(tmp_path / "one.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        fit = invoke("fit", tmp_path / "one.csv", "--target", "y", "-o", tmp_path / "m", "--json")
    assert "one row tells nothing about errors" in fit.stderr
    left_out = json.loads(fit.stdout)["left_out"]
    assert left_out.pop("rows") == 1
    assert set(left_out.values()) == {None}


def test_options_say_what_columns_hold(tmp_path):
    table = TRAIN.assign(zip=[f"{i % 4:03}" for i in range(100)], year=[1990, 1991] * 50)
    table.to_csv(tmp_path / "t.csv", index=False)
    data = ("check", tmp_path / "t.csv", "--target", "y", "--json")

    def kinds(*options):
        columns = json.loads(invoke(*data, *options).stdout)["columns"]
        return {one["name"]: one["kind"] for one in columns if one["name"] in ("zip", "year")}

    assert kinds() == {"zip": "category", "year": "number"}
    options = ("--category", "year", "--number", "zip")
    assert kinds(*options) == {"zip": "number", "year": "category"}
    fit = invoke("fit", *data[1:4], "-o", tmp_path / "m", *options, *SMALL, "--json")
    assert fit.exit_code == 0
    encoder = ManyGPRegressor.load(tmp_path / "m").encoder_
    assert {one.name: one.kind for one in encoder.columns_}["year"] == "category"


def test_a_value_missing_at_predict_only_is_served_in_python_as_here(folder, tmp_path):
    gaps = TEST[["a", "b"]].copy()
    gaps.loc[3, "b"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    invoke("predict", folder / "m", tmp_path / "gaps.csv", "-o", tmp_path / "out.csv")
    answers = pandas.read_csv(tmp_path / "out.csv")
    model = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=100, random_state=0)
    model.fit(TRAIN[["a", "b"]], TRAIN.y)
    mean, std = model.predict(gaps, return_std=True)
    np.testing.assert_allclose(mean, answers["mean"], rtol=1e-6)
    np.testing.assert_allclose(std, answers["std"], rtol=1e-6)
    assert std[3] > 2 * np.median(std)
    with pytest.raises(ValueError, match="contains NaN, first in column 'b', row 3"):
        model.set_params(columns="numeric").predict(gaps)


def test_missing_targets_are_counted_in_a_file_and_refused_with_the_remedy_in_an_array(tmp_path):
    table = TRAIN.assign(y=TRAIN.y.mask(TRAIN.index < 3))
    table.to_csv(tmp_path / "t.csv", index=False)
    model = ManyGPRegressor(Matern(nu=2.5) + White(0.1), optimizer=None)
    with pytest.warns(UserWarning, match="rows without a value of 'y' are left out: 3"):
        model.fit(tmp_path / "t.csv", target="y")
    from_file = model.predict(TRAIN[["a", "b"]])
    X, y = table[["a", "b"]], table.y
    message = "first in row 0; rows without a target teach nothing, 3 of"
    with pytest.raises(ValueError, match=message) as told:
        model.fit(X, y)
    remedy = str(told.value).partition("leave them out with ")[2]
    names = {"np": np, "X": X, "y": y, "fit": model.fit}
    for line in remedy.split(" and "):
        exec(line, names)
    np.testing.assert_array_equal(model.predict(TRAIN[["a", "b"]]), from_file)
    several = y.to_numpy()[:, None] * [1.0, 2.0]
    with pytest.raises(ValueError, match=r"np.isfinite\(y\).all\(axis=1\)"):
        model.fit(X, several)


def test_a_file_with_categories_that_came_twice_keeps_its_row_numbers(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x},{'abc'[i % 3]},{x + i % 3}" for i, x in enumerate(rng.normal(size=40))]
    (tmp_path / "t.csv").write_text("\n".join(["x,k,y", *rows[:10], *rows]) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        told = invoke("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m.manygp")
    assert told.exit_code == 0
    assert "10 rows are copies" in told.stderr
    loaded = load(tmp_path / "m.manygp")
    assert loaded.row_ids_.tolist() == list(range(10, 50))
