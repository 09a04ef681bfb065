"""`manygp update`: rows of a table into a model file."""

import json

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

import click.testing

import manygp
from manygp import ManyGPRegressor
from manygp.cli import main
from manygp.training import updates


def invoke(*arguments):
    runner = click.testing.CliRunner()
    return runner.invoke(main, [str(argument) for argument in arguments], prog_name="manygp")


def lines(n, seed, towns=("Ulm", "Bonn")):
    rng = np.random.default_rng(seed)
    a, town = rng.random(n), rng.choice(towns, n)
    y = np.sin(6 * a) + (town == "Bonn") + 0.1 * rng.normal(size=n)
    return [f"{x!r},{t},{v!r}" for x, t, v in zip(a.tolist(), town, y.tolist(), strict=True)]


def write(path, rows):
    path.write_text("\n".join(["a,town,y", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("update")
    train = write(folder / "train.csv", lines(120, 0))
    result = invoke(
        "fit", train, "--target", "y", "-o", folder / "m.manygp", "--points-per-expert", 40,
        "--trend", "constant", "--jobs", 1,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder / "m.manygp"


@pytest.fixture
def model(fitted, tmp_path):
    path = tmp_path / "m.manygp"
    path.write_bytes(fitted.read_bytes())
    return path


def test_rows_of_a_table_are_added(model, tmp_path):
    rows = [*lines(20, 1, ("Ulm", "Bonn", "Bern")), "0.5,Ulm,"]
    new = write(tmp_path / "new.csv", rows)
    before = model.read_bytes()
    result = invoke("update", model, new, "-o", tmp_path / "out.manygp", "--jobs", 1, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["added"], facts["without_target"], facts["rows"]) == (20, 1, 140)
    assert 0 < facts["n_scored"] < 20  # Bern is not known
    assert model.read_bytes() == before
    result = invoke("update", model, new, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "20 rows added, 140 in all" in result.stdout
    assert model.read_bytes() == (tmp_path / "out.manygp").read_bytes()


def test_it_is_what_partial_fit_does(model, tmp_path):
    pandas = pytest.importorskip("pandas")
    new = write(tmp_path / "new.csv", lines(30, 1))
    frame = pandas.read_csv(new)
    y = frame.pop("y")
    expected = manygp.load(model).partial_fit(frame, y)
    assert invoke("update", model, new, "--jobs", 1).exit_code == 0
    found = manygp.load(model)
    np.testing.assert_array_equal(found.predict(frame), expected.predict(frame))
    assert found.drift_ == expected.drift_


def test_only_the_last_rows_stay(model, tmp_path):
    new = write(tmp_path / "new.csv", lines(30, 1))
    assert invoke("update", model, new, "--keep-last", 100, "--jobs", 1).exit_code == 0
    assert manygp.load(model).row_ids_.tolist() == list(range(50, 150))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (["0.5,Ulm,much"], (), "'much'"),
        (["0.5,Ulm,"], (), "no row has a value of 'y'"),
        (["0.5,Bern,1.0"], ("--unknown", "error"), "Bern"),
        (["0.5,Ulm,1.0"], ("--target", "z"), "z"),
        (["0.5,Ulm,1.0"], ("-o", "nowhere/m.manygp"), "no folder"),
    ],
)
def test_what_cannot_be_leaves_the_file_as_it_was(model, tmp_path, rows, options, message):
    before = model.read_bytes()
    result = invoke("update", model, write(tmp_path / "new.csv", rows), *options, "--jobs", 1)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert model.read_bytes() == before


def test_an_interrupted_update_leaves_the_file_as_it_was(model, tmp_path, monkeypatch):
    before = model.read_bytes()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(updates, "added", interrupted)
    result = invoke("update", model, write(tmp_path / "new.csv", lines(5, 1)), "--jobs", 1)
    assert result.exit_code == 130
    assert model.read_bytes() == before


def test_arrays_with_names_are_matched_by_them(tmp_path):
    """A model of a frame of numbers has no encoder."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.random((60, 2)), columns=["a", "b"])
    estimator = ManyGPRegressor(random_state=0, trend="constant").fit(frame, frame["a"])
    estimator.save(tmp_path / "m.manygp")
    (tmp_path / "new.csv").write_text("y,b,a\n0.4,0.1,0.4\n")
    arguments = ("update", tmp_path / "m.manygp", tmp_path / "new.csv", "--target", "y")
    assert invoke(*arguments, "--jobs", 1).exit_code == 0
    rows, _ = manygp.answers.training_rows(manygp.load(tmp_path / "m.manygp")._model)
    np.testing.assert_allclose(rows[-1], [0.4, 0.1])
