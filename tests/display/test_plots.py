"""Displays hold the right numbers and draw them, without ever showing a window."""

import subprocess
import sys

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import same_color, to_hex  # noqa: E402

from manygp import ManyGPRegressor  # noqa: E402
from manygp.display import (  # noqa: E402
    CalibrationDisplay,
    PITDisplay,
    PosteriorDisplay,
    ReliabilityDisplay,
)
from manygp.display.plots import ExpertCurve  # noqa: E402
from manygp.kernels import RBF, White  # noqa: E402
from manygp.metrics import ReliabilityCurve, reliability_curve  # noqa: E402
from manygp.rules import ExpertPredictions  # noqa: E402
from manygp.training.choose import Alternative, CalibrationReport  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("a display called plt.show"))
    yield
    plt.close("all")


def predictions(n=200, seed=0):
    """Calibrated predictions: (y_true, mean, std)."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), rng.uniform(0.2, 1.0, n)
    return rng.normal(mean, std), mean, std


class FakeModel:
    """M experts of one input whose every answer is a formula that a test can repeat."""

    def __init__(self, n_experts=2):
        self.n_experts = n_experts
        self.calibration = "information"

    def set_params(self, calibration):
        self.calibration = calibration
        return self

    def predict(self, X, return_std, latent=False):
        assert return_std
        calibrated = self.calibration != "none"
        x = np.asarray(X)[:, 0]
        std = np.where(calibrated, 0.5, 0.8) + (0 if latent else 1) + 0.01 * np.abs(x)
        return np.sin(x), std

    def predict_experts(self, X):
        x = np.asarray(X)[:, 0]
        number = np.arange(1.0, self.n_experts + 1)[:, None]
        return ExpertPredictions(
            mean=number * x,
            variance=number + x**2,
            prior_variance=np.full((self.n_experts, len(x)), 9.0),
            noise_variance=np.ones((self.n_experts, 1)),
            prior_mean=np.zeros((self.n_experts, 1)),
        )

    def calibration_ratio(self, X):
        return 1 / (1 + self.predict_experts(X).variance)


def curves(ax):
    """Lines that show data: everything but the diagonal."""
    return [line for line in ax.lines if line.get_label() != "ideal"]


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def band_heights(ax, x):
    """Lower and upper edge at x of each band, in drawing order."""
    edges = []
    for band in ax.collections:
        if isinstance(band, matplotlib.collections.PolyCollection):
            vertices = band.get_paths()[0].vertices
            at_x = vertices[np.isclose(vertices[:, 0], x), 1]
            edges.append((at_x.min(), at_x.max()))
    return edges


@pytest.mark.parametrize("module", ["manygp.display", "manygp.display.plots"])
def test_importing_plotting_does_not_import_matplotlib(module):
    code = f"import sys, {module}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "display",
    [
        ReliabilityDisplay(reliability_curve(*predictions())),
        PosteriorDisplay(np.zeros(2), np.zeros(2), np.ones(2)),
    ],
)
def test_missing_matplotlib_names_the_extra(monkeypatch, display):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "manygp\[plot\]"'):
        display.plot()


def test_reliability_draws_rmse_against_rmv():
    arrays = predictions()
    display = ReliabilityDisplay.from_predictions(*arrays, n_bins=7, name="model")
    expected = reliability_curve(*arrays, n_bins=7)
    (line,) = curves(display.ax_)
    np.testing.assert_array_equal(line.get_xydata(), np.column_stack(expected))
    np.testing.assert_array_equal(display.curve, expected)
    assert line.get_marker() not in (None, "None", "")
    assert display.ax_.get_xlabel() == "RMV (predicted)"
    assert display.ax_.get_ylabel() == "RMSE (observed)"
    assert display.ax_.get_aspect() == 1
    assert display.figure_ is display.ax_.figure
    assert legend_texts(display.ax_) == ["ideal", "model"]


@pytest.mark.parametrize(("smallest", "bottom"), [(1.0, 0.9), (0.1, 0.0)])
def test_reliability_begins_near_the_smallest_error_unless_that_is_near_zero(smallest, bottom):
    rmv = np.linspace(smallest, 2.0, 5)
    ax = ReliabilityDisplay(ReliabilityCurve(rmv, rmv)).plot().ax_
    assert ax.get_xlim() == ax.get_ylim() == pytest.approx((bottom, 2.1))


def test_reliability_of_an_estimator_is_that_of_its_predictions():
    model, X = FakeModel(), np.linspace(-3, 3, 50)[:, None]
    y = np.random.default_rng(1).normal(size=50)
    display = ReliabilityDisplay.from_estimator(model, X, y, n_bins=5)
    expected = reliability_curve(y, *model.predict(X, return_std=True), n_bins=5)
    np.testing.assert_array_equal(display.curve, expected)
    assert display.name == "FakeModel"
    assert ReliabilityDisplay.from_estimator(model, X, y, name="mine").name == "mine"


def test_models_share_one_axes_with_one_diagonal_and_limits_over_all():
    _, ax = plt.subplots()
    y_true, mean, std = predictions()
    for name, stretch in [("narrow", 0.5), ("wide", 3.0), ("right", 1.0)]:
        display = ReliabilityDisplay.from_predictions(
            y_true, mean, stretch * std, name=name, ax=ax
        )
        assert display.ax_ is ax
    assert len(curves(ax)) == 3
    assert len(ax.lines) == 4
    assert len({line.get_color() for line in curves(ax)}) == 3
    assert legend_texts(ax) == ["ideal", "narrow", "wide", "right"]
    assert ax.get_xlim() == ax.get_ylim()
    bottom, top = ax.get_xlim()
    assert bottom == 0
    # The second model reaches furthest, and the third must not have shrunk the view again.
    assert top > max(line.get_xydata().max() for line in curves(ax))
    assert top < 1.2 * max(line.get_xydata().max() for line in curves(ax))


def test_limits_grow_with_small_errors_too():
    y_true, mean, std = (1e-3 * values for values in predictions())
    ax = ReliabilityDisplay.from_predictions(y_true, mean, std).ax_
    assert 0 < ax.get_xlim()[1] < 2e-3


def test_line_keywords_reach_the_line_and_an_unnamed_model_is_not_in_the_legend():
    ax = ReliabilityDisplay.from_predictions(*predictions(), color="black", linewidth=3).ax_
    (line,) = curves(ax)
    assert same_color(line.get_color(), "black")
    assert line.get_linewidth() == 3
    assert legend_texts(ax) == ["ideal"]


def test_a_display_can_be_drawn_again_elsewhere():
    display = ReliabilityDisplay.from_predictions(*predictions(), name="model")
    first = display.ax_
    _, second = plt.subplots()
    assert display.plot(second) is display
    assert display.ax_ is second
    assert first is not second
    np.testing.assert_array_equal(curves(first)[0].get_xydata(), curves(second)[0].get_xydata())


def test_posterior_holds_the_latent_numbers_sorted_by_x():
    X = np.array([[2.0], [-1.0], [0.5]])
    model = FakeModel()
    display = PosteriorDisplay.from_estimator(model, X, X_train=X, y_train=[[1.0], [2.0], [3.0]])
    x = np.array([-1.0, 0.5, 2.0])
    np.testing.assert_array_equal(display.x, x)
    np.testing.assert_allclose(display.mean, np.sin(x))
    np.testing.assert_allclose(display.std, 0.5 + 0.01 * np.abs(x))
    np.testing.assert_allclose(display.uncalibrated_std, 0.8 + 0.01 * np.abs(x))
    assert len(display.experts) == 2
    for number, expert in enumerate(display.experts, 1):
        variance = number + x**2
        np.testing.assert_allclose(expert.mean, number * x)
        np.testing.assert_allclose(expert.std, np.sqrt(variance))
        np.testing.assert_allclose(expert.calibrated_std, np.sqrt(variance / (1 + variance)))
    np.testing.assert_array_equal(display.x_train, [2.0, -1.0, 0.5])
    np.testing.assert_array_equal(display.y_train, [1.0, 2.0, 3.0])


def test_posterior_bands_are_one_std_and_calibrated_ones_lie_inside():
    X = np.linspace(-2, 2, 9)[:, None]
    display = PosteriorDisplay.from_estimator(FakeModel(), X)
    expected = [
        (1 - np.sqrt(2), 1 + np.sqrt(2)),  # expert 1 at x = 1: mean 1, variance 2, ratio 1/3
        (1 - np.sqrt(2 / 3), 1 + np.sqrt(2 / 3)),
        (2 - np.sqrt(3), 2 + np.sqrt(3)),  # expert 2: mean 2, variance 3, ratio 1/4
        (2 - np.sqrt(3 / 4), 2 + np.sqrt(3 / 4)),
        (np.sin(1) - 0.81, np.sin(1) + 0.81),  # the aggregate before and after calibration
        (np.sin(1) - 0.51, np.sin(1) + 0.51),
    ]
    np.testing.assert_allclose(band_heights(display.ax_, 1.0), expected)
    # Darker means calibrated; each expert has its own colour, the aggregate another.
    alphas = [band.get_alpha() for band in display.ax_.collections]
    assert all(light < dark for light, dark in zip(alphas[::2], alphas[1::2], strict=True))
    colours = [to_hex(band.get_facecolor()[0]) for band in display.ax_.collections]
    assert colours[::2] == colours[1::2]
    assert len(set(colours)) == 3


def test_posterior_without_experts_draws_only_the_aggregate():
    X = np.linspace(-2, 2, 9)[:, None]
    display = PosteriorDisplay.from_estimator(FakeModel(), X, show_experts=False)
    assert [line.get_label() for line in display.ax_.lines] == ["aggregate"]
    assert len(display.ax_.collections) == 2
    # The numbers are kept, so the experts can still be drawn later.
    _, ax = plt.subplots()
    assert display.plot(ax) is display
    assert [line.get_label() for line in ax.lines] == ["expert 1", "expert 2", "aggregate"]


def test_posterior_without_calibration_has_one_band():
    x = np.linspace(0, 1, 5)
    ax = PosteriorDisplay(x, x, np.ones(5)).plot().ax_
    np.testing.assert_allclose(band_heights(ax, 0.5), [(-0.5, 1.5)])
    assert legend_texts(ax) == ["± 1 std", "aggregate"]
    assert ax.get_xlim() == (0, 1)


def test_training_points_are_white_dots_above_the_lines():
    X = np.linspace(-2, 2, 9)[:, None]
    display = PosteriorDisplay.from_estimator(FakeModel(), X, X_train=X[:3], y_train=[1, 2, 3])
    (dots,) = (c for c in display.ax_.collections if c.get_label() == "training data")
    np.testing.assert_array_equal(dots.get_offsets(), [[-2, 1], [-1.5, 2], [-1, 3]])
    assert same_color(dots.get_facecolor(), "white")
    assert not same_color(dots.get_edgecolor(), "white")
    assert dots.get_zorder() > max(line.get_zorder() for line in display.ax_.lines)


def test_legend_of_many_experts_stays_short_and_beside_the_axes():
    X = np.linspace(-2, 2, 9)[:, None]
    display = PosteriorDisplay.from_estimator(FakeModel(n_experts=12), X)
    assert len(display.experts) == 12
    assert len(display.ax_.collections) == 2 * 12 + 2
    assert legend_texts(display.ax_)[0] == "12 experts"
    assert len(legend_texts(display.ax_)) == 4
    display.figure_.canvas.draw()
    legend, axes = display.ax_.get_legend().get_window_extent(), display.ax_.get_window_extent()
    assert legend.x0 >= axes.x1
    assert legend.x1 <= display.figure_.bbox.x1


@pytest.mark.parametrize("shape", [(5, 2), (5,)])
def test_posterior_needs_exactly_one_column(shape):
    bad, good = np.zeros(shape), np.zeros((5, 1))
    with pytest.raises(ValueError, match=r"^X must have one column"):
        PosteriorDisplay.from_estimator(FakeModel(), bad)
    with pytest.raises(ValueError, match=r"^X_train must have one column"):
        PosteriorDisplay.from_estimator(FakeModel(), good, X_train=bad, y_train=np.zeros(5))


@pytest.mark.parametrize("given", [{"X_train": np.zeros((3, 1))}, {"y_train": np.zeros(3)}])
def test_training_inputs_and_targets_come_together(given):
    with pytest.raises(ValueError, match="X_train and y_train must be given together"):
        PosteriorDisplay.from_estimator(FakeModel(), np.zeros((5, 1)), **given)


def test_posterior_can_be_drawn_from_numbers_alone():
    x = np.linspace(0, 1, 5)
    expert = ExpertCurve(mean=x, std=np.ones(5), calibrated_std=0.5 * np.ones(5))
    display = PosteriorDisplay(x, x, 0.5 * np.ones(5), experts=[expert]).plot()
    np.testing.assert_allclose(band_heights(display.ax_, 0.0), [(-1, 1), (-0.5, 0.5), (-0.5, 0.5)])


# Values of each parameter with their NLL, as a climb may have met them, and the chosen one.
COMPARED = {
    "shrinkage": ({np.inf: 0.5, 10.0: 0.3, 30.0: 0.4}, 30.0),
    "overlap": ({0.0: 0.45, 1.0: 0.4, 4.0: 0.42}, 4.0),
    "nearest": ({1: 0.6, 8: 0.41, 2: 0.4}, 2),
    "scale": ({1.0: 0.4, 0.81234: 0.35}, 0.81234),
}


class Chooser:
    """A model that has chosen."""

    def __init__(self, compared=COMPARED):
        alternatives = tuple(
            Alternative(name, value, nll, value == chosen)
            for name, (values, chosen) in compared.items()
            for value, nll in values.items()
        )
        chosen = {name: chosen for name, (_, chosen) in compared.items()}
        self.calibration_report_ = CalibrationReport(chosen, alternatives, 100)


def panel_dots(ax):
    """(tick label, NLL, whether filled) of each dot from left to right."""
    labels = [text.get_text() for text in ax.get_xticklabels()]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    xs, heights = np.concatenate([dot.get_xydata() for dot in dots]).T
    np.testing.assert_array_equal(xs, ax.get_xticks())
    filled = [not same_color(dot.get_markerfacecolor(), "white") for dot in dots]
    return list(zip(labels, heights, filled, strict=True))


def test_choices_have_one_panel_per_parameter_in_the_order_of_the_report():
    display = CalibrationDisplay.from_estimator(Chooser())
    assert [ax.get_title() for ax in display.axes_] == list(COMPARED)
    assert display.figure_.axes == display.axes_
    assert [ax.get_ylabel() for ax in display.axes_] == ["leave-one-out NLL", "", "", ""]
    reverse = dict(reversed(COMPARED.items()))
    display = CalibrationDisplay.from_estimator(Chooser(reverse))
    assert [ax.get_title() for ax in display.axes_] == list(reverse)


def test_choices_show_each_value_at_its_nll_and_fill_the_chosen_one():
    shrinkage, overlap, nearest, scale = CalibrationDisplay.from_estimator(Chooser()).axes_
    assert panel_dots(scale) == [("0.812", 0.35, True), ("1", 0.4, False)]
    assert panel_dots(overlap) == [("0", 0.45, False), ("1", 0.4, False), ("4", 0.42, True)]
    assert panel_dots(nearest) == [("1", 0.6, False), ("2", 0.4, True), ("8", 0.41, False)]
    # The shrinkage is simplest at infinity, and the more flexible is to the right.
    assert panel_dots(shrinkage) == [("∞", 0.5, False), ("30", 0.4, True), ("10", 0.3, False)]


def test_many_choices_fill_two_rows_and_long_labels_are_turned():
    words = {"trend": ({"constant": 0.5, "additive": 0.4, "boosted": 0.6}, "additive")}
    display = CalibrationDisplay.from_estimator(
        Chooser({**COMPARED, **words, "strength": ({1: 0.4}, 1)})
    )
    assert display.figure_.axes == display.axes_
    tops = [ax.get_subplotspec().rowspan.start for ax in display.axes_]
    assert tops == [0, 0, 0, 1, 1, 1]
    turned = [ax.get_xticklabels()[0].get_rotation() for ax in display.axes_]
    assert turned == [0, 0, 0, 0, 30, 0]


def test_values_that_differ_by_rounding_lie_on_a_line():
    compared = {"temperature": ({1: 1.04, 2: 1.04 + 1e-14, 4: 1.04 - 1e-14}, 1)}
    (ax,) = CalibrationDisplay.from_estimator(Chooser(compared)).axes_
    low, high = ax.get_ylim()
    assert high - low > 1e-4


def test_choices_are_drawn_on_a_given_figure_in_place_of_what_it_showed():
    figure, _ = plt.subplots()
    display = CalibrationDisplay.from_estimator(Chooser(), figure=figure)
    assert display.figure_ is figure
    assert figure.axes == display.axes_
    assert len(display.axes_) == len(COMPARED)
    left, right = figure.subfigures(1, 2)
    assert display.plot(left) is display
    assert display.figure_ is left
    assert left.axes == display.axes_
    assert not right.axes
    assert plt.get_fignums() == [figure.number]


def test_choices_of_a_fitted_model_are_those_of_its_report():
    x = np.linspace(0, 1, 80)[:, None]
    y = np.sin(9 * x[:, 0]) + np.random.default_rng(0).normal(0, 0.1, 80)
    model = ManyGPRegressor(points_per_expert=20, hyperparameters="shared", random_state=0)
    report = model.fit(x, y).calibration_report_
    display = CalibrationDisplay.from_estimator(model)
    assert display.report is report
    for ax in display.axes_:
        compared = [one for one in report.alternatives if one.parameter == ax.get_title()]
        dots = [(height, filled) for _, height, filled in panel_dots(ax)]
        assert sorted(dots) == sorted((one.nll, one.chosen) for one in compared)


def few_rows(**parameters):
    x = np.linspace(0, 1, 40)[:, None]
    model = ManyGPRegressor(random_state=0, trend="none", **parameters)
    return model.fit(x, np.sin(9 * x[:, 0]) + np.random.default_rng(0).normal(0, 0.1, 40))


FIXED = {
    "points_per_expert": 20, "overlap": 0.0, "temperature": 1.0, "calibration": "none",
    "hyperparameters": "shared",
}  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(ManyGPRegressor, id="not fitted"),
        pytest.param(
            lambda: few_rows(kernel=RBF() + White(), calibration="none"), id="one expert"
        ),
        pytest.param(lambda: few_rows(**FIXED, routing=1), id="nothing is auto"),
        pytest.param(lambda: few_rows(**FIXED, routing=0.01), id="nothing was compared"),
    ],
)
def test_a_model_that_has_chosen_nothing_says_why(model):
    with pytest.raises(ValueError, match="nothing by leave-one-out"):
        CalibrationDisplay.from_estimator(model())
    assert not plt.get_fignums()


def test_choices_without_matplotlib_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "manygp\[plot\]"'):
        CalibrationDisplay.from_estimator(Chooser())


def test_a_pit_histogram_shows_how_often_targets_fall_into_each_share():
    x = np.linspace(0, 1, 200)[:, None]
    y = np.sin(9 * x[:, 0]) + np.random.default_rng(0).normal(0, 0.1, 200)
    model = ManyGPRegressor(points_per_expert=50, random_state=0).fit(x[::2], y[::2])
    display = PITDisplay.from_estimator(model, x[1::2], y[1::2], n_bins=5)
    heights = [bar.get_height() for bar in display.ax_.patches]
    counts = np.histogram(display.pit, bins=5, range=(0, 1))[0]
    np.testing.assert_allclose(heights, counts / 100 * 5)
    assert display.ax_.get_xlabel() == "predicted probability of a smaller target"
    plt.close(display.figure_)
