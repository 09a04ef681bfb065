"""Every answer of a fitted model, each a function of its record and of rows.

Rows X (N, d) and answers are in the units of the data. Answers have the shape (N,) for one target,
and (N, t) for several. Where targets are transformed, experts know z = T(y), and this module alone
maps what they say back to y: `predict_transformed` is of z, and `interval_of`, `distribution_of`
and `in_units_of_y` take such a mean and std.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from manygp import inputs, metrics
from manygp.arrays import Array, IndexArray
from manygp.calibration import (
    ConformalScores,
    PredictiveDistribution,
    check_coverage,
    student_nll,
)
from manygp.committee.committee import Query
from manygp.committee.covariance import between_rows
from manygp.gp.marginal_likelihood import Likelihood, psd_root, some_of
from manygp.kernels.user_kernel import UserKernel
from manygp.model import FittedModel, where_numbered
from manygp.noise import split_variance
from manygp.relevance import Relevance, relevance_of
from manygp.rules import NO_COMMUNICATION, ExpertPredictions, only_means
from manygp.runtime.parallel import single_threaded_blas
from manygp.settings import Settings
from manygp.steps import Step, SteppedDistribution, levels_of
from manygp.targets import TransformedDistribution, whole_ends

T = TypeVar("T")

# Training rows that are left out to show how good a model is, at most.
LEFT_OUT_ROWS = 20_000
# Training rows that are left out to find out how wide intervals are, where fit did not.
SCORED_ROWS = 2000
# Squared units of y with room for variances that are smaller or larger.
SQUARES = (1e-250, 1e250)


def _once(answer: Callable[[FittedModel], T]) -> Callable[[FittedModel], T]:
    """Compute an answer once for each model. It is kept beside the model, and so in no pickle."""
    known: WeakKeyDictionary[FittedModel, T] = WeakKeyDictionary()

    @wraps(answer)
    def remembered(model: FittedModel) -> T:
        if model not in known:
            known[model] = answer(model)
        return known[model]

    return remembered


def mean(model: FittedModel, X: Array) -> Array:
    """The predicted means. A single expert whose prior is kept computes no variance."""
    if not is_of_y(model):
        return predict(model, X)[0]
    Z = _scaled(model, X)
    if len(model.committee) > 1 or model.rules.recalibration.known < np.inf:
        return in_units(model, _distribution(model, Query(Z))[0])
    query = Query(Z, variances=False)
    (mean,) = model.committee.map_blocks(only_means, query, model.settings.n_jobs)
    return in_units(model, mean)


def predict(
    model: FittedModel, X: Array, *, latent: bool = False, alpha: Any = 0.0
) -> tuple[Array, Array]:
    """Mean and standard deviation of y, or of the latent function without the noise.

    `alpha` is a known noise variance of the rows, one number or (N,), on top of the kernel's.
    """
    known = inputs.scaled_alpha(alpha, len(X), model.y_scaling)
    Z = inputs.scaled_rows(X, model.x_scaling, model.columns)
    return _mean_and_std(model, Query(Z), known, latent=latent)


def predict_transformed(
    model: FittedModel, X: Array, *, latent: bool = False, alpha: Any = 0.0
) -> tuple[Array, Array]:
    """Mean and std of T(y), the transformed target; of y where it is modelled as it is."""
    known = inputs.scaled_alpha(alpha, len(X), model.y_scaling)
    return _transformed(model, Query(_scaled(model, X)), known, latent=latent)


def in_units_of_y(
    model: FittedModel, mean: Array, std: Array, latent: Array | None = None
) -> tuple[Array, Array]:
    """Mean and std of y of rows with this mean and std of T(y).

    With `latent`, the std of the latent function, it is the std of what y is on average given
    that function.
    """
    average, spread = _of_one_part(model, mean, std)
    function = latent
    if model.target_transform is not None and latent is not None:
        function = model.target_transform.std_of_mean(mean, std, latent)
    step = step_of(model)
    if step is not None:  # the same share of the variance is the function's
        average, own = step.moments(mean, std)
        function = None if function is None else function * own / spread
        spread = own
    spread = spread if function is None else function
    if not (np.isfinite(average).all() and np.isfinite(spread).all()):
        raise ValueError(
            "mean or std, in the units of y, is beyond floating point; rescale y, or predict rows "
            "nearer to the training rows"
        )
    return average, spread


def _of_one_part(model: FittedModel, mean: Array, std: Array) -> tuple[Array, Array]:
    """Mean and std of y, all of it being T(y) mapped back."""
    if model.target_transform is None:
        return mean, std
    return model.target_transform.moments(mean, std)


def is_of_y(model: FittedModel) -> bool:
    """Whether mean and std of y are what experts say: nothing is transformed, cut or split."""
    return model.target_transform is None and step_of(model) is None


def median_of(model: FittedModel, mean: Array) -> Array:
    """The median of y of rows with this mean of T(y)."""
    return mean if model.target_transform is None else model.target_transform.inverse(mean)


def noise_std(model: FittedModel, X: Array) -> Array:
    """Standard deviation of the noise alone."""
    if not is_of_y(model):  # what the latent function leaves of the variance
        total, latent = (predict(model, X, latent=one)[1] for one in (False, True))
        return np.sqrt(np.maximum(total**2 - latent**2, 0.0))
    query = Query(_scaled(model, X))
    mean, variance, noise = _distribution(model, query)
    return std_in_units(model, np.sqrt(_local(model, query, mean, variance, noise)[1]))


def predict_joint(
    model: FittedModel, X: Array, *, latent: bool = False, alpha: Any = 0.0
) -> tuple[Array, Array]:
    """Mean, and joint covariance of the rows: (N, N) or (N, N, t)."""
    Z, squared = _scaled(model, X), _squared_scale(model)
    mean, cov = _joint(model, Z, latent=latent)
    centre, transform = in_units(model, mean), model.target_transform
    if not latent and transform is None:
        np.einsum("tii->ti", cov)[:] += inputs.scaled_alpha(alpha, len(X), model.y_scaling)
    covariance = _squeeze(np.moveaxis(cov, 0, -1) * squared)
    if is_of_y(model):
        return centre, covariance
    _, std = predict_transformed(model, X, alpha=alpha)
    if not latent:
        np.einsum("ii...->i...", covariance)[:] = std**2
    if transform is not None:
        covariance = transform.covariance(centre, std, covariance)
    average, spread = in_units_of_y(model, centre, std)
    if step_of(model) is not None:
        wider = spread / _of_one_part(model, centre, std)[1]
        covariance = covariance * wider[:, None] * wider
    return average, covariance


def predict_interval(
    model: FittedModel, X: Array, coverage: float, *, alpha: Any = 0.0
) -> tuple[Array, Array]:
    """Lower and upper ends of intervals that hold y with a probability of `coverage`."""
    require_coverage(model, coverage)
    return interval_of(model, *predict_transformed(model, X, alpha=alpha), coverage)


def require_coverage(model: FittedModel, coverage: float) -> None:
    """Refuse a promise that cannot be made, before any work."""
    check_coverage(coverage)
    conformal_scores(model).require(coverage)


def interval_of(
    model: FittedModel, mean: Array, std: Array, coverage: float
) -> tuple[Array, Array]:
    """The intervals of y of rows with this mean and std, as of `predict_transformed`."""
    if step_of(model) is not None:
        lower, upper = distribution_of(model, mean, std).interval(coverage)
    else:
        lower, upper = _interval_of_errors(model, mean, std, coverage)
    return whole_ends(lower, upper) if model.whole else (lower, upper)


def _interval_of_errors(
    model: FittedModel, mean: Array, std: Array, coverage: float
) -> tuple[Array, Array]:
    """The same, as wide as errors that were left out."""
    reach = conformal_scores(model).reach(coverage, *model.y_scaling.spread(mean, std))
    width = reach.reshape(std.shape) * std
    lower, upper = mean - width, mean + width
    if model.target_transform is None:
        return lower, upper
    return model.target_transform.inverse(lower), model.target_transform.inverse(upper)


def step_of(model: FittedModel) -> Step | None:
    """What the model knows of a value that many targets share, if its rules are those of `fit`."""
    return model.step if model.rules == model.chosen else None


def ready_for_intervals(model: FittedModel) -> FittedModel:
    """The same, with the errors of rows that are left out, which intervals need.

    A loaded model that lacks them builds all of its experts for its first interval.
    """
    if model.conformal_scores is not None or len(model.committee.training_data().X) == 1:
        return model
    return replace(model, conformal_scores=conformal_scores(model))


def predict_dist(model: FittedModel, X: Array, *, alpha: Any = 0.0) -> Any:
    """The distributions of y, whose T(y) is Student-t, or normal, or spread as errors are."""
    return distribution_of(model, *predict_transformed(model, X, alpha=alpha))


def distribution_of(
    model: FittedModel, mean: Array, std: Array
) -> PredictiveDistribution | TransformedDistribution | SteppedDistribution:
    """The distributions of y of rows with this mean and std, as of `predict_transformed`."""
    step = step_of(model)
    if step is not None:
        return step.distribution(mean, std)
    base = conformal_scores(model).distribution(mean, std, model.y_scaling.spread(mean, std))
    if model.target_transform is None:
        return base
    low, high = (None, None) if model.settings.bounds is None else model.settings.bounds
    support = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    said = _of_one_part(model, mean, std)
    return TransformedDistribution(base, model.target_transform, *said, support)


def nll_of(model: FittedModel, y: Array, mean: Array, std: Array) -> Array:
    """Negative log-likelihood of targets y where T(y) is normal with this mean and std."""
    if model.target_transform is None:
        return student_nll(y - mean, np.inf, std)
    z = model.target_transform.forward(y)
    return student_nll(z - mean, np.inf, std) - model.target_transform.log_slope(y)


@_once
def conformal_scores(model: FittedModel) -> ConformalScores:
    """Errors of training rows that were left out, by the rules in force."""
    if model.conformal_scores is not None and model.rules == model.chosen:
        return model.conformal_scores
    data = model.committee.training_data()
    rows = sample_rows(len(data.X), SCORED_ROWS)
    query = _left_out(model, rows)
    mean, variance, noise = _distribution(model, query)
    latent, noise = _local(model, query, mean, variance, noise)
    std = np.sqrt(latent + noise + _known_noise(model, query))
    return ConformalScores.of((data.targets_of(_places(model, rows)).T - mean) / std, std)


def tails(model: FittedModel) -> Array:
    """One over the degrees of freedom, and the scale, of groups by std or mean."""
    return conformal_scores(model).tails


def loo_predict(
    model: FittedModel, rows: Any = None, *, latent: bool = False
) -> tuple[Array, Array]:
    """Mean and std of training rows, by their numbers, as if each had been left out."""
    rows = None if rows is None else where_numbered(model, rows)
    if by_splits(model):
        return in_units_of_y(model, *_of_splits(model, rows, latent=latent))
    query = _left_out(model, rows)
    return _mean_and_std(model, query, _known_noise(model, query), latent=latent)


def left_out_rows(model: FittedModel, most: int | None = None) -> tuple[Array, Array, Array]:
    """Targets, means and std of training rows, each left out: (N,) each.

    Without `most` all rows; else a random sample of at most that number. Several targets
    stand one after the other.
    """
    _, Y, mean, std = left_out_answers(model, most)
    return np.ravel(Y), np.ravel(mean), np.ravel(std)


def left_out_answers(
    model: FittedModel, most: int | None = None
) -> tuple[IndexArray, Array, Array, Array]:
    """Places (N,), targets (N, t), means and std of training rows, each left out.

    Without `most` all rows; else a random sample of at most that number.
    """
    rows, Y, mean, std = left_out_transformed(model, most)
    return rows, Y, *in_units_of_y(model, mean, std)


def left_out_transformed(
    model: FittedModel, most: int | None = None
) -> tuple[IndexArray, Array, Array, Array]:
    """The same, but means and std are those of T(y)."""
    return _left_out_sample(model) if most == LEFT_OUT_ROWS else _answers_without(model, most)


@_once
def _left_out_sample(model: FittedModel) -> tuple[IndexArray, Array, Array, Array]:
    """What scores, relevance and reports of one model have in common."""
    return _answers_without(model, LEFT_OUT_ROWS)


def _answers_without(
    model: FittedModel, most: int | None
) -> tuple[IndexArray, Array, Array, Array]:
    data = model.committee.training_data()
    if by_splits(model):
        known: Any = model.errors
        rows = known.rows[sample_rows(len(known.rows), len(known.rows) if most is None else most)]
        return rows, targets_of(model, rows), *_of_splits(model, rows)
    rows = sample_rows(len(data.X), len(data.X) if most is None else most)
    if model.cross_validated is not None and model.rules == model.chosen:
        mean = in_units(model, model.cross_validated[:-1, rows])
        std = model.cross_validated[-1, rows]
        if model.noise is not None:
            logs = model.noise.of_left_out(rows, np.zeros((model.n_targets, len(rows))))
            alpha = data.alpha[rows]
            std = np.sqrt((std**2 - alpha) * np.exp(logs) + alpha)
        std = std_in_units(model, std)
    else:
        query = _left_out(model, rows)
        mean, std = _transformed(model, query, _known_noise(model, query), latent=False)
    return rows, targets_of(model, _places(model, rows)), mean, std


def by_splits(model: FittedModel) -> bool:
    """Whether rows are left out by group or time, and the rules are those that `fit` chose."""
    return model.left_out_by != "row" and model.rules == model.chosen


def _of_splits(model: FittedModel, rows: Any, *, latent: bool = False) -> tuple[Array, Array]:
    """Mean and std of T(y) of training rows by models without their group, or their future."""
    if latent:
        raise ValueError(f"rows left out by {model.left_out_by} have no latent std")
    places = np.atleast_1d(_places(model, slice(None) if rows is None else rows))
    known: Any = model.errors
    errors = known.of_rows(places)
    total, logs = errors.total(model.chosen.recalibration), np.zeros_like(errors.means)
    if model.noise is not None:
        logs = model.noise.of_left_out(places, logs)
    std = np.sqrt((total - errors.alpha) * np.exp(logs) + errors.alpha)
    return in_units(model, errors.means), std_in_units(model, std)


def left_out_scores(model: FittedModel) -> dict[str, float]:
    """RMSE, NLL and ENCE of all training rows, each left out; NLL is that of `nll_of`."""
    _, Y, *transformed = left_out_transformed(model)
    y, mean, std = map(np.ravel, (Y, *in_units_of_y(model, *transformed)))
    if len(y) < metrics.N_BINS:
        raise ValueError(f"ENCE needs {metrics.N_BINS} rows, and the model has {len(y)}")
    return {
        "rmse": metrics.rmse(y, mean),
        "nll": float(nll_of(model, Y.reshape(transformed[0].shape), *transformed).mean()),
        "ence": metrics.ence(y, mean, std),
    }


def relevance(model: FittedModel, explained: float | None = None) -> Relevance:
    """How much each column of the data matters, as shares of the variance of y.

    They sum to `explained`, by default what is explained of rows that are left out.
    """
    if explained is None:
        y, mean, _ = left_out_rows(model, LEFT_OUT_ROWS)
        explained = 1 - float(np.mean((y - mean) ** 2) / max(y.var(), 1e-300))
    shares = feature_relevance(model, explained)
    if model.encoder is None:
        return shares
    columns = model.encoder.columns_
    return shares.summed(tuple(column.name for column in columns), model.encoder.places)


def feature_relevance(model: FittedModel, explained: float = 1.0) -> Relevance:
    """The same by what the columns of a table became."""
    trend = model.committee.trend

    def local(Z: Array) -> Array:
        mean, _ = _transformed(model, Query(Z), np.zeros(len(Z)), latent=True)
        whole = model.y_scaling.apply(mean.reshape(len(Z), -1))
        return whole if trend is None else whole - trend.model.at(Z).mean

    return relevance_of(model.committee, model.feature_names, explained, local)


def sample(
    model: FittedModel,
    X: Array,
    n_samples: int,
    rng: np.random.RandomState,
    *,
    latent: bool = False,
) -> Array:
    """Draws from the joint distribution: (N, n_samples) or (N, t, n_samples)."""
    draws = _draws(model, X, n_samples, rng, latent=latent)
    return _draws_of_y(model, partial(predict_transformed, model, X), draws, latent=latent)


def _draws(
    model: FittedModel, X: Array, n_samples: int, rng: np.random.RandomState, *, latent: bool
) -> Array:
    """Draws of T(y) from the joint distribution: (N, n_samples) or (N, t, n_samples)."""
    mean, covs = _joint(model, _scaled(model, X), latent=latent)
    roots = [psd_root(cov) for cov in (covs[:1] if model.noise is None else covs)]
    draws = [
        m[:, None] + roots[min(t, len(roots) - 1)] @ rng.normal(size=(len(m), n_samples))
        for t, m in enumerate(mean)
    ]
    samples = model.y_scaling.undo(np.stack(draws, axis=-1)).swapaxes(1, 2)
    return samples[:, 0] if len(draws) == 1 else samples


def _draws_of_y(
    model: FittedModel, said: Callable[..., Any], draws: Array, *, latent: bool
) -> Array:
    """Draws of T(y) as draws of y; latent ones of what y is on average given these.

    `said` has mean and std of T(y) of the rows, with `latent` those of the latent function.
    """
    if is_of_y(model):
        return draws
    z = draws if draws.ndim == 2 else draws.swapaxes(1, 2)  # (N, n_samples) or (N, n_samples, t)
    mean, std = said()
    if latent:
        y = on_average(model, z, mean, std, said(latent=True)[1])
    elif (step := step_of(model)) is not None:  # as likely among all values as z is
        y = step.distribution(mean, std).ppf(levels_of(z.T, mean, std)).T
    else:
        transform: Any = model.target_transform
        y = transform.inverse(z)
    return y if draws.ndim == 2 else y.swapaxes(1, 2)


def on_average(model: FittedModel, z: Array, mean: Array, std: Array, latent: Array) -> Array:
    """What y is on average where the latent function has values z: (N, p) or (N, p, t).

    The rows have this mean and std of T(y), and `latent` is the std of the function.
    """
    transform, step = model.target_transform, step_of(model)
    y = z
    if transform is not None:
        noise = np.sqrt(np.maximum(std**2 - latent**2, 0.0))
        y = transform.expected(z, noise[:, None])
    if step is None:
        return y
    before, after = _of_one_part(model, mean, std), step.moments(mean, std)
    y = after[0][:, None] + (y - before[0][:, None]) * (after[1] / before[1])[:, None]
    return np.clip(y, step.rest.floor, step.rest.ceiling)


def log_marginal_likelihood(model: FittedModel) -> float:
    """Sum of the experts' log marginal likelihoods of their own normalised rows."""
    return sum(expert.log_marginal_likelihood for expert in model.committee.experts)


def log_marginal_likelihood_at(model: FittedModel, theta: Array) -> tuple[float, Array]:
    """The same if all experts had the log-hyperparameters theta (p,), and its derivative.

    Both are in the order of `written_kernel.theta`.
    """
    written = _written(model)
    kernel = model.kernel.with_theta(written.to_fit(theta))
    value, gradient = 0.0, np.zeros(kernel.n_free)
    for expert in model.committee.experts:
        own = np.arange(len(expert.indices))
        rows = expert.X[own], expert.Y[own], expert.alpha[own], expert.constant_mean
        likelihood = Likelihood(*rows, spread=some_of(expert.spread, own))
        with single_threaded_blas():
            v, g = likelihood.value_and_gradient(kernel)
        value, gradient = value + v, gradient + g
    return value, written.from_fit(gradient)


@_once
def _written(model: FittedModel) -> UserKernel:
    """The kernel as the user wrote it, and how its theta belongs to that of `kernel`."""
    own = model.settings.kernel
    if own is None:  # whatever rows are scaled to, a kernel is for rows as they are
        return UserKernel.in_units(model.kernel, model.x_scaling.scale)
    return UserKernel.of(own, model.n_columns)


def written_kernel(model: FittedModel) -> Any:
    """`kernel` as the user wrote it: an expression of ours or of scikit-learn's kernels.

    The default kernel is in the units of X.
    """
    return _written(model).with_values_of(model.kernel)


def predict_experts(model: FittedModel, X: Array) -> ExpertPredictions:
    """What every expert predicts by itself, in the units of y, before any rule is applied."""
    Z = _scaled(model, X)
    if model.n_targets > 1:
        raise ValueError("predict_experts is for models of one target")
    square, undo = _squared_scale(model)[0], model.y_scaling.undo
    mean, variance, prior, prior_mean = model.committee.map_blocks(
        _experts_alone, Query(Z), model.settings.n_jobs
    )
    experts = tuple(model.committee.experts) * model.committee.layout.copies
    return ExpertPredictions(
        undo(mean[..., None])[..., 0],
        variance * square,
        prior * square,
        np.array([[expert.noise_variance] for expert in experts]) * square,
        undo(prior_mean[..., None])[..., 0],
    )


def calibration_ratio(model: FittedModel, X: Array) -> Array:
    """Factor by which the calibration shrinks every expert's variance: (M, N)."""
    query = Query(_scaled(model, X))
    (ratio,) = model.committee.map_blocks(model.rules.ratio, query, model.settings.n_jobs)
    return ratio


def training_rows(model: FittedModel) -> tuple[Array, Array]:
    """Inputs (n, d) and targets (n, t) of the training rows."""
    rows = _places(model, slice(None))
    X = model.committee.training_data().X
    return model.x_scaling.undo(X[rows]), targets_of(model, rows)


def targets_of(model: FittedModel, places: IndexArray) -> Array:
    """Targets (N, t) of rows of the committee, in the units of y."""
    values = model.y_scaling.undo(model.committee.training_data().targets_of(places))
    return values if model.target_transform is None else model.target_transform.inverse(values)


def _scaled(model: FittedModel, X: Array) -> Array:
    """Rows in the units of the kernel."""
    return inputs.scaled_rows(X, model.x_scaling, model.columns)


def _left_out(model: FittedModel, rows: Any) -> Query:
    """A query about training rows, which no expert shall know."""
    rows = np.atleast_1d(_places(model, slice(None) if rows is None else rows))
    return Query(model.committee.training_data().X[rows], left_out=rows)


def _places(model: FittedModel, rows: Any) -> IndexArray:
    """Places in the committee of rows, by where they are among those of the model, oldest first.

    `rows` is a slice, a mask or an array.
    """
    if model.order is None:
        return np.arange(len(model.committee.training_data().X))[rows]
    return np.argsort(model.order, kind="stable")[rows]


def _known_noise(model: FittedModel, query: Query) -> Array:
    """Known noise of training rows that are left out, normalised: (N,)."""
    return model.committee.training_data().alpha[query.left_out]


def _distribution(model: FittedModel, query: Query) -> tuple[Array, Array, Array]:
    """Means (t, N), latent variances (N,) and noise variances (N,), normalised."""
    rules = model.rules
    query = query._replace(
        nearest=rules.nearest, tapered=rules.tapered, covariances=rules.needs.covariances
    )
    mean, variance, noise = model.committee.map_blocks(rules.combine, query, model.settings.n_jobs)
    return mean, variance, noise


def _mean_and_std(
    model: FittedModel, query: Query, known_noise: Array, *, latent: bool
) -> tuple[Array, Array]:
    """Mean and std in the units of y."""
    mean, std = _transformed(model, query, known_noise, latent=latent)
    if is_of_y(model):
        return mean, std
    if not latent:
        return in_units_of_y(model, mean, std)
    _, total = _transformed(model, query, known_noise, latent=False)
    return in_units_of_y(model, mean, total, std)


def _transformed(
    model: FittedModel, query: Query, known_noise: Array, *, latent: bool
) -> tuple[Array, Array]:
    """Mean and std of T(y). Noise that is known of new rows is that of y."""
    mean, variance, noise = _distribution(model, query)
    function, noise = _local(model, query, mean, variance, noise)
    centre = in_units(model, mean)
    if model.target_transform is not None and query.left_out is None:
        median = model.target_transform.inverse(centre)
        known_noise = model.target_transform.noise(median, known_noise)
    std = np.sqrt(function if latent else function + noise + known_noise)
    return centre, std_in_units(model, std)


def _local(
    model: FittedModel, query: Query, mean: Array, variance: Array, noise: Array
) -> tuple[Array, Array]:
    """Latent variances and those of the noise, (N,), or (t, N) where noise is local."""
    if model.noise is None or model.rules != model.chosen:
        return variance, noise
    total = variance + noise
    logs = np.array([model.noise.log_factor(t, query.X, total, one) for t, one in enumerate(mean)])
    if query.left_out is not None:
        logs = model.noise.of_left_out(query.left_out, logs)
    return split_variance(model.noise.latent(variance, total), total * np.exp(logs))


def _joint(model: FittedModel, Z: Array, *, latent: bool) -> tuple[Array, Array]:
    """Means (t, N) and joint covariances (t, N, N) of the normalised targets."""
    committee, k = model.committee, model.rules.nearest
    mean, variance, noise = _distribution(model, Query(Z))
    (weights,) = committee.map_blocks(
        model.rules.normalised_weights,
        Query(Z, k, tapered=model.rules.tapered),
        model.settings.n_jobs,
    )
    if committee.is_single:
        seats = np.zeros((len(weights), 1), dtype=np.intp)
    elif k is None:
        seats = np.arange(len(committee))[:, None]
    else:
        seats = committee.layout.nearest(Z, k)[0].T
    terms = None if committee.trend is None else committee.trend.model.at(Z).basis
    cov = between_rows(committee.experts, Z, seats, weights, variance, terms)
    shared, noise = _local(model, Query(Z), mean, variance, noise)
    covs = np.repeat(cov[None], len(mean), axis=0)
    if shared is not variance:
        scale = np.sqrt(shared / variance)  # (t, N), 1 but where it would exceed the total
        covs *= scale[:, :, None] * scale[:, None]
    if not latent:
        np.einsum("tii->ti", covs)[:] += noise
    return mean, covs


def _squared_scale(model: FittedModel) -> Array:
    """Squared units of y: (t,)."""
    with np.errstate(over="ignore", under="ignore"):
        squared = model.y_scaling.scale**2
    if not np.all((squared > SQUARES[0]) & (squared < SQUARES[1])):
        raise ValueError(
            f"variances in the squared units of y, whose scale is {model.y_scaling.scale}, "
            "are beyond floating point; rescale y, or ask for return_std"
        )
    return squared


def std_in_units(model: FittedModel, std: Array) -> Array:
    """Standard deviations (N,) or (t, N) of the normalised targets in the units of y."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.atleast_2d(std).T * model.y_scaling.scale
    if not np.all((scaled > 0) & (scaled < np.inf)):
        raise ValueError(
            f"std, in the units of y, whose scale is {model.y_scaling.scale}, is beyond "
            "floating point; rescale y"
        )
    return _squeeze(scaled)


def in_units(model: FittedModel, means: Array) -> Array:
    """Means (t, N) of the normalised targets in the units of y."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = model.y_scaling.undo(means.T)
    if not np.all(np.isfinite(scaled)):
        raise ValueError(
            f"means, in the units of y, whose scale is {model.y_scaling.scale}, are beyond "
            "floating point; rescale y, or predict rows nearer to the training rows"
        )
    return _squeeze(scaled)


def _experts_alone(records: list[ExpertPredictions]) -> tuple[Array, Array, Array, Array]:
    """Mean, variance, prior variance and prior mean of each expert: (M, N)."""
    first = records[0]
    return *first[:3], np.broadcast_to(first.prior_mean, first.mean.shape)


def sample_rows(n: int, most: int) -> IndexArray:
    """At most this many of n rows, drawn at random, the same each time, in their order."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def _squeeze(array: Array) -> Array:
    """Drop the axis of targets where there is one."""
    return array[..., 0] if array.shape[-1] == 1 else array


def queried_by(model: FittedModel, settings: Settings) -> FittedModel:
    """The same experts, queried by the rules of other settings.

    What these leave open is what `fit` has chosen, if it was chosen for the same settings.
    """
    space, committee = settings.space, model.committee
    rules = settings.rules
    if committee.is_single:
        rules = model.chosen if space.recalibrate else rules._replace(nearest=None)
        return replace(model, settings=settings, rules=rules)
    if len(space.weightings) > 1:
        _require_as_fitted(model, settings, "temperature", "a number", "temperature", "weighting")
        rules = rules._replace(weighting=model.chosen.weighting)
    if len(space.nearest) > 1 or space.tolerance is not None:
        _require_as_fitted(model, settings, "routing", "None, or a number of experts", "routing")
        rules = rules._replace(nearest=model.chosen.nearest)
    if space.recalibrate:
        values = "'information' or 'none'"
        _require_as_fitted(model, settings, "calibration", values, *model.fitted_with)
        rules = model.chosen
    if space.needs.one_kernel and not committee.has_one_kernel:
        raise ValueError(
            f"aggregation={settings.aggregation!r} needs one kernel for all experts: set "
            "hyperparameters='shared' and fit again"
        )
    if space.needs.communication and committee.communication is None:
        raise ValueError(NO_COMMUNICATION)
    if rules.nearest is not None:
        nearest, tapered = min(rules.nearest, len(committee)), model.chosen.tapered
        rules = rules._replace(nearest=nearest, tapered=tapered)
    return replace(model, settings=settings, rules=rules)


def _require_as_fitted(
    model: FittedModel, settings: Settings, chosen: str, values: str, *names: str
) -> None:
    """Refuse what fit has chosen for other settings of some parameters."""
    for name in names:
        fitted, now = model.fitted_with[name], getattr(settings, name)
        if fitted != now:
            raise ValueError(
                f"{chosen}={getattr(settings, chosen)!r} is chosen by fit, which had {name}="
                f"{fitted!r}, not {now!r}: fit again, or set {chosen} to {values}"
            )


class Rows(NamedTuple):
    """Rows as numbers (N, d), and if an encoder has made them, what is not known about them."""

    X: Array
    encoded: Any
    encoder: Any = None

    @property
    def are_known(self) -> bool:
        """Whether no value is missing or unknown."""
        return self.encoded is None or not (self.encoded.missing | self.encoded.unknown).any()

    def predict(
        self, model: FittedModel, *, latent: bool = False, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Mean and std of y, values of the rows being known or not."""
        if self.are_known:
            return predict(model, self.X, latent=latent, alpha=alpha)
        mean, std = self.transformed(model, latent=latent, alpha=alpha)
        if not latent or is_of_y(model):
            return in_units_of_y(model, mean, std)
        return in_units_of_y(model, mean, self.transformed(model, alpha=alpha)[1], std)

    def transformed(
        self, model: FittedModel, *, latent: bool = False, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Mean and std of T(y)."""
        if self.are_known:
            return predict_transformed(model, self.X, latent=latent, alpha=alpha)
        known = inputs.check_alpha(alpha, len(self.X))
        answer: tuple[Array, Array] = self.encoder.predicted(
            lambda X, a: predict_transformed(model, X, latent=latent, alpha=a),
            self.encoded,
            known,
        )
        return answer

    def joint(self, model: FittedModel, *, latent: bool, alpha: Any) -> tuple[Array, Array]:
        """Mean and joint covariance; that of doubtful rows has their std on its diagonal."""
        mean, cov = predict_joint(model, self.X, latent=latent, alpha=alpha)
        if not self.are_known:
            mean, std = self.predict(model, latent=latent, alpha=alpha)
            wider = std / np.sqrt(np.einsum("ii...->i...", cov))
            cov = cov * wider[:, None] * wider[None, :]
        return mean, cov

    def sample(
        self, model: FittedModel, n_samples: int, rng: np.random.RandomState, *, latent: bool
    ) -> Array:
        """Draws of y from the joint distribution: (N, n_samples) or (N, t, n_samples)."""
        draws = _draws(model, self.X, n_samples, rng, latent=latent)
        if not self.are_known:
            mean, std = self.transformed(model, latent=latent)
            filled, narrow = predict_transformed(model, self.X, latent=latent)
            draws = mean[..., None] + (draws - filled[..., None]) * (std / narrow)[..., None]
        return _draws_of_y(model, partial(self.transformed, model), draws, latent=latent)
