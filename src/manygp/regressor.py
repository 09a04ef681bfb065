"""The estimator: validation and wiring."""

from __future__ import annotations

from numbers import Integral
from os import PathLike
from time import perf_counter
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from manygp import scaling, validation
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import split_noise
from manygp.kernels.catalogue import default_kernel
from manygp.kernels.conversion import as_kernel
from manygp.model import Predictor
from manygp.rules.aggregation import DEPENDENT
from manygp.rules.combine import choose
from manygp.rules.labels import LABELS
from manygp.rules.partition import PARTITIONS
from manygp.runtime import progress
from manygp.settings import (
    alpha_of,
    check_raw_targets,
    identity_of,
    plan_of,
    scalings_of,
    space_of,
)
from manygp.storage import model_file
from manygp.storage.container import ModelFileError
from manygp.training import budget, fitting
from manygp.training.checkpoint import Checkpoint
from manygp.training.pipeline import Trained, train
from manygp.training.scores import Space

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
    experts_ : tuple of Expert
        Each with its rows (`indices`), those of others that it knows (`neighbours`), `kernel`,
        `hyperparameters`, `log_marginal_likelihood` and the `jitter` that it needed.
    kernel_ : Kernel
        The shared kernel, or that of a single expert, or what the experts started from if they
        share nothing.
    nearest_ : int or None
        How many experts are asked about a row; None for all.
    calibration_report_ : CalibrationReport or None
        What was chosen by leave-one-out, and the score of each alternative; None if there was
        nothing to choose. `manygp.display.CalibrationDisplay` draws it.
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
            bit (unless `time_budget` makes it depend on the clock). A folder of other data or
            parameters is refused: each fit has its own, also those of a cross-validation.
        """
        before = self.__dict__.copy()
        try:
            return self._fit(X, y, checkpoint)
        except BaseException:  # an interrupted or failed refit leaves the old model whole
            self.__dict__ = before
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
        x_scaling, y_scaling = scalings_of(self, X, Y)
        alpha = alpha_of(self, n, y_scaling)
        Z = np.ascontiguousarray(x_scaling.apply(X))
        validation.check_magnitude(Z, "X", getattr(self, "feature_names_in_", None))
        default = self.kernel is None
        given = default_kernel(d, Z.std(axis=0)) if default else as_kernel(self.kernel, d)
        kernel = split_noise(given)
        if not self.normalize_y and np.ptp(Y, axis=0).all():
            check_raw_targets(Y, kernel, Z)
        if not (kernel.right.diag(Z[:1])[0] or alpha.any()):
            validation.check_repeated_rows(X, Y)
        seed, checkpoint = check_random_state(self.random_state).randint(2**31), None
        if folder is not None:
            checkpoint = Checkpoint(folder, identity_of(self, X, Y, alpha), seed)
            seed = checkpoint.seed
        rng = np.random.default_rng(seed)
        data = TrainingData(Z, y_scaling.apply(Y), alpha, constant_mean=True)
        plan, deadline = plan_of(self, space, partition, data, kernel, begin)
        space = space._replace(pulls=plan.pulls, overlaps=plan.overlaps)
        several = n >= 2 * plan.points_per_expert
        dependent = space.aggregation in DEPENDENT
        if dependent and several and space.pulls[0] != np.inf:
            raise ValueError(
                f"aggregation={self.aggregation!r} needs one kernel for all experts: set "
                "hyperparameters='shared'"
            )
        constant_mean = PRIOR_MEANS.get(self.prior_mean, several and not dependent)
        trained = train(
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
        fitted = {name: getattr(self, name) for name in model_file.FITTED}
        return self._take(trained, plan, x_scaling, y_scaling, fitted, None)

    def _take(
        self,
        trained: Trained,
        plan: budget.Plan,
        x_scaling: scaling.Scaling,
        y_scaling: scaling.Scaling,
        fitted: dict[str, Any],
        table: dict[str, Any] | None,
    ) -> Self:
        """Become a fitted model."""
        self._committee, self._choice, self._alone = (
            trained.committee,
            trained.choice,
            trained.alone,
        )
        self.experts_ = tuple(trained.committee.experts)
        self.kernel_ = trained.kernel
        nearest = trained.choice.nearest
        self.nearest_ = None if nearest is None else min(nearest, len(self.experts_))
        self.calibration_report_ = trained.report
        self.plan_ = plan
        self._fitted, self._table = fitted, table
        first = self.experts_[0].kernel
        self._many_kernels = any(expert.kernel is not first for expert in self.experts_)
        self._x_scaling, self._y_scaling = x_scaling, y_scaling
        layout, conformity = trained.committee.layout, trained.choice.conformity
        for array in (*x_scaling, *y_scaling, layout.metric, layout.centres, conformity):
            if array is not None:
                array.flags.writeable = False
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a file without pickle, whole or not at all.

        `manygp.load` gives a model that predicts the same, bit for bit, on the same machine.
        Rules and kernels must be manygp's own (scikit-learn's kernels are saved as ours); pickle
        keeps any model.

        Parameters
        ----------
        path : path
        """
        check_is_fitted(self, "experts_")
        if type(self) is not ManyGPRegressor:
            raise ValueError(f"a {type(self).__name__} cannot be saved; pickle keeps any model")
        parameters = self.get_params(deep=False)
        if self.kernel is not None:
            parameters["kernel"] = as_kernel(self.kernel, self.n_features_in_)
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # that of a generator has gone by
        names = getattr(self, "feature_names_in_", None)
        trained = Trained(
            self._committee, self._choice, self.calibration_report_, self.kernel_, self._alone
        )
        model_file.write(
            path,
            model_file.Saved(
                parameters,
                self._fitted,
                self.n_features_in_ if names is None else list(names),
                self._x_scaling,
                self._y_scaling,
                trained,
                self.plan_,
                self._table,
            ),
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The model that `save` has written; also `manygp.load`.

        Parameters
        ----------
        path : path

        Raises
        ------
        ModelFileError
            If the file is damaged, altered, written by a newer version, or no model at all.
        """
        saved = model_file.read(path)
        try:
            model = cls(**saved.parameters)
            model._space()
            if saved.parameters.keys() != model.get_params(deep=False).keys():
                raise ValueError("parameters are missing")
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{path} is not a valid model: {error}") from error
        if isinstance(saved.columns, int):
            model.n_features_in_ = saved.columns
        else:
            model.n_features_in_ = len(saved.columns)
            model.feature_names_in_ = np.array(saved.columns, dtype=object)
        return model._take(
            saved.trained,
            saved.plan,
            saved.x_scaling,
            saved.y_scaling,
            saved.fitted,
            saved.table,
        )

    def _space(self) -> Space:
        return space_of(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
