"""Many outputs: components, their std per output, bands of whole curves, and bad input."""

import pickle
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2, multivariate_normal
from sklearn.base import clone

import manygp
from manygp import ManyGPEmulator, ManyGPRegressor
from manygp.answers import left_out_answers
from manygp.display import write_emulator_report
from manygp.emulator import basis, estimator, match
from manygp.emulator.basis import Grid, components_of, reduce_curves, without_fold
from manygp.emulator.match import target_of
from manygp.storage import container
from patching import with_numbers

# Curves without noise: its variance ends at its bound.
pytestmark = pytest.mark.filterwarnings("ignore:The optimal value found for dimension 0")
LEAN = ManyGPRegressor(
    manygp.kernels.RBF([1.0, 1.0]) + manygp.kernels.White(0.1),
    trend="constant",
    hyperparameters="shared",
    overlap=1.0,
    routing=4,
    noise="constant",
    target_transform=None,
)
t = np.linspace(0, 1, 40)


def curves_of(X, noise=0.0, seed=1):
    """Waves of three components, with noise of each output."""
    Y = np.sin(5 * t + 3 * X[:, :1]) * (1 + X[:, 1:2]) + 10.0
    return Y + noise * np.random.default_rng(seed).normal(size=Y.shape)


def runs(n, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 2))


@pytest.fixture(scope="module")
def noisy():
    """A model of 120 runs with noise .1 of each output, and as many new ones."""
    X, new = runs(120), runs(400, 7)
    model = ManyGPEmulator(LEAN, random_state=0).fit(X, curves_of(X, 0.1))
    return model, new, curves_of(new, 0.1, 8)


def test_curves_of_few_components_are_found_again():
    X, new = runs(80), runs(50, 7)
    model = ManyGPEmulator(LEAN, random_state=0).fit(X, curves_of(X))
    assert model.n_components_ == 2
    assert np.abs(model.predict(new) - curves_of(new)).max() < 0.02
    assert model.explained_.min() > 0.99
    assert model.score(new, curves_of(new)) > 0.999


def test_std_intervals_and_bands_hold_what_they_promise(noisy):
    model, new, Y = noisy
    mean, std = model.predict(new, return_std=True)
    assert 0.09 < std.mean() < 0.12
    assert 0.9 < np.mean(((Y - mean) / std) ** 2) < 1.1
    for coverage in (0.5, 0.9):
        lower, upper = model.predict_interval(new, coverage)
        assert abs(np.mean((lower <= Y) & (upper >= Y)) - coverage) < 0.03
        lower, upper = model.predict_interval(new, coverage, simultaneous=True)
        assert abs(np.mean(((lower <= Y) & (upper >= Y)).all(axis=1)) - coverage) < 0.1


def test_the_low_rank_covariance_has_the_variances_and_draws_are_of_it(noisy):
    model, new, _ = noisy
    mean, cov = model.predict(new[:2], return_cov=True)
    _, std = model.predict(new[:2], return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov.dense(1))), std[1])
    draws = model.sample_y(new[:2], 4000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=-1), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws[1]), cov.dense(1), atol=2e-3)


def test_what_the_basis_leaves_is_in_the_std_of_its_output():
    X, new = runs(100), runs(300, 7)
    only = np.where(t > 0.7, 1.0, 0.0)  # one component, and more where t is large
    Y, truth = (
        np.sin(4 * Z[:, :1]) * (t + 1) + 0.2 * only * np.cos(40 * t * Z[:, 1:2]) for Z in (X, new)
    )
    model = ManyGPEmulator(LEAN, n_components=1, random_state=0).fit(X, Y)
    mean, std = model.predict(new, return_std=True)
    error, where = truth - mean, only > 0
    assert 0.8 < np.sqrt(np.mean((error / std)[:, where] ** 2)) < 1.2
    assert std[:, ~where].max() < 0.2 * std[:, where].min()


def test_what_the_basis_leaves_depends_on_the_run_where_that_pays():
    rng, X, new = np.random.default_rng(0), runs(150), runs(200, 7)
    Y, truth = (
        np.outer(Z[:, 0], t) + np.exp(-4 * Z[:, 1:]) * rng.normal(size=(len(Z), len(t)))
        for Z in (X, new)
    )
    model = ManyGPEmulator(LEAN, n_components=1, random_state=0).fit(X, Y)
    assert model.model_.local is not None
    mean, std = model.predict(new, return_std=True)
    order = np.argsort(new[:, 1])
    for part in (order[:100], order[100:]):
        assert 0.8 < np.sqrt(np.mean(((truth - mean)[part] / std[part]) ** 2)) < 1.25


@pytest.mark.parametrize("apart", [True, False])
def test_components_are_turned_where_left_out_curves_gain_by_it(apart):
    """Two parts of a curve that depend on an input each, or whose sum and difference do."""
    X = runs(60)
    waves = np.sin(15 * X) + 0.05 * np.random.default_rng(1).normal(size=X.shape)
    parts = waves @ np.array([[1.0, 0.0], [0.0, 0.95]] if apart else [[1.0, 1.0], [0.5, -0.5]])
    Y = parts @ np.stack([(t < 0.25) / np.sqrt(10), (t >= 0.25) / np.sqrt(30)])
    model = ManyGPEmulator(LEAN, n_components=2, scaling="none", random_state=0).fit(X, Y)
    sizes = np.abs(model.components_[:, [0, -1]])
    if apart:
        np.testing.assert_allclose(sizes.min(axis=1), 0, atol=1e-3)
    else:
        assert (sizes > 0.1).all()
    assert model.explained_.min() > 0.9


def test_components_of_the_other_folds_are_those_of_the_curves_themselves():
    Y = np.random.default_rng(0).normal(size=(30, 12)) * np.arange(1, 13)
    grid, rng = Grid.of(Y), np.random.default_rng(0)
    reduced = reduce_curves(Y, grid, scaling="none", rng=rng)
    parts = components_of(reduced, rng)
    Z = Y - Y.mean(axis=0)
    sizes = np.linalg.svd(Z, compute_uv=False)
    np.testing.assert_allclose(parts.explained, sizes**2 / 30)
    rows, k, total = np.arange(30), 4, 0.0
    rest = Z - without_fold(parts, rows, reduced.places, k) @ reduced.directions.T
    for fold in range(5):
        own = parts.fold_of == fold
        V = np.linalg.svd(Z[~own])[2][:k].T
        np.testing.assert_allclose(rest[own], Z[own] - Z[own] @ V @ V.T, atol=1e-10)
        total += (rest[own] ** 2).sum()
    np.testing.assert_allclose(parts.unexplained[k], total / 30)


def test_small_blocks_and_files_change_nothing(monkeypatch, tmp_path):
    Y = np.random.default_rng(0).normal(size=(25, 30)).cumsum(axis=1).astype(np.float32)
    whole = reduce_curves(Y, Grid.of(Y), scaling="each", rng=np.random.default_rng(0))
    np.save(tmp_path / "Y.npy", Y)
    with_numbers(monkeypatch, basis, "BASIS", block=70)
    mapped = np.load(tmp_path / "Y.npy", mmap_mode="r")
    parts = reduce_curves(mapped, Grid.of(mapped), scaling="each", rng=np.random.default_rng(0))
    np.testing.assert_allclose(parts.scale, whole.scale)
    np.testing.assert_allclose(
        parts.places @ parts.directions.T, whole.places @ whole.directions.T, atol=1e-9
    )


@pytest.mark.parametrize("scaling", ["all", "none"])
def test_scaling_all_outputs_alike_changes_no_units(scaling):
    X, new = runs(60), runs(20, 7)
    model = ManyGPEmulator(LEAN, scaling=scaling, random_state=0).fit(X, 1e3 * curves_of(X))
    mean, std = model.predict(new, return_std=True)
    assert np.abs(mean - 1e3 * curves_of(new)).max() < 30
    assert 0 < std.max() < 30


def test_constant_outputs_are_predicted_exactly_and_do_not_count():
    X = runs(60)
    Y = curves_of(X)
    Y[:, 5] = 3.0
    model = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, Y)
    mean, std = model.predict(runs(5, 7), return_std=True)
    assert (mean[:, 5] == 3).all()
    assert (std[:, 5] == 0).all()
    assert (std[:, 4] > 0).all()
    with pytest.raises(ValueError, match="output 5 of Y was the same in all runs of fit"):
        model.partial_fit(X, Y + 1)


class Labelled:
    """What of xarray's DataArray an emulator looks at."""

    def __init__(self, values, dims, coords):
        self.values, self.dims = np.asarray(values), tuple(dims)
        own = {
            name: one if isinstance(one, tuple) else (name, one) for name, one in coords.items()
        }
        self.coords = {
            name: type("C", (), {"dims": tuple(np.atleast_1d(d)), "values": np.asarray(v)})
            for name, (d, v) in own.items()
        }
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return self.values[rows]


def test_fields_and_their_coordinates_come_back():
    X = runs(40)
    fields = curves_of(X).reshape(40, 8, 5)
    labelled = Labelled(
        fields, ("run", "y", "x"), {"y": np.arange(8.0), "x": list("abcde"), "run": np.arange(40)}
    )
    plain = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, fields)
    model = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, labelled)
    answer = model.predict(X[:3])
    assert answer.dims == ("run", "y", "x")
    assert answer.coords["x"].values.tolist() == list("abcde")
    assert "run" not in answer.coords
    np.testing.assert_array_equal(answer.values, plain.predict(X[:3]))
    assert plain.components_.shape == (2, 8, 5)
    assert plain.sample_y(X[:3], 2).shape == (3, 8, 5, 2)


def test_slopes_of_one_output_are_those_of_differences():
    X = runs(60)
    Y = curves_of(X, 0.1).reshape(60, 8, 5)
    model = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, Y)
    x, h = np.array([0.4, 0.6]), 1e-5
    slopes = model.predict_gradient(x, (3, 2))
    steps = np.array([x + h * e for e in (*np.eye(2), *-np.eye(2))])
    for slope, answer in zip(slopes, model.predict(steps, return_std=True), strict=True):
        at = np.asarray(answer)[:, 3, 2]
        np.testing.assert_allclose(slope, (at[:2] - at[2:]) / (2 * h), rtol=1e-3, atol=1e-5)


def test_a_share_of_variance_chooses_the_number_of_components():
    X = runs(50)
    model = ManyGPEmulator(LEAN, n_components=0.6, random_state=0).fit(X, curves_of(X))
    assert model.n_components_ == 1


def test_left_out_curves_are_predicted_without_their_run(noisy):
    model, _, _ = noisy
    mean, std = model.loo_predict()
    error = curves_of(runs(120), 0.1) - mean
    assert 0.85 < np.sqrt(np.mean((error / std) ** 2)) < 1.15
    np.testing.assert_allclose(model.loo_predict([3])[0][0], mean[3])


def test_the_model_does_not_depend_on_the_number_of_jobs_and_is_pickled(monkeypatch):
    def elsewhere(function, items, n_jobs):
        function, items = pickle.loads(pickle.dumps((function, items)))
        return [pickle.loads(pickle.dumps(function(one))) for one in items]

    monkeypatch.setattr(estimator, "process_map", elsewhere)
    X = runs(30)
    first, second = (
        ManyGPEmulator(LEAN, n_components=2, random_state=0, n_jobs=jobs).fit(X, curves_of(X))
        for jobs in (1, 2)
    )
    again = pickle.loads(pickle.dumps(second))
    np.testing.assert_array_equal(first.predict(X[:5]), again.predict(X[:5]))


def test_parameters_of_the_regressor_are_those_of_each_component():
    model = ManyGPEmulator(clone(LEAN), n_components=1)
    model.set_params(regressor__points_per_expert=20)
    X = runs(45)
    copy = clone(model).fit(X, curves_of(X))
    assert copy.models_[0].points_per_expert == 20
    assert len(copy.models_[0].experts_) == 2


def test_outputs_without_components_have_noise_tails_and_transform_of_their_own():
    X, new = runs(150), runs(400, 7)

    def both(Z, rng):
        smooth = np.sin(6 * Z[:, 0]) + 0.01 * rng.normal(size=len(Z))
        return np.stack([smooth, np.exp(2 * Z[:, 1] + 0.5 * rng.normal(size=len(Z)))], axis=1)

    Y, truth = both(X, np.random.default_rng(0)), both(new, np.random.default_rng(1))
    regressor = ManyGPRegressor(trend="constant", target_transform="log")
    model = ManyGPEmulator(regressor, n_components=None, random_state=0)
    with pytest.raises(ValueError, match="not negative"):
        model.fit(X, Y)
    model.set_params(regressor=ManyGPRegressor(trend="constant")).fit(X, Y)
    mean, std = model.predict(new, return_std=True)
    error = np.abs(truth - mean)
    assert np.all(np.abs(np.sqrt(np.mean((error / std) ** 2, axis=0)) - 1) < 0.25)
    assert std[:, 0].max() < 0.05
    lower, upper = model.predict_interval(new)
    assert np.all(np.abs(np.mean((lower <= truth) & (truth <= upper), axis=0) - 0.9) < 0.05)
    lower, upper = model.predict_interval(new, simultaneous=True)
    assert abs(np.mean(((lower <= truth) & (truth <= upper)).all(axis=1)) - 0.9) < 0.06
    for one, column in zip(model.models_, mean.T, strict=True):
        np.testing.assert_allclose(one.predict(new), column)


@pytest.fixture(scope="module")
def small():
    """A model of a field with coordinates, of two components and a model of what they leave."""
    X = runs(60)
    Y = curves_of(X, 0.2).reshape(60, 8, 5)
    Y[:, 3, 3] = 2.0
    model = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, Y)
    local = replace(
        model.model_, local=ManyGPRegressor(trend="constant").fit(X, X[:, 0] + X[:, 1] ** 2)
    )
    return model._become(local)


def test_files_keep_every_answer(small, tmp_path):
    small.save(tmp_path / "field.manygp")
    again, new = ManyGPEmulator.load(tmp_path / "field.manygp"), runs(5, 7)
    for left, right in zip(
        small.predict(new, return_std=True), again.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(
        small.predict_interval(new, simultaneous=True),
        again.predict_interval(new, simultaneous=True),
    )
    assert again.get_params()["n_components"] == 2
    assert small.model_.report == again.model_.report


def test_files_keep_the_axes_of_xarray(small, tmp_path, monkeypatch):
    coords = {"y": (("y",), np.arange(8)), "x": (("x",), np.linspace(0, 1, 5))}
    grid = Grid((8, 5), ("run", "y", "x"), coords, Labelled)
    labelled = ManyGPEmulator(LEAN)._become(replace(small.model_, grid=grid))
    labelled.save(tmp_path / "field.manygp")
    monkeypatch.setitem(sys.modules, "xarray", SimpleNamespace(DataArray=Labelled))
    answer = ManyGPEmulator.load(tmp_path / "field.manygp").predict(runs(2))
    assert answer.dims == grid.dims
    np.testing.assert_array_equal(answer.coords["x"].values, np.linspace(0, 1, 5))
    named = grid._replace(coords={"x": (("x",), np.array(list("abcde")))})
    with pytest.raises(ValueError, match="coordinate 'x' cannot be saved"):
        labelled._become(replace(small.model_, grid=named)).save(tmp_path / "none.manygp")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e, a: e["grid"].update(shape=[8, 6]), "must hold finite numbers"),
        (lambda e, a: e.update(level=-1.0), "level"),
        (lambda e, a: e.update(models=e["models"][:1]), "no components|must hold"),
        (lambda e, a: e.pop("models"), "lacks 'models'"),
        (lambda e, a: a.update(bands=a["bands"][::-1].copy()), "not sorted"),
        (lambda e, a: a.update(scale=-a["scale"]), "negative"),
        (lambda e, a: a.pop("root"), "lacks 'root'"),
        (lambda e, a: e["models"][0].update(kernel=3), "kernel must be a text"),
        (lambda e, a: e["parameters"].update(scaling="some"), "scaling must be"),
    ],
)
def test_files_of_other_content_are_refused(small, tmp_path, change, words):
    path = tmp_path / "field.manygp"
    small.save(path)
    manifest, arrays = container.read(path)
    manifest = {key: manifest[key] for key in ("manygp", "emulator")}
    change(manifest["emulator"], arrays)
    container.write(path, manifest, arrays)
    with pytest.raises(manygp.ModelFileError, match=words):
        ManyGPEmulator.load(path)


def test_models_and_emulators_are_told_apart(small, tmp_path):
    small.save(tmp_path / "field.manygp")
    with pytest.raises(manygp.ModelFileError, match=r"ManyGPEmulator\.load"):
        manygp.load(tmp_path / "field.manygp")
    small.models_[0].save(tmp_path / "one.manygp")
    with pytest.raises(manygp.ModelFileError, match=r"manygp\.load"):
        ManyGPEmulator.load(tmp_path / "one.manygp")


def test_new_runs_are_learned_without_a_new_fit():
    X, more, new = runs(40), runs(60, 5), runs(100, 7)
    model = ManyGPEmulator(LEAN, random_state=0).partial_fit(X, curves_of(X, 0.05))
    before = model.model_
    error = np.std(model.predict(new) - curves_of(new))
    model.partial_fit(more, curves_of(more, 0.05, 9))
    assert np.std(model.predict(new) - curves_of(new)) < 0.95 * error
    assert len(model.model_.spread.bands) == 100
    assert len(before.spread.bands) == 40
    assert [len(one.row_ids_) for one in before.models] == [40] * len(before.models)
    lower, upper = model.predict_interval(new)
    Y = curves_of(new, 0.05, 3)
    assert abs(np.mean((lower <= Y) & (upper >= Y)) - 0.9) < 0.06
    with pytest.raises(ValueError, match="those of fit"):
        model.partial_fit(more, curves_of(more)[:, :3])


@pytest.fixture(scope="module")
def linear():
    """A model of curves that are lines of their inputs: the posterior of these is known."""
    X = runs(30)
    kernel = manygp.kernels.Constant(100.0) * manygp.kernels.RBF([20.0, 20.0])
    regressor = ManyGPRegressor(kernel + manygp.kernels.White(1e-6), optimizer=None)
    ends = np.array([[0.0, 0.0], [1.0, 1.0]])
    Y = lines(np.vstack([X, ends]))
    return ManyGPEmulator(regressor, n_components=2, random_state=0).fit(np.vstack([X, ends]), Y)


def lines(X):
    return X[:, :1] * t + X[:, 1:] * (1 - t) ** 2


def test_the_inputs_of_an_observed_line_have_the_posterior_that_they_must_have(linear):
    noise, truth = 0.1, np.array([[0.5, 0.45]])
    observed = lines(truth)[0] + noise * np.random.default_rng(3).normal(size=40)
    observed[::3] = np.nan
    seen = ~np.isnan(observed)
    A = np.stack([t, (1 - t) ** 2], axis=1)[seen] / noise
    cov = np.linalg.inv(A.T @ A)
    centre = cov @ A.T @ observed[seen] / noise
    found = linear.match(observed, noise, 4000)
    assert 0.2 < found.accepted < 0.9
    np.testing.assert_allclose(found.mean, centre, atol=0.15 * np.sqrt(cov[0, 0]))
    np.testing.assert_allclose(np.cov(found.samples.T), cov, atol=0.15 * cov[0, 0])
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(upper - lower, 3.29 * np.sqrt(np.diag(cov)), rtol=0.15)
    differences = found.log_density - found.log_density[0]
    quadratic = [-0.5 * (x - centre) @ A.T @ A @ (x - centre) for x in found.samples]
    np.testing.assert_allclose(differences, np.array(quadratic) - quadratic[0], atol=0.05)


def test_the_density_of_a_curve_is_that_of_the_mean_covariance(small):
    X, observed = runs(3, 5), curves_of(runs(1, 9)).reshape(8, 5)
    target = target_of(small.model_, observed, 0.3).calibrated()
    model, S = small.model_, target._left_out_runs(match.box_of(small.model_)).root
    unit = model.scale * model.spread.factor
    W = unit[:, None] * model.basis @ S
    C = target.wider * W @ W.T + np.diag(unit**2 * model.spread.outside + 0.09)
    expected = [
        multivariate_normal(one.ravel(), C).logpdf(observed.ravel()) for one in small.predict(X)
    ]
    np.testing.assert_allclose(np.diff(target.log_density(X)), np.diff(expected), rtol=1e-6)


def test_components_are_as_uncertain_as_left_out_runs_want_them(noisy):
    model = noisy[0].model_
    spread = model.spread._replace(root=0.3 * model.spread.root)
    narrow = replace(model, spread=spread)
    observed, noise = curves_of(runs(1, 3))[0], 0.02
    assert target_of(model, observed, noise).calibrated().wider < 3
    target = target_of(narrow, observed, noise)
    wider = target.calibrated().wider
    assert 4 < wider < 40  # 11 would undo it
    known, limit = target._left_out_runs(match.box_of(narrow)), chi2(2).ppf(0.9)
    assert np.mean(known.scores(1.0) < limit) < 0.75
    assert 0.86 < np.mean(known.scores(wider) < limit) < 0.92


def test_scores_of_left_out_runs_are_those_of_whole_covariances(small):
    model = small.model_
    target = target_of(model, np.zeros((8, 5)), 0.3)
    known = target._left_out_runs(match.box_of(model))
    unit = model.scale * model.spread.factor
    W, D = unit[:, None] * model.basis, unit**2 * model.spread.outside + 0.09
    own = model.scale[:, None] * model.basis
    rng = np.random.default_rng(0)
    for i, (error, slope) in enumerate(zip(*errors_and_slopes(small), strict=True)):
        noise = np.sqrt(D[target.seen])[:, None] * rng.normal(size=(len(target.seen), 8))
        S = known.root @ known.root.T
        C = (2 * W @ S @ W.T + np.diag(D))[np.ix_(target.seen, target.seen)]
        J = (own @ slope)[target.seen]
        score = J.T @ np.linalg.solve(C, (own @ error)[target.seen][:, None] + noise)
        squares = (score * np.linalg.solve(J.T @ np.linalg.solve(C, J), score)).sum(axis=0)
        np.testing.assert_allclose(known.scores(2.0)[i], squares, rtol=1e-5)


def errors_and_slopes(model):
    """Of left-out runs and each component: (m, K), and (m, K, d)."""
    told = [left_out_answers(one.model_, 2000) for one in model.models_]
    X = runs(60)[told[0][0]]
    slopes = [one.predict_slopes(X).mean_slope for one in model.models_]
    return np.stack([np.ravel(Y) - mean for _, Y, mean, _ in told], 1), np.stack(slopes, 1)


def test_no_walker_stays_where_the_curve_is_not_explained():
    """Two peaks of the density, one of which explains nothing once the noise is small."""

    class Two(NamedTuple):
        model: object

        def log_density(self, X):
            far, near = (-0.5 * (((X - c) / 0.01) ** 2).sum(axis=1) for c in (0.2, 0.8))
            return np.logaddexp(far - 200, near)

    X = runs(20)
    one = ManyGPRegressor(manygp.kernels.RBF() + manygp.kernels.White(), optimizer=None)
    one.fit(X, X[:, 0])
    found = match.match_curve(Two(SimpleNamespace(models=(one,))), 1000, np.random.default_rng(0))
    assert np.abs(found.samples - 0.8).max() < 0.06
    np.testing.assert_allclose(found.samples.std(axis=0), 0.01, rtol=0.15)


def test_walkers_are_spread_as_inputs_that_depend_on_each_other():
    """Six inputs, of which some combinations are known a hundred times as well as others."""
    rng = np.random.default_rng(0)
    axes, sizes = np.linalg.qr(rng.normal(size=(6, 6)))[0], np.geomspace(1e-3, 0.1, 6)

    class Slanted(NamedTuple):
        model: object

        def log_density(self, X):
            return -0.5 * (((X - 0.5) @ axes / sizes) ** 2).sum(axis=1)

    X = rng.uniform(size=(64, 6))
    X[:2] = [[0.0] * 6, [1.0] * 6]
    one = ManyGPRegressor(manygp.kernels.RBF() + manygp.kernels.White(), optimizer=None)
    target = Slanted(SimpleNamespace(models=(one.fit(X, X[:, 0]),)))
    found = match.match_curve(target, 2000, np.random.default_rng(0))
    np.testing.assert_allclose(((found.samples - 0.5) @ axes).std(axis=0), sizes, rtol=0.06)
    np.testing.assert_allclose(found.mean, 0.5, atol=0.01)


@pytest.mark.slow
def test_ninety_percent_regions_of_the_inputs_hold_ninety_percent(monkeypatch):
    with_numbers(monkeypatch, match, "WALK", walkers=100, per_input=10, warm_up=20)
    X, truth = runs(60), runs(100, 11)
    model = ManyGPEmulator(LEAN, n_components=2, random_state=0).fit(X, curves_of(X))
    inside, joint = [], []
    for x, y in zip(truth, curves_of(truth, 0.3, 12), strict=True):
        found = model.match(y, 0.3, 200)
        lower, upper = found.interval()
        inside.append((lower <= x) & (upper >= x))
        height = target_of(model.model_, y, 0.3).calibrated().log_density(x[None])
        joint.append(np.mean(found.log_density > height) < 0.9)
    assert 0.85 <= np.mean(inside) <= 0.95
    assert 0.83 <= np.mean(joint) <= 0.97


@pytest.mark.parametrize(
    ("observed", "noise", "words"),
    [
        (np.zeros(39), 0.1, "one curve of shape"),
        (np.zeros(40), [0.1, 0.2], "noise must be one std"),
        (np.zeros(40), -1.0, "not negative"),
        (np.full(40, np.nan), 0.1, "finite numbers"),
        (np.full(40, np.inf), 0.1, "finite numbers"),
        (np.zeros(40) + 1j, 0.1, "one curve of shape"),
        (np.ma.masked_array(np.zeros(40), np.arange(40) < 9), 0.1, "masked"),
    ],
)
def test_observations_that_cannot_be_matched_are_refused(linear, observed, noise, words):
    with pytest.raises(ValueError, match=words):
        linear.match(observed, noise)


def test_the_report_shows_components_and_the_worst_curves(noisy, small, tmp_path):
    Y = curves_of(runs(120), 0.1)
    write_emulator_report(noisy[0], tmp_path / "curves.html", Y)
    text = (tmp_path / "curves.html").read_text()
    assert text.count("<svg") == noisy[0].n_components_ + 2 + 6
    mean, std = noisy[0].loo_predict()
    assert f"run {np.argmax((np.abs(Y - mean) / std).max(axis=1))}: off by" in text
    write_emulator_report(small, tmp_path / "fields.html")
    text = (tmp_path / "fields.html").read_text()
    assert text.count("data:image/png") == 4
    assert "worst" not in text
    with pytest.raises(ValueError, match="learned from 60"):
        write_emulator_report(small, tmp_path / "none.html", np.zeros((3, 8, 5)))


def test_the_front_door_has_the_emulator():
    assert manygp.ManyGPEmulator is manygp.emulator.ManyGPEmulator


def with_nan(Y):
    Y = Y.copy()
    Y[7, 3] = np.nan
    return Y


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_nan, "nan in output 3 of run 7"),
        (lambda Y: Y[:, 0], "ManyGPRegressor takes one output"),
        (lambda Y: Y[:-1], "X has 30 runs, and Y 29"),
        (lambda Y: 0 * Y, "all outputs are constant"),
        (lambda Y: Y.astype(complex), "real numbers"),
        (lambda Y: np.ma.masked_greater(Y, 0), "masked"),
        (lambda Y: 1e200 * Y, "its square overflows: take other units"),
        (lambda Y: None, "requires Y"),
    ],
)
def test_curves_that_cannot_be_learned_are_refused(change, words):
    X = runs(30)
    model = ManyGPEmulator(LEAN)
    with pytest.raises(ValueError, match=words):
        model.fit(X, change(curves_of(X)))
    assert not hasattr(model, "_model")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_components": 40}, "30 runs with these outputs allow 23 at most"),
        ({"n_components": 0}, "n_components must be"),
        ({"n_components": "some"}, "n_components must be"),
        ({"scaling": "some"}, "scaling must be one of"),
        ({"regressor": 3}, "must be a ManyGPRegressor"),
        ({"regressor": ManyGPRegressor(bounds=(0, 1))}, "bounds"),
    ],
)
def test_parameters_that_are_wrong_are_refused(parameters, words):
    X = runs(30)
    with pytest.raises(ValueError, match=words):
        ManyGPEmulator(**parameters).fit(X, curves_of(X))


def test_questions_that_do_not_fit_the_model_are_refused(noisy):
    model, new, Y = noisy
    with pytest.raises(ValueError, match="3 features"):
        model.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match="those of fit"):
        model.score(new, Y[:, :3])
    with pytest.raises(ValueError, match="120 left-out curves cannot promise"):
        model.predict_interval(new, 0.999, simultaneous=True)
    with pytest.raises(RuntimeError, match="At most one"):
        model.predict(new, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="coverage must lie"):
        model.predict_interval(new, "0.9")
    with pytest.raises(ValueError, match="n_samples must be"):
        model.sample_y(new, 2.5)
    for output in (10**6, -1, 1.5, (1, 2)):
        with pytest.raises(ValueError, match="output is a place in a curve"):
            model.predict_gradient(new[0], output)


def test_runs_that_teach_nothing_are_said_to():
    X = runs(60)
    noise = np.random.default_rng(0).normal(size=(60, 1)) * t
    with pytest.warns(manygp.fit_report.NothingLearnedWarning, match="mean curve"):
        ManyGPEmulator(LEAN, random_state=0).fit(X, noise)


def test_runs_that_come_twice_count_once():
    X, again = runs(40), np.r_[np.arange(40), 3, 1, 7]
    Y = curves_of(X, 0.05)
    once = ManyGPEmulator(LEAN, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="3 runs that equal others") as record:
        twice = ManyGPEmulator(LEAN, random_state=0).fit(X[again], Y[again])
    assert len(record) == 1
    np.testing.assert_array_equal(twice.predict(X), once.predict(X))
    np.testing.assert_array_equal(twice.loo_predict(), once.loo_predict())
