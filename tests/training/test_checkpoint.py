"""What a fit has finished survives it: `fit(..., checkpoint=folder)`."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from importlib.metadata import version

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import Ridge

from manygp.kernels import Matern, White
from manygp.runtime import files
from manygp.training import experts as fitting
from manygp.training.checkpoint import FITS, IDENTITY, _digest, described
from models import choosing, interrupt_after

RNG = np.random.default_rng(0)
X = RNG.random((400, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=400)
model = partial(choosing, points_per_expert=40, hyperparameters="hierarchical", trend="constant")


def same_bits(first, second):
    for one, other in zip(first.predict(X, True), second.predict(X, True), strict=True):
        assert_array_equal(one, other)
    for one, other in zip(first.experts_, second.experts_, strict=True):
        assert one.kernel == other.kernel
        assert one.n_evaluations == other.n_evaluations
        assert_array_equal(one.rows, other.rows)
    assert str(first.calibration_report_) == str(second.calibration_report_)


@pytest.fixture
def fits(monkeypatch):
    """The fits that were done and not taken from a checkpoint."""
    done = []
    maximise = fitting.maximise

    def spy(*arguments):
        done.append(arguments[0])
        return maximise(*arguments)

    monkeypatch.setattr(fitting, "maximise", spy)
    return done


@pytest.fixture(scope="module")
def uninterrupted():
    return model().fit(X, Y)


def test_a_checkpoint_changes_nothing_and_a_second_run_fits_nothing(tmp_path, uninterrupted, fits):
    folder = tmp_path / "new" / "folder"
    same_bits(model().fit(X, Y, checkpoint=folder), uninterrupted)
    done = len(fits)
    assert done == len((folder / FITS).read_text().splitlines())
    same_bits(model().fit(X, Y, checkpoint=str(folder)), uninterrupted)
    assert len(fits) == done


@pytest.mark.parametrize("n", [1, 5, 12])
def test_an_interrupted_fit_goes_on_where_it_stopped(
    tmp_path, uninterrupted, fits, monkeypatch, n
):
    stopped = model()
    with monkeypatch.context() as patch:
        interrupt_after(n, patch)
        with pytest.raises(KeyboardInterrupt):
            stopped.fit(X, Y, checkpoint=tmp_path)
    assert not hasattr(stopped, "experts_")
    kept = len((tmp_path / FITS).read_text().splitlines())
    assert kept == 1 + n  # the shared kernel, and experts
    fits.clear()
    same_bits(stopped.fit(X, Y, checkpoint=tmp_path), uninterrupted)
    assert len(fits) == len((tmp_path / FITS).read_text().splitlines()) - kept


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_jobs_and_verbosity_may_change_between_runs(tmp_path, uninterrupted, monkeypatch, n_jobs):
    with monkeypatch.context() as patch:
        interrupt_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            model(n_jobs=3 - n_jobs).fit(X, Y, checkpoint=tmp_path)
    resumed = model(n_jobs=n_jobs, verbose=True).fit(X, Y, checkpoint=tmp_path)
    same_bits(resumed, uninterrupted)


@pytest.mark.parametrize("random_state", [lambda: None, lambda: np.random.RandomState(3)])
def test_without_a_seed_the_second_run_takes_that_of_the_first(tmp_path, random_state, fits):
    first = model(random_state=random_state()).fit(X, Y, checkpoint=tmp_path)
    done = len(fits)
    same_bits(model(random_state=random_state()).fit(X, Y, checkpoint=tmp_path), first)
    assert len(fits) == done


def test_another_generator_and_one_that_has_moved_on_are_refused(tmp_path):
    generator = np.random.RandomState(1)
    model(hyperparameters="shared", random_state=generator).fit(X, Y, checkpoint=tmp_path)
    for other in (np.random.RandomState(2), generator):
        with pytest.raises(ValueError, match="another fit: its random_state is 'RandomState"):
            model(hyperparameters="shared", random_state=other).fit(X, Y, checkpoint=tmp_path)


def test_the_default_model_resumes_too(tmp_path, monkeypatch):
    small = partial(choosing, points_per_expert=100, random_state=1)
    whole = small().fit(X, Y)
    with monkeypatch.context() as patch:
        interrupt_after(6, patch)
        with pytest.raises(KeyboardInterrupt):
            small().fit(X, Y, checkpoint=tmp_path)
    same_bits(small().fit(X, Y, checkpoint=tmp_path), whole)


def test_restarts_and_kernels_of_your_own_resume_too(tmp_path, monkeypatch):
    own = {
        "kernel": Matern((0.3, 0.4), nu=1.5) + White(0.1),
        "hyperparameters": "independent",
        "n_restarts_optimizer": 1,
        "points_per_expert": 100,
    }
    whole = model(**own).fit(X, Y)
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        with pytest.raises(KeyboardInterrupt):
            model(**own).fit(X, Y, checkpoint=tmp_path)
    same_bits(model(**own).fit(X, Y, checkpoint=tmp_path), whole)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"points_per_expert": 50}, "points_per_expert"),
        ({"random_state": 1}, "random_state"),
        ({"kernel": Matern((1.0, 1.0)) + White()}, "kernel"),
        ({"alpha": 0.1}, "data"),
        ({"weighting": "entropy"}, "weighting"),
    ],
)
def test_other_parameters_are_refused_by_name(tmp_path, changes, name):
    model(hyperparameters="shared").fit(X, Y, checkpoint=tmp_path)
    before = (tmp_path / FITS).read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to another fit: its {name} is"):
        model(hyperparameters="shared", **changes).fit(X, Y, checkpoint=tmp_path)
    assert (tmp_path / FITS).read_bytes() == before


def test_other_data_are_refused(tmp_path):
    model(hyperparameters="shared").fit(X, Y, checkpoint=tmp_path)
    other = X.copy()
    other[17, 1] = np.nextafter(other[17, 1], 1)
    for rows, targets, name in ((other, Y, "data"), (X, -Y, "data"), (X[1:], Y[1:], "rows")):
        with pytest.raises(ValueError, match=f"another fit: its {name} is"):
            model(hyperparameters="shared").fit(rows, targets, checkpoint=tmp_path)


def test_damaged_lines_are_fitted_again(tmp_path, uninterrupted, fits):
    model().fit(X, Y, checkpoint=tmp_path)
    lines = (tmp_path / FITS).read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("1", "2", 1)  # altered
    lines[5] = "\n"
    lines[-1] = lines[-1][:-9]  # cut
    (tmp_path / FITS).write_text("".join(lines))
    fits.clear()
    same_bits(model().fit(X, Y, checkpoint=tmp_path), uninterrupted)
    assert len(fits) == 3
    fits.clear()
    same_bits(model().fit(X, Y, checkpoint=tmp_path), uninterrupted)
    assert len(fits) == 0


def rewritten(line, change):
    """The line with another content, and the digest of that."""
    text = change(line.strip().partition(" ")[2])
    return f"{_digest(text.encode())} {text}\n"


def with_values(values):
    return lambda text: json.dumps([json.loads(text)[0], values, 3])


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: "no JSON",
        lambda text: "[" * 100_000,
        lambda text: "7",
        lambda text: "{}",
        lambda text: json.dumps(json.loads(text)[:2]),
        lambda text: json.dumps([json.loads(text)[0], "values", 3]),
        with_values([]),
        with_values([1.0]),
        with_values([1.0] * 100),
        with_values([-1.0, 1.0, 1.0, 1.0]),
        with_values(["1", 1.0, 1.0, 1.0]),
        with_values([float("nan"), 1.0, 1.0, 1.0]),
    ],
)
def test_lines_whose_digest_is_right_and_content_wrong_are_fitted_again(
    tmp_path, fits, change, quick
):
    folder, lines = tmp_path / "folder", quick[1]
    shutil.copytree(quick[0], folder)
    (folder / FITS).write_text("".join([*lines[:-1], rewritten(lines[-1], change)]))
    same_bits(model(hyperparameters="shared").fit(X, Y, checkpoint=folder), quick[2])
    assert len(fits) == 1


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A folder of a fit that is finished, its lines, and the model."""
    folder = tmp_path_factory.mktemp("quick") / "folder"
    fitted = model(hyperparameters="shared").fit(X, Y, checkpoint=folder)
    return folder, (folder / FITS).read_text().splitlines(keepends=True), fitted


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seed": "x"}', "{}"])
def test_a_damaged_identity_is_refused(tmp_path, text):
    (tmp_path / IDENTITY).write_text(text)
    with pytest.raises(ValueError, match=r"is damaged; remove"):
        model().fit(X, Y, checkpoint=tmp_path)


def test_a_folder_of_other_files_and_a_file_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="holds other files"):
        model().fit(X, Y, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="is a file, not a folder"):
        model().fit(X, Y, checkpoint=tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_functions_are_known_by_name_and_rules_by_their_fields():
    assert described(np.float32(0.5)) == 0.5
    assert described(fitting.fit_shared) == "manygp.training.experts.fit_shared"
    assert described([1, 2]) == described(np.array([1, 2])) != described([1, 3])
    assert described(np.random.RandomState(0)) == described(np.random.RandomState(0))
    assert described(np.random.RandomState(0)) != described(np.random.RandomState(1))
    json.dumps(described(White()))


# A program that says when a few experts are kept, and then waits to be killed.
PROGRAM = """
import sys, time
import numpy as np
from manygp import ManyGPRegressor
from manygp.training import experts as fitting
data = np.load(sys.argv[1])
fit_kernel, done = fitting.fit_kernel, []
def slow(*arguments):
    if len(done) == 6 and sys.argv[3] == "wait":
        print("ready", flush=True)
        time.sleep(600)
    done.append(1)
    return fit_kernel(*arguments)
fitting.fit_kernel = slow
settings = {"hyperparameters": "hierarchical", "trend": "constant", "random_state": 0}
model = ManyGPRegressor(points_per_expert=40, **settings)
model.fit(data["X"], data["y"], checkpoint=sys.argv[2])
print(len(done))
np.savez(sys.argv[1] + ".out.npz", *model.predict(data["X"], True))
"""


def test_a_killed_process_loses_nothing_that_it_finished(tmp_path, uninterrupted):
    data, folder = tmp_path / "data.npz", tmp_path / "checkpoint"
    np.savez(data, X=X, y=Y)
    command = [sys.executable, "-c", PROGRAM, str(data), str(folder)]
    with subprocess.Popen([*command, "wait"], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "ready\n"
        os.kill(first.pid, signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    second = subprocess.run([*command, "go"], capture_output=True, text=True, check=True)
    n_parts = len(uninterrupted.experts_)
    kept = len((folder / FITS).read_text().splitlines())
    assert int(second.stdout) == kept - 1 - 6  # without the shared kernel
    assert int(second.stdout) >= n_parts - 6
    with np.load(f"{data}.out.npz") as answer:
        for ours, theirs in zip(answer.values(), uninterrupted.predict(X, True), strict=True):
            assert_array_equal(ours, theirs)


def test_a_run_that_was_killed_at_once_leaves_a_folder_that_will_do(tmp_path, uninterrupted):
    marks = f"manygp-{files._HOST}-{files._BOOT}-{2**22 + 1}-0badcafe-0"
    (tmp_path / f"{IDENTITY}.{marks}.part").write_text('{"sche')
    (tmp_path / ".DS_Store").write_text("")
    same_bits(model().fit(X, Y, checkpoint=tmp_path), uninterrupted)
    assert not list(tmp_path.glob("*.part"))


def test_rules_that_differ_in_a_number_are_told_apart():
    def rule(experts, power):
        return experts.mean**power

    two, four = (described(partial(rule, power=power)) for power in (2, 4))
    assert two != four
    assert two == json.loads(json.dumps(two)) == described(partial(rule, power=2))


SOURCE = """
from dataclasses import dataclass
from manygp.kernels import RBF

@dataclass(frozen=True)
class Mine(RBF):
    def profile(self, r2, work, *, slope):
        r2 *= {factor}
        return super().profile(r2, work, slope=slope)
"""


def test_a_kernel_whose_code_has_changed_is_another(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for factor in (1.0, 4.0):
        name = f"mine{int(factor)}"
        (tmp_path / f"{name}.py").write_text(SOURCE.format(factor=factor))
        found.append(described(importlib.import_module(name).Mine() + White()))
    assert found[0] != found[1]
    assert found[0][0] == found[1][0]


def test_other_libraries_are_refused_by_name(tmp_path):
    model(hyperparameters="shared").fit(X, Y, checkpoint=tmp_path)
    path = tmp_path / IDENTITY
    path.write_text(path.read_text().replace(f'"scipy": "{version("scipy")}"', '"scipy": "0.1"'))
    with pytest.raises(ValueError, match=r"its scipy is '0\.1', not"):
        model(hyperparameters="shared").fit(X, Y, checkpoint=tmp_path)


def test_a_regressor_with_other_parameters_is_another_fit(tmp_path):
    few = {"hyperparameters": "shared", "points_per_expert": 200}
    model(**few, trend=Ridge(alpha=1.0)).fit(X, Y, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"another fit: its trend is .*'alpha': 1\.0"):
        model(**few, trend=Ridge(alpha=2.0)).fit(X, Y, checkpoint=tmp_path)
