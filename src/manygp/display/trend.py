"""The components of a trend, drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.display.plots import BLUE, lighten
from manygp.relevance import relevance_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from manygp.regressor import ManyGPRegressor

# Places along a column.
GRID = 200
PANELS_IN_A_ROW = 3


class Component(NamedTuple):
    """What a trend says about one column: x, effect on y, and its std, all of shape (g,)."""

    name: str
    x: Array
    effect: Array
    std: Array


@dataclass(eq=False)
class TrendDisplay:
    """The components of an additive trend with bands of two std, most important first.

    Parameters
    ----------
    components : list of Component
    name : str
        Of the trend.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
    figure_ : matplotlib Figure
        What `plot` has drawn on.
    """

    components: list[Component]
    name: str
    axes_: Any = field(init=False, repr=False)
    figure_: Figure | SubFigure = field(init=False, repr=False)

    @classmethod
    def from_estimator(
        cls, estimator: ManyGPRegressor, *, most: int = 6, target: int = 0, axes: Any = None
    ) -> Self:
        """Draw the components of a fitted model: those of at most `most` columns.

        Parameters
        ----------
        estimator : ManyGPRegressor
        most : int, default=6
        target : int, default=0
            Which target, if there are several.
        axes : array of matplotlib Axes, optional
        """
        fitted = estimator.model_
        trend = None if fitted.committee.trend is None else fitted.committee.trend.model
        shares = relevance_of(fitted.committee, fitted.feature_names, 1.0)
        unit, scale = np.linspace(0, 1, GRID), fitted.y_scaling.scale[target]
        components: list[Component] = []
        for j in np.argsort(-shares.trend, kind="stable").tolist():
            found = None if trend is None else trend.component(j, unit)
            if found is not None and len(components) < most:
                scaled, effect, std = found
                x = scaled * fitted.x_scaling.scale[j] + fitted.x_scaling.shift[j]
                components.append(
                    Component(shares.column[j], x, effect[:, target] * scale, std * scale)
                )
        if trend is None or not components:
            what = "no trend" if trend is None else f"the trend {trend.name}"
            raise ValueError(
                f"the model has {what}, which has no components; fit with trend='additive'"
            )
        return cls(components, trend.name).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw on an array of axes, one for each component, or on a new figure."""
        if axes is None:
            axes = _new_panels(len(self.components))
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
        panels[0].set_ylabel("effect on y")
        self.axes_, self.figure_ = axes, panels[0].figure
        return self


def _new_panels(n: int) -> Any:
    import matplotlib.pyplot as plt

    n_columns = min(n, PANELS_IN_A_ROW)
    n_rows = -(-n // n_columns)
    size = (3.2 * n_columns, 2.6 * n_rows)
    _, axes = plt.subplots(
        n_rows, n_columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    return axes
