"""The estimator: validation and wiring."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from manygp import committee, progress, scaling, validation
from manygp.conversion import as_kernel
from manygp.expert import Expert
from manygp.kernel import split_noise
from manygp.kernels import default_kernel
from manygp.labels import LABELS
from manygp.likelihood import Likelihood, psd_root
from manygp.partition import PARTITIONS
from manygp.rules import Rules, choose
from manygp.types import Array, ExpertPredictions, IndexArray

PRIOR_MEANS: dict[Any, bool] = {"zero": False, "constant": True}


class ManyGPRegressor(RegressorMixin, BaseEstimator):
    """Gaussian process regression by a calibrated product of local experts.

    The rows are parted among many small Gaussian processes, which are fitted in parallel.
    A prediction is the product of theirs, each weighted by how much it knows about the row,
    after its variance has been corrected for what the other experts know (GP-pro-c).

    Parameters
    ----------
    kernel : Kernel, default=None
        Covariance function, one of `manygp.kernels` or of scikit-learn's. Noise is a `White`
        term of it. By default a constant times Matern-5/2 with one length-scale per column,
        plus White.
    points_per_expert : int, default=200
        There are n // points_per_expert experts, at least one.
    partition : {"balltree", "kmeans", "random"} or callable, default="balltree"
        Assignment of rows to experts: (X, n_parts, rng) -> list of index arrays.
    weighting : {"entropy", "variance", "uniform", "softmax"} or callable, default="entropy"
        ExpertPredictions -> weights of shape (M, N).
    calibration : {"information", "none"} or callable, default="information"
        ExpertPredictions -> factors of the variances, shape (M, N).
    aggregation : {"gpoe", "poe", "bcm", "rbcm", "barycentre"} or callable, default="gpoe"
        (ExpertPredictions, weights) -> Gaussian.
    hyperparameters : {"hierarchical", "independent", "shared"} or callable, \
            default="hierarchical"
        "independent" fits every expert for itself, as the paper does. "shared" fits one kernel
        for all on a few blocks of random rows. "hierarchical" then fits each expert with a
        Gaussian pull on its log-hyperparameters towards the shared ones. A callable maps the
        shared kernel to the precision of that pull, one number or one per element of theta.
    prior_mean : {"zero", "constant"}, default=None
        Prior mean of the (normalised) target: 0, or a constant fitted by each expert. By
        default a constant, but 0 for a model of one expert, which then is scikit-learn's.
    alpha : float or array-like of shape (n,), default=0.0
        Known noise variance of the training targets, in the square of their units, on top of
        the kernel's White. As in scikit-learn it is not part of predictions.
    normalize_X : bool, default=None
        Whether inputs are scaled to [0, 1] before the kernel sees them. By default they are
        for the default kernel only: a kernel of your own means the units that it was written
        for.
    normalize_y : bool, default=True
        Whether targets are standardised before the kernel sees them.
    n_restarts_optimizer : int, default=0
        Further random starts of each fit that nothing pulls on.
    n_jobs : int, default=None
        Experts fitted, or blocks of rows predicted, at the same time; -1 for all cores. The
        result does not depend on it.
    random_state : int or RandomState, default=None
    verbose : bool, default=False
        Show a progress bar on a terminal.

    Attributes
    ----------
    experts_ : list of Expert
        Each with its rows (`indices`), `kernel`, `hyperparameters`, `log_marginal_likelihood`
        and the `jitter` that it needed.
    kernel_ : Kernel
        The shared kernel, or that of a single expert, or what the experts started from if they
        share nothing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X has column names.

    Notes
    -----
    `weighting`, `calibration` and `aggregation` are read by `predict`: with `set_params` they
    can be changed after `fit`, and the same experts answer by another rule.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp import ManyGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1000)
    >>> model = ManyGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> print(f"{mean[0]:.2f} +- {std[0]:.2f}")
    0.48 +- 0.10
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        points_per_expert: int = 200,
        partition: Any = "balltree",
        weighting: Any = "entropy",
        calibration: Any = "information",
        aggregation: Any = "gpoe",
        hyperparameters: Any = "hierarchical",
        prior_mean: str | None = None,
        alpha: Any = 0.0,
        normalize_X: bool | None = None,
        normalize_y: bool = True,
        n_restarts_optimizer: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.points_per_expert = points_per_expert
        self.partition = partition
        self.weighting = weighting
        self.calibration = calibration
        self.aggregation = aggregation
        self.hyperparameters = hyperparameters
        self.prior_mean = prior_mean
        self.alpha = alpha
        self.normalize_X = normalize_X
        self.normalize_y = normalize_y
        self.n_restarts_optimizer = n_restarts_optimizer
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_label(cls, label: str, **parameters: Any) -> Self:
        """A model of the paper.

        Parameters
        ----------
        label : str
            `bt|kx|rd`-`ent|var|uni` with or without `-c` (18 variants), `gp-pro-sm`, `gp-full`
            or `gp-pro-full`.
        **parameters
            Further parameters of the estimator; they win over the label's.
        """
        if label not in LABELS:
            raise ValueError(f"unknown label {label!r}; the known ones are {', '.join(LABELS)}")
        return cls(**{**LABELS[label], **parameters})

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the experts.

        Parameters
        ----------
        X : array-like or table of shape (n, d)
        y : array-like of shape (n,) or (n, t)
            Several targets share experts and kernels.
        """
        before = self.__dict__.copy()
        try:
            return self._fit(X, y)
        except BaseException:  # an interrupted or failed refit leaves the old model whole
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any) -> Self:
        self._rules()  # a misspelt rule is an error before the work, not after
        partition = choose("partition", self.partition, PARTITIONS)
        pull = choose("hyperparameters", self.hyperparameters, committee.PULLS)
        if self.prior_mean not in (None, *PRIOR_MEANS):
            known = ", ".join(PRIOR_MEANS)
            raise ValueError(f"prior_mean must be one of None, {known}, not {self.prior_mean!r}")
        for name, least in (("points_per_expert", 1), ("n_restarts_optimizer", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        X, Y = validation.check_training_data(self, X, y)
        n, d = X.shape
        if self.kernel is not None:  # before any work
            as_kernel(self.kernel, d).check_columns(d)
        x_scaling, y_scaling = self._scalings(X, Y)
        alpha = self._normalised_alpha(n, y_scaling)
        Z = np.ascontiguousarray(x_scaling.apply(X))
        validation.check_magnitude(Z, "X", getattr(self, "feature_names_in_", None))
        default = self.kernel is None
        given = default_kernel(d, Z.std(axis=0)) if default else as_kernel(self.kernel, d)
        kernel = split_noise(given)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        parts = partition(Z, max(1, n // int(self.points_per_expert)), rng)
        _check_parts(parts, n)
        constant_mean = PRIOR_MEANS.get(self.prior_mean, len(parts) > 1)
        kernel, experts = committee.fit_committee(
            Z,
            y_scaling.apply(Y),
            alpha,
            parts,
            kernel,
            pull,
            constant_mean,
            self.n_restarts_optimizer,
            rng,
            self.n_jobs,
            progress.bar if self.verbose else progress.silent,
        )
        self.kernel_, self.experts_ = kernel, experts
        self._constant_mean = constant_mean
        self._x_scaling, self._y_scaling = x_scaling, y_scaling
        return self

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
        Z, rules = self._scaled(X), self._rules()
        if not (return_std or return_cov):
            (mean,) = self._by_blocks(rules.means, Z)
            return self._in_units(mean)
        if return_cov:
            squared = self._squared_scale()
            mean, cov = self._joint(Z, latent)
            return self._in_units(mean), _squeeze(cov[:, :, None] * squared)
        mean, variance, noise = self._by_blocks(rules.distribution, Z)
        std = np.sqrt(variance if latent else variance + noise)
        return self._in_units(mean), _squeeze(std[:, None] * self._y_scaling.scale)

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
        """Sum of the experts' log marginal likelihoods, of the normalised data.

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
            likelihood = Likelihood(expert.X, expert.Y, expert.alpha, self._constant_mean)
            v, g = likelihood.value_and_gradient(kernel)
            value, gradient = value + v, gradient + g
        return (value, gradient) if eval_gradient else value

    def predict_experts(self, X: Any) -> ExpertPredictions:
        """What each expert says by itself, in the units of y, before any rule is applied."""
        Z = self._scaled(X)
        if len(self._y_scaling.scale) > 1:
            raise ValueError("predict_experts is for models of one target")
        square, undo = self._squared_scale()[0], self._y_scaling.undo
        mean, variance, prior = self._by_blocks(
            lambda experts, block: committee.predict_experts(experts, block)[0][:3], Z
        )
        return ExpertPredictions(
            undo(mean[..., None])[..., 0],
            variance * square,
            prior * square,
            np.array([[expert.noise_variance] for expert in self.experts_]) * square,
            undo(np.array([expert.mean for expert in self.experts_])),
        )

    def calibration_ratio(self, X: Any) -> Array:
        """Factor by which the calibration shrinks each expert's variance: (M, N)."""
        Z = self._scaled(X)
        (ratio,) = self._by_blocks(self._rules().ratio, Z)
        return ratio

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _rules(self) -> Rules:
        return Rules.named(self.weighting, self.calibration, self.aggregation)

    def _scalings(self, X: Array, Y: Array) -> tuple[scaling.Scaling, scaling.Scaling]:
        normalize_X = self.kernel is None if self.normalize_X is None else self.normalize_X
        if len(Y) > 1 and np.any(Y.max(axis=0) == Y.min(axis=0)):
            warnings.warn("y is constant; predictions will be that constant", stacklevel=4)
        elif not self.normalize_y:
            validation.check_raw_targets(Y)
        return (
            scaling.to_unit_cube(X) if normalize_X else scaling.identity(X.shape[1]),
            scaling.to_standard(Y) if self.normalize_y else scaling.identity(Y.shape[1]),
        )

    def _normalised_alpha(self, n: int, y_scaling: scaling.Scaling) -> Array:
        alpha = validation.check_alpha(self.alpha, n)
        if alpha.any() and np.any(y_scaling.scale != y_scaling.scale[0]):
            raise ValueError("alpha with several targets needs normalize_y=False")
        return np.asarray((np.sqrt(alpha) / y_scaling.scale[0]) ** 2)

    def _scaled(self, X: Any) -> Array:
        check_is_fitted(self, "experts_")
        Z = np.ascontiguousarray(self._x_scaling.apply(validation.check_features(self, X)))
        validation.check_magnitude(Z, "X", getattr(self, "feature_names_in_", None))
        return Z

    def _by_blocks(
        self, function: Callable[[list[Expert], Array], tuple[Array, ...]], Z: Array
    ) -> tuple[Array, ...]:
        return committee.map_row_blocks(function, self.experts_, Z, self.n_jobs)

    def _joint(self, Z: Array, latent: bool) -> tuple[Array, Array]:
        """Means (t, N) and joint covariance (N, N) of the normalised targets."""
        rules = self._rules()
        mean, variance, noise = self._by_blocks(rules.distribution, Z)
        (weights,) = self._by_blocks(rules.normalised_weights, Z)
        cov = committee.joint_covariance(self.experts_, Z, weights, variance)
        if not latent:
            np.einsum("ii->i", cov)[:] += noise
        return mean, cov

    def _squared_scale(self) -> Array:
        """Squared units of y: (t,)."""
        with np.errstate(over="ignore", under="ignore"):
            squared = self._y_scaling.scale**2
        if not np.all(np.isfinite(squared) & (squared > 0)):
            raise ValueError(
                f"variances in the squared units of y, whose scale is {self._y_scaling.scale}, "
                "are beyond floating point; rescale y, or ask for return_std"
            )
        return squared

    def _in_units(self, means: Array) -> Array:
        """Means (t, N) of the normalised targets in the units of y: (N,) or (N, t)."""
        return _squeeze(self._y_scaling.undo(means.T))


def _squeeze(array: Array) -> Array:
    """Drop the axis of targets where there is one."""
    return array[..., 0] if array.shape[-1] == 1 else array


def _check_parts(parts: list[IndexArray], n: int) -> None:
    if not parts or any(len(part) == 0 for part in parts):
        raise ValueError("the partition has an empty part; every expert needs rows")
    seen = np.zeros(n, dtype=bool)
    for part in parts:
        seen[part] = True
    if not seen.all():
        raise ValueError(f"the partition loses row {int(np.argmin(seen))}; every row needs a part")
