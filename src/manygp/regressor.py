"""The estimator: it and the encoder of tables are what speaks scikit-learn."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, Self, overload

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from manygp import answers, inputs, storage
from manygp.answers import Rows
from manygp.arrays import Array
from manygp.calibration import PredictiveDistribution
from manygp.learning_curve import LearningCurve, learning_curve
from manygp.model import FittedModel
from manygp.paper import LABELS
from manygp.paths import SlopesAndPaths
from manygp.relevance import Relevance
from manygp.rules import ExpertPredictions
from manygp.runtime.progress import Progress, shown, warn
from manygp.settings import PRIOR_MEANS, RULE_PARAMETERS, Settings
from manygp.sklearn_compat import MeanAndStd, SklearnAttributes, warn_at_bounds
from manygp.steps import SteppedDistribution
from manygp.targets import TransformedDistribution
from manygp.training.checkpoint import Checkpoint, identity_of, key_of
from manygp.training.experts import ExecutionContext
from manygp.training.pipeline import choose_transform, learned_rows, prepare, train
from manygp.training.splits import Table, splits_of, train_by_splits
from manygp.updating import Updating


class ManyGPRegressor(RegressorMixin, Updating, SlopesAndPaths, SklearnAttributes):
    """Gaussian process regression by a committee of local experts that calibrates itself.

    One kernel is fitted for all rows. In its metric the rows are partitioned among many small
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
        Temperature of the weightings "tempered" and "softmax": the higher, the more weight the
        surest experts get.
    calibration : {"auto", "information", "none"} or callable, default="auto"
        ExpertPredictions -> factors of the experts' variances, shape (M, N). "auto" chooses the
        strength of "information", and a correction of the aggregated variance.
    aggregation : {"gpoe", "poe", "bcm", "rbcm", "barycentre", "grbcm", "nested"} or callable, \
            default="gpoe"
        (ExpertPredictions, weights) -> Gaussian. The last two model what experts have in
        common; they need one kernel for all and use no weights. A callable of yours declares
        what it needs with `manygp.rules.needs`.
    hyperparameters : {"auto", "hierarchical", "independent", "shared"} or callable, \
            default="auto"
        "independent" fits every expert for itself, as the paper does. "shared" fits one kernel
        for all on a few blocks of random rows. "hierarchical" then fits each expert with a
        Gaussian prior on its log-hyperparameters around the shared ones. The precision of
        that prior is the shrinkage; "auto" chooses it. A callable maps the shared kernel to
        the shrinkage, one number or one per element of theta.
    routing : int, float, "auto" or None, default="auto"
        How many experts are queried about a row, those with the nearest centres, two at least;
        their weights fall to zero at the edge. None for all. A number below 1 is a tolerance: as
        many as leave less than that share of the weight to all others.
    trend : {"auto", "none", "constant", "linear", "additive", "boosted", "forest"} or regressor, \
            default="auto"
        What holds everywhere, under the experts: nothing, a constant for each expert, lines,
        splines of the columns and products of pairs of them, boosted trees, a forest, or any
        regressor of scikit-learn's kind, which is given scaled rows. "auto" chooses by rows that
        are left out; one expert has a constant, lines or a forest. A kernel of your own, or an
        aggregation that models what experts have in common, has none unless it is asked for;
        "auto" is then "constant" where there are several experts, and else "none".
    prior_mean : {"zero", "constant"}, default=None
        The former name of `trend`: "none" and "constant". It will be removed in version 0.4.
    noise : {"auto", "constant", "local"}, default="auto"
        Whether the std may be larger in some places than in others beyond what experts know: a
        smooth factor that depends on the row, its predicted std and mean, learned from rows that
        were left out. "auto" takes it where left-out rows gain by it. A kernel of your own, or a
        calibration of the paper's, has none.
    target_transform : {"auto", None, "log", "yeo-johnson"}, default="auto"
        Skewed targets may be modelled as T(y), a logarithm or a power; all answers are in the
        units of y. "auto" takes one where left-out rows gain by it.
    bounds : tuple of two floats or None, default=None
        The least and the largest value that y can have: means, intervals and quantiles keep to it.
    alpha : float or array-like of shape (n,), default=0.0
        Known noise variance of the training targets, in the square of their units, on top of
        the kernel's White. It counts whenever one of these rows is left out. As in scikit-learn
        it is not part of predictions of other rows; `predict` takes theirs. With several
        targets of different scales and `normalize_y` it is in units of each one's variance.
    optimizer : None, "fmin_l_bfgs_b" or callable, default="fmin_l_bfgs_b"
        None leaves the kernel's hyperparameters as they are. A callable maps (function, theta,
        bounds) to the best theta and its value, as in scikit-learn: `function(theta)` is minus
        the log marginal likelihood, and its derivative unless eval_gradient=False. The noise is
        the last element of theta.
    normalize_X : bool, default=None
        Whether inputs are scaled to [0, 1] before the kernel sees them. By default they are
        for the default kernel only: a kernel of your own means the units that it was written
        for.
    normalize_y : bool, default=True
        Whether targets are standardised before the kernel sees them.
    columns : {"auto", "numeric"} or TableEncoder, default="auto"
        How a table of pandas, polars or pyarrow becomes numbers. With "auto" one that has
        categories, text, dates or missing values is encoded by `manygp.tables.TableEncoder`,
        which is part of the model; with "numeric" it is an error. An encoder of yours is
        copied, and used for complete numbers too.
    n_restarts_optimizer : int, default=0
        Further random starts of each fit without shrinkage.
    time_budget : float, default=None
        Seconds that `fit` may take. It then tries what it has time for: smaller experts than
        `points_per_expert`, fewer overlaps and shrinkages where these are "auto", a shared
        kernel of fewer rows. What it takes depends on the speed of the machine; `plan_` tells.
    n_jobs : int, default=None
        Experts that are fitted or queried at the same time; -1 for all cores. The result does
        not depend on it.
    random_state : int or RandomState, default=None
    verbose : bool, default=False
        Say on standard error what is going to be done and what it costs, after evaluating the
        likelihood of a few rows, and how far it is: one bar with the time that is left on a
        terminal, else a line for each phase.
    n_targets : int, default=None
        Targets of the prior before `fit`, one by default; `fit` refuses another number.
    copy_X_train : bool, default=True
        Accepted for scikit-learn's sake: rows are always copied.

    Attributes
    ----------
    experts_ : sequence of Expert
        Each with its rows (`indices`), those of others that it knows (`neighbours`), `kernel`,
        `hyperparameters`, `log_marginal_likelihood` and the `jitter` that it needed.
    kernel_ : Kernel
        The shared kernel, or that of a single expert, or what the experts started from if they
        share nothing: as you wrote it, one of scikit-learn's if you passed one of these.
    X_train_, y_train_, L_, alpha_, log_marginal_likelihood_value_ : ndarrays and float
        As in scikit-learn, of a single expert: its rows, its normalised targets, the Cholesky
        factor `L_` of their covariance and the coefficients `alpha_` of the mean.
    feature_importances_ : ndarray of shape (d,)
        Share of each column in what the model explains; see `relevance`.
    nearest_ : int or None
        The number of experts that are queried about a row; None for all.
    calibration_report_ : CalibrationReport or None
        What was chosen by leave-one-out, and the score of each alternative; None if there was
        nothing to choose. `manygp.display.CalibrationDisplay` draws it.
    plan_ : Plan
        The size of experts, what was to be compared and, with `time_budget` or `verbose`, the
        estimated seconds and bytes.
    model_ : FittedModel
        The record of the fit, frozen; `manygp.answers` has its answers.
    encoder_ : TableEncoder or None
        How the columns of a table become numbers; None if they were complete numbers.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)
        If X has column names.

    Notes
    -----
    `weighting`, `temperature`, `calibration`, `aggregation` and `routing` are read by
    `predict`: with `set_params` they can be changed after `fit`, and the same experts answer by
    another rule. What is "auto" keeps what `fit` has chosen; `calibration="auto"` was learned
    for the other four and has to be set too when they change.

    A single expert is exact GP regression. With the default kernel its variance is corrected by
    rows that are left out; with a kernel of your own it is scikit-learn's model.

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
        trend: Any = "auto",
        prior_mean: str | None = None,
        noise: str = "auto",
        target_transform: str | None = "auto",
        bounds: Any = None,
        alpha: Any = 0.0,
        optimizer: Any = "fmin_l_bfgs_b",
        normalize_X: bool | None = None,
        normalize_y: bool = True,
        columns: Any = "auto",
        n_restarts_optimizer: int = 0,
        time_budget: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
        n_targets: int | None = None,
        copy_X_train: bool = True,
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
        self.trend = trend
        self.prior_mean = prior_mean
        self.noise = noise
        self.target_transform = target_transform
        self.bounds = bounds
        self.alpha = alpha
        self.optimizer = optimizer
        self.normalize_X = normalize_X
        self.normalize_y = normalize_y
        self.columns = columns
        self.n_restarts_optimizer = n_restarts_optimizer
        self.time_budget = time_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.n_targets = n_targets
        self.copy_X_train = copy_X_train

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

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        alpha: Any = None,
        groups: Any = None,
        time: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        target: str | None = None,
        work_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Fit the experts.

        Parameters
        ----------
        X : array-like or table of shape (n, d), or path
            A Parquet or CSV file, or a folder of Parquet files, may stand for both X and y.
            From about a million rows on, Parquet is not read into memory as a whole; all its
            columns must be complete numbers then.
        y : array-like of shape (n,) or (n, t)
            Several targets share kernels, experts and trend. The correction of the std, noise that
            depends on the row, tails and intervals are those of each.
            `ManyGPEmulator(n_components=None)` has a model for each target, which shares
            nothing, and bands that hold all of them.
        sample_weight : array-like of shape (n,), optional
            The learned noise variance of a row is divided by its weight: one of weight 4 is like a
            mean of four measurements. Answers are for rows of weight 1; 0 leaves a row out.
        alpha : float or array-like of shape (n,), optional
            Known noise variance of these targets, instead of the parameter `alpha`. Unlike the
            parameter it is cut with the rows by cross-validation. Of a file it may be the name of
            a column.
        groups : array-like of shape (n,), optional
            Person, school or site of each row. What the model promises then holds for new ones:
            rows of a group are left out together, by models that are fitted without them. It takes
            several times as long. Of a file it is the name of a column.
        time : array-like of shape (n,), optional
            When each row was seen: numbers, or dates. What the model promises then holds for the
            future: rows are predicted by models that are fitted to earlier rows only. Of a file it
            is the name of a column.
        checkpoint : path, optional
            A folder in which experts are kept as they finish. After a crash or an interrupt the
            same call goes on from there, and gives the model that it would have given, bit for
            bit (unless `time_budget` makes it depend on the clock). A folder of other data or
            parameters is refused: each fit has its own, also those of a cross-validation.
        target : str, optional
            If X is a file, its column of targets; rows without one are left out.
        work_dir : path, optional
            If X is a file, a folder for what is finished, with room for the data twice; it does
            for a file what `checkpoint` does for rows in memory. By default a temporary one.
        """
        before = self.__dict__.copy()
        try:
            with shown(verbose=self.verbose) as progress:
                progress.begin("reading")
                if isinstance(X, str | PathLike):
                    if y is not None or target is None or sample_weight is not None:
                        what = "name its targets by target=..., without y or sample_weight"
                        raise ValueError(f"{X} is a file: {what}")
                    roles = {"noise": alpha, "groups": groups, "time": time}
                    return self._fit_file(X, target, roles, work_dir or checkpoint, progress)
                if target is not None or work_dir is not None:
                    raise ValueError("target and work_dir are for a file: X is none; pass y")
                known = sample_weight, alpha, groups, time
                return self._fit(X, y, known, checkpoint, progress)
        except BaseException:  # an interrupted or failed refit leaves the old model whole
            self.__dict__ = before
            raise

    def _fit(
        self, X: Any, y: Any, known: tuple[Any, ...], folder: Any, progress: Progress
    ) -> Self:
        """Fit rows in memory, with the weights, noise, groups and time that are `known`."""
        settings, begin = replace(self._settings(), kernel=deepcopy(self.kernel)), perf_counter()
        seed, (weights, alpha, groups, time) = self._seed(), known
        if self.prior_mean is not None:
            new = PRIOR_MEANS[self.prior_mean]
            warnings.warn(
                f"prior_mean={self.prior_mean!r} will be removed in version 0.4: set "
                f"trend={new!r}",
                FutureWarning,
                stacklevel=3,
            )
        settings = settings if alpha is None else replace(settings, alpha=alpha)
        encoder = self._new_encoder(X)
        splits = splits_of(groups, time, y, weights)
        known = encoder, weights, splits
        rows, numbers = learned_rows(self, (X, y), settings, *known)
        columns = inputs.columns_of(self) if encoder is None else encoder.names
        transform, compared = choose_transform(settings, rows, columns)
        prepared = prepare(settings, rows, columns, transform=transform)
        prepared = prepared._replace(compared=compared)
        checkpoint = None
        if folder is not None:
            identity = identity_of(settings, len(rows.X), columns, key_of(*rows))
            checkpoint = Checkpoint(folder, identity, seed)
            seed = checkpoint.seed
        run = ExecutionContext(settings.n_jobs, progress, checkpoint, settings.optimizer)
        if splits is None:
            model = train(settings, prepared, seed, run, begin)
        else:
            table = Table.of(rows, columns, X, encoder, splits.kept)
            model = train_by_splits(settings, prepared, table, splits, seed, run)
        self._model = replace(model, encoder=encoder, order=numbers)
        fits_own = settings.kernel is not None and settings.optimizer is not None
        if fits_own and self._model.committee.is_single:
            warn_at_bounds(self.kernel_)
        return self

    def _fit_file(
        self,
        path: Any,
        target: str,
        known: dict[str, Any],
        folder: str | PathLike[str] | None,
        progress: Progress,
    ) -> Self:
        """Fit the rows of a file, in memory if they are few."""
        from manygp.outofcore.files import TableSource
        from manygp.tables.training_rows import ColumnRoles

        alpha = known["noise"]
        named = {role: one for role, one in known.items() if isinstance(one, str)}
        source = TableSource(Path(path), ColumnRoles(target, **named), folder)
        noise = named.get("noise")
        if source.is_large:
            return self.fit_source(source, alpha=alpha if noise is None else 0.0)
        table = source.read()
        if table.n_dropped:
            warn(f"rows without a value of {target!r} are left out: {table.n_dropped:,}")
        alpha = alpha if noise is None else table.noise
        self._fit(table.rows, table.y, (None, alpha, table.groups, table.time), folder, progress)
        self._model = replace(self._model, target=target)
        return self

    def fit_source(self, source: Any, engine: Any = None, *, alpha: Any = None) -> Self:
        """Fit a large table on a disk by stages: `fit` for those who know them.

        Parameters
        ----------
        source : manygp.outofcore.files.TableSource
        engine : manygp.outofcore.engine.Engine, optional
            What runs the tasks; by default the cores of this machine.
        alpha : float, optional
            Known noise variance of all targets, instead of the parameter `alpha`.
        """
        from manygp.outofcore.files import train_file

        settings = self._settings()
        settings = settings if alpha is None else replace(settings, alpha=alpha)
        return self._become(train_file(settings, source, engine or self._engine(), self._seed()))

    def _engine(self) -> Any:
        """What runs the stages of a fit of files."""
        from manygp.outofcore.engine import LocalEngine

        return LocalEngine(self.n_jobs)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    @overload
    def predict(
        self, X: Any, return_std: Literal[False] = ..., *, latent: bool = ..., alpha: Any = ...
    ) -> Array: ...

    @overload
    def predict(
        self, X: Any, return_std: Literal[True], *, latent: bool = ..., alpha: Any = ...
    ) -> tuple[Array, Array]: ...

    @overload
    def predict(
        self, X: Any, *, return_cov: Literal[True], latent: bool = ..., alpha: Any = ...
    ) -> tuple[Array, Array]: ...

    @overload
    def predict(
        self,
        X: Any,
        return_std: bool = ...,
        return_cov: bool = ...,
        *,
        latent: bool = ...,
        alpha: Any = ...,
        return_mean_grad: bool = ...,
        return_std_grad: bool = ...,
    ) -> Any: ...

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        latent: bool = False,
        alpha: Any = 0.0,
        return_mean_grad: bool = False,
        return_std_grad: bool = False,
    ) -> Any:
        """Predict the distribution of y, or of the latent function without the noise.

        Before `fit` it is the prior: a mean of 0, and the covariance of the kernel as it is given.

        The mean alone costs as much as with std, since weights depend on variances; only a
        single expert with a kernel of your own needs none.

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
        alpha : float or array-like of shape (N,), default=0.0
            Known noise variance of these rows, in the square of the units of y: part of std and
            cov unless they are latent.
        return_mean_grad, return_std_grad : bool, default=False
            Also return the derivatives of mean and std, noise included, by the columns of a single
            row, as scikit-optimize wants them. They need return_std.

        Returns
        -------
        mean : ndarray of shape (N,) or (N, t)
        std : ndarray of shape (N,) or (N, t)
        cov : ndarray of shape (N, N) or (N, N, t)
        mean_grad, std_grad : ndarrays of shape (d,)
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        if return_mean_grad or return_std_grad:
            plain = return_std and not latent  # std and cov together were refused
            return self._with_gradients(X, plain=plain, of_std=return_std_grad)
        if not self.__sklearn_is_fitted__():
            known = {"latent": latent, "alpha": alpha}
            return self._prior(X, self._settings()).answer(return_std, return_cov, **known)
        model, rows = self.model_, self._rows(X)
        if return_cov:
            return rows.joint(model, latent=latent, alpha=alpha)
        if return_std or not rows.are_known:
            answer = rows.predict(model, latent=latent, alpha=alpha)
            return MeanAndStd(answer) if return_std else answer[0]
        return answers.mean(model, rows.X)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Intervals that hold y with a probability of `coverage`, on average over rows.

        mean -+ q std, where q is the quantile of ``|y - mean| / std`` of training rows that were
        each left out: split conformal prediction, but without a split. It holds whatever the
        distribution of y is, as far as new rows are like the training rows. Where errors of small
        and of large std differ, q is that of rows of a similar std.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        coverage : float, default=0.9
        alpha : float or array-like of shape (N,), default=0.0
            Known noise variance of these rows, in the square of the units of y.

        Returns
        -------
        lower, upper : ndarrays of shape (N,) or (N, t)
        """
        model = self.model_
        answers.require_coverage(model, coverage)
        mean, std = self._rows(X).transformed(model, alpha=alpha)
        return answers.interval_of(model, mean, std, coverage)

    def predict_dist(
        self, X: Any, *, alpha: Any = 0.0
    ) -> PredictiveDistribution | TransformedDistribution | SteppedDistribution:
        """The predictive distribution of y for each row: a Student-t with real tails.

        Its degrees of freedom and scale have the highest log score of training rows of a similar
        std that were each left out; it is normal where that is as good, and takes the shape of
        these errors where they are spread as no Student-t is.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        alpha : float or array-like of shape (N,), default=0.0
            Known noise variance of these rows, in the square of the units of y.

        Returns
        -------
        PredictiveDistribution; TransformedDistribution where targets are transformed or bounded,
        SteppedDistribution where many of them share a value
            With `mean`, `std`, `pdf`, `logpdf`, `cdf`, `ppf`, `interval`, `sample` and `crps`.
            Its `std` is that of `predict`.
        """
        model = self.model_
        mean, std = self._rows(X).transformed(model, alpha=alpha)
        return answers.distribution_of(model, mean, std)

    def predict_quantiles(self, X: Any, levels: Any, *, alpha: Any = 0.0) -> Array:
        """Quantiles of the predictive distribution: (N, q), or (N, t, q) for several targets.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        levels : array-like of shape (q,)
            Between 0 and 1.
        alpha : float or array-like of shape (N,), default=0.0
            Known noise variance of these rows, in the square of the units of y.
        """
        answer = self.predict_dist(X, alpha=alpha)
        return np.stack([answer.ppf(float(level)) for level in np.atleast_1d(levels)], axis=-1)

    def loo_predict(self, rows: Any = None, *, latent: bool = False) -> tuple[Array, Array]:
        """Mean and std of training rows, as if each had been left out.

        What the committee would predict if the experts that know the row did not: nothing is
        fitted. (The folds of few rows, which learn without it, are those of `fit`.)

        Parameters
        ----------
        rows : array-like of int, default=None
            Their numbers, see `row_ids_`, a mask or a slice; by default all. One that the model
            does not have (a copy, of weight 0, forgotten) is a ValueError.
        latent : bool, default=False
            Leave the noise out of std.

        Returns
        -------
        mean, std : ndarrays of shape (k,) or (k, t)
            In the order of `rows`; without them in that of `row_ids_`.
        """
        return answers.loo_predict(self.model_, rows, latent=latent)

    def loo_score(self) -> dict[str, float]:
        """RMSE, NLL and ENCE (see `manygp.metrics`) of the training rows, each left out."""
        return answers.left_out_scores(self.model_)

    def learning_curve(self) -> LearningCurve:
        """Left-out scores with a quarter, half and all of the rows, and how sure they are.

        `print` shows them, and whether more rows would help. Nothing is fitted.
        """
        return learning_curve(self.model_)

    def relevance(self) -> Relevance:
        """How much each column matters, as shares of the variance of y: a table by name.

        What the trend explains by a column, and what the experts explain beyond that, dealt out
        by how much predictions change where a row takes its value from another row. Nothing is
        fitted. `print` shows the table. Categories, parts of dates and marks of missing values
        count with the column that they come from.

        Returns
        -------
        Relevance
            With `column`, `trend`, `local` and `total`.
        """
        return answers.relevance(self.model_)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, latent: bool = False
    ) -> Array:
        """Draw from the joint distribution: (N, n_samples) or (N, t, n_samples).

        With `latent` they are draws of the function, without noise. Before `fit` they are draws
        from the prior.
        """
        inputs.check_integer("n_samples", n_samples, 0)
        rng = check_random_state(random_state)
        if not self.__sklearn_is_fitted__():
            return self._prior(X, self._settings()).sample(n_samples, rng, latent=latent)
        return self._rows(X).sample(self.model_, n_samples, rng, latent=latent)

    def predict_experts(self, X: Any) -> ExpertPredictions:
        """What every expert predicts by itself, in the units of y, before any rule is applied."""
        return answers.predict_experts(self.model_, self._rows(X).X)

    def noise_std(self, X: Any) -> Array:
        """Standard deviation of the noise alone at each row: (N,) or (N, t).

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        """
        return answers.noise_std(self.model_, self._rows(X).X)

    def calibration_ratio(self, X: Any) -> Array:
        """Factor by which the calibration shrinks every expert's variance: (M, N)."""
        return answers.calibration_ratio(self.model_, self._rows(X).X)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a file without pickle, whole or not at all.

        `manygp.load` gives a model that predicts the same, bit for bit, on the same machine.
        Rules and kernels must be manygp's own (scikit-learn's kernels are saved as ours); pickle
        keeps any model.

        Parameters
        ----------
        path : path
        """
        self._require_fit()
        if type(self) is not ManyGPRegressor:
            raise ValueError(f"a {type(self).__name__} cannot be saved; pickle keeps any model")
        storage.write_model(path, replace(self.model_, settings=self._settings()))

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
        return cls._of(storage.read_model(path))

    @classmethod
    def _of(cls, model: FittedModel) -> Self:
        """The estimator of a fitted model."""
        return cls(**model.settings.parameters)._become(model)

    def _become(self, model: FittedModel) -> Self:
        """Take a fitted model for one's own."""
        names = model.names if model.encoder is None else model.encoder.column_names
        self.n_features_in_ = model.n_columns if names is None else len(names)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self._model = model
        return self

    @property
    def model_(self) -> FittedModel:
        """The record of the fit, queried by the rules that the parameters name now."""
        self._require_fit()
        fitted = self._model.settings
        names = ("n_jobs", *RULE_PARAMETERS)
        if all(getattr(self, name) == getattr(fitted, name) for name in names):
            return self._model
        return answers.queried_by(self._model, self._settings())

    def _settings(self) -> Settings:
        return Settings(**self.get_params(deep=False))

    def _new_encoder(self, X: Any) -> Any:
        """An encoder for a table that needs one, or None; it is fitted with the rows."""
        if isinstance(self.columns, str):
            if self.columns == "numeric" or not inputs.is_table(X):
                return None
            from manygp.tables.encoder import TableEncoder
            from manygp.tables.frames import as_batch, needs_encoding

            batch = as_batch(X)
            if batch is None or not needs_encoding(batch):
                return None
            seed = self.random_state if isinstance(self.random_state, Integral) else 0
            return TableEncoder(random_state=int(seed))
        return clone(self.columns)

    def _rows(self, X: Any) -> Rows:
        """Rows as finite floats (N, d), and what is not known about them."""
        encoder = self._model.encoder
        if encoder is None or (encoder.is_plain and not inputs.is_table(X)):
            try:
                return Rows(inputs.features(self, X), None)
            except inputs.MissingValueError:
                encoder = encoder or self._encoder_of_gaps(X)
                if encoder is None:
                    raise
        from manygp.tables.frames import as_batch

        batch = as_batch(X)
        if batch is None:
            raise ValueError(
                "the model was fitted on a table, whose columns it encodes; pass a table of "
                f"pandas, polars or pyarrow with the columns {', '.join(encoder.column_names)}"
            )
        if tuple(batch.columns) != encoder.column_names:
            given = inputs.with_names(X)
            validate_data(self, given, skip_check_array=True, reset=False)  # says how names differ
        encoded = encoder.encode(batch)
        return Rows(encoded.X, encoded, encoder)

    def _encoder_of_gaps(self, X: Any) -> Any:
        """The encoder for a table with missing values where training rows were complete numbers.

        It is what an encoder would have learned from these, or None if X is no such table.
        """
        names = self._model.names
        if names is None or self.columns == "numeric" or not inputs.is_table(X):
            return None
        from manygp.tables.base import Batch
        from manygp.tables.encoder import TableEncoder

        rows, y = answers.training_rows(self._model)
        seed = self.random_state if isinstance(self.random_state, Integral) else 0
        columns = dict(zip(names, rows.T, strict=True))
        return TableEncoder(random_state=int(seed)).fit(Batch(0, columns), y)

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)

    def _require_fit(self) -> None:
        """Refuse an unfitted estimator; scikit-learn's check accepts one with a prior."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False  # there is a prior
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
