"""Displays in scikit-learn's style: they hold numbers, and `plot` draws them.

Matplotlib is imported only when a display makes its own figure.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from manygp import answers
from manygp.arrays import Array
from manygp.fit_report import Alternative, CalibrationReport
from manygp.metrics import ReliabilityCurve, pit, reliability_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from manygp.optimise import Optimiser
    from manygp.regressor import ManyGPRegressor

# Okabe and Ito's palette, which colour-blind readers can tell apart; blue is the aggregate's.
BLUE = "#0072B2"
COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = "osD^vP"
# Marks the diagonal of an axes, which several displays may share.
_DIAGONAL = "manygp-diagonal"
# Places along a column of a trend.
GRID = 200
PANELS_IN_A_ROW = 3


@dataclass(eq=False)
class _OneAxes:
    """A display whose `plot` leaves in `ax_` and `figure_` what it has drawn on."""

    ax_: Axes = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    def _drawn_on(self, ax: Axes) -> Self:
        self.ax_, self.figure_ = ax, ax.figure
        return self


@dataclass(eq=False)
class ReliabilityDisplay(_OneAxes):
    """Reliability diagram: observed against predicted error, bin by bin.

    Several models may share one axes: pass the first display's ``ax_`` to the next.

    Parameters
    ----------
    curve : ReliabilityCurve
        The numbers to draw.
    name : str, optional
        Name of the model in the legend.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.display import ReliabilityDisplay
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> std = np.linspace(0.5, 2, 1000)
    >>> display = ReliabilityDisplay.from_predictions(y * std, np.zeros(1000), std, name="right")
    >>> display.ax_.get_xlabel()
    'RMV (predicted)'
    """

    curve: ReliabilityCurve
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **line_kw: Any,
    ) -> Self:
        """Draw the diagram of predictions.

        Parameters
        ----------
        y_true, mean, std : array-like of shape (n,)
            Observed targets, predicted means and predicted standard deviations.
        n_bins : int
            Number of bins.
        name : str, optional
            Name of the model in the legend.
        ax : Axes, optional
            What to draw on; a new figure by default.
        **line_kw : dict
            Goes to ``Axes.plot``.

        Returns
        -------
        ReliabilityDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        return cls(reliability_curve(y_true, mean, std, n_bins), name).plot(ax, **line_kw)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 10,
        name: str | None = None,
        ax: Axes | None = None,
        **line_kw: Any,
    ) -> Self:
        """Draw the diagram of ``estimator.predict(X, return_std=True)``.

        Parameters
        ----------
        estimator : fitted regressor
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Observed targets.
        n_bins : int
            Number of bins.
        name : str, optional
            Name of the model in the legend; by default that of its class.
        ax : Axes, optional
            What to draw on; a new figure by default.
        **line_kw : dict
            Goes to ``Axes.plot``.

        Returns
        -------
        ReliabilityDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        mean, std = estimator.predict(X, return_std=True)
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, mean, std, n_bins=n_bins, name=name, ax=ax, **line_kw)

    def plot(self, ax: Axes | None = None, **line_kw: Any) -> Self:
        """Draw the curve, and the diagonal if it is not there yet.

        Parameters
        ----------
        ax : Axes, optional
            What to draw on; a new figure by default.
        **line_kw : dict
            Goes to ``Axes.plot``.

        Returns
        -------
        ReliabilityDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        ax = _new_axes(5.0, 5.0) if ax is None else ax
        if not any(line.get_gid() == _DIAGONAL for line in ax.lines):
            lighten(ax)
            # Through a point of the curve: those of the diagonal count for the limits.
            start = self.curve.rmv[0]
            ax.axline(
                (start, start), slope=1, color="0.4", ls="--", lw=1, label="ideal", gid=_DIAGONAL
            )
            ax.set_prop_cycle(color=(BLUE, *COLOURS), marker=tuple(_MARKERS))
            ax.set(xlabel="RMV (predicted)", ylabel="RMSE (observed)", aspect="equal")
        ax.plot(self.curve.rmv, self.curve.rmse, **{"label": self.name, **line_kw})
        # dataLim has seen every curve drawn so far, whichever display drew it.
        bottom, top = min(ax.dataLim.min), 1.05 * max(ax.dataLim.max)
        # From 0, unless a third of the square would be empty.
        bottom = 0.9 * bottom if bottom > top / 3 else 0.0
        ax.set(xlim=(bottom, top), ylim=(bottom, top))
        ax.legend(frameon=False)
        return self._drawn_on(ax)


@dataclass(eq=False)
class PITDisplay(_OneAxes):
    """Histogram of the probability integral transform: flat where the distributions are right.

    A hump in the middle means distributions that are too wide, raised ends ones that are too
    narrow, and a slope a mean that is biased.

    Parameters
    ----------
    pit : ndarray of shape (n,)
        What `manygp.metrics.pit` returns.
    n_bins : int
        Number of bars.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.display import PITDisplay
    >>> display = PITDisplay(np.random.default_rng(0).random(1000), n_bins=10).plot()
    >>> len(display.ax_.patches)
    10
    """

    pit: Array
    n_bins: int = 20

    @classmethod
    def from_estimator(
        cls,
        estimator: ManyGPRegressor,
        X: Any,
        y: ArrayLike,
        *,
        n_bins: int = 20,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the histogram of ``estimator.predict_dist(X)`` at the targets.

        Parameters
        ----------
        estimator : ManyGPRegressor
        X : array-like of shape (n, d)
        y : array-like of shape (n,)
            Observed targets.
        n_bins : int
            Number of bins.
        ax : Axes, optional
            What to draw on; a new figure by default.

        Returns
        -------
        PITDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        return cls(pit(y, estimator.predict_dist(X)), n_bins).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the histogram.

        Parameters
        ----------
        ax : Axes, optional
            What to draw on; a new figure by default.

        Returns
        -------
        PITDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        ax = _new_axes(5.0, 3.4) if ax is None else ax
        lighten(ax)
        edges = np.linspace(0, 1, self.n_bins + 1)
        ax.hist(np.ravel(self.pit), edges.tolist(), density=True, color=BLUE, edgecolor="white")
        ax.axhline(1.0, color="0.4", ls="--", lw=1, label="ideal")
        ax.set(xlabel="predicted probability of a smaller target", ylabel="density", xlim=(0, 1))
        ax.legend(frameon=False)
        return self._drawn_on(ax)


class ExpertCurve(NamedTuple):
    """One expert's latent posterior along a line; all of shape (N,)."""

    mean: Array
    std: Array
    calibrated_std: Array


@dataclass(eq=False)
class PosteriorDisplay(_OneAxes):
    """The posterior of a model of one input, with its experts' and the effect of calibration.

    Bands show the latent function's mean +- 1 standard deviation: light before calibration,
    darker after.

    Parameters
    ----------
    x : ndarray of shape (N,)
        Inputs, increasing.
    mean, std : ndarray of shape (N,)
        The aggregated posterior.
    uncalibrated_std : ndarray of shape (N,), optional
        Standard deviation of the aggregate of uncalibrated experts.
    experts : list of ExpertCurve
        The experts' posteriors at x.
    x_train, y_train : ndarray of shape (n,), optional
        Training data.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp import ManyGPRegressor
    >>> from manygp.display import PosteriorDisplay
    >>> X = np.random.default_rng(0).random((30, 1))
    >>> y = np.sin(9 * X[:, 0])
    >>> model = ManyGPRegressor(points_per_expert=10, random_state=0).fit(X, y)
    >>> grid = np.linspace(0, 1, 50)[:, None]
    >>> display = PosteriorDisplay.from_estimator(model, grid, X_train=X, y_train=y)
    >>> len(display.experts)
    3
    """

    x: Array
    mean: Array
    std: Array
    uncalibrated_std: Array | None = None
    experts: list[ExpertCurve] = field(default_factory=list)
    x_train: Array | None = None
    y_train: Array | None = None

    @classmethod
    def from_estimator(
        cls,
        model: ManyGPRegressor,
        X: Any,
        *,
        X_train: Any = None,
        y_train: ArrayLike | None = None,
        ax: Axes | None = None,
        show_experts: bool = True,
    ) -> Self:
        """Draw a fitted model's posterior, and the training data if given.

        Parameters
        ----------
        model : ManyGPRegressor
            A fitted model of one column.
        X : array-like of shape (N, 1)
            Where to draw.
        X_train : array-like of shape (n, 1), optional
        y_train : array-like of shape (n,), optional
            Training data; both or neither.
        ax : Axes, optional
            What to draw on; a new figure by default.
        show_experts : bool
            Whether to draw each expert too.

        Returns
        -------
        PosteriorDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        if (X_train is None) != (y_train is None):
            raise ValueError("X_train and y_train must be given together")
        x = _only_column(X, "X")
        order = np.argsort(x, kind="stable")
        mean, std = model.predict(X, return_std=True, latent=True)
        uncalibrated = copy(model).set_params(calibration="none")  # the same experts
        _, before = uncalibrated.predict(X, return_std=True, latent=True)
        calibrates = not np.array_equal(before, std)
        own = model.predict_experts(X)
        own_std = np.sqrt(own.variance)
        curves = zip(own.mean, own_std, own_std * np.sqrt(model.calibration_ratio(X)), strict=True)
        return cls(
            x=x[order],
            mean=mean[order],
            std=std[order],
            uncalibrated_std=before[order] if calibrates else None,
            experts=[ExpertCurve(*(values[order] for values in curve)) for curve in curves],
            x_train=None if X_train is None else _only_column(X_train, "X_train"),
            y_train=None if y_train is None else np.ravel(y_train),
        ).plot(ax, show_experts=show_experts)

    def plot(self, ax: Axes | None = None, *, show_experts: bool = True) -> Self:
        """Draw the bands.

        The legend stands to the right of the axes; a figure made with ``layout="constrained"``
        leaves room for it.

        Parameters
        ----------
        ax : Axes, optional
            What to draw on; a new figure by default.
        show_experts : bool
            Whether to draw each expert too.

        Returns
        -------
        PosteriorDisplay
            Its `ax_` and `figure_` are what it has drawn on.
        """
        ax = _new_axes(8.0, 4.0) if ax is None else ax
        lighten(ax)

        def band(mean: Array, std: Array, colour: str, alpha: float, label: str = "") -> None:
            area = ax.fill_between(self.x, mean - std, mean + std, label=label)
            area.set(color=colour, alpha=alpha, linewidth=0)

        experts = self.experts if show_experts else []
        # Beyond the palette colours repeat, and a label could not tell experts apart.
        named = len(experts) <= len(COLOURS)
        for number, (expert, colour) in enumerate(zip(experts, cycle(COLOURS), strict=False), 1):
            band(expert.mean, expert.std, colour, 0.12)
            band(expert.mean, expert.calibrated_std, colour, 0.25)
            label = f"expert {number}" if named else None
            ax.plot(self.x, expert.mean, color=colour, linewidth=1.2, label=label)
        if not named:
            ax.plot([], [], color="0.5", linewidth=1.2, label=f"{len(experts)} experts")

        if self.uncalibrated_std is None:
            band(self.mean, self.std, BLUE, 0.4, "± 1 std")
        else:
            band(self.mean, self.uncalibrated_std, BLUE, 0.2, "± 1 std, uncalibrated")
            band(self.mean, self.std, BLUE, 0.4, "± 1 std, calibrated")
        ax.plot(self.x, self.mean, color=BLUE, linewidth=2, label="aggregate")
        if self.x_train is not None and self.y_train is not None:
            dots = ax.scatter(self.x_train, self.y_train, s=14, zorder=3, label="training data")
            dots.set(facecolor="white", edgecolor="0.25", linewidth=0.7)
        ax.set(xlabel="x", ylabel="y", xmargin=0)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return self._drawn_on(ax)


@dataclass(eq=False)
class CalibrationDisplay:
    """Display of the choices by leave-one-out: the NLL of each value that was compared.

    One panel per parameter, each with its own scale; the chosen value is filled. `plot` leaves in
    `axes_` and `figure_` what it has drawn on.

    Parameters
    ----------
    report : CalibrationReport
        The numbers to draw.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp import ManyGPRegressor
    >>> from manygp.display import CalibrationDisplay
    >>> X = np.random.default_rng(0).random((60, 1))
    >>> y = np.sin(9 * X[:, 0])
    >>> model = ManyGPRegressor(points_per_expert=20, random_state=0).fit(X, y)
    >>> display = CalibrationDisplay.from_estimator(model)
    >>> len(display.axes_) > 1
    True
    """

    report: CalibrationReport
    axes_: list[Axes] = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, model: ManyGPRegressor, *, figure: Figure | SubFigure | None = None
    ) -> Self:
        """Draw the choices of a fitted model.

        Parameters
        ----------
        model : ManyGPRegressor
        figure : Figure or SubFigure, optional
            What to draw on, which is cleared; a new one by default.

        Returns
        -------
        CalibrationDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        report = getattr(model, "calibration_report_", None)
        if report is None or not report.alternatives:
            raise ValueError(
                "the model has chosen nothing by leave-one-out: it is not fitted, has one expert, "
                "or none of its parameters is 'auto'"
            )
        return cls(report).plot(figure)

    def plot(self, figure: Figure | SubFigure | None = None) -> Self:
        """Draw a panel for each parameter.

        Parameters
        ----------
        figure : Figure or SubFigure, optional
            What to draw on, which is cleared; a new one by default.

        Returns
        -------
        CalibrationDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        panels: dict[str, list[Alternative]] = {}
        for one in self.report.alternatives:
            panels.setdefault(one.parameter, []).append(one)
        n_rows = 1 if len(panels) <= 5 else 2
        n = -(-len(panels) // n_rows)  # of a row
        figure = _new_axes(1.9 * n, 2.8 * n_rows).figure if figure is None else figure
        figure.clear()
        every = figure.subplots(n_rows, n, squeeze=False).ravel().tolist()
        self.axes_ = every[: len(panels)]
        for ax in every[len(panels) :]:
            ax.remove()
        for ax, (name, alternatives) in zip(self.axes_, panels.items(), strict=True):
            _draw_alternatives(ax, name, alternatives)
        for ax in self.axes_[::n]:
            ax.set_ylabel("leave-one-out NLL")
        self.figure_ = figure
        return self


def _draw_alternatives(ax: Axes, name: str, alternatives: list[Alternative]) -> None:
    """A panel of `CalibrationDisplay`: one parameter."""
    lighten(ax)
    ordered = alternatives  # names stand as they were compared, numbers in their order
    if all(isinstance(one.value, int | float) for one in alternatives):
        sign = -1 if name == "shrinkage" else 1  # the simpler first
        ordered = sorted(alternatives, key=lambda one: sign * one.value)
    ax.plot([one.nll for one in ordered], color="0.7", lw=1)
    for i, one in enumerate(ordered):
        ax.plot(i, one.nll, "o", color=BLUE, markerfacecolor=BLUE if one.chosen else "white")
    labels = [short(one.value) for one in ordered]
    are_long = len(labels) * max(map(len, labels)) > 12  # and run into each other
    turned: Any = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if are_long else {}
    ax.set_xticks(range(len(ordered)), labels, **turned)
    ax.set(title=name, xlim=(-0.5, len(ordered) - 0.5))
    ax.margins(y=0.15)
    middle, height = np.mean(ax.get_ylim()), max(np.ptp(ax.get_ylim()), 2e-4)  # not rounding alone
    ax.set_ylim(middle - height / 2, middle + height / 2)
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.tick_params(labelsize="small")


class Component(NamedTuple):
    """Effect of one column by a trend: x, effect on y, and its std, all of shape (g,)."""

    name: str
    x: Array
    effect: Array
    std: Array


@dataclass(eq=False)
class TrendDisplay:
    """The components of an additive trend with bands of two std, most important first.

    `plot` leaves in `axes_` and `figure_` what it has drawn on.

    Parameters
    ----------
    components : list of Component
    name : str
        Of the trend.
    target : str
        What the effects are in the units of: y, or T(y) where targets are transformed.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp import ManyGPRegressor
    >>> from manygp.display import TrendDisplay
    >>> X = np.random.default_rng(0).random((60, 2))
    >>> model = ManyGPRegressor(trend="additive", random_state=0).fit(X, X[:, 0] + X[:, 1] ** 2)
    >>> display = TrendDisplay.from_estimator(model)
    >>> len(display.components)
    2
    """

    components: list[Component]
    name: str
    target: str = "y"
    axes_: Any = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: ManyGPRegressor, *, most: int = 6, target: int = 0, axes: Any = None
    ) -> Self:
        """Draw the components of a fitted model.

        Parameters
        ----------
        estimator : ManyGPRegressor
        most : int, default=6
            How many columns to draw, the most important first.
        target : int, default=0
            Which target, if there are several.
        axes : array of matplotlib Axes, optional
            What to draw on; a new figure by default.

        Returns
        -------
        TrendDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        fitted = estimator.model_
        trend = None if fitted.committee.trend is None else fitted.committee.trend.model
        shares = answers.feature_relevance(fitted)
        unit, scale = np.linspace(0, 1, GRID), fitted.y_scaling.scale[target]
        components: list[Component] = []
        for j in np.argsort(-shares.trend, kind="stable").tolist():
            curve = None if trend is None else trend.component(j, unit)
            if curve is not None and len(components) < most:
                scaled, effect, std = curve
                x = scaled * fitted.x_scaling.scale[j] + fitted.x_scaling.shift[j]
                components.append(
                    Component(shares.column[j], x, effect[:, target] * scale, std * scale)
                )
        if trend is None or not components:
            what = "no trend" if trend is None else f"the trend {trend.name}"
            raise ValueError(
                f"the model has {what}, which has no components; fit with trend='additive'"
            )
        units = "y" if fitted.target_transform is None else "T(y)"
        return cls(components, trend.name, units).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw a panel for each component.

        Parameters
        ----------
        axes : array of matplotlib Axes, optional
            What to draw on, one for each component; a new figure by default.

        Returns
        -------
        TrendDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        if axes is None:
            n = len(self.components)
            across = min(n, PANELS_IN_A_ROW)
            axes = _new_panels(3.2, 2.6, -(-n // across), across)
        panels: list[Axes] = list(np.ravel(axes))
        for ax, one in zip(panels, self.components, strict=False):
            lighten(ax)
            band = (one.effect - 2 * one.std, one.effect + 2 * one.std)
            ax.fill_between(one.x, *band, color=BLUE, alpha=0.2, lw=0)
            ax.plot(one.x, one.effect, color=BLUE)
            ax.axhline(0, color="0.6", lw=0.8, zorder=0)
            ax.set(xlabel=one.name)
        for ax in panels[len(self.components) :]:
            ax.set_visible(False)
        panels[0].set_ylabel(f"effect on {self.target}")
        self.axes_, self.figure_ = axes, panels[0].figure
        return self


class Slice(NamedTuple):
    """What a model predicts along one column, the others being those of the best row."""

    name: str
    x: list[Any]
    mean: Array
    std: Array
    best: Any
    is_log: bool = False


@dataclass(eq=False)
class OptimisationDisplay:
    """What an optimiser has found: the best value so far, which columns matter, and slices.

    `plot` leaves in `axes_` and `figure_` what it has drawn on.

    Parameters
    ----------
    values : ndarray of shape (n,)
        In the order of evaluation; NaN where one has failed or breaks a constraint.
    relevance : dict
        Share of each column in the variance of the means along all slices.
    slices : list of Slice
        Through the best row, along the most relevant columns.

    Examples
    --------
    >>> from manygp.display import OptimisationDisplay
    >>> from manygp.optimise import minimise
    >>> space = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
    >>> found = minimise(lambda row: (row["a"] - 0.3) ** 2, space, n_evaluations=12, batch=4)
    >>> display = OptimisationDisplay.from_optimiser(found)
    >>> len(display.values)
    12
    """

    values: Array
    relevance: dict[str, float]
    slices: list[Slice]
    axes_: Any = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    @classmethod
    def from_optimiser(cls, optimiser: Optimiser, *, most: int = 2, axes: Any = None) -> Self:
        """Draw what an optimiser knows; the model is that of the rows since the last restart.

        Parameters
        ----------
        optimiser : Optimiser
        most : int, default=2
            How many columns have slices.
        axes : array of matplotlib Axes, optional
            What to draw on; a new figure by default.

        Returns
        -------
        OptimisationDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        space, (model, _) = optimiser.space, optimiser.fitted_model()
        best, slices = space.units([optimiser.best.x])[0], []
        for j, one in enumerate(space.dimensions):
            units = np.tile(best, (GRID, 1))
            units[:, j] = np.linspace(0, 1, GRID)
            units = np.unique(space.snapped(units), axis=0)
            mean, std = model.predict(space.features(units), return_std=True, latent=True)
            x = [one.value(unit) for unit in units[:, j]]
            log = one.kind == "log"
            slices.append(Slice(one.name, x, mean, std, one.value(best[j]), log))
        variances = np.array([one.mean.var() for one in slices])
        shares = variances / max(variances.sum(), 1e-300)
        chosen = np.argsort(-shares, kind="stable")[:most].tolist()
        kept = np.where((optimiser.constraints_ <= 0).all(axis=1), optimiser.y_, np.nan)
        relevance = dict(zip(space.names, shares.tolist(), strict=True))
        return cls(kept, relevance, [slices[j] for j in chosen]).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw the values, the columns that matter, and the slices.

        Parameters
        ----------
        axes : array of matplotlib Axes, optional
            What to draw on, two and one for each slice; a new figure by default.

        Returns
        -------
        OptimisationDisplay
            Its `axes_` and `figure_` are what it has drawn on.
        """
        if axes is None:
            axes = _new_panels(3.4, 2.8, 1, 2 + len(self.slices), sharey=False)
        panels: list[Axes] = list(np.ravel(axes))
        for ax in panels:
            lighten(ax)
        n = np.arange(1, len(self.values) + 1)
        panels[0].plot(n, self.values, ".", color="0.7", ms=3)
        panels[0].plot(n, np.fmin.accumulate(self.values), color=BLUE)
        panels[0].set(xlabel="evaluations", ylabel="value, and the best so far")
        shown = sorted(self.relevance.items(), key=lambda item: item[1])[-12:]
        panels[1].barh([name for name, _ in shown], [share for _, share in shown], color=BLUE)
        panels[1].set(xlabel="share of the variance of slices")
        for ax, one in zip(panels[2:], self.slices, strict=False):
            x = one.x if not isinstance(one.x[0], str | bool) else [str(value) for value in one.x]
            place: Any = one.best if x is one.x else str(one.best)
            if len(one.x) < GRID:
                ax.errorbar(x, one.mean, 2 * one.std, fmt="o", color=BLUE, ms=4)
            else:
                band = (one.mean - 2 * one.std, one.mean + 2 * one.std)
                ax.fill_between(x, *band, color=BLUE, alpha=0.2, lw=0)
                ax.plot(x, one.mean, color=BLUE)
            ax.axvline(place, color=COLOURS[0], lw=1, ls="--")
            ax.set(xlabel=one.name, ylabel="value through the best row")
            if one.is_log:
                ax.set_xscale("log")
        self.axes_, self.figure_ = axes, panels[0].figure
        return self


def short(value: Any) -> str:
    """A value of a parameter, numbers with three digits."""
    if isinstance(value, int | float):
        return "∞" if value == np.inf else f"{value:.3g}"
    return str(value)


def _new_axes(width: float, height: float) -> Axes:
    return _new_panels(width, height, 1, 1)[0, 0]


def _new_panels(
    width: float, height: float, n_rows: int, n_columns: int, *, sharey: bool = True
) -> Any:
    """Panels of this size on a new figure: an array (n_rows, n_columns) of axes."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plotting needs matplotlib: pip install "manygp[plot]"') from error
    size = (width * n_columns, height * n_rows)
    return plt.subplots(
        n_rows, n_columns, figsize=size, sharey=sharey, squeeze=False, layout="constrained"
    )[1]


def lighten(ax: Axes) -> None:
    """Give an axes a pale grid, and take its upper and right edge away."""
    ax.grid(color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _only_column(X: Any, name: str) -> Array:
    """The values (n,) of X (n, 1)."""
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(
            f"{name} must have one column, shape (n, 1), to be drawn along a line; "
            f"got shape {values.shape}"
        )
    return values[:, 0]
