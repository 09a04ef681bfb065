"""What `fit` found, and every answer that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from manygp import inputs, metrics
from manygp.arrays import Array, IndexArray
from manygp.calibration import ConformalScores, PredictiveDistribution, check_coverage
from manygp.committee.committee import Committee, Query
from manygp.committee.covariance import between_rows
from manygp.committee.gradients import gradients
from manygp.dual import with_slopes
from manygp.fit_report import CalibrationReport, Plan
from manygp.gp.marginal_likelihood import Likelihood, psd_root
from manygp.inputs import Scaling
from manygp.kernels.base import NoisyKernel, default_kernel, split_noise
from manygp.kernels.user_kernel import UserKernel
from manygp.noise import LocalNoise, split_variance
from manygp.relevance import Relevance, relevance_of
from manygp.rules import NO_COMMUNICATION, ExpertPredictions, PredictionRules, only_means
from manygp.runtime.parallel import single_threaded_blas
from manygp.settings import Settings


class Prior(NamedTuple):
    """The distribution of targets before any data, at rows X (N, d) as they are.

    Answers have the shape (N,) for one target, and (N, t) for several.
    """

    kernel: NoisyKernel
    n_targets: int
    X: Array

    @classmethod
    def of(cls, settings: Settings, X: Array) -> Prior:
        """The prior of a model; the default kernel is that of columns in [0, 1]."""
        n_features = X.shape[1]
        own = settings.own_kernel(n_features)
        kernel = split_noise(default_kernel(n_features) if own is None else own)
        return cls(kernel, settings.n_targets or 1, X)

    def answer(self, std: Any, cov: Any, *, latent: bool, alpha: Any) -> Any:
        """What `ManyGPRegressor.predict` returns: the mean, and with it std or covariance."""
        if cov:
            return self.predict_joint(latent=latent, alpha=alpha)
        found = self.predict(latent=latent, alpha=alpha)
        return found if std else found[0]

    def predict(self, *, latent: bool, alpha: Any) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        variance = self.kernel.signal.diag(self.X) + self._noise(latent=latent, alpha=alpha)
        return self._of_targets(np.zeros(len(self.X))), self._of_targets(np.sqrt(variance))

    def predict_joint(self, *, latent: bool, alpha: Any) -> tuple[Array, Array]:
        """Mean, and covariance (N, N) or (N, N, t)."""
        covariance = self.kernel.signal(self.X)
        np.einsum("ii->i", covariance)[:] += self._noise(latent=latent, alpha=alpha)
        return self._of_targets(np.zeros(len(self.X))), self._of_targets(covariance)

    def sample(self, n_samples: int, rng: np.random.RandomState, *, latent: bool) -> Array:
        """Draws: (N, n_samples) or (N, t, n_samples)."""
        covariance = self.kernel.signal(self.X)
        np.einsum("ii->i", covariance)[:] += self._noise(latent=latent, alpha=0.0)
        normal = rng.normal(size=(self.n_targets, len(self.X), n_samples))
        draws = np.einsum("ij,tjs->its", psd_root(covariance), normal)
        return draws[:, 0] if self.n_targets == 1 else draws

    def _noise(self, *, latent: bool, alpha: Any) -> Array:
        """Noise variances of the rows: (N,)."""
        n = len(self.X)
        known = inputs.check_alpha(alpha, n)
        return np.zeros(n) if latent else known + self.kernel.noise_variance

    def _of_targets(self, answer: Array) -> Array:
        """The same answer for each target."""
        if self.n_targets == 1:
            return answer
        return np.repeat(answer[..., None], self.n_targets, axis=-1)


# Training rows that are left out to show how good a model is, at most.
LEFT_OUT_ROWS = 20_000
# Training rows that are left out to find out how wide intervals are, where fit did not.
SCORED_ROWS = 2000
# Squared units of y with room for variances that are smaller or larger.
SQUARES = (1e-250, 1e250)


@dataclass(frozen=True, eq=False)
class FittedModel:
    """All that `fit` found. Rows X (N, d) and answers are in the units of the data.

    Answers have the shape (N,) for one target, and (N, t) for several.

    Attributes
    ----------
    settings : Settings
        The parameters in force; those that predictions depend on may have changed since `fit`.
    fitted_with : mapping
        What these were in `fit`.
    columns : tuple of str, or int
        Names of the columns of X, or their number.
    x_scaling, y_scaling : Scaling
    committee : Committee
    kernel : NoisyKernel
        The kernel that the experts share or started from, or that of a single expert.
    chosen, rules : PredictionRules
        The rules that `fit` chose, and those in force.
    conformal_scores : ConformalScores or None
        Errors of rows that were left out, by the chosen rules.
    report : CalibrationReport or None
        How the rules were chosen.
    plan : Plan
    cross_validated : ndarray of shape (t + 1, n), or None
        Means and std, normalised, of the training rows by experts that have learned nothing from
        them, not even hyperparameters, and by the chosen rules: of a small model of one expert.
    noise : LocalNoise or None
        How the total variance depends on the row, beyond what experts know.
    encoder : TableEncoder or None
        How the columns of a table become those of X (see `manygp.tables`), if X was a table
        that needs one.
    target : str or None
        Name of the target in its table, if it was read from one.
    order : ndarray of shape (n,), or None
        The place in the data of each row of the committee, where they were sorted out on a disk;
        None if they are in the order of the data.
    """

    settings: Settings
    fitted_with: Mapping[str, Any]
    columns: tuple[str, ...] | int
    x_scaling: Scaling
    y_scaling: Scaling
    committee: Committee
    kernel: NoisyKernel
    chosen: PredictionRules
    rules: PredictionRules
    conformal_scores: ConformalScores | None
    report: CalibrationReport | None
    plan: Plan
    cross_validated: Array | None = None
    noise: LocalNoise | None = None
    encoder: Any = None
    target: str | None = None
    order: IndexArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what was computed from them since."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of X, if they have names."""
        return None if isinstance(self.columns, int) else self.columns

    @property
    def n_columns(self) -> int:
        return len(self.x_scaling.shift)

    @property
    def n_targets(self) -> int:
        return len(self.y_scaling.shift)

    def queried_by(self, settings: Settings) -> FittedModel:
        """The same experts, queried by the rules of other settings.

        What these leave open is what `fit` has chosen, if it was chosen for the same settings.
        """
        space, committee = settings.space, self.committee
        rules = settings.rules
        if committee.is_single:
            rules = self.chosen if space.recalibrate else rules._replace(nearest=None)
            return replace(self, settings=settings, rules=rules)
        if len(space.weightings) > 1:
            self._require_as_fitted(
                settings, "temperature", "a number", "temperature", "weighting"
            )
            rules = rules._replace(weighting=self.chosen.weighting)
        if len(space.nearest) > 1 or space.tolerance is not None:
            self._require_as_fitted(settings, "routing", "None, or a number of experts", "routing")
            rules = rules._replace(nearest=self.chosen.nearest)
        if space.recalibrate:
            values = "'information' or 'none'"
            self._require_as_fitted(settings, "calibration", values, *self.fitted_with)
            rules = self.chosen
        if space.needs.one_kernel and not committee.has_one_kernel:
            raise ValueError(
                f"aggregation={settings.aggregation!r} needs one kernel for all experts: set "
                "hyperparameters='shared' and fit again"
            )
        if space.needs.communication and committee.communication is None:
            raise ValueError(NO_COMMUNICATION)
        if rules.nearest is not None:
            nearest, tapered = min(rules.nearest, len(committee)), self.chosen.tapered
            rules = rules._replace(nearest=nearest, tapered=tapered)
        return replace(self, settings=settings, rules=rules)

    def _require_as_fitted(
        self, settings: Settings, chosen: str, values: str, *names: str
    ) -> None:
        """Refuse what fit has chosen for other settings of some parameters."""
        for name in names:
            fitted, now = self.fitted_with[name], getattr(settings, name)
            if fitted != now:
                raise ValueError(
                    f"{chosen}={getattr(settings, chosen)!r} is chosen by fit, which had {name}="
                    f"{fitted!r}, not {now!r}: fit again, or set {chosen} to {values}"
                )

    def mean(self, X: Array) -> Array:
        """The predicted means. A single expert whose prior is kept computes no variance."""
        Z = self._scaled(X)
        if len(self.committee) > 1 or self.rules.recalibration.known < np.inf:
            return self._in_units(self._distribution(Query(Z))[0])
        query = Query(Z, variances=False)
        (mean,) = self.committee.map_blocks(only_means, query, self.settings.n_jobs)
        return self._in_units(mean)

    def predict(self, X: Array, *, latent: bool = False, alpha: Any = 0.0) -> tuple[Array, Array]:
        """Mean and standard deviation of y, or of the latent function without the noise.

        `alpha` is a known noise variance of the rows, one number or (N,), on top of the kernel's.
        """
        known = inputs.scaled_alpha(alpha, len(X), self.y_scaling)
        Z = inputs.scaled_rows(X, self.x_scaling, self.columns)
        return self._mean_and_std(Query(Z), known, latent=latent)

    def gradients(self, x: Array) -> tuple[Array, Array]:
        """Derivatives of mean and std of y by one row x (d,): (d,) each."""
        Z = self._scaled(x[None])
        mean, variance = gradients(self.committee, self.rules, Z[0])
        std: Any = np.sqrt(variance)
        if self.noise is not None and self.rules == self.chosen:
            log = self.noise.log_factor(0, with_slopes(Z), variance[None], mean[None])
            std = std * np.exp(0.5 * log)[0]
        unit = self.y_scaling.scale[0] / self.x_scaling.scale
        return unit * mean.slope, unit * std.slope

    def predict_joint(
        self, X: Array, *, latent: bool = False, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Mean, and joint covariance of the rows: (N, N) or (N, N, t)."""
        Z, squared = self._scaled(X), self._squared_scale()
        mean, cov = self._joint(Z, latent=latent)
        if not latent:
            np.einsum("tii->ti", cov)[:] += inputs.scaled_alpha(alpha, len(X), self.y_scaling)
        return self._in_units(mean), _squeeze(np.moveaxis(cov, 0, -1) * squared)

    def predict_interval(
        self, X: Array, coverage: float, *, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Lower and upper ends of intervals that hold y with a probability of `coverage`."""
        self.require_coverage(coverage)
        return self.interval_of(*self.predict(X, alpha=alpha), coverage)

    def require_coverage(self, coverage: float) -> None:
        """Refuse a promise that cannot be made, before any work."""
        check_coverage(coverage)
        self._conformal_scores.require(coverage)

    def interval_of(self, mean: Array, std: Array, coverage: float) -> tuple[Array, Array]:
        """The intervals of rows with this mean and std, as `predict` returns them."""
        normalised = (std if std.ndim == 2 else std[:, None]) / self.y_scaling.scale
        width = self._conformal_scores.reach(coverage, normalised).reshape(std.shape) * std
        return mean - width, mean + width

    def ready_for_intervals(self) -> FittedModel:
        """The same, with the errors of rows that are left out, which intervals need.

        A loaded model that lacks them builds all of its experts for its first interval.
        """
        if self.conformal_scores is not None or len(self.committee.training_data().X) == 1:
            return self
        return replace(self, conformal_scores=self._conformal_scores)

    def predict_dist(self, X: Array, *, alpha: Any = 0.0) -> PredictiveDistribution:
        """The distributions of y: Student-t, or normal where that is as likely."""
        return self.distribution_of(*self.predict(X, alpha=alpha))

    def distribution_of(self, mean: Array, std: Array) -> PredictiveDistribution:
        """The distributions of y with this mean and std, as `predict` returns them."""
        return self._conformal_scores.distribution(mean, std, self.y_scaling.scale)

    @property
    def tails(self) -> Array:
        """One over the degrees of freedom, and the scale, of groups by std."""
        return self._conformal_scores.tails

    def loo_predict(self, rows: Any = None, *, latent: bool = False) -> tuple[Array, Array]:
        """Mean and std of training rows, all by default, as if each had been left out."""
        query = self._left_out(rows)
        return self._mean_and_std(query, self._known_noise(query), latent=latent)

    def left_out_rows(self, most: int | None = None) -> tuple[Array, Array, Array]:
        """Targets, means and std of training rows, each left out: (N,) each.

        Without `most` all rows; else a random sample of at most that number. Several targets
        stand one after the other.
        """
        _, Y, mean, std = self.left_out_answers(most)
        return np.ravel(Y), np.ravel(mean), np.ravel(std)

    def left_out_answers(self, most: int | None = None) -> tuple[IndexArray, Array, Array, Array]:
        """Places (N,), targets (N, t), means and std of training rows, each left out.

        Without `most` all rows; else a random sample of at most that number.
        """
        return self._left_out_sample if most == LEFT_OUT_ROWS else self._answers_without(most)

    @cached_property
    def _left_out_sample(self) -> tuple[IndexArray, Array, Array, Array]:
        """What scores, relevance and reports of one model have in common."""
        return self._answers_without(LEFT_OUT_ROWS)

    def _answers_without(self, most: int | None) -> tuple[IndexArray, Array, Array, Array]:
        data = self.committee.training_data()
        rows = sample_rows(len(data.X), len(data.X) if most is None else most)
        if self.cross_validated is not None and self.rules == self.chosen:
            mean = self._in_units(self.cross_validated[:-1, rows])
            std = self.cross_validated[-1, rows]
            if self.noise is not None:
                logs = self.noise.of_left_out(rows, np.zeros((self.n_targets, len(rows))))
                alpha = data.alpha[rows]
                std = np.sqrt((std**2 - alpha) * np.exp(logs) + alpha)
            std = self._std_in_units(std)
        else:
            mean, std = self.loo_predict(rows)
        return rows, self.y_scaling.undo(data.targets_of(self._places(rows))), mean, std

    def left_out_scores(self) -> dict[str, float]:
        """RMSE, NLL and ENCE of all training rows, each left out."""
        y, mean, std = self.left_out_rows()
        if len(y) < metrics.N_BINS:
            raise ValueError(f"ENCE needs {metrics.N_BINS} rows, and the model has {len(y)}")
        return {
            "rmse": metrics.rmse(y, mean),
            "nll": metrics.nll(y, mean, std),
            "ence": metrics.ence(y, mean, std),
        }

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X; x0, x1, ... if they have none."""
        return self.names or tuple(f"x{j}" for j in range(self.n_columns))

    def relevance(self, explained: float | None = None) -> Relevance:
        """How much each column of the data matters, as shares of the variance of y.

        They sum to `explained`, by default what is explained of rows that are left out.
        """
        if explained is None:
            y, mean, _ = self.left_out_rows(LEFT_OUT_ROWS)
            explained = 1 - float(np.mean((y - mean) ** 2) / max(y.var(), 1e-300))
        found = relevance_of(self.committee, self.feature_names, explained)
        if self.encoder is None:
            return found
        columns = self.encoder.columns_
        return found.summed(tuple(column.name for column in columns), self.encoder.places)

    def sample(
        self, X: Array, n_samples: int, rng: np.random.RandomState, *, latent: bool = False
    ) -> Array:
        """Draws from the joint distribution: (N, n_samples) or (N, t, n_samples)."""
        mean, covs = self._joint(self._scaled(X), latent=latent)
        roots = [psd_root(cov) for cov in (covs[:1] if self.noise is None else covs)]
        draws = [
            m[:, None] + roots[min(t, len(roots) - 1)] @ rng.normal(size=(len(m), n_samples))
            for t, m in enumerate(mean)
        ]
        samples = self.y_scaling.undo(np.stack(draws, axis=-1)).swapaxes(1, 2)
        return samples[:, 0] if len(draws) == 1 else samples

    def log_marginal_likelihood(self) -> float:
        """Sum of the experts' log marginal likelihoods of their own normalised rows."""
        return sum(expert.log_marginal_likelihood for expert in self.committee.experts)

    def log_marginal_likelihood_at(self, theta: Array) -> tuple[float, Array]:
        """The same if all experts had the log-hyperparameters theta (p,), and its derivative.

        Both are in the order of `written_kernel.theta`.
        """
        written = self._written
        kernel = self.kernel.with_theta(written.to_fit(theta))
        value, gradient = 0.0, np.zeros(kernel.n_free)
        for expert in self.committee.experts:
            own = slice(len(expert.indices))
            likelihood = Likelihood(
                expert.X[own], expert.Y[own], expert.alpha[own], expert.constant_mean
            )
            with single_threaded_blas():
                v, g = likelihood.value_and_gradient(kernel)
            value, gradient = value + v, gradient + g
        return value, written.from_fit(gradient)

    @cached_property
    def _written(self) -> UserKernel:
        """The kernel as the user wrote it, and how its theta belongs to that of `kernel`."""
        own = self.settings.kernel
        if own is None:  # whatever rows are scaled to, a kernel is for rows as they are
            return UserKernel.in_units(self.kernel, self.x_scaling.scale)
        return UserKernel.of(own, self.n_columns)

    @property
    def written_kernel(self) -> Any:
        """`kernel` as the user wrote it: an expression of ours or of scikit-learn's kernels.

        The default kernel is in the units of X.
        """
        return self._written.with_values_of(self.kernel)

    def predict_experts(self, X: Array) -> ExpertPredictions:
        """What every expert predicts by itself, in the units of y, before any rule is applied."""
        Z = self._scaled(X)
        if self.n_targets > 1:
            raise ValueError("predict_experts is for models of one target")
        square, undo = self._squared_scale()[0], self.y_scaling.undo
        mean, variance, prior, prior_mean = self.committee.map_blocks(
            _experts_alone, Query(Z), self.settings.n_jobs
        )
        experts = tuple(self.committee.experts) * self.committee.layout.copies
        return ExpertPredictions(
            undo(mean[..., None])[..., 0],
            variance * square,
            prior * square,
            np.array([[expert.noise_variance] for expert in experts]) * square,
            undo(prior_mean[..., None])[..., 0],
        )

    def calibration_ratio(self, X: Array) -> Array:
        """Factor by which the calibration shrinks every expert's variance: (M, N)."""
        query = Query(self._scaled(X))
        (ratio,) = self.committee.map_blocks(self.rules.ratio, query, self.settings.n_jobs)
        return ratio

    def training_rows(self) -> tuple[Array, Array]:
        """Inputs (n, d) and targets (n, t) of the training rows."""
        data, rows = self.committee.training_data(), self._places(slice(None))
        return self.x_scaling.undo(data.X[rows]), self.y_scaling.undo(data.targets[rows])

    def _scaled(self, X: Array) -> Array:
        """Rows in the units of the kernel."""
        return inputs.scaled_rows(X, self.x_scaling, self.columns)

    def _left_out(self, rows: Any) -> Query:
        """A query about training rows, which no expert shall know."""
        rows = np.atleast_1d(self._places(slice(None) if rows is None else rows))
        return Query(self.committee.training_data().X[rows], left_out=rows)

    def _places(self, rows: Any) -> IndexArray:
        """Places in the committee of rows of the data: a slice, a mask or numbers."""
        if self.order is None:
            return np.arange(len(self.committee.training_data().X))[rows]
        return np.argsort(self.order, kind="stable")[rows]

    def _known_noise(self, query: Query) -> Array:
        """Known noise of training rows that are left out, normalised: (N,)."""
        return self.committee.training_data().alpha[query.left_out]

    def _distribution(self, query: Query) -> tuple[Array, Array, Array]:
        """Means (t, N), latent variances (N,) and noise variances (N,), normalised."""
        rules = self.rules
        query = query._replace(
            nearest=rules.nearest, tapered=rules.tapered, covariances=rules.needs.covariances
        )
        mean, variance, noise = self.committee.map_blocks(
            rules.combine, query, self.settings.n_jobs
        )
        return mean, variance, noise

    def _mean_and_std(
        self, query: Query, known_noise: Array, *, latent: bool
    ) -> tuple[Array, Array]:
        """Mean and std in the units of y."""
        mean, variance, noise = self._distribution(query)
        found = self._local(query, mean, variance, noise)
        std = np.sqrt(found[0] if latent else found[0] + found[1] + known_noise)
        return self._in_units(mean), self._std_in_units(std)

    def _local(
        self, query: Query, mean: Array, variance: Array, noise: Array
    ) -> tuple[Array, Array]:
        """Latent variances and those of the noise, (N,), or (t, N) where noise is local."""
        if self.noise is None or self.rules != self.chosen:
            return variance, noise
        total = variance + noise
        logs = np.array(
            [self.noise.log_factor(t, query.X, total, one) for t, one in enumerate(mean)]
        )
        if query.left_out is not None:
            logs = self.noise.of_left_out(query.left_out, logs)
        return split_variance(variance, total * np.exp(logs))

    def noise_std(self, X: Array) -> Array:
        """Standard deviation of the noise alone."""
        query = Query(self._scaled(X))
        mean, variance, noise = self._distribution(query)
        return self._std_in_units(np.sqrt(self._local(query, mean, variance, noise)[1]))

    @cached_property
    def _conformal_scores(self) -> ConformalScores:
        """Errors of training rows that were left out, by the rules in force."""
        if self.conformal_scores is not None and self.rules == self.chosen:
            return self.conformal_scores
        data = self.committee.training_data()
        rows = sample_rows(len(data.X), SCORED_ROWS)
        query = self._left_out(rows)
        mean, variance, noise = self._distribution(query)
        latent, noise = self._local(query, mean, variance, noise)
        std = np.sqrt(latent + noise + self._known_noise(query))
        return ConformalScores.of((data.targets_of(self._places(rows)).T - mean) / std, std)

    def _joint(self, Z: Array, *, latent: bool) -> tuple[Array, Array]:
        """Means (t, N) and joint covariances (t, N, N) of the normalised targets."""
        committee, k = self.committee, self.rules.nearest
        mean, variance, noise = self._distribution(Query(Z))
        (weights,) = committee.map_blocks(
            self.rules.normalised_weights,
            Query(Z, k, tapered=self.rules.tapered),
            self.settings.n_jobs,
        )
        if committee.is_single:
            seats = np.zeros((len(weights), 1), dtype=np.intp)
        elif k is None:
            seats = np.arange(len(committee))[:, None]
        else:
            seats = committee.layout.nearest(Z, k)[0].T
        terms = None if committee.trend is None else committee.trend.model.at(Z).basis
        cov = between_rows(committee.experts, Z, seats, weights, variance, terms)
        shared, noise = self._local(Query(Z), mean, variance, noise)
        covs = np.repeat(cov[None], len(mean), axis=0)
        if shared is not variance:
            scale = np.sqrt(shared / variance)  # (t, N), 1 but where it would exceed the total
            covs *= scale[:, :, None] * scale[:, None]
        if not latent:
            np.einsum("tii->ti", covs)[:] += noise
        return mean, covs

    def _squared_scale(self) -> Array:
        """Squared units of y: (t,)."""
        with np.errstate(over="ignore", under="ignore"):
            squared = self.y_scaling.scale**2
        if not np.all((squared > SQUARES[0]) & (squared < SQUARES[1])):
            raise ValueError(
                f"variances in the squared units of y, whose scale is {self.y_scaling.scale}, "
                "are beyond floating point; rescale y, or ask for return_std"
            )
        return squared

    def _std_in_units(self, std: Array) -> Array:
        """Standard deviations (N,) or (t, N) of the normalised targets in the units of y."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = np.atleast_2d(std).T * self.y_scaling.scale
        if not np.all((scaled > 0) & (scaled < np.inf)):
            raise ValueError(
                f"std, in the units of y, whose scale is {self.y_scaling.scale}, is beyond "
                "floating point; rescale y"
            )
        return _squeeze(scaled)

    def _in_units(self, means: Array) -> Array:
        """Means (t, N) of the normalised targets in the units of y."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.y_scaling.undo(means.T)
        if not np.all(np.isfinite(found)):
            raise ValueError(
                f"means, in the units of y, whose scale is {self.y_scaling.scale}, are beyond "
                "floating point; rescale y, or predict rows nearer to the training rows"
            )
        return _squeeze(found)


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
