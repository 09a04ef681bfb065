"""What ManyGPRegressor promises beyond scikit-learn's contract."""

import io
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info

from data import noisy_rows, read_only, slope_and_wave
from manygp import ManyGPRegressor
from manygp.committee import committee
from manygp.committee.committee import PARTITIONS
from manygp.paper import LABELS
from manygp.rules import AGGREGATIONS, CALIBRATIONS, WEIGHTINGS, Gaussian, normalise
from manygp.settings import SHRINKAGES
from models import CHOSEN, FIXED, answers_at, choosing, model
from patching import with_numbers

X, y, QUERIES = noisy_rows(slope_and_wave, 120, 1100, reach=3.0)  # more than two chunks of rows
FEW = read_only([*QUERIES[:20], *X[:4], *X[:2], [50.0, -50.0]])
answers = answers_at(QUERIES)


def of_one_kernel(**parameters):
    """A small model of those rules that any aggregation can be asked of."""
    return model(**{"kernel": FIXED, "hyperparameters": "shared", **parameters})


KINDS = {
    "six-experts": model,
    "six-that-choose": choosing,
    "one-expert": partial(choosing, points_per_expert=200),
}


@pytest.fixture(scope="module", params=KINDS)
def fitted(request):
    return KINDS[request.param]().fit(X, y)


@pytest.mark.parametrize(
    "settings",
    [
        *({**CHOSEN, "hyperparameters": name} for name in SHRINKAGES),
        {},
        {"aggregation": "grbcm"},
        {"aggregation": "nested"},
    ],
    ids=[*SHRINKAGES, "auto", "auto-grbcm", "auto-nested"],
)
def test_predictions_do_not_depend_on_n_jobs(settings):
    one, two, four = (
        answers(choosing(n_jobs=n_jobs, **settings).fit(X, y)) for n_jobs in (1, 2, 4)
    )
    assert_array_equal(two, one)
    assert_array_equal(four, one)


def test_restarts_do_not_depend_on_n_jobs():
    settings = {"hyperparameters": "independent", "n_restarts_optimizer": 2}
    one, two = (answers(model(n_jobs=n, **settings).fit(X, y), FEW) for n in (1, 2))
    assert_array_equal(two, one)


def test_the_seed_decides_the_partition():
    same, again, other = (
        model(partition="random", random_state=seed, kernel=FIXED).fit(X, y) for seed in (1, 1, 2)
    )
    assert_array_equal(again.experts_[0].indices, same.experts_[0].indices)
    assert not np.array_equal(other.experts_[0].indices, same.experts_[0].indices)


@pytest.mark.parametrize("size", [1, 7, 600])
def test_predictions_do_not_depend_on_the_batch_size(fitted, size):
    rows = QUERIES if size > 7 else FEW
    batches = [answers(fitted, rows[i : i + size]) for i in range(0, len(rows), size)]
    joined = np.concatenate(batches, axis=-1)
    assert_allclose(joined, answers(fitted, rows), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("routing", [None, 2])
def test_predictions_do_not_depend_on_other_rows(weighting, aggregation, routing):
    rules = {"weighting": weighting, "aggregation": aggregation, "routing": routing}
    fitted = of_one_kernel(**rules).fit(X, y)
    others = np.concatenate([FEW, 1e6 + QUERIES[:50], X])  # far away, and at the data
    expected = answers(fitted, FEW)
    assert_allclose(answers(fitted, others)[:, : len(FEW)], expected, rtol=1e-12, atol=1e-12)


def test_a_mean_alone_of_a_single_expert_computes_no_variance(monkeypatch):
    fitted = model(points_per_expert=200).fit(X, y)
    expected = fitted.predict(FEW, return_std=True)[0]

    def refuse(*arguments, **options):
        raise AssertionError("a variance was computed")

    monkeypatch.setattr("manygp.gp.expert._whiten", refuse)
    assert_allclose(fitted.predict(FEW), expected, rtol=1e-12)
    with pytest.raises(AssertionError, match="a variance was computed"):  # so the patch bites
        fitted.predict(FEW, return_std=True)


def test_a_mean_asked_for_alone_is_the_same_mean(fitted):
    expected = fitted.predict(QUERIES, return_std=True)[0]
    assert_allclose(fitted.predict(QUERIES), expected, rtol=1e-12)


@pytest.mark.parametrize("latent", [True, False])
@pytest.mark.parametrize("rules", [{"aggregation": a} for a in AGGREGATIONS] + [
    {"aggregation": "nested", "overlap": 1}, {"aggregation": "grbcm", "routing": 2},
    {"weighting": "softmax", "temperature": 100.0}, {"weighting": "tempered"},
    {"weighting": "uniform", "calibration": "none"}, {"overlap": 1}, {"routing": 2},
    {"overlap": 0.5, "routing": 3, "calibration": "auto"}, {"points_per_expert": 200},
    dict.fromkeys(["overlap", "temperature", "calibration", "routing"], "auto"),
], ids=str)  # fmt: skip
def test_covariance_is_symmetric_psd_with_the_variances_on_its_diagonal(rules, latent):
    fitted = of_one_kernel(**rules).fit(X, y)
    mean, cov = fitted.predict(FEW, return_cov=True, latent=latent)
    expected_mean, std = fitted.predict(FEW, return_std=True, latent=latent)
    assert_array_equal(mean, expected_mean)
    assert_allclose(cov, cov.T, rtol=1e-12, atol=1e-14)
    assert_allclose(np.diag(cov), std**2, rtol=1e-12)
    eigenvalues = np.linalg.eigvalsh(cov)
    assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]


@pytest.mark.parametrize(
    "settings",
    [{}, {"overlap": 1, "routing": 2}, {"aggregation": "nested", "hyperparameters": "shared"},
     {"points_per_expert": 200}],
    ids=str,
)  # fmt: skip
def test_latent_variance_lacks_the_noise(settings):
    fitted = model(**settings).fit(X, y)
    noise = [expert.noise_variance for expert in fitted.experts_]
    scale = np.std(y) ** 2
    _, std, latent, _ = answers(fitted)
    difference = std**2 - latent**2
    assert np.all(difference >= min(noise) * scale * (1 - 1e-9))
    assert np.all(difference <= max(noise) * scale * (1 + 1e-9))


@pytest.mark.parametrize("latent", [True, False])
def test_samples_have_the_predicted_mean_and_covariance(latent):
    fitted = model(kernel=FIXED).fit(X, y)
    mean, cov = fitted.predict(FEW, return_cov=True, latent=latent)
    samples = fitted.sample_y(FEW, 20_000, random_state=0, latent=latent)
    assert samples.shape == (len(FEW), 20_000)
    std = np.sqrt(np.diag(cov))
    # Five standard errors of a mean, and of a covariance.
    assert np.all(np.abs(samples.mean(axis=1) - mean) < 5 * std / np.sqrt(20_000))
    assert np.all(np.abs(np.cov(samples) - cov) < 5 * np.sqrt(2 / 20_000) * np.outer(std, std))


def test_samples_have_one_axis_per_target_and_follow_the_seed():
    one = model(kernel=FIXED).fit(X, y)
    two = model(kernel=FIXED).fit(X, np.column_stack([y, y**2]))
    assert one.sample_y(FEW).shape == (len(FEW), 1)
    assert two.sample_y(FEW, 5).shape == (len(FEW), 2, 5)
    assert_array_equal(one.sample_y(FEW, 3, random_state=7), one.sample_y(FEW, 3, random_state=7))
    assert np.all(one.sample_y(FEW, 3, random_state=7) != one.sample_y(FEW, 3, random_state=8))


@pytest.mark.parametrize("label", LABELS)
def test_every_label_fits_and_predicts(label):
    fitted = ManyGPRegressor.from_label(label, points_per_expert=20, random_state=0)
    fitted.fit(X[:60], y[:60])
    mean, std = fitted.predict(X[60:], return_std=True)
    assert np.sqrt(np.mean((mean - y[60:]) ** 2)) < 0.6 * np.std(y)
    assert np.all((std > 0) & np.isfinite(std))
    assert fitted.calibration_report_ is None  # a label leaves nothing to choose
    assert len(fitted.experts_) == 1 if label == "gp-full" else len(fitted.experts_) > 1


def test_labels_are_those_of_the_paper():
    assert len(LABELS) == 18 + 3
    got = ManyGPRegressor.from_label("kx-var-c").get_params()
    rules = {name: got[name] for name in ("partition", "weighting", "calibration", "aggregation")}
    assert list(rules.values()) == ["kmeans", "variance", "information", "gpoe"]
    assert ManyGPRegressor.from_label("rd-uni").calibration == "none"
    assert ManyGPRegressor.from_label("gp-pro-sm").temperature == 100
    for label in LABELS:
        # Experts know their own rows, have their own hyperparameters and are all asked.
        got = ManyGPRegressor.from_label(label).get_params()
        assert (got["overlap"], got["routing"]) == (0, None)
        assert (got["hyperparameters"], got["trend"]) == ("independent", "constant")


def test_an_unknown_label_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'bt-cent'.*bt-ent-c.*gp-pro-full"):
        ManyGPRegressor.from_label("bt-cent")


def test_parameters_win_over_the_label():
    changed = ManyGPRegressor.from_label("bt-ent-c", weighting="uniform", points_per_expert=7)
    assert (changed.weighting, changed.points_per_expert) == ("uniform", 7)
    assert changed.calibration == "information"


def test_two_targets_equal_two_models_of_one():
    Y = np.column_stack([y, 100 * np.cos(X[:, 1]) - 7])
    both = model(kernel=FIXED).fit(X, Y)
    mean, std = both.predict(FEW, return_std=True)
    _, cov = both.predict(FEW, return_cov=True)
    assert (mean.shape, std.shape) == ((len(FEW), 2), (len(FEW), 2))
    assert cov.shape == (len(FEW), len(FEW), 2)
    for t in range(2):
        one = model(kernel=FIXED).fit(X, Y[:, t])
        one_mean, one_std = one.predict(FEW, return_std=True)
        assert_allclose(mean[:, t], one_mean, rtol=1e-10)
        assert_allclose(std[:, t], one_std, rtol=1e-10)
        assert_allclose(cov[:, :, t], one.predict(FEW, return_cov=True)[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("overlap", [0, 1.5])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_experts_record_their_rows_and_their_fit(partition, overlap):
    fitted = model(partition=partition, overlap=overlap).fit(X, y)
    experts = fitted.experts_
    assert len(experts) == 6
    assert_array_equal(np.sort(np.concatenate([e.indices for e in experts])), np.arange(len(X)))
    for expert in experts:
        assert expert.jitter == 0
        assert expert.n_evaluations > 0
        assert list(expert.hyperparameters) == expert.kernel.theta_names
        assert_allclose(np.log([*expert.hyperparameters.values()]), expert.kernel.theta)
        assert expert.hyperparameters["White.variance"] == pytest.approx(expert.noise_variance)
        span = np.ptp(X, axis=0)
        assert len(expert.neighbours) == 20 * overlap
        assert_array_equal(expert.rows, [*expert.indices, *expert.neighbours])
        assert len(set(expert.rows)) == len(expert.rows)
        assert_allclose(expert.X, (X[expert.rows] - X.min(axis=0)) / span, atol=1e-12)
    total = sum(expert.log_marginal_likelihood for expert in experts)
    assert fitted.log_marginal_likelihood() == pytest.approx(total)
    # Of each row once, however many experts know it.
    theta = fitted.kernel_.theta
    alone = model(partition=partition).fit(X, y).log_marginal_likelihood(theta)
    assert fitted.log_marginal_likelihood(theta) == pytest.approx(alone, rel=1e-9)


def test_experts_answer_in_the_units_of_y():
    fitted = model().fit(X, y)
    alone = model(points_per_expert=200, kernel=fitted.experts_[2].kernel, normalize_X=True)
    record = fitted.predict_experts(FEW)
    assert {array.shape for array in record[:3]} == {(6, len(FEW))}
    assert record.noise_variance.shape == (6, 1)
    assert np.all(record.variance <= record.prior_variance * (1 + 1e-9))
    # In the units of y a committee of them is the model, and so are the ratios.
    ratio = fitted.calibration_ratio(FEW)
    calibrated = record._replace(variance=ratio * record.variance)
    weights = WEIGHTINGS["entropy"](record)
    mean, variance = AGGREGATIONS["gpoe"](calibrated, weights)
    expected = fitted.predict(FEW, return_std=True, latent=True)
    assert_allclose([mean, np.sqrt(variance)], expected, rtol=1e-9)
    assert np.all((ratio > 0) & (ratio <= 1))
    assert_array_equal(alone.fit(X, y).calibration_ratio(FEW), np.ones((1, len(FEW))))


OWN_RULES = {
    "partition": (lambda X, n_parts, rng: PARTITIONS["random"](X, n_parts, rng), "random"),
    "weighting": (lambda experts: np.ones(experts.mean.shape), "uniform"),
    "calibration": (lambda experts: np.ones(experts.mean.shape), "none"),
    "aggregation": (
        lambda experts, weights: Gaussian(
            (normalise(weights) * experts.mean).sum(axis=0),
            (normalise(weights) * np.sqrt(experts.variance)).sum(axis=0) ** 2,
        ),
        "barycentre",
    ),
    "hyperparameters": (lambda kernel: SHRINKAGES["hierarchical"], "hierarchical"),
}


@pytest.mark.parametrize("rule", OWN_RULES)
def test_a_callable_equals_the_named_rule_that_it_imitates(rule):
    own, name = OWN_RULES[rule]
    expected = answers(model(**{rule: name}).fit(X, y), FEW)
    assert_allclose(answers(model(**{rule: own}).fit(X, y), FEW), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("shrinkage", "name"),
    [(np.inf, "shared"), ([30.0] * 4, "hierarchical"), ([np.inf] * 4, "shared")],
    ids=str,
)
def test_a_shrinkage_may_be_one_number_or_one_per_hyperparameter(shrinkage, name):
    seen = []
    fitted = model(hyperparameters=lambda kernel: seen.append(kernel) or shrinkage).fit(X, y)
    assert_array_equal(answers(fitted), answers(model(hyperparameters=name).fit(X, y)))
    assert seen == [fitted.model_.kernel]


def test_an_infinite_shrinkage_of_one_hyperparameter_holds_that_one_only():
    fitted = model(hyperparameters=lambda kernel: np.array([np.inf, 0.0, 0.0, 0.0])).fit(X, y)
    distance = np.abs([e.kernel.theta - fitted.model_.kernel.theta for e in fitted.experts_])
    assert_array_equal(distance[:, 0], 0)
    assert np.all(distance[:, 1:].max(axis=0) > 0)


def test_parts_of_a_callable_become_the_experts():
    parts = [np.arange(0, 50), np.arange(40, 120)]  # rows may be in two parts
    fitted = choosing(kernel=FIXED, partition=lambda X, n_parts, rng: parts).fit(X, y)
    for expert, part in zip(fitted.experts_, parts, strict=True):
        assert_array_equal(expert.indices, part)


def test_shared_experts_have_one_kernel():
    fitted = model(hyperparameters="shared").fit(X, y)
    assert all(expert.kernel == fitted.model_.kernel for expert in fitted.experts_)
    assert all(expert.n_evaluations == 0 for expert in fitted.experts_)
    assert fitted.kernel_ != model(hyperparameters="independent").fit(X, y).kernel_


def test_hierarchical_experts_lie_between_shared_and_independent_ones():
    hierarchical = model().fit(X, y)
    centre = hierarchical.model_.kernel.theta
    strong = model(hyperparameters=lambda kernel: 1e4).fit(X, y)
    independent = model(hyperparameters="independent").fit(X, y)
    none, little, more, most = (
        np.mean([np.linalg.norm(e.kernel.theta - centre) for e in fitted.experts_])
        for fitted in (
            model(hyperparameters="shared").fit(X, y),
            strong,
            hierarchical,
            independent,
        )
    )
    assert none == 0
    assert 0 < little < more / 10 < more < most / 2


@pytest.mark.parametrize("make", [model, choosing])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_eight_threads_predicting_at_once_agree(n_jobs, make):
    fitted = make(n_jobs=n_jobs).fit(X, y)
    expected, before = answers(fitted), threadpool_info()
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(partial(answers, fitted), [QUERIES] * 8):
            assert_array_equal(got, expected)
    assert threadpool_info() == before  # no limit on BLAS is left behind


@pytest.mark.parametrize("make", [model, choosing])
@pytest.mark.parametrize("points_per_expert", [400, 100])
def test_nine_in_ten_new_targets_lie_in_the_90_percent_interval(points_per_expert, make):
    draw = np.random.default_rng(0)
    inputs = draw.uniform(-3, 3, (1400, 1))
    targets = np.sin(2 * inputs[:, 0]) + 0.3 * draw.normal(size=1400)
    fitted = make(points_per_expert=points_per_expert).fit(inputs[:400], targets[:400])
    mean, std = fitted.predict(inputs[400:], return_std=True)
    covered = np.mean(np.abs(targets[400:] - mean) < 1.6449 * std)
    assert 0.87 < covered < 0.93  # three standard errors of 1,000 rows


@pytest.mark.parametrize("calibration", [*CALIBRATIONS, "auto"])
def test_one_expert_needs_no_calibration(calibration):
    fitted = model(points_per_expert=200, kernel=FIXED, calibration=calibration).fit(X, y)
    assert_array_equal(fitted.calibration_ratio(FEW), np.ones((1, len(FEW))))


def test_verbose_says_what_it_costs_and_shows_no_bar_without_a_terminal(capsys):
    fitted = model(kernel=FIXED, verbose=True).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    reading, plan, *phases = err.splitlines()
    assert reading == "manygp: reading"
    assert plan == f"manygp: {len(X)} rows; {fitted.plan_}"
    assert " s and " in plan
    assert all(line.startswith("manygp: ") and "left" in line for line in phases)
    model(kernel=FIXED).fit(X, y)
    assert capsys.readouterr() == ("", "")


def phases_of(text):
    """The phases of which lines on standard error tell, in their order."""
    lines = text.removeprefix("manygp: ").split("\nmanygp: ")
    return [
        line.split(" after ")[0].split(",")[0].strip() for line in lines if " rows" not in line
    ]


def test_verbose_tells_the_phases_in_their_order(capsys):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(260, 2))
    targets = 3 * inputs[:, 0] + np.sin(6 * inputs[:, 1]) + 0.1 * rng.normal(size=260)
    settings = {"hyperparameters": "shared", "overlap": 0.0, "random_state": 0, "verbose": True}
    ManyGPRegressor(points_per_expert=130, **settings).fit(inputs, targets)
    assert phases_of(capsys.readouterr().err) == [
        "reading", "linear trend", "additive trend", "pairs trend", "kernel", "choice",
        "experts", "conditioning", "calibration", "structure",
    ]  # fmt: skip
    ManyGPRegressor(points_per_expert=60, **settings).fit(inputs[:60], targets[:60])
    assert phases_of(capsys.readouterr().err) == [
        "reading", "kernel", "calibration",
    ]  # fmt: skip


def test_an_interrupted_fit_leaves_no_thread_and_no_line(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)

    def interrupted(*_):
        assert any(one.name == "manygp-progress" for one in threading.enumerate())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model(kernel=FIXED, weighting=interrupted, calibration="auto", verbose=True).fit(X, y)
    assert not any(one.name == "manygp-progress" for one in threading.enumerate())
    assert not stream.getvalue().split("\r")[-2].strip()


@pytest.mark.parametrize("routing", [None, 5])
def test_memory_of_predict_is_bounded_whatever_the_number_of_rows(routing, monkeypatch):
    """In blocks that are smaller than usual: a larger one only takes longer."""
    block_rows = 4 * committee.QUERYING.chunk_rows
    numbers = {"block_rows": block_rows, "block_numbers": 8 * block_rows}
    with_numbers(monkeypatch, committee, "QUERYING", **numbers)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    fitted = model(points_per_expert=30, hyperparameters="shared", routing=routing)
    fitted.fit(X, np.sin(5 * X[:, 0]))

    def peak(n_rows):
        queries = rng.uniform(size=(n_rows, 2))
        tracemalloc.start()
        fitted.predict(queries, return_std=True)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    one_block, ten = peak(block_rows), peak(10 * block_rows)
    per_row = 8 * 20  # inputs, scaled inputs and answers, a few copies of each; no expert's
    assert ten - one_block < per_row * 9 * block_rows
