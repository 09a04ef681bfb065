"""Charts have round ticks, stay inside of their frame, and take text for what it is."""

import re

import numpy as np
import pytest

from manygp.display import charts
from manygp.display.charts import Chart, ChartAxis


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (-3, 7), (1e-9, 2e-9), (4e11, 9e11), (0.5, 0.5), (0, 0), (-1e300, 1e300)],
)
def test_ticks_are_few_round_differ_and_lie_inside(low, high):
    axis = charts.linear(low, high)
    places = [place for place, _ in axis.ticks]
    words = [word for _, word in axis.ticks]
    assert 2 <= len(places) <= 12
    assert axis.low <= low <= high <= axis.high
    assert len(set(words)) == len(words)
    shares = axis.place(np.array(places))
    assert (np.diff(shares) > 0).all()


def test_a_logarithmic_axis_has_round_ticks_of_equal_ratios():
    axis = charts.logarithmic(3.0, 40_000.0)
    assert [word for _, word in axis.ticks] == ["10", "100", "1,000", "10,000"]
    shares = axis.place(np.array([place for place, _ in axis.ticks]))
    np.testing.assert_allclose(np.diff(shares), np.diff(shares)[0])


def test_dates_are_written_as_far_as_they_differ():
    day = float(np.datetime64("2020-01-01", "D").astype(int))
    assert charts.dates(day, day + 30).ticks[0][1] == "2020-01-11"
    assert charts.dates(day, day + 4000).ticks[0][1] == "2022-09"
    assert charts.dates(day, day + 1).ticks[0][1] == "2020-01-01 08:00"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (0, "0"), (0.25, "0.25"), (-5, "−5"), (1234.5, "1,234"), (-1e-7, "−1e-7"),
        (7.19e7, "71.9 million"), (7.2e6, "7.2 million"), (-2e9, "−2 billion"),
        (999_999_999, "1 billion"), (4.56e14, "456 trillion"), (3e17, "3e17"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_minus_sign(value, word):
    assert charts.number(value) == word


def test_large_ticks_are_said_in_millions():
    words = [word for _, word in charts.linear(0, 1.1e8).ticks]
    assert words == ["0", "50 million", "100 million"]
    assert charts.linear(1e9, 2e9).ticks[1][1] == "1.2 billion"


def test_scores_have_the_same_digits():
    assert [charts.score(value) for value in (18.0, 0.5, 741.3, -0.7)] == [
        "18.0", "0.500", "741", "−0.700",
    ]  # fmt: skip


def test_long_text_is_cut_by_its_width():
    assert charts.cut("short", 10) == "short"
    assert charts.cut("a" * 20, 10) == "a" * 9 + "…"
    assert len(charts.cut("温" * 20, 10)) <= 6


def test_all_that_is_drawn_lies_inside_of_the_frame():
    chart = Chart(charts.linear(0, 1), charts.linear(0, 1), ("x", "y"))
    chart.line([-5, 5], [-5, 5], "line")  # far outside
    chart.dots(np.array([-1.0, 0.5, 2.0]), np.array([3.0, 0.5, -2.0]))
    chart.band(np.array([0.0, 1.0]), np.array([-9.0, 0]), np.array([0.1, 9.0]))
    svg = chart.svg("A test of a chart.")
    numbers = re.findall(r"[MLHV](-?[\d.]+)(?: (-?[\d.]+))?", svg)
    assert all(0 <= float(part) <= charts.WIDTH for pair in numbers for part in pair if part)


def test_text_is_escaped():
    evil = '"><script>'
    chart = Chart(charts.linear(0, 1), ChartAxis(0, 1, ((0.5, evil),)), (evil, evil))
    svg = chart.svg(evil)
    assert "<script" not in svg
    assert svg.count("&lt;script&gt;") == 4


def test_the_densest_places_are_drawn_in_several_layers():
    chart = Chart(charts.linear(0, 1), charts.linear(0, 1), ("x", "y"))
    chart.dots(np.full(100, 0.5), np.full(100, 0.5))
    assert chart.svg("dots").count('class="dots"') == charts.LAYERS
