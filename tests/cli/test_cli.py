"""The command line: the whole way, what it refuses and how, and what an end leaves behind."""

import csv
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")

import click
import click.testing
import pyarrow
import pyarrow.parquet

import large
import manygp
from manygp import ManyGPRegressor, metrics
from manygp.cli import main
from manygp.storage import container
from manygp.tables.base import BATCH_ROWS
from manygp.training.checkpoint import FITS
from memory import MEASURABLE, PEAK_BYTES

RNG = np.random.default_rng(0)
SMALL = ("--points-per-expert", 100, "--label", "bt-ent-c", "--jobs", 1)
ANSWERS = ["mean", "std", "lower", "upper"]
pytestmark = pytest.mark.usefixtures("interruptible")


def table(n):
    a, b = RNG.random((2, n))
    return {"a": a, "b": b, "y": np.sin(6 * a) + b + 0.1 * RNG.normal(size=n)}


TRAIN, TEST = table(300), table(80)


def write_csv(path, columns):
    """Numbers as `repr` writes them, which lose nothing."""
    rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read_csv(text):
    header, *lines = text.splitlines()
    assert header.split(",") == ANSWERS
    return np.array([[float(field) for field in line.split(",")] for line in lines]).T


def invoke(arguments):
    runner = click.testing.CliRunner()
    return runner.invoke(main, [str(argument) for argument in arguments], prog_name="manygp")


def run(*arguments):
    """A command that does what it is asked to."""
    result = invoke(arguments)
    if result.exception:
        raise result.exception
    assert result.exit_code == 0
    return result


def refused(*arguments, code=1):
    """What a command says that fails: one line if the data or a file is at fault."""
    result = invoke(arguments)
    if not isinstance(result.exception, SystemExit):  # which would be a traceback
        raise result.exception
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    message = result.stderr
    if code == 2:
        usage, _, message = message.partition("\n\n")
        assert usage.startswith("Usage: manygp")
    (line,) = message.splitlines()
    assert line.startswith("Error: ")
    return line


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with train.csv, test.csv, and two models: of the paper, and the default one."""
    folder = tmp_path_factory.mktemp("made")
    write_csv(folder / "train.csv", TRAIN)
    write_csv(folder / "test.csv", TEST)
    fit = ("fit", folder / "train.csv", "--target", "y")
    run(*fit, "-o", folder / "model.manygp", *SMALL)
    run(*fit, "-o", folder / "default.manygp", "--points-per-expert", 100, "--jobs", 1)
    return folder


@pytest.fixture(scope="module")
def paper():
    """The same model from Python."""
    model = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=100, random_state=0)
    return model.fit(*inputs(TRAIN))


def inputs(columns):
    return np.column_stack([columns["a"], columns["b"]]), columns["y"]


def answers_of(model, coverage=0.9):
    X, _ = inputs(TEST)
    mean_and_std = model.predict(X, return_std=True)
    return np.array([*mean_and_std, *model.predict_interval(X, coverage)])


# The whole way


def test_fit_says_what_it_did_and_how_good_it_is(made, tmp_path):
    result = run("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    first, second, *scores = result.stdout.splitlines()
    assert re.fullmatch(r".*/m: 300 rows, 2 columns, 3 experts, \d+\.\d+ s", first)
    assert second == "Scores of 300 training rows, each left out:"
    assert [line.split()[0] for line in scores] == ["RMSE", "NLL", "ENCE", "CRPS", "90%"]
    assert result.stderr == ""
    assert (tmp_path / "m").read_bytes() == (made / "model.manygp").read_bytes()
    assert files(tmp_path) == ["m"]


def test_the_model_in_the_file_is_the_one_from_python(made, paper):
    loaded = manygp.load(made / "model.manygp")
    assert list(loaded.feature_names_in_) == ["a", "b"]
    X, _ = inputs(TEST)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    for ours, theirs in zip(loaded.predict(frame, True), paper.predict(X, True), strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet", "-"])
@pytest.mark.parametrize("coverage", [0.9, 0.5])
def test_predict_gives_the_numbers_of_python_bit_for_bit(made, paper, tmp_path, name, coverage):
    output = name if name == "-" else tmp_path / name
    arguments = ("predict", made / "model.manygp", made / "test.csv", "--coverage", coverage)
    result = run(*arguments, "-o", output)
    if name.endswith("parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
        found = parquet.read_table(output)
        assert found.column_names == ANSWERS
        found = np.array([column.to_numpy() for column in found.columns])
    elif name == "-":
        found = read_csv(result.stdout)
        assert run(*arguments).stdout == result.stdout
    else:
        opened = gzip.open if name.endswith("gz") else open
        with opened(output, "rt") as file:
            found = read_csv(file.read())
    assert_array_equal(found, answers_of(paper, coverage))
    assert result.stderr == ""
    assert name == "-" or result.stdout.startswith(f"{output}: 80 rows, mean std ")
    assert name == "-" or files(tmp_path) == [name]


def test_columns_are_matched_by_name_whatever_else_there_is(made, tmp_path):
    shuffled = {"note": ["x"] * 80, "b": TEST["b"], "empty": [""] * 80, "a": TEST["a"]}
    data = write_csv(tmp_path / "shuffled.csv", shuffled)
    model = made / "model.manygp"
    assert run("predict", model, data).stdout == run("predict", model, made / "test.csv").stdout


@pytest.mark.parametrize("kind", ["csv.gz", "parquet"])
def test_the_same_table_in_another_format_gives_the_same_model_and_answers(made, tmp_path, kind):
    for name in ("train", "test"):
        if kind == "csv.gz":
            packed = gzip.compress((made / f"{name}.csv").read_bytes())
            (tmp_path / f"{name}.{kind}").write_bytes(packed)
        else:
            frame = pytest.importorskip("pandas").DataFrame({"train": TRAIN, "test": TEST}[name])
            frame.to_parquet(tmp_path / f"{name}.{kind}")
    model = tmp_path / "model.manygp"
    run("fit", tmp_path / f"train.{kind}", "--target", "y", "-o", model, *SMALL)
    assert model.read_bytes() == (made / "model.manygp").read_bytes()
    expected = run("predict", model, made / "test.csv").stdout
    assert run("predict", model, tmp_path / f"test.{kind}").stdout == expected


def test_evaluate_scores_as_python_does(made, paper, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("evaluate", made / "model.manygp", made / "test.csv")
    facts = json.loads(run(*arguments, "--json", "--report", page).stdout)
    mean, std, lower, upper = answers_of(paper)
    y, distribution = TEST["y"], paper.predict_dist(np.column_stack([TEST["a"], TEST["b"]]))
    outside = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    expected = {
        "model": str(made / "model.manygp"),
        "data": str(made / "test.csv"),
        "rows": 80,
        "level": 0.9,
        "training_rows": 0,
        "rmse": metrics.rmse(y, mean),
        "nll": metrics.nll(y, mean, std),
        "ence": metrics.ence(y, mean, std),
        "crps": metrics.crps(y, mean, std),
        "r2": pytest.approx(metrics.r2(y, mean, float(np.mean(TRAIN["y"])))),
        "log_score": metrics.log_score(y, distribution),
        "crps_of_distribution": metrics.crps(y, distribution),
        "within_90": metrics.coverage(y, mean, std),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
        "width": float((upper - lower).mean()),
        "interval_score": pytest.approx(float((upper - lower + 20 * outside).mean())),
    }
    assert facts == expected
    assert list(facts) == list(expected)
    assert "<html" in page.read_text()
    assert "test.csv" in page.read_text()
    assert files(tmp_path) == ["page.html"]
    shown = run(*arguments, "--target", "y", "--coverage", 0.5).stdout.splitlines()
    assert shown[0] == f"Scores of 80 rows of {made / 'test.csv'}:"
    assert shown[-3].startswith("  interval ")
    assert shown[-3].endswith("within lower and upper (of 0.5)")
    assert shown[-4].startswith("  90% by std ")
    assert f"  RMSE        {expected['rmse']:.4g}" in shown


def test_a_report_of_the_training_table_is_the_page_that_fit_writes(made, tmp_path):
    model, page = tmp_path / "m.manygp", tmp_path / "page.html"
    run("fit", made / "train.csv", "--target", "y", "-o", model, *SMALL, "--report", page)
    shown = run("report", model, made / "train.csv").stdout
    again = tmp_path / "m.html"  # beside the model, by default
    assert shown == f"{again}: 300 rows, all of them training rows, each left out\n"
    assert again.read_bytes() == page.read_bytes()
    assert "A model of y" in page.read_text()
    assert files(tmp_path) == ["m.html", "m.manygp", "page.html"]


def test_a_report_of_new_rows_scores_these_and_no_training_rows(made, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("report", made / "model.manygp", made / "test.csv", "-o", page)
    assert run(*arguments, "--coverage", 0.8).stdout == f"{page}: 80 rows\n"
    assert "80 rows of test.csv" in page.read_text()
    assert "Intervals of 80%" in page.read_text()
    both = {name: np.r_[TRAIN[name][:20], TEST[name]] for name in TRAIN}
    data = write_csv(tmp_path / "both.csv", both)
    shown = run("report", made / "model.manygp", data, "-o", page).stdout
    assert shown == f"{page}: 80 rows, without 20 training rows\n"
    assert "80 rows of both.csv (without 20 training rows)" in page.read_text()
    evaluated = tmp_path / "evaluated.html"
    run("evaluate", made / "model.manygp", data, "--report", evaluated)
    assert evaluated.read_bytes() == page.read_bytes()
    assert files(tmp_path) == ["both.csv", "evaluated.html", "page.html"]


def test_new_rows_of_other_categories_are_scored_and_have_their_numbers_in_the_file(tmp_path):
    towns = [f"town {k:02}" for k in range(20)]
    place = np.arange(200) % 20
    columns = {"town": np.array(towns)[place], "rooms": np.ones(200), "y": place % 4 + 0.0}
    train = write_csv(tmp_path / "train.csv", columns)
    model, page = tmp_path / "m.manygp", tmp_path / "page.html"
    run("fit", train, "--target", "y", "-o", model, *SMALL)
    other = {**columns, "town": np.array(towns)[(place + 4) % 20], "rooms": np.full(200, 2.0)}
    other["rooms"][:40] = 1.0  # the same number and target, another town with them
    other["town"][:40] = "a new town"
    other["y"] = [("" if k < 3 else str(value)) for k, value in enumerate(other["y"])]
    shown = run("report", model, write_csv(tmp_path / "new.csv", other), "-o", page).stdout
    assert shown == f"{page}: 197 rows\n"
    numbers = re.findall(r"<tr><td>(\d+)</td>", page.read_text())
    assert numbers
    assert min(map(int, numbers)) > 3
    assert "a new town" not in page.read_text()
    assert ">unknown</td>" in page.read_text()


def test_a_report_without_true_values_says_which_column_is_missing(made, tmp_path):
    model = made / "model.manygp"
    data = write_csv(tmp_path / "new.csv", {"a": TEST["a"], "b": TEST["b"], "truth": TEST["y"]})
    line = refused("report", model, data, "-o", tmp_path / "page.html")
    assert f"{data} has no column 'y', the target of {model}" in line
    assert "--target" in line
    assert files(tmp_path) == ["new.csv"]
    run("report", model, data, "-o", tmp_path / "page.html", "--target", "truth")
    assert "A model of y" in (tmp_path / "page.html").read_text()


def test_a_report_needs_no_extra(made, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = tmp_path / "page.html"
    run("report", made / "model.manygp", made / "test.csv", "-o", page)
    assert "<svg" in page.read_text()


def test_another_column_can_be_the_target_and_few_rows_have_no_ence(made, tmp_path):
    data = {"a": TEST["a"][:5], "b": TEST["b"][:5], "truth": TEST["y"][:5]}
    few = write_csv(tmp_path / "few.csv", data)
    arguments = ("evaluate", made / "model.manygp", few, "--target", "truth")
    facts = json.loads(run(*arguments, "--json").stdout)
    assert facts["rows"] == 5
    assert facts["ence"] is None
    assert re.search(r"ENCE +-\n", run(*arguments).stdout)


def test_fit_in_json_has_the_same_keys_always(made, tmp_path):
    arguments = ("fit", made / "train.csv", "--target", "y", *SMALL, "--json")
    page = tmp_path / "page.html"
    facts = json.loads(run(*arguments, "-o", tmp_path / "m", "--report", page).stdout)
    keys = ["model", "rows", "columns", "experts", "trend", "seconds", "left_out"]
    assert list(facts) == [*keys, "left_out_by"]
    scores = ["rows", "rmse", "nll", "ence", "crps", "within_90"]
    assert list(facts["left_out"]) == scores
    assert facts["columns"] == ["a", "b"]
    assert facts["rows"] == facts["left_out"]["rows"] == 300
    assert files(tmp_path) == ["m", "page.html"]


def test_info_tells_what_a_file_holds(made):
    facts = json.loads(run("info", made / "default.manygp", "--json").stdout)
    assert list(facts) == [
        "model", "bytes", "schema", "manygp", "rows", "target", "columns", "features", "experts",
        "trend", "nearest", "kernel", "chosen", "parameters",
    ]  # fmt: skip
    assert facts["bytes"] == (made / "default.manygp").stat().st_size
    assert (facts["rows"], facts["experts"]) == (300, 3)
    assert (facts["target"], facts["columns"]) == ("y", ["a", "b"])
    assert facts["manygp"] == manygp.__version__
    assert facts["parameters"]["points_per_expert"] == 100
    shown = run("info", made / "default.manygp").stdout.splitlines()
    assert [line.split()[0] for line in shown] == list(facts)
    assert "columns     2: a, b" in shown
    assert "kernel      Constant * Matern(nu=2.5) + White" in shown
    assert json.loads(run("info", made / "model.manygp", "--json").stdout)["chosen"] is None


def test_verify_asks_the_model(made):
    assert run("verify", made / "model.manygp").stdout.endswith(
        "model.manygp: as it was written; 3 experts, 300 rows\n"
    )
    facts = json.loads(run("verify", made / "model.manygp", "--json").stdout)
    assert facts == {"model": str(made / "model.manygp"), "ok": True}


SIGNATURES = {
    "png": b"\x89PNG",
    "svg": b"<?xml",
    "pdf": b"%PDF",
    "PNG": b"\x89PNG",
    "": b"\x89PNG",
}


@pytest.mark.parametrize("suffix", SIGNATURES)
def test_a_plot_is_of_the_kind_that_its_name_says(made, tmp_path, suffix):
    output = tmp_path / f"plot.{suffix}".rstrip(".")
    run("plot", made / "model.manygp", made / "test.csv", "-o", output)
    assert output.read_bytes().startswith(SIGNATURES[suffix])
    assert files(tmp_path) == [output.name]


def test_every_kind_of_plot_is_drawn(made, tmp_path):
    curve = tmp_path / "curve.manygp"
    data = write_csv(tmp_path / "t.csv", {r"no $\frac$ mathematics": TRAIN["a"], "y": TRAIN["y"]})
    run("fit", data, "--target", "y", "-o", curve, *SMALL)
    pictures = {
        "left out": run("plot", made / "model.manygp", "-o", tmp_path / "0.png"),
        "chosen": run(
            "plot", made / "default.manygp", "--kind", "calibration", "-o", tmp_path / "1.png"
        ),
        "curve": run("plot", curve, "--kind", "posterior", "-o", tmp_path / "2.png"),
    }
    assert all(result.output == "" for result in pictures.values())
    assert len({(tmp_path / f"{i}.png").read_bytes() for i in range(3)}) == 3


def test_posterior_and_calibration_say_why_they_cannot_be_drawn(made, tmp_path):
    output = ("-o", tmp_path / "plot.png")
    kinds = {"posterior": "drawn for one column; .* has 2", "calibration": "has chosen nothing"}
    for kind, message in kinds.items():
        line = refused("plot", made / "model.manygp", "--kind", kind, *output)
        assert re.search(message, line)
        data = (made / "test.csv", "--kind", kind)
        line = refused("plot", made / "model.manygp", *data, *output, code=2)
        assert "about the model alone" in line
    assert files(tmp_path) == []


# What is learned from


def test_columns_are_chosen_and_dropped(made, tmp_path):
    model = tmp_path / "m"
    more = {"id": np.arange(300), **TRAIN, "late": TRAIN["b"] ** 2}
    data = write_csv(tmp_path / "more.csv", more)
    fit = ("fit", data, "--target", "y", "-o", model, *SMALL)
    run(*fit, "--column", "b", "--column", "a")
    assert manygp.load(model).feature_names_in_.tolist() == ["b", "a"]
    for dropped in (("--drop", "id", "--drop", "late"), ("--drop", "id, late")):
        run(*fit, *dropped)
        assert model.read_bytes() == (made / "model.manygp").read_bytes()
    run(*fit)
    assert manygp.load(model).feature_names_in_.tolist() == ["id", "a", "b", "late"]


def test_a_message_names_a_column_with_a_comma_as_an_option_takes_it(tmp_path):
    odd = {"size, m": np.arange(300), 'a "b"': [f"id {i}" for i in range(300)], **TRAIN}
    data = tmp_path / "odd.csv"
    with data.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(odd)
        writer.writerows(zip(*odd.values(), strict=True))
    told = invoke(["check", data, "--target", "y"]).stdout
    option = shlex.split(re.search("leave it out [(](--drop .*)[)]", told)[1])
    assert option == ["--drop", '"a ""b"""']
    result = run("check", data, "--target", "y", *option, "--drop", '"size, m",a')
    assert [row.split()[0] for row in result.stdout.splitlines()[2:-1]] == ["b", "y"]


def test_without_a_name_the_model_is_called_as_its_table(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    data = write_csv(tmp_path / "data" / "train.2024.csv", TRAIN)
    fit = ("fit", "data/train.2024.csv", "--target", "y", *SMALL)
    run(*fit)
    assert files(tmp_path) == ["data", "train.2024.manygp"]
    assert (tmp_path / "train.2024.manygp").read_bytes() == (made / "model.manygp").read_bytes()
    assert "train.2024.manygp is there already; pass -o" in refused(*fit)
    zipped = tmp_path / "data" / "zipped.csv.gz"
    zipped.write_bytes(gzip.compress(data.read_bytes()))
    run("fit", zipped, "--target", "y", *SMALL)
    assert files(tmp_path) == ["data", "train.2024.manygp", "zipped.manygp"]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """A table of categories and dates, and a model of it."""
    folder = tmp_path_factory.mktemp("encoded")
    colours = np.array(["blue", "green", "red"])[np.arange(300) % 3]
    days = (np.datetime64("2024-01-01") + np.arange(300)).astype(str)
    columns = {"a": TRAIN["a"], "colour": colours, "day": days, "y": TRAIN["y"]}
    write_csv(folder / "train.csv", columns)
    fit = ("fit", folder / "train.csv", "--target", "y", "-o", folder / "m", *SMALL)
    run(*fit)
    return folder


def test_categories_and_dates_are_encoded(encoded):
    week = [f"day (weekday, {one})" for one in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    names = ["a", "colour=blue", "colour=green", "colour=red", "day", *week]
    facts = json.loads(run("info", encoded / "m", "--json").stdout)
    assert (facts["columns"], facts["features"]) == (["a", "colour", "day"], names)
    model = manygp.load(encoded / "m")
    assert model.feature_names_in_.tolist() == ["a", "colour", "day"]
    pandas = pytest.importorskip("pandas")
    days = pandas.to_datetime(["2024-01-11", "2024-01-12"])
    frame = pandas.DataFrame({"a": [0.5, 0.25], "colour": ["green", "red"], "day": days})
    mean, std = model.predict(frame, return_std=True)
    new = encoded / "new.csv"
    new.write_text("colour,day,a\ngreen,2024-01-11,0.5\nred,2024-01-12T00:00:00Z,0.25\n")
    found = read_csv(run("predict", encoded / "m", new).stdout)
    assert_array_equal(found[:2], [mean, std])


def test_an_unknown_category_or_date_is_answered_or_named_with_its_place(encoded):
    new = encoded / "unknown.csv"
    new.write_text("colour,day,a\ngreen,2024-01-11,0.5\npink,2024-01-12,0.25\ngreen,,\n")
    result = run("predict", encoded / "m", new)
    assert np.isfinite(read_csv(result.stdout)).all()
    assert "1 row with missing values, 1 row with unknown categories" in result.stderr
    line = refused("predict", encoded / "m", new, "--unknown", "error")
    assert "column 'colour', row 2 (line 3): 'pink' is not one of the 3 known categories" in line
    line = refused("predict", encoded / "m", new, "--missing", "error")
    assert "column 'a', row 3 (line 4): the value is missing" in line
    new.write_text("colour,day,a\ngreen,tomorrow,0.5\n")
    line = refused("predict", encoded / "m", new)
    assert "column 'day', row 1 (line 2): 'tomorrow' is not a date" in line


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--label", "gp-full"], {"overlap": 0, "hyperparameters": "independent"}),
        (["--label", "bt-ent-c", "--points-per-expert", 75], {"points_per_expert": 75}),
        (["--time-budget", 60, "--points-per-expert", 150], {"time_budget": 60.0}),
        (["--label", "bt-ent", "--random-state", 3], {"random_state": 3, "calibration": "none"}),
    ],
)
def test_options_of_fit_are_parameters_of_the_model(made, tmp_path, options, parameters):
    run("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", "--jobs", 1, *options)
    found = json.loads(run("info", tmp_path / "m", "--json").stdout)["parameters"]
    assert parameters.items() <= found.items()


def test_a_kernel_is_given_as_text(made, tmp_path):
    text = "2.0 * Matern((0.5, 0.5), nu=1.5) + White(0.1)"
    fit = ("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    run(*fit, "--kernel", text)
    kernel = manygp.load(tmp_path / "m").kernel
    model = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=100, random_state=0)
    model.set_params(kernel=kernel).fit(*inputs(TRAIN))
    expected = answers_of(model)
    found = read_csv(run("predict", tmp_path / "m", made / "test.csv").stdout)
    assert_array_equal(found, expected)


def test_a_terminal_shows_more_and_the_file_is_the_same(made, tmp_path, monkeypatch):
    """There the plan is announced, with estimates that are never the same."""
    stream = click.testing._NamedTextIOWrapper
    monkeypatch.setattr(stream, "isatty", lambda self: True, raising=False)
    result = run("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    assert "manygp: 300 rows; experts of 100 rows" in result.stderr
    assert (tmp_path / "m").read_bytes() == (made / "model.manygp").read_bytes()
    predict = ("predict", made / "model.manygp", made / "test.csv")
    assert "80 rows" in run(*predict, "-o", tmp_path / "out.csv").stderr
    both = run(*predict)  # a bar would stand among the answers
    assert both.stderr == ""
    assert len(both.stdout.splitlines()) == 81


# Models from Python


def test_a_model_of_a_named_table_works_here_too(made, paper, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = inputs(TRAIN)
    model = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=100, random_state=0)
    path = tmp_path / "m"
    model.fit(pandas.DataFrame(X, columns=["a", "b"]), y).save(path)
    found = read_csv(run("predict", path, made / "test.csv").stdout)
    assert_array_equal(found, answers_of(paper))
    assert json.loads(run("info", path, "--json").stdout)["target"] is None
    line = refused("evaluate", path, made / "test.csv")
    assert "does not know the name of its target; pass --target" in line
    run("evaluate", path, made / "test.csv", "--target", "y")


def test_a_model_without_names_is_refused_where_a_table_has_to_be_matched(made, paper, tmp_path):
    path = tmp_path / "m"
    paper.save(path)
    for command in (("predict",), ("evaluate", "--target", "y"), ("plot", "-o", tmp_path / "p")):
        line = refused(command[0], path, made / "test.csv", *command[1:])
        assert "fitted on arrays without column names" in line
    assert files(tmp_path) == ["m"]
    run("verify", path)
    run("plot", path, "-o", tmp_path / "p.png")
    assert "columns     2\n" in run("info", path).stdout


def test_a_model_of_several_targets_is_asked_from_python(made, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = inputs(TRAIN)
    path = tmp_path / "m"
    model = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=150, random_state=0)
    model.fit(pandas.DataFrame(X, columns=["a", "b"]), np.column_stack([y, -y])).save(path)
    for command in (("predict",), ("evaluate", "--target", "y"), ("plot", "-o", tmp_path / "p")):
        line = refused(command[0], path, made / "test.csv", *command[1:])
        assert line == "Error: a model of several targets can be asked from Python only"
    assert "asked from Python" in refused("plot", path, "-o", tmp_path / "p")
    assert files(tmp_path) == ["m"]
    run("verify", path)
    run("info", path)


# Mistakes


BAD_TABLES = {
    "text": (
        "a,b,y\n1,2,3\n1,two,3\n",
        "column 'b': 1 of 2 values is not a number, first 'two' in row 2 (line 3)",
        "column 'b', row 2 (line 3): 'two' is not a number",
    ),
    "target": (
        "a,b,y\n1,2,3\n1,2,high\n",
        "column 'y': the target: 1 of 2 values is not a number, first 'high' in row 2 (line 3)",
        "the target must be a number: column 'y', row 2",
    ),
    "ragged": ("a,b,y\n1,2,3\n1,2\n", "row 2 (line 3) has 2 fields, the header 3"),
    "empty": ("", "is empty"),
    "header": ("a,b,y\n", "has column names, but no rows"),
    "twice": ("a,a,y\n1,2,3\n", "more than one column is called a"),
    "infinite": (
        "a,b,y\n1,inf,3\n",
        "column 'b': 1 of 1 values has no finite size, first 'inf' in row 1 (line 2)",
        "column 'b', row 1 (line 2): 'inf' is infinite",
    ),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_mistake_in_the_data_is_named_with_its_place(made, tmp_path, name):
    text, *_, message = BAD_TABLES[name]
    data = tmp_path / "bad.csv"
    data.write_text(text)
    line = refused("fit", data, "--target", "y", "-o", tmp_path / "m", *SMALL)
    assert BAD_TABLES[name][1] in line
    assert "bad.csv" in line
    if name not in ("target", "twice"):  # in which predict has no interest
        assert message in refused("predict", made / "model.manygp", data, "-o", tmp_path / "out")
        assert message in refused("predict", made / "model.manygp", data)
    if name != "twice":
        assert message in refused("evaluate", made / "model.manygp", data)
    assert files(tmp_path) == ["bad.csv"]


def test_unknown_columns_are_named_with_what_was_meant(made, tmp_path):
    data = write_csv(tmp_path / "t.csv", {"Price": TRAIN["y"], "a": TRAIN["a"], "b": TRAIN["b"]})
    fit = ("fit", data, "-o", tmp_path / "m", *SMALL)
    assert "no column 'price'; did you mean 'Price'?" in refused(*fit, "--target", "price")
    for option in ("--column", "--drop"):
        line = refused(*fit, "--target", "Price", option, "aa")
        assert "no column 'aa'; did you mean 'a'? There are Price, a, b" in line
    line = refused(*fit, "--target", "Price", "--drop", "a", "--drop", "b")
    assert "no column is left" in line
    for several in ("[ab]", "a,b"):
        assert "names 2 columns, and the command line" in refused(*fit, "--target", several)
    assert "no column 'y'" in refused("evaluate", made / "model.manygp", data)
    short = write_csv(tmp_path / "short.csv", {"a": TEST["a"], "y": TEST["y"]})
    for output in ("-", tmp_path / "out.csv"):
        line = refused("predict", made / "model.manygp", short, "-o", output)
        assert "no column 'b'" in line
    assert files(tmp_path) == ["short.csv", "t.csv"]


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_plain_line(tmp_path):
    data = write_csv(tmp_path / "constant.csv", {**TRAIN, "y": np.ones(300)})
    result = run("fit", data, "--target", "y", "-o", tmp_path / "m", *SMALL, "--json")
    assert result.stderr == "manygp: y is constant; predictions will be that constant\n"
    assert json.loads(result.stdout)["left_out"]["rmse"] == 0
    found = read_csv(run("predict", tmp_path / "m", data).stdout)
    assert_array_equal(found[0], 1.0)


def test_a_file_that_is_no_model_is_refused(made, paper, tmp_path, monkeypatch):
    whole = (made / "model.manygp").read_bytes()
    path, output = tmp_path / "m", tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(container, "SCHEMA", 9)
        paper.save(path)
    newer = path.read_bytes()
    bad = {
        "is not a model file": b"a,b,y\n1,2,3\n",
        "is not a model file of manygp, or only": b"",
        "is truncated: its last 9 bytes": whole[:-9],
        "the checksum of": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        "written by a newer manygp (schema 9": newer,
        "has 1 bytes too many": whole + b"\0",
    }
    for message, content in bad.items():
        path.write_bytes(content)
        for command in (
            ("info", path),
            ("verify", path, "--json"),
            ("predict", path, made / "test.csv", "-o", output),
            ("evaluate", path, made / "test.csv", "--report", output),
            ("report", path, made / "test.csv", "-o", output),
            ("plot", path, "-o", output),
        ):
            assert message in refused(*command)
    assert files(tmp_path) == ["m"]


def test_inputs_that_are_not_there_or_are_folders_are_refused_at_once(made, tmp_path):
    model, data = made / "model.manygp", made / "test.csv"
    nothing = tmp_path / "nothing"
    commands = {
        "fit": lambda file: [(file, "--target", "y", "-o", tmp_path / "m")],
        "predict": lambda file: [(model, file), (file, data)],
        "evaluate": lambda file: [(model, file), (file, data)],
        "report": lambda file: [(model, file), (file, data)],
        "plot": lambda file: [(file, "-o", tmp_path / "p"), (model, file, "-o", tmp_path / "p")],
        "info": lambda file: [(file,)],
        "verify": lambda file: [(file,)],
    }
    for name, arguments in commands.items():
        for missing in arguments(nothing):
            assert refused(name, *missing) == f"Error: File '{nothing}' does not exist."
        for folder in arguments(tmp_path):
            said = refused(name, *folder)
            no_table = "is a folder, not a table: there are no Parquet files in it"
            assert said == f"Error: File '{tmp_path}' is a directory." or no_table in said
    assert files(tmp_path) == []


def test_a_folder_of_parquet_files_is_a_table(made, tmp_path):
    rows = table(60)
    folder = tmp_path / "folder"
    folder.mkdir()
    for i, some in enumerate((slice(0, 25), slice(25, 60))):
        part = pyarrow.table({name: values[some] for name, values in rows.items()})
        pyarrow.parquet.write_table(part, folder / f"{i}.parquet")
    write_csv(tmp_path / "whole.csv", rows)
    for name, data in (("one", folder), ("other", tmp_path / "whole.csv")):
        run("fit", data, "--target", "y", "-o", tmp_path / name)
        run("predict", tmp_path / name, data, "-o", tmp_path / f"{name}.csv")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_a_large_table_is_fitted_on_a_disk(tmp_path, monkeypatch):
    large.lower_limits(monkeypatch)
    X, y = large.make_rows(1500)
    data, model = large.write(tmp_path / "data.parquet", X, y), tmp_path / "model"
    options = ("--target", "y", "-o", model, "--trend", "constant", "--jobs", "1")
    options = (*options, "--points-per-expert", "50", "--work-dir", tmp_path / "w")
    text = run("fit", data, *options).output
    assert "1,500 rows, 3 columns" in text
    assert (tmp_path / "w" / "model.manygp").exists()
    run("predict", model, data, "-o", tmp_path / "answers.csv")
    assert json.loads(run("evaluate", model, data, "--json").stdout)["rmse"] < 0.2
    assert "as it was written" in run("verify", model).output


def test_a_large_table_of_more_than_numbers_is_read_into_memory(tmp_path, monkeypatch):
    large.lower_limits(monkeypatch)
    X, y = large.make_rows(1100)
    words = np.where(X[:, 0] > 0.5, "up", "down")
    data = large.write(tmp_path / "data.parquet", X, y, word=words)
    options = ("--target", "y", "-o", tmp_path / "model", "--trend", "constant", "--jobs", "1")
    assert "1,100 rows, 4 columns" in run("fit", data, *options, "--label", "bt-ent-c").output


def writing_commands(folder, output):
    """Every command that writes a file, and what it would say first if it began to work."""
    model, train, test = (folder / name for name in ("model.manygp", "train.csv", "test.csv"))
    fit = ("fit", train, "--target", "no such column")
    return [
        (*fit, "-o", output),
        (*fit, "-o", folder / "unused", "--report", output),
        ("predict", model, test, "-o", output),
        ("evaluate", model, test, "--report", output),
        ("report", model, test, "-o", output),
        ("plot", model, "-o", output),
    ]


def test_an_output_without_a_place_is_refused_before_the_work(made, tmp_path, monkeypatch):
    before = files(made)
    for command in writing_commands(made, tmp_path / "no" / "out"):
        assert f"there is no folder {tmp_path / 'no'} to write" in refused(*command)
    for command in writing_commands(made, tmp_path):
        assert refused(*command) == f"Error: File '{tmp_path}' is a directory."
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):  # root may do everything
        allowed = os.access
        monkeypatch.setattr(os, "access", lambda path, *a: path != tmp_path and allowed(path, *a))
    for command in writing_commands(made, tmp_path / "out"):
        assert "there is no permission to write" in refused(*command)
    tmp_path.chmod(0o700)
    assert files(tmp_path) == []
    assert files(made) == before


def test_no_output_takes_the_place_of_an_input(made, tmp_path):
    link = tmp_path / "link"
    for name in ("train.csv", "test.csv", "model.manygp"):
        link.symlink_to(made / name)
        before = (made / name).read_bytes()
        for output in (made / name, link):
            for command in writing_commands(made, output):
                if made / name in command[:3]:
                    assert "would take the place of a file" in refused(*command)
        assert (made / name).read_bytes() == before
        link.unlink()


def test_a_device_may_be_the_output(made):
    run("predict", made / "model.manygp", made / "test.csv", "-o", os.devnull)
    run("plot", made / "model.manygp", "-o", os.devnull)
    assert not os.path.isfile(os.devnull)


def test_mistakes_in_the_command_are_usage_errors(made, tmp_path):
    model, data = made / "model.manygp", made / "test.csv"
    fit = ("fit", made / "train.csv", "-o", tmp_path / "m")
    mistakes = {
        ("nix",): "No such command 'nix'",
        ("predict", model): "Missing argument 'DATA'",
        fit: "Missing option '--target'",
        (*fit, "--target", "y", "--kernel", "Mat()"): "Mat is not one of Additive, Constant",
        (*fit, "--target", "y", "--kernel", "1 +"): "cannot read the kernel '1 +'",
        (*fit, "--target", "y", "--label", "nix"): "'nix' is not one of 'bt-ent-c'",
        (*fit, "--target", "y", "--points-per-expert", 0): "0 is not in the range x>=1",
        (*fit, "--target", "y", "--time-budget", -1): "-1.0 is not in the range x>=0",
        ("predict", model, data, "--coverage", 1): "1.0 is not in the range 0<x<1",
        ("evaluate", model, data, "--coverage", "most"): "'most' is not a valid float",
        ("plot", model, "-o", tmp_path / "a.gif"): "must end with one of .png, .svg, .pdf",
    }
    for command, message in mistakes.items():
        assert message in refused(*command, code=2)
    assert files(tmp_path) == []


def test_more_coverage_than_the_rows_can_promise_is_refused(made, tmp_path):
    few = write_csv(tmp_path / "few.csv", {name: values[:5] for name, values in TRAIN.items()})
    model = tmp_path / "m"
    assert (
        ": 5 rows, 2 columns, 1 expert, " in run("fit", few, "--target", "y", "-o", model).stdout
    )
    promise = "Error: 5 training rows can promise a coverage of at most 0.8333, not 0.9"
    message = f"{promise}; ask for less, or fit at least 9 rows"
    assert refused("predict", model, few, "-o", tmp_path / "out") == message
    assert refused("evaluate", model, few) == message
    assert files(tmp_path) == ["few.csv", "m"]
    run("predict", model, few, "--coverage", 0.8)
    run("plot", model, made / "test.csv", "-o", tmp_path / "p.png")  # which shows no interval
    assert "at least 10 rows; it has 5" in refused("plot", model, few, "-o", tmp_path / "q.png")


def test_without_an_extra_the_message_names_it_and_nothing_is_done(made, tmp_path, monkeypatch):
    model, train, test = (made / name for name in ("model.manygp", "train.csv", "test.csv"))
    data = tmp_path / "t.parquet"
    data.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    output = tmp_path / "out.parquet"
    fit = ("fit", train, "--target", "y", "-o", tmp_path / "m")
    commands = {
        ("fit", data, *fit[2:]): "parquet",
        ("predict", model, data): "parquet",
        ("predict", model, test, "-o", output): "parquet",
        ("report", model, data, "-o", output): "parquet",
        ("plot", model, "-o", tmp_path / "p.png"): "plot",
    }
    for command, extra in commands.items():
        assert refused(*command).endswith(f'pip install "manygp[{extra}]"')
    assert files(tmp_path) == ["t.parquet"]


def test_a_checkpoint_of_other_data_is_refused(made, tmp_path):
    folder = tmp_path / "night"
    arguments = ("--target", "y", "-o", tmp_path / "m", *SMALL, "--checkpoint", folder)
    run("fit", made / "train.csv", *arguments)
    assert (tmp_path / "m").read_bytes() == (made / "model.manygp").read_bytes()
    before = (folder / FITS).read_bytes()
    line = refused("fit", made / "test.csv", *arguments)
    assert f"checkpoint: {folder} belongs to another fit: its rows is 300, not 80" in line
    assert (folder / FITS).read_bytes() == before
    assert (tmp_path / "m").read_bytes() == (made / "model.manygp").read_bytes()


def test_signals_and_warnings_are_as_they_were_afterwards(made):
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    shown, filters = warnings.showwarning, list(warnings.filters)
    run("verify", made / "model.manygp")
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)] == handlers
    assert warnings.showwarning is shown
    assert warnings.filters == filters


# Help


def commands_of(group, names=()):
    for name, command in group.commands.items():
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands_of(command, (*names, name))


COMMANDS = {" ".join(names): command for names, command in [((), main), *commands_of(main)]}


def test_the_commands_are_all_there():
    named = {"check", "fit", "predict", "evaluate", "plot", "info", "verify"}
    assert named <= set(COMMANDS)
    for name in ("fit", "evaluate", "info", "verify"):
        assert "--json" in run(name, "--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_of_options_that_exist_and_tells_of_every_option(name):
    shown = run(*name.split(), "--help").stdout
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.", "", shown)  # no sentence is cut
    examples = [
        line for line in shown.splitlines() if line.startswith(f"  manygp {name}".rstrip())
    ]
    assert examples
    for example in examples:
        words = shlex.split(example)[1:]
        found = next(
            COMMANDS[" ".join(words[:n])] for n in (2, 1) if " ".join(words[:n]) in COMMANDS
        )
        known = {spelling for option in found.params for spelling in option.opts}
        assert {word for word in words if word.startswith("-")} <= known | {"--help", "-"}
    for option in COMMANDS[name].params:
        assert isinstance(option, click.Argument) or option.help


@pytest.mark.parametrize(
    ("name", "now"), [("bench", "python -m benchmarks"), ("demo", "python -m benchmarks.demo")]
)
def test_a_command_that_has_left_the_package_says_where_it_is(name, now):
    assert f"`{now}`" in refused(name, "quality", "--seeds", 1, code=2)


def test_the_version_is_told():
    assert manygp.__version__ in run("--version").stdout


def test_help_imports_nothing_heavy_but_what_scikit_learn_does():
    program = """
import sys
import sklearn.neighbors
heavy = {"matplotlib", "pyarrow", "pandas", "torch"} - set(sys.modules)
assert {"matplotlib", "torch"} <= heavy
from manygp.cli import main
main(["--help"], "manygp", standalone_mode=False)
sys.exit(", ".join(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == ""
    assert "Usage: manygp" in done.stdout


def test_without_click_the_message_names_the_extra():
    program = "import sys; sys.modules['click'] = None; import manygp.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install "manygp[cli]"' in done.stderr
    assert len(done.stderr.splitlines()) == 1


# Ends of all kinds, of real processes

# Says when two experts are kept, and then waits for a signal.
SLOW_FIT = """
import sys, time
from manygp.training import experts as fitting
from manygp.cli import main
fit_kernel, done = fitting.fit_kernel, []
def slow(*arguments):
    if len(done) == 2:
        print("ready", flush=True)
        time.sleep(600)
    done.append(1)
    return fit_kernel(*arguments)
fitting.fit_kernel = slow
main(sys.argv[1:], prog_name="manygp")
"""
# Says when some rows are written, and then waits for a signal.
SLOW_PREDICT = """
import functools, sys, time
from manygp import answers
from manygp.tables.base import TableFile
from manygp.cli import main
TableFile.batches = functools.partialmethod(TableFile.batches, batch_rows=10)
predict, done = answers.predict_transformed, []
def slow(*arguments, **named):
    if len(done) == 3:
        print("ready", flush=True)
        time.sleep(600)
    done.append(1)
    return predict(*arguments, **named)
answers.predict_transformed = slow
main(sys.argv[1:], prog_name="manygp")
"""


def ended_by(number, program, *arguments, ready=lambda: None):
    """The exit code, and standard error, of a command that was sent a signal in its midst."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        ready()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def test_an_interrupted_fit_says_what_would_have_been_kept(made, tmp_path):
    fit = ("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    (tmp_path / "m").write_text("old")
    assert ended_by(signal.SIGINT, SLOW_FIT, *fit) == (
        130,
        "interrupted; nothing is kept; --checkpoint FOLDER would keep what is finished\n",
    )
    assert files(tmp_path) == ["m"]
    assert (tmp_path / "m").read_text() == "old"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_after_an_interrupt_or_a_kill_the_same_command_goes_on(made, tmp_path, number):
    folder, model = tmp_path / "night", tmp_path / "m"
    fit = ("fit", made / "train.csv", "--target", "y", "-o", model, *SMALL, "--checkpoint", folder)
    code, stderr = ended_by(number, SLOW_FIT, *fit)
    if number == signal.SIGINT:
        kept = f"what is finished is kept in {folder}; the same command goes on there"
        assert (code, stderr) == (130, f"interrupted; {kept}\n")
    assert files(tmp_path) == ["night"]
    before = (folder / FITS).read_text()
    assert len(before.splitlines()) == 2
    run(*fit)
    assert (folder / FITS).read_text().startswith(before)
    assert len((folder / FITS).read_text().splitlines()) == 3
    assert model.read_bytes() == (made / "model.manygp").read_bytes()


# Says so when it waits for two threads, each in the midst of an expert. These go on when no other
# can be begun any more. Writes to a file how many experts were begun, and how many finished.
FIT_IN_THREADS = """
import sys, threading
from concurrent.futures import Future, ThreadPoolExecutor
from manygp.training import experts as fitting
from manygp.cli import main
record, *arguments = sys.argv[1:]
in_parallel, fit_kernel = fitting._fit_in_parallel, fitting.fit_kernel
result, shutdown = Future.result, ThreadPoolExecutor.shutdown
experts, both, stopped = threading.Event(), threading.Event(), threading.Event()
lock, begun, finished = threading.Lock(), [], []
def fitting_experts(*arguments, **named):
    experts.set()
    return in_parallel(*arguments, **named)
def waiting(*arguments):
    with lock:
        begun.append(1)
        if len(begun) == 2:
            both.set()
    assert stopped.wait(60)
    found = fit_kernel(*arguments)
    finished.append(1)
    return found
def ready(future, timeout=None):
    if experts.is_set() and not stopped.is_set():
        assert both.wait(60)
        print("ready", flush=True)
    return result(future, timeout)
def stopping(pool, wait=True, *, cancel_futures=False):
    shutdown(pool, wait=False, cancel_futures=cancel_futures)
    if experts.is_set():
        stopped.set()
    shutdown(pool, wait=wait)
fitting._fit_in_parallel, fitting.fit_kernel = fitting_experts, waiting
Future.result, ThreadPoolExecutor.shutdown = ready, stopping
try:
    main(arguments, prog_name="manygp")
finally:
    with open(record, "w") as file:
        file.write(f"{len(begun)} begun, {len(finished)} finished")
"""


def test_an_interrupt_reaches_a_fit_on_several_cores(made, tmp_path):
    """Experts that are being fitted are finished, and no others begun."""
    small = ("--points-per-expert", 5, "--label", "bt-ent", "--jobs", 2)
    fit = ("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *small)
    code, stderr = ended_by(signal.SIGINT, FIT_IN_THREADS, tmp_path / "record", *fit)
    assert (code, stderr.split(";")[0]) == (130, "interrupted")
    assert (tmp_path / "record").read_text() == "2 begun, 2 finished"
    assert files(tmp_path) == ["record"]


@pytest.mark.parametrize(
    ("number", "code", "message", "name"),
    [
        (signal.SIGINT, 130, "interrupted\n", "out.csv.gz"),
        (signal.SIGTERM, 143, "", "out.parquet"),
        (signal.SIGHUP, 129, "", "out.csv"),
    ],
)
def test_an_ended_predict_leaves_nothing_half_written(made, tmp_path, number, code, message, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    output = tmp_path / name
    output.write_text("old")

    def ready():
        assert len(files(tmp_path)) == 2  # a temporary one too

    predict = ("predict", made / "model.manygp", made / "test.csv", "-o", output)
    assert ended_by(number, SLOW_PREDICT, *predict, ready=ready) == (code, message)
    assert files(tmp_path) == [name]
    assert output.read_text() == "old"


# As on a full disk, where a write fails in its midst.
FULL_DISK = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
from manygp.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments, prog_name="manygp")
    except SystemExit as end:
        print(end.code)
"""


def test_on_a_full_disk_the_old_output_survives(made, tmp_path):
    names = ["m", "out.csv", "out.csv.gz", "out.parquet"]
    for name in names:
        (tmp_path / name).write_text("old")
    fit = ("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    predict = ("predict", made / "model.manygp", made / "train.csv", "-o")
    commands = [fit, *((*predict, tmp_path / name) for name in names[1:])]
    arguments = json.dumps([[str(word) for word in command] for command in commands])
    program = [sys.executable, "-B", "-c", FULL_DISK, arguments]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout.split() == ["1"] * 4
    assert done.stderr.splitlines() == [
        f"Error: {tmp_path / name}: File too large" for name in names
    ]
    assert files(tmp_path) == names
    assert {(tmp_path / name).read_text() for name in names} == {"old"}


def test_a_broken_pipe_is_silent(made):
    many = write_csv(made / "many.csv", {"a": np.ones(5000), "b": np.ones(5000)})
    command = [sys.executable, "-m", "manygp", "predict", made / "model.manygp", many]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"mean,std,lower,upper\n"
        process.stdout.close()
        assert process.stderr.read() == b""


# Larger than memory


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model that takes no time to ask."""
    folder = tmp_path_factory.mktemp("tiny")
    data = write_csv(folder / "train.csv", {name: values[:20] for name, values in TRAIN.items()})
    run("fit", data, "--target", "y", "-o", folder / "m")
    return folder / "m"


MEASURED = f"""{PEAK_BYTES}
import functools, sys
from manygp.tables.base import TableFile
from manygp.cli import main
batch_rows, *arguments = sys.argv[1:]
TableFile.batches = functools.partialmethod(TableFile.batches, batch_rows=int(batch_rows))
main(arguments, standalone_mode=False)
print(peak_bytes())
"""


def peak_megabytes(model, data, batch_rows=BATCH_ROWS):
    predict = ["predict", model, data, "-o", f"{data}.out.csv"]
    command = [sys.executable, "-c", MEASURED, str(batch_rows), *predict]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1e6


def write_many(path, n_rows, note=""):
    """A long table of which a block is repeated; its size, uncompressed, in megabytes."""
    block = 1000
    rows = "".join(f"{a!r},{note},{a / 2!r}\n" for a in RNG.random(block).tolist())
    compressed = path.suffix == ".gz"
    with gzip.open(path, "wt", compresslevel=1) if compressed else open(path, "w") as file:
        file.write("a,note,b\n")
        for _ in range(n_rows // block):
            file.write(rows)
    return len(rows) * n_rows / block / 1e6


@MEASURABLE
def test_memory_does_not_grow_with_the_rows(tiny, tmp_path):
    """In batches that are smaller than usual: a larger one only takes longer."""
    write_many(tmp_path / "some.csv", 10_000)
    write_many(tmp_path / "more.csv", 110_000)
    some, more = (peak_megabytes(tiny, tmp_path / f"{n}.csv", 4_000) for n in ("some", "more"))
    assert more - some < 10  # the rows that were added would take 30 as text
    with open(tmp_path / "more.csv.out.csv") as file:
        assert sum(1 for _ in file) == 110_001


@MEASURABLE
@pytest.mark.slow
def test_a_table_may_be_larger_than_the_memory_that_is_used(tiny, tmp_path):
    extent = write_many(tmp_path / "large.csv.gz", 1_500_000, note=500 * "x")
    assert extent > 700
    assert peak_megabytes(tiny, tmp_path / "large.csv.gz") < extent / 2


def test_quantiles_are_columns_of_their_own(made, tmp_path):
    done = run("predict", made / "model.manygp", made / "test.csv", "-o", tmp_path / "q.csv",
               "--quantiles", "0.05,0.5,0.95")  # fmt: skip
    assert done.exit_code == 0, done.output
    header, *lines = (tmp_path / "q.csv").read_text().splitlines()
    assert header == "mean,std,lower,upper,q0.05,q0.5,q0.95"
    values = np.array([line.split(",") for line in lines], dtype=float)
    np.testing.assert_allclose(values[:, 5], values[:, 0])
    assert np.all(values[:, 4] < values[:, 5])
    assert np.all(values[:, 5] < values[:, 6])


@pytest.mark.parametrize("levels", ["2", "0.5,x", "0", "0.1,,0.9"])
def test_quantiles_that_are_none_are_a_mistake_of_the_command(made, levels):
    command = ("predict", made / "model.manygp", made / "test.csv", "--quantiles", levels)
    assert "between 0 and 1" in refused(*command, code=2)


# Says when the command line is being imported, and waits there for a signal.
SLOW_START = """
import sys, time
class Waiting:
    def find_spec(self, name, path=None, target=None):
        if name == "manygp.cli":
            print("ready", flush=True)
            time.sleep(600)
sys.meta_path.insert(0, Waiting())
from manygp._entry_point import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_exit_codes_are_the_same_while_the_command_starts(number):
    assert ended_by(number, SLOW_START) == (128 + number, "")


def test_the_front_door_runs_the_command_and_an_interrupt_is_told_there_too(made, tmp_path):
    program = SLOW_FIT.replace(
        "from manygp.cli import main", "from manygp._entry_point import main"
    )
    program = program.replace('main(sys.argv[1:], prog_name="manygp")', "main()")
    fit = ("fit", made / "train.csv", "--target", "y", "-o", tmp_path / "m", *SMALL)
    code, stderr = ended_by(signal.SIGINT, program, *fit)
    assert (code, stderr.split(";")[0]) == (130, "interrupted")


# Model files of before the encoder was part of the model


def test_a_file_with_the_encoding_of_the_command_line_of_0_1_still_predicts(encoded, tmp_path):
    weekdays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]  # that file has them as numbers
    manifest, arrays = container.read(encoded / "m")
    columns = [
        {"name": "a", "kind": "number"},
        {"name": "colour", "kind": "category", "categories": ["blue", "green", "red"]},
        {"name": "day", "kind": "date"},
        *({"name": one, "kind": "number"} for one in weekdays),
    ]
    names = ["a", "colour=blue", "colour=green", "colour=red", "day", *weekdays]
    old = {key: value for key, value in manifest.items() if key not in ("schema", "arrays")}
    del old["parameters"]["columns"]
    container.write(
        tmp_path / "old",
        {**old, "columns": names, "table": {"target": "y", "columns": columns}},
        arrays,
    )
    run("verify", tmp_path / "old")
    assert "columns     10: a, colour, day, mon, tue" in run("info", tmp_path / "old").stdout
    new = tmp_path / "new.csv"
    header = ",".join(["colour", "day", "a", *weekdays])
    new.write_text(f"{header}\ngreen,2024-01-11,0.5,0,0,0,1,0,0,0\n")  # a Thursday
    plain = tmp_path / "plain.csv"
    plain.write_text("colour,day,a\ngreen,2024-01-11,0.5\n")
    found = read_csv(run("predict", tmp_path / "old", new).stdout)
    expected = read_csv(run("predict", encoded / "m", plain).stdout)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    new.write_text(f"{header}\npink,2024-01-11,0.5,0,0,0,1,0,0,0\n")
    assert "'pink' is not one of the 3 known" in refused("predict", tmp_path / "old", new)


def test_a_plot_checks_what_it_needs_before_it_builds_the_experts(made, tmp_path, monkeypatch):
    def no_work(*arguments):
        raise AssertionError("work was done")

    monkeypatch.setattr("manygp.storage.model_file.assembled", no_work)
    output = ("-o", tmp_path / "plot.png")
    refused("plot", made / "model.manygp", "--kind", "posterior", *output)
    refused("plot", made / "model.manygp", "--kind", "calibration", *output)
    data = (made / "test.csv", "--target", "nix")
    assert "no column 'nix'" in refused("plot", made / "model.manygp", *data, *output)


def test_rows_are_left_out_by_the_groups_or_the_time_of_a_column(tmp_path):
    n = 60
    days = (np.datetime64("2024-01-01") + np.arange(n)).astype(str)
    people = [f"p{k % 12}" for k in range(n)]
    write_csv(tmp_path / "t.csv", {**table(n), "who": people, "day": days})
    fit = ("fit", tmp_path / "t.csv", "--target", "y", *SMALL, "--json", "-o")
    by_group = json.loads(run(*fit, tmp_path / "g", "--drop", "day", "--groups", "who").stdout)
    assert by_group["columns"] == ["a", "b"]
    assert by_group["left_out"]["rows"] == n
    by_time = json.loads(run(*fit, tmp_path / "t", "--drop", "who", "--time", "day").stdout)
    assert by_time["columns"] == ["a", "b", "day"]
    assert by_time["left_out"]["rows"] == 36
    assert manygp.load(tmp_path / "t").model_.left_out_by == "time"
    assert "fit all rows again" in refused("update", tmp_path / "t", tmp_path / "t.csv")
    checked = run("check", tmp_path / "t.csv", "--target", "y", "--groups", "who", "--drop", "day")
    assert "who" in checked.stdout
    result = invoke((*fit, tmp_path / "n", "--groups", "y"))
    assert "other columns than the target" in result.stderr


def test_a_target_that_drifts_along_a_date_is_noticed(tmp_path):
    n = 150
    rng = np.random.default_rng(1)
    days = (np.datetime64("2024-01-01") + np.arange(n)).astype(str)
    a = rng.random(n)
    for name, drift in (("still", 0.0), ("drift", 3.0)):
        y = a + drift * np.arange(n) / n + 0.1 * rng.normal(size=n)
        write_csv(tmp_path / name, {"a": a, "day": days, "y": y})
        said = run("check", tmp_path / name, "--target", "y").stdout
        assert ("drifts along 'day'" in said) == (drift > 0)
        told = run("check", tmp_path / name, "--target", "y", "--time", "day").stdout
        assert "drifts along" not in told
