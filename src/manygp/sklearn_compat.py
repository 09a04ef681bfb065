"""Attributes and methods of scikit-learn's GaussianProcessRegressor that the estimator has too.

Attributes of a single expert by its names, the likelihood as a function of theta, parameters of
kernels by name, the warning of an optimum at a bound, and what is known of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_array

from manygp import answers, inputs
from manygp.arrays import Array
from manygp.fit_report import CalibrationReport, Plan
from manygp.gp.expert import Expert
from manygp.kernels.base import Kernel
from manygp.model import FittedModel
from manygp.paths import predict_slopes
from manygp.prior import Prior
from manygp.runtime.progress import warn
from manygp.settings import Settings


class MeanAndStd(tuple[Array, Array]):
    """Two arrays. Who takes them for one is told so."""

    __slots__ = ()

    @property
    def ndim(self) -> int:
        raise AttributeError(
            "mean and std are two arrays, which scikit-learn's TransformedTargetRegressor cannot "
            "transform back: fit the transformed target itself, and transform the ends of "
            "predict_interval, or of predict_quantiles, back"
        )


class SklearnAttributes(BaseEstimator):
    """The part of `ManyGPRegressor` that those know who come from scikit-learn."""

    kernel: Any
    _model: FittedModel
    _require_fit: Any
    _rows: Any
    model_: Any

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a kernel: `kernel__left__length_scale`."""
        kernel = params.get("kernel", getattr(self, "kernel", None))
        if isinstance(kernel, Kernel):
            inner = {name: params.pop(name) for name in list(params) if name[:8] == "kernel__"}
            if inner:
                params["kernel"] = kernel.set_params(
                    **{name[8:]: value for name, value in inner.items()}
                )
        estimator: Self = super().set_params(**params)
        return estimator

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """Sum of the experts' log marginal likelihoods of their own rows, normalised.

        Parameters
        ----------
        theta : array-like of shape (p,), default=None
            Log-hyperparameters for all experts, in the order of `kernel_.theta`. By default each
            expert has its own.
        eval_gradient : bool, default=False
            Also return the derivative with respect to theta, shape (p,). Needs theta.
        clone_kernel : bool, default=True
            Without effect: `kernel_` stays as it was fitted.
        """
        self._require_fit()
        if theta is not None:
            theta = np.asarray(theta, dtype=float)
            value, gradient = answers.log_marginal_likelihood_at(self._model, theta)
            return (np.float64(value), gradient) if eval_gradient else np.float64(value)
        if eval_gradient:
            raise ValueError(
                "Gradient can only be evaluated for theta!=None: the experts have one theta each"
            )
        return np.float64(answers.log_marginal_likelihood(self._model))

    @property
    def log_marginal_likelihood_value_(self) -> float:
        return answers.log_marginal_likelihood(self._model)

    @property
    def kernel_(self) -> Any:
        return answers.written_kernel(self._model)

    @property
    def X_train_(self) -> Array:
        return self._model.x_scaling.undo(self._only_expert("X_train_").X)

    @property
    def y_train_(self) -> Array:
        return _squeezed(self._only_expert("y_train_").Y)

    @property
    def L_(self) -> Array:
        expert = self._only_expert("L_")
        n = len(expert.X)
        factor: Array = solve_triangular(expert.whitener[:n, :n], np.eye(n), lower=True)
        return factor

    @property
    def alpha_(self) -> Array:
        expert = self._only_expert("alpha_")
        return _squeezed(expert.coefficients[: len(expert.X)])

    @property
    def feature_importances_(self) -> Array:
        """Share of each column in what the model explains, of `relevance`; they sum to 1: (d,)."""
        self._require_fit()
        total = answers.relevance(self._model).total
        return total / max(float(total.sum()), 1e-300)

    @property
    def _y_train_mean(self) -> Any:  # other libraries read these two
        return _squeezed(self._model.y_scaling.shift)

    @property
    def _y_train_std(self) -> Any:
        return _squeezed(self._model.y_scaling.scale)

    def _prior(self, X: Any, settings: Settings) -> Prior:
        """What there is to say about rows before fit."""
        inputs.refuse_unnumeric(X, "X")
        rows = check_array(X, dtype=np.float64, ensure_all_finite=False, input_name="X")
        inputs.refuse_missing(rows, "X", None)
        return Prior.of(settings, rows)

    def _with_gradients(self, X: Any, *, plain: bool, of_std: bool) -> tuple[Array, ...]:
        """Mean and std of one row, and their derivatives (d,); without `of_std` the mean's."""
        self._require_fit()
        rows = self._rows(X)
        if not plain or len(rows.X) != 1 or rows.encoded is not None:
            raise ValueError(
                "return_mean_grad and return_std_grad are for one row of numbers, with "
                f"return_std=True and without return_cov or latent; X has {len(rows.X)} rows. "
                "predict_slopes takes many rows"
            )
        mean, std, *slopes = predict_slopes(self.model_, rows.X)
        return mean, std, *(one[0] for one in slopes[: 1 + of_std])

    def _only_expert(self, name: str) -> Expert:
        """The expert of all rows, which is as scikit-learn's model is."""
        experts = self._model.committee.experts
        if len(experts) > 1:
            raise AttributeError(
                f"{name} is that of one expert, and the model has {len(experts)}; each of "
                "`experts_` has its own X, Y, whitener (the inverse of L_) and coefficients"
            )
        return experts[0]

    @property
    def experts_(self) -> Sequence[Expert]:
        experts, copies = self._model.committee.experts, self._model.committee.layout.copies
        return experts if copies == 1 else tuple(experts) * copies

    @property
    def encoder_(self) -> Any:
        return self._model.encoder

    @property
    def nearest_(self) -> int | None:
        return self._model.chosen.nearest

    @property
    def calibration_report_(self) -> CalibrationReport | None:
        return self._model.report

    @property
    def plan_(self) -> Plan:
        return self._model.plan


def warn_at_bounds(kernel: Any) -> None:
    """Warn of each fitted hyperparameter that lies at a bound, in scikit-learn's words."""
    at_bound = np.isclose(kernel.bounds, kernel.theta[:, None])
    start = 0
    for one in kernel.hyperparameters:
        for dimension in range(0 if one.fixed else one.n_elements):
            for side, which, change in ((0, "lower", "Decreasing"), (1, "upper", "Increasing")):
                if at_bound[start, side]:
                    warn(
                        f"The optimal value found for dimension {dimension} of parameter "
                        f"{one.name} is close to the specified {which} bound "
                        f"{one.bounds[dimension][side]}. {change} the bound and calling fit "
                        "again may find a better value.",
                        ConvergenceWarning,
                    )
            start += 1


def _squeezed(array: Array) -> Any:
    """Without the axis of targets where there is one."""
    return array[..., 0] if array.shape[-1] == 1 else array
