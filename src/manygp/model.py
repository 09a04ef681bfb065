"""What a fitted model answers: predictions, intervals, draws, leave-one-out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from manygp import metrics, scaling, validation
from manygp.arrays import Array
from manygp.committee.committee import Committee
from manygp.committee.covariance import between_rows
from manygp.gp.expert import Expert
from manygp.gp.likelihood import Likelihood, psd_root
from manygp.kernels.base import Sum
from manygp.rules.combine import Rules
from manygp.rules.records import ExpertPredictions
from manygp.runtime.parallel import single_threaded_blas
from manygp.settings import rules_of
from manygp.training.scores import JUDGED_ROWS
from manygp.training.search import Choice

# Training rows that are left out to show how good a model is.
LEFT_OUT_ROWS = 20_000
# Squared units of y with room for variances that are smaller or larger.
SQUARES = (1e-250, 1e250)


class Predictor:
    """The methods of a fitted estimator that read its state and change nothing."""

    experts_: tuple[Expert, ...]
    kernel_: Sum
    n_jobs: int | None
    _committee: Committee
    _choice: Choice
    _x_scaling: scaling.Scaling
    _y_scaling: scaling.Scaling

    def _rules(self) -> tuple[Rules, int | None]:
        """The rules, and how many experts are asked about a row; None for all."""
        return rules_of(self)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, latent: bool = False
    ) -> Any:
        """Predict the distribution of y, or of the latent function without the noise.

        The mean alone costs as much as with std where weights depend on variances, as they do
        by default; a single expert, and "uniform" with "barycentre", need none.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        return_std : bool, default=False
            Also return standard deviations.
        return_cov : bool, default=False
            Also return the joint covariance: positive semi-definite, with the squared
            standard deviations on its diagonal.
        latent : bool, default=False
            Leave the noise out of std and cov.

        Returns
        -------
        mean : ndarray of shape (N,) or (N, t)
        std : ndarray of shape (N,) or (N, t)
        cov : ndarray of shape (N, N) or (N, N, t)
        """
        if return_std and return_cov:
            raise RuntimeError("ask for return_std or return_cov, not both")
        Z = self._scaled(X)
        rules, k = self._rules()
        if not (return_std or return_cov):
            if not rules.needs_variance(len(self.experts_)):
                (mean,) = self._committee.map_blocks(
                    rules.means, Z, k, self.n_jobs, with_variance=False
                )
                return self._in_units(mean)
            return self._in_units(self._distribution(Z)[0])
        if return_cov:
            squared = self._squared_scale()
            mean, cov = self._joint(Z, latent)
            return self._in_units(mean), _squeeze(cov[:, :, None] * squared)
        mean, variance, noise = self._distribution(Z)
        std = np.sqrt(variance if latent else variance + noise)
        return self._in_units(mean), self._std_in_units(std)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Array, Array]:
        """Intervals that hold y with a probability of `coverage`, on average over rows.

        mean -+ q std, where q is the quantile of |y - mean| / std of training rows that were
        each left out: split conformal prediction, but without a split. It holds whatever the
        distribution of y is, as far as new rows are like the training rows.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        coverage : float, default=0.9

        Returns
        -------
        lower, upper : ndarrays of shape (N,) or (N, t)
        """
        reach = self._reach(coverage)
        mean, std = self.predict(X, return_std=True)
        width = _squeeze(reach * (std if std.ndim == 2 else std[:, None]))
        return mean - width, mean + width

    def loo_predict(self, rows: Any = None, *, latent: bool = False) -> tuple[Array, Array]:
        """Mean and std of training rows, as if each had been left out.

        Exactly what the committee would say if the experts that know the row did not, with
        the same hyperparameters, neighbours and rules: in closed form, nothing is fitted.

        Parameters
        ----------
        rows : array-like of int, default=None
            Which rows; all by default.
        latent : bool, default=False
            Leave the noise out of std.

        Returns
        -------
        mean, std : ndarrays of shape (n,) or (n, t)
        """
        mean, variance, noise = self._left_out(rows)
        std = np.sqrt(variance if latent else variance + noise)
        return self._in_units(mean), self._std_in_units(std)

    def loo_score(self) -> dict[str, float]:
        """RMSE, NLL and ENCE of the training rows, each left out: quality without test data."""
        y, mean, std = self._judged_rows(every=True)
        if len(y) < metrics.N_BINS:
            raise ValueError(f"ENCE needs {metrics.N_BINS} rows, and the model has {len(y)}")
        return {
            "rmse": metrics.rmse(y, mean),
            "nll": metrics.nll(y, mean, std),
            "ence": metrics.ence(y, mean, std),
        }

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Array:
        """Draw from the joint distribution: (N, n_samples) or (N, t, n_samples).

        Parameters are those of `predict`, and the number and seed of the draws.
        """
        mean, cov = self._joint(self._scaled(X), latent)
        root = psd_root(cov)
        rng = check_random_state(random_state)
        draws = [m[:, None] + root @ rng.normal(size=(len(m), n_samples)) for m in mean]
        samples = self._y_scaling.undo(np.stack(draws, axis=-1)).swapaxes(1, 2)
        return samples[:, 0] if len(draws) == 1 else samples

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """Sum of the experts' log marginal likelihoods of their own rows, normalised.

        Parameters
        ----------
        theta : array-like of shape (p,), default=None
            Log-hyperparameters for all experts, in the order of `kernel_.theta_names`. By
            default each expert has its own.
        eval_gradient : bool, default=False
            Also return the derivative with respect to theta, shape (p,). Needs theta.
        clone_kernel : bool, default=True
            Without effect: kernels are immutable.
        """
        check_is_fitted(self, "experts_")
        distinct = list({id(expert): expert for expert in self.experts_}.values())
        if theta is None:
            if eval_gradient:
                raise ValueError("eval_gradient needs theta: the experts have one each")
            return sum(expert.log_marginal_likelihood for expert in distinct)
        kernel = self.kernel_.with_theta(np.asarray(theta, dtype=float))
        value, gradient = 0.0, np.zeros(len(kernel.theta))
        for expert in distinct:
            own = slice(len(expert.indices))
            likelihood = Likelihood(
                expert.X[own], expert.Y[own], expert.alpha[own], expert.constant_mean
            )
            with single_threaded_blas():
                v, g = likelihood.value_and_gradient(kernel)
            value, gradient = value + v, gradient + g
        return (value, gradient) if eval_gradient else value

    def predict_experts(self, X: Any) -> ExpertPredictions:
        """What every expert says by itself, in the units of y, before any rule is applied."""
        Z = self._scaled(X)
        if len(self._y_scaling.scale) > 1:
            raise ValueError("predict_experts is for models of one target")
        square, undo = self._squared_scale()[0], self._y_scaling.undo
        mean, variance, prior = self._committee.map_blocks(
            lambda said: said[0][:3], Z, None, self.n_jobs
        )
        return ExpertPredictions(
            undo(mean[..., None])[..., 0],
            variance * square,
            prior * square,
            np.array([[expert.noise_variance] for expert in self.experts_]) * square,
            undo(np.array([expert.mean for expert in self.experts_])),
        )

    def calibration_ratio(self, X: Any) -> Array:
        """Factor by which the calibration shrinks every expert's variance: (M, N)."""
        Z = self._scaled(X)
        rules, _ = self._rules()
        (ratio,) = self._committee.map_blocks(rules.ratio, Z, None, self.n_jobs)
        return ratio

    def _scaled(self, X: Any) -> Array:
        check_is_fitted(self, "experts_")
        Z = np.ascontiguousarray(self._x_scaling.apply(validation.check_features(self, X)))
        validation.check_magnitude(Z, "X", getattr(self, "feature_names_in_", None))
        return Z

    def _distribution(self, Z: Array) -> tuple[Array, Array, Array]:
        """Means (t, N), latent variances (N,) and noise variances (N,), normalised."""
        rules, k = self._rules()
        mean, variance, noise = self._committee.map_blocks(
            rules.combine, Z, k, self.n_jobs, with_covariance=rules.needs_covariance
        )
        return mean, variance, noise

    def _left_out(self, rows: Any = None) -> tuple[Array, Array, Array]:
        """The same of training rows, all by default, each left out."""
        check_is_fitted(self, "experts_")
        rules, k = self._rules()
        X = self._committee.training_data().X
        places = np.arange(len(X))
        rows = places if rows is None else np.atleast_1d(places[rows])  # also of a mask
        mean, variance, noise = self._committee.map_blocks(
            rules.combine,
            X[rows],
            k,
            self.n_jobs,
            left_out=rows,
            with_covariance=rules.needs_covariance,
        )
        return mean, variance, noise

    def _judged_rows(self, every: bool = False) -> tuple[Array, Array, Array]:
        """Targets, means and std of training rows, some or all, each left out: (N,) each.

        Several targets stand one after the other.
        """
        check_is_fitted(self, "experts_")
        Y = self._committee.training_data().Y
        rows = np.sort(
            np.random.default_rng(0).permutation(len(Y))[: None if every else LEFT_OUT_ROWS]
        )
        mean, std = self.loo_predict(rows)
        return np.ravel(self._y_scaling.undo(Y[rows])), np.ravel(mean), np.ravel(std)

    def _reach(self, coverage: float) -> Array:
        """How many std an interval reaches to either side, for each target: (t,)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, not be {coverage!r}")
        check_is_fitted(self, "experts_")
        conformity = self._conformity()
        m = conformity.shape[1]
        rank = int(np.ceil((m + 1) * coverage - 1e-9))
        if m == 1:
            raise ValueError("a single training row tells nothing about errors; fit more")
        if rank > m:
            raise ValueError(
                f"{m} training rows can promise a coverage of at most {m / (m + 1):.4g}, not "
                f"{coverage!r}"
            )
        return conformity[:, rank - 1]

    def _conformity(self) -> Array:
        """Sorted |y - mean| / std of training rows that were left out: (t, m)."""
        choice = self._choice
        if choice.conformity is not None and self._rules() == (choice.rules, choice.nearest):
            return choice.conformity
        Y = self._committee.training_data().Y
        rows = np.sort(np.random.default_rng(0).permutation(len(Y))[:JUDGED_ROWS])
        mean, variance, noise = self._left_out(rows)
        return np.sort(np.abs(Y[rows].T - mean) / np.sqrt(variance + noise), axis=1)

    def _joint(self, Z: Array, latent: bool) -> tuple[Array, Array]:
        """Means (t, N) and joint covariance (N, N) of the normalised targets."""
        rules, k = self._rules()
        mean, variance, noise = self._distribution(Z)
        (weights,) = self._committee.map_blocks(rules.normalised_weights, Z, k, self.n_jobs)
        layout = self._committee.layout
        seats = np.arange(len(self.experts_))[:, None] if k is None else layout.nearest(Z, k).T
        cov = between_rows(self.experts_, Z, seats, weights, variance)
        if not latent:
            np.einsum("ii->i", cov)[:] += noise
        return mean, cov

    def _squared_scale(self) -> Array:
        """Squared units of y: (t,)."""
        with np.errstate(over="ignore", under="ignore"):
            squared = self._y_scaling.scale**2
        if not np.all((squared > SQUARES[0]) & (squared < SQUARES[1])):
            raise ValueError(
                f"variances in the squared units of y, whose scale is {self._y_scaling.scale}, "
                "are beyond floating point; rescale y, or ask for return_std"
            )
        return squared

    def _std_in_units(self, std: Array) -> Array:
        """Standard deviations (N,) of the normalised targets in the units of y."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = std[:, None] * self._y_scaling.scale
        if not np.all((scaled > 0) & (scaled < np.inf)):
            raise ValueError(
                f"std, in the units of y, whose scale is {self._y_scaling.scale}, is beyond "
                "floating point; rescale y"
            )
        return _squeeze(scaled)

    def _in_units(self, means: Array) -> Array:
        """Means (t, N) of the normalised targets in the units of y: (N,) or (N, t)."""
        return _squeeze(self._y_scaling.undo(means.T))


def _squeeze(array: Array) -> Array:
    """Drop the axis of targets where there is one."""
    return array[..., 0] if array.shape[-1] == 1 else array
