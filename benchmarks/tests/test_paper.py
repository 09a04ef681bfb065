"""The paper's claims hold on its synthetic tasks."""

import csv

import numpy as np
import pytest

from benchmarks import early
from benchmarks.datasets import load, split
from benchmarks.studies.published import published
from benchmarks.studies.regimes import best_steps
from manygp import ManyGPRegressor
from manygp.metrics import ence, nll, rmse
from manygp.paper import Adam

SEEDS = range(10)  # as many as the paper's


@pytest.fixture(scope="module", params=["ackley", "levy", "rastrigin"])
def scores(request):
    """Task, and RMSE, NLL, ENCE of bt-ent-c and bt-ent, each a mean over the seeds."""
    found = {"bt-ent-c": [], "bt-ent": []}
    for seed in SEEDS:
        data = split(load(request.param, seed), seed)
        model = ManyGPRegressor.from_label("bt-ent-c", n_jobs=2, random_state=seed)
        model.fit(data.X_train, data.y_train)
        for label, rule in (("bt-ent-c", "information"), ("bt-ent", "none")):
            answer = model.set_params(calibration=rule).predict(data.X_test, return_std=True)
            found[label].append([metric(data.y_test, *answer) for metric in (rmse, nll, ence)])
    return request.param, {label: np.mean(rows, axis=0) for label, rows in found.items()}


def test_accuracy_and_likelihood_are_the_papers_within_five_percent_or_better(scores):
    task, means = scores
    for value, metric in zip(means["bt-ent-c"], ("rmse", "nll"), strict=False):
        assert value <= 1.05 * published()[task, "bt-ent-c", metric]


def test_calibration_lowers_nll_and_ence_and_leaves_rmse(scores):
    _, means = scores
    calibrated, plain = means["bt-ent-c"], means["bt-ent"]
    assert calibrated[1] < plain[1]
    assert calibrated[2] < plain[2]
    assert calibrated[0] == pytest.approx(plain[0], rel=0.01)


def test_every_published_cell_is_there():
    cells = published()
    labels = {label for _, label, _ in cells}
    assert len(labels) == 21
    assert cells["kin40k", "gp-pro-sm", "nll"] == -0.154


# RMSE and NLL of one global GP on all rows (ackley), which the paper's product of experts does not
# reach, or of a trend that no GP reaches (rastrigin).
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "accuracy", "likelihood"),
    [("ackley", 0.485, 0.70), ("rastrigin", 0.025, -2.3)],
)
def test_the_default_is_as_good_as_a_global_gp_and_its_intervals_hold(task, accuracy, likelihood):
    data = split(load(task, 0), 0)
    model = ManyGPRegressor(n_jobs=2, random_state=0).fit(data.X_train, data.y_train)
    mean, std = model.predict(data.X_test, return_std=True)
    assert rmse(data.y_test, mean) <= accuracy
    assert nll(data.y_test, mean, std) <= likelihood
    assert ence(data.y_test, mean, std) <= 0.12
    lower, upper = model.predict_interval(data.X_test, 0.9)
    assert np.mean((lower <= data.y_test) & (data.y_test <= upper)) == pytest.approx(0.9, abs=0.02)


def test_adam_starts_as_gpytorch_does_and_moves_by_its_rate_at_first():
    def minus(theta):  # minus a likelihood that grows with every hyperparameter but the noise
        return 0.0, np.array([-1.0, -1.0, 1e6])

    start, first, *_, last = Adam(300).path(minus, 3)
    assert np.exp(start) == pytest.approx([np.log(2), np.log(2), np.log(2) + 1e-4])
    raised, lowered = np.log1p(np.exp(0.1)), np.log1p(np.exp(-0.1)) + 1e-4
    assert np.exp(first) == pytest.approx([raised, raised, lowered])
    assert 1e-4 < np.exp(last[2]) < 1.1e-4


def test_what_was_recorded_after_some_steps_is_the_model_of_so_many_steps():
    data = split(load("ackley", 0, 600), 0)

    def fitted(optimizer):
        model = ManyGPRegressor.from_label(
            "bt-ent-c", optimizer=optimizer, points_per_expert=100, n_jobs=1, random_state=0
        )
        return model.fit(data.X_train, data.y_train).predict(data.X_test, return_std=True)

    recorder = early.Recorder((25, 50))
    fitted(recorder)
    replayed = fitted(early.Replay(recorder.paths, 25))
    assert np.array_equal(replayed, fitted(Adam(25)))
    assert not np.allclose(replayed, fitted(early.Replay(recorder.paths, 50)), rtol=1e-3)


def test_all_models_are_stopped_where_the_scan_comes_nearest_to_the_published_cells():
    assert best_steps() == early.STOP


def test_every_line_belongs_to_a_job_of_the_study():
    with early.RESULTS.open(newline="") as file:
        jobs = {
            early.Job(row["task"], early.assignment_of(row["model"]), int(row["seed"]))
            for row in csv.DictReader(file)
        }
    assert jobs <= set(early.jobs())
