"""The estimator: validation and wiring."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from os import PathLike
from time import perf_counter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state

from manygp import budget, fitting, progress, scaling, validation
from manygp.aggregation import AGGREGATIONS, DEPENDENT, NO_COMMUNICATION, grbcm
from manygp.calibration import CALIBRATIONS, Information, none
from manygp.checkpoint import Checkpoint, described, key_of
from manygp.conversion import as_kernel
from manygp.judging import Space
from manygp.kernel import Sum, split_noise
from manygp.kernels import default_kernel
from manygp.labels import LABELS
from manygp.likelihood import TrainingData
from manygp.partition import PARTITIONS, full_parts, one_part
from manygp.predictor import Predictor
from manygp.rules import Rules, choose, weighting_of
from manygp.selection import (
    NEAREST_LADDER,
    OVERLAP_LADDER,
    PULL_LADDER,
    STRENGTHS,
)
from manygp.training import train
from manygp.types import Array, Calibration, Partitioner
from manygp.weighting import TEMPERED

# Parameters that may change after fit, unless "auto" depends on them.
READ_BY_PREDICT = ("calibration", "weighting", "temperature", "aggregation", "routing")
PRIOR_MEANS: dict[Any, bool] = {"zero": False, "constant": True}


class ManyGPRegressor(Predictor, RegressorMixin, BaseEstimator):
    """Gaussian process regression by a committee of local experts that calibrates itself.

    One kernel is fitted for all rows. In its metric the rows are parted among many small
    Gaussian processes, the experts, which adapt it to their own rows and also know some of
    their neighbours' rows. A prediction is the product of those of the nearest experts, each
    weighted by how much it knows about the row. How much the experts share, and by how much
    the std has to be corrected, is chosen by leaving training rows out. With `from_label` it
    is any model of the paper instead (GP-pro-c).

    Parameters
    ----------
    kernel : Kernel, default=None
        Covariance function, one of `manygp.kernels` or of scikit-learn's. Noise is a `White`
        term of it. By default a constant times Matern-5/2 with one length-scale per column,
        plus White.
    points_per_expert : int, default=200
        There are n // points_per_expert experts, at least one.
    overlap : float or "auto", default="auto"
        How many rows of others an expert knows as well, as a multiple of its own: those
        nearest to any of its own. Hyperparameters are learned from its own rows only.
    partition : {"balltree", "kmeans", "random"} or callable, default="balltree"
        Assignment of rows to experts: (X, n_parts, rng) -> list of index arrays. X is divided
        by the length-scales of the shared kernel, if there is one.
    weighting : {"tempered", "entropy", "variance", "uniform", "softmax"} or callable, \
            default="tempered"
        ExpertPredictions -> weights of shape (M, N).
    temperature : float or "auto", default="auto"
        Of "tempered" and "softmax": the higher, the more say the surest expert has.
    calibration : {"auto", "information", "none"} or callable, default="auto"
        ExpertPredictions -> factors of the experts' variances, shape (M, N). "auto" chooses the
        strength of "information", and a scale and a power of the aggregated variance.
    aggregation : {"gpoe", "poe", "bcm", "rbcm", "barycentre", "grbcm", "nested"} or callable, \
            default="gpoe"
        (ExpertPredictions, weights) -> Gaussian. The last two model what experts have in
        common; they have one kernel for all and take no weights.
    hyperparameters : {"auto", "hierarchical", "independent", "shared"} or callable, \
            default="auto"
        "independent" fits every expert for itself, as the paper does. "shared" fits one kernel
        for all on a few blocks of random rows. "hierarchical" then fits each expert with a
        Gaussian pull on its log-hyperparameters towards the shared ones; "auto" chooses how
        strong. A callable maps the shared kernel to the precision of that pull, one number or
        one per element of theta.
    routing : int, float, "auto" or None, default="auto"
        How many experts are asked about a row, those with the nearest centres; None for all. A
        number below 1 is a tolerance: as many as leave less than that share of the weight to
        all others.
    prior_mean : {"zero", "constant"}, default=None
        Prior mean of the (normalised) target: 0, or a constant fitted by each expert. By
        default a constant, but 0 for a model of one expert, which then is scikit-learn's, and
        for "grbcm" and "nested".
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
    time_budget : float, default=None
        Seconds that `fit` may take. It then tries what it has time for: smaller experts than
        `points_per_expert`, fewer overlaps and pulls where these are "auto", a shared kernel
        of fewer rows. What it takes depends on the speed of the machine; `plan_` tells.
    n_jobs : int, default=None
        Experts fitted or asked at the same time; -1 for all cores. The result does not depend
        on it.
    random_state : int or RandomState, default=None
    verbose : bool, default=False
        Say what is going to be done and what it costs, after evaluating the likelihood of a
        few rows, and show a progress bar on a terminal.

    Attributes
    ----------
    experts_ : list of Expert
        Each with its rows (`indices`), those of others that it knows (`neighbours`), `kernel`,
        `hyperparameters`, `log_marginal_likelihood` and the `jitter` that it needed.
    kernel_ : Kernel
        The shared kernel, or that of a single expert, or what the experts started from if they
        share nothing.
    nearest_ : int or None
        How many experts are asked about a row; None for all.
    calibration_report_ : CalibrationReport or None
        What was chosen by leave-one-out, and the score of each alternative; None if there was
        nothing to choose. `manygp.plotting.CalibrationDisplay` draws it.
    plan_ : Plan
        The size of experts, what was to be compared and, with `time_budget` or `verbose`, the
        estimated seconds and bytes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X has column names.

    Notes
    -----
    `weighting`, `temperature`, `calibration`, `aggregation` and `routing` are read by
    `predict`: with `set_params` they can be changed after `fit`, and the same experts answer by
    another rule. What is "auto" keeps what `fit` has chosen; `calibration="auto"` was learned
    for the other four and has to be set too when they change.

    A single expert has nothing to choose and is asked as it is: exact GP regression.

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
    0.49 +- 0.10
    >>> lower, upper = model.predict_interval([[0.5]], coverage=0.9)
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        points_per_expert: int = 200,
        overlap: Any = "auto",
        partition: Any = "balltree",
        weighting: Any = "tempered",
        temperature: Any = "auto",
        calibration: Any = "auto",
        aggregation: Any = "gpoe",
        hyperparameters: Any = "auto",
        routing: Any = "auto",
        prior_mean: str | None = None,
        alpha: Any = 0.0,
        normalize_X: bool | None = None,
        normalize_y: bool = True,
        n_restarts_optimizer: int = 0,
        time_budget: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.points_per_expert = points_per_expert
        self.overlap = overlap
        self.partition = partition
        self.weighting = weighting
        self.temperature = temperature
        self.calibration = calibration
        self.aggregation = aggregation
        self.hyperparameters = hyperparameters
        self.routing = routing
        self.prior_mean = prior_mean
        self.alpha = alpha
        self.normalize_X = normalize_X
        self.normalize_y = normalize_y
        self.n_restarts_optimizer = n_restarts_optimizer
        self.time_budget = time_budget
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

    def fit(self, X: Any, y: Any, *, checkpoint: str | PathLike[str] | None = None) -> Self:
        """Fit the experts.

        Parameters
        ----------
        X : array-like or table of shape (n, d)
        y : array-like of shape (n,) or (n, t)
            Several targets share experts and kernels.
        checkpoint : path, optional
            A folder in which experts are kept as they finish. After a crash or an interrupt the
            same call goes on from there, and gives the model that it would have given, bit for
            bit. A folder of other data or parameters is refused.
        """
        before = self.__dict__.copy()
        try:
            return self._fit(X, y, checkpoint)
        except BaseException:  # an interrupted or failed refit leaves the old model whole
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any, folder: str | PathLike[str] | None) -> Self:
        space = self._space()  # a misspelt rule is an error before the work, not after
        partition = choose("partition", self.partition, PARTITIONS)
        if self.prior_mean not in (None, *PRIOR_MEANS):
            known = ", ".join(PRIOR_MEANS)
            raise ValueError(f"prior_mean must be one of None, {known}, not {self.prior_mean!r}")
        validation.check_integer("points_per_expert", self.points_per_expert, 1)
        validation.check_integer("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        if self.time_budget is not None:
            validation.check_number("time_budget", self.time_budget, 0, "None or ")
        begin = perf_counter()
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
        seed, checkpoint = check_random_state(self.random_state).randint(2**31), None
        if folder is not None:
            checkpoint = Checkpoint(folder, self._identity(X, Y, alpha), seed)
            seed = checkpoint.seed
        rng = np.random.default_rng(seed)
        data = TrainingData(Z, y_scaling.apply(Y), alpha, constant_mean=True)
        plan, deadline = self._plan(space, partition, data, kernel, begin)
        space = space._replace(pulls=plan.pulls, overlaps=plan.overlaps)
        several = n >= 2 * plan.points_per_expert
        dependent = space.aggregation in DEPENDENT
        if dependent and several and space.pulls[0] != np.inf:
            raise ValueError(
                f"aggregation={self.aggregation!r} needs one kernel for all experts: set "
                "hyperparameters='shared'"
            )
        constant_mean = PRIOR_MEANS.get(self.prior_mean, several and not dependent)
        committee, choice, report, kernel, alone = train(
            data._replace(constant_mean=constant_mean),
            kernel,
            partition,
            space,
            plan,
            deadline,
            self.n_restarts_optimizer,
            rng,
            fitting.Run(
                self.n_jobs, progress.bar if self.verbose else progress.silent, checkpoint
            ),
        )
        self._committee, self._choice = committee, choice
        self.experts_ = committee.experts
        self.kernel_ = kernel
        self.nearest_ = None if choice.nearest is None else min(choice.nearest, len(committee))
        self.calibration_report_ = report
        self.plan_ = plan
        self._alone = alone
        self._fitted = {name: getattr(self, name) for name in READ_BY_PREDICT}
        self._many_kernels = any(
            expert.kernel is not committee.experts[0].kernel for expert in committee.experts
        )
        self._x_scaling, self._y_scaling = x_scaling, y_scaling
        return self

    def _identity(self, X: Array, Y: Array, alpha: Array) -> dict[str, Any]:
        """What a checkpoint must have in common with a fit."""
        parameters = self.get_params(deep=False)
        if self.kernel is not None:
            parameters["kernel"] = as_kernel(self.kernel, X.shape[1])
        names = getattr(self, "feature_names_in_", None)
        return {
            "manygp": version("manygp"),
            "rows": len(X),
            "columns": X.shape[1] if names is None else list(names),
            "data": key_of(X, Y, alpha),
            **{
                name: described(value)
                for name, value in parameters.items()
                if name not in ("n_jobs", "verbose")
            },
        }

    def _plan(
        self,
        space: Space,
        partition: Partitioner,
        data: TrainingData,
        kernel: Sum,
        begin: float,
    ) -> tuple[budget.Plan, float]:
        """What is to be done, and when to stop looking for something better."""
        plan = budget.Plan(
            int(self.points_per_expert),
            space.pulls,
            space.overlaps,
            fitting.SHARED_ROWS,
            2 if self.hyperparameters == "auto" else 1,
        )
        if self.time_budget is None and not self.verbose:
            return plan, np.inf
        seconds = np.inf if self.time_budget is None else float(self.time_budget)
        left = seconds - (perf_counter() - begin)
        n, points, least = len(data.X), plan.points_per_expert, budget.LEAST_POINTS
        if partition in (one_part, full_parts):  # experts of all rows, whatever is planned
            plan, least = plan._replace(points_per_expert=n), n
        elif space.aggregation in DEPENDENT and space.pulls[0] != np.inf:
            least = points  # several experts would need one kernel
        plan = budget.afford(plan, space, data, kernel, self.n_jobs, left, least)
        if plan.seconds > left:
            warnings.warn(
                f"the least that can be done takes about {plan.seconds:.2g} s, more than the "
                f"{seconds:g} s of time_budget",
                stacklevel=4,
            )
        if self.verbose:
            progress.say(f"{n:,} rows; {plan}")
        if least == n:
            plan = plan._replace(points_per_expert=points)
        return plan, begin + seconds - plan.final_seconds

    def _space(self) -> Space:
        """What the parameters leave to choose."""
        aggregation = choose("aggregation", self.aggregation, AGGREGATIONS)
        weighting_of(self.weighting, None)
        pulls: tuple[Any, ...] = (np.inf,) if aggregation in DEPENDENT else PULL_LADDER
        if self.hyperparameters != "auto":
            pulls = (choose("hyperparameters", self.hyperparameters, fitting.PULLS, "auto"),)
        overlaps: tuple[float, ...] = OVERLAP_LADDER
        if self.overlap != "auto":
            validation.check_number("overlap", self.overlap, 0, "'auto' or ")
            overlaps = (float(self.overlap),)
        tempered = isinstance(self.weighting, str) and self.weighting in TEMPERED
        temperatures: tuple[float | None, ...] = (None,)
        if self.temperature != "auto":
            validation.check_number("temperature", self.temperature, 0, "'auto' or ")
            temperatures = (float(self.temperature),) if tempered else (None,)
        elif tempered and aggregation not in DEPENDENT:
            temperatures = TEMPERED[self.weighting][1]
        calibrations: tuple[Calibration, ...] = tuple(
            Information(strength=strength) for strength in STRENGTHS
        )
        if self.calibration != "auto":
            calibrations = (choose("calibration", self.calibration, CALIBRATIONS, "auto"),)
        elif aggregation in DEPENDENT:
            calibrations = (none,)
        nearest: tuple[int | None, ...] = NEAREST_LADDER
        tolerance = None
        if self.routing is None:
            nearest = (None,)
        elif isinstance(self.routing, float) and 0 < self.routing < 1:
            tolerance = self.routing
        elif self.routing != "auto":
            other = "'auto', None, a neglected weight between 0 and 1, or "
            validation.check_integer("routing", self.routing, 1, other)
            nearest = (int(self.routing),)
        return Space(
            pulls,
            overlaps,
            self.weighting,
            temperatures,
            calibrations,
            aggregation,
            nearest,
            tolerance,
            isinstance(self.calibration, str) and self.calibration == "auto",
        )

    def _rules(self) -> tuple[Rules, int | None]:
        """The parameters' rules where they say, else those that fit has chosen."""
        space, choice = self._space(), self._choice
        weighting = weighting_of(self.weighting, space.temperatures[0])
        rules = Rules(weighting, space.calibrations[0], space.aggregation)
        k = space.nearest[0]
        if self._alone:
            return rules._replace(calibration=none) if space.recalibrate else rules, None
        if len(space.temperatures) > 1:
            self._as_fitted("temperature", "a number", "temperature", "weighting")
            rules = rules._replace(weighting=choice.rules.weighting)
        if len(space.nearest) > 1 or space.tolerance is not None:
            self._as_fitted("routing", "None, or a number of experts", "routing")
            k = choice.nearest
        if space.recalibrate:
            self._as_fitted("calibration", "'information' or 'none'", *self._fitted)
            rules = choice.rules
        if space.aggregation in DEPENDENT and self._many_kernels:
            raise ValueError(
                f"aggregation={self.aggregation!r} needs one kernel for all experts: set "
                "hyperparameters='shared' and fit again"
            )
        if space.aggregation is grbcm and self._committee.communication is None:
            raise ValueError(NO_COMMUNICATION)
        return rules, None if k is None else min(k, len(self.experts_))

    def _as_fitted(self, chosen: str, values: str, *names: str) -> None:
        """Refuse what fit has chosen for other settings of some parameters."""
        for name in names:
            if self._fitted[name] != getattr(self, name):
                raise ValueError(
                    f"{chosen}={getattr(self, chosen)!r} is chosen by fit, which had {name}="
                    f"{self._fitted[name]!r}, not {getattr(self, name)!r}: fit again, or set "
                    f"{chosen} to {values}"
                )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

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
