"""A report holds what the model is and how good it is, in one page that any browser shows."""

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from manygp import ManyGPRegressor, answers, metrics
from manygp.display import write_report
from manygp.display.charts import number, percent, score
from manygp.display.report import appendix, effects, scores, story
from manygp.display.report import rows as report_rows
from manygp.fit_report import Alternative
from manygp.kernels import RBF, Constant, Matern, White

# Small experts, and nothing to choose: what was compared takes the longest to draw.
SMALL = {
    "points_per_expert": 50, "hyperparameters": "shared", "overlap": 0, "temperature": 1.0,
    "calibration": "none", "routing": 2, "random_state": 0,
}  # fmt: skip
AUTO = {"temperature": "auto", "calibration": "auto", "routing": "auto"}
NAMES = ["<script>alert(1)</script>", "a&b", "$_$", "温度, \"°C\""]  # fmt: skip


def data(n, d=4, seed=0):
    """Inputs (n, d), and a target that depends most on the first, less on the second."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    y = np.sin(6 * X[:, 0]) + 0.5 * X[:, min(1, d - 1)] + rng.normal(0, 0.2, n)
    return X, y


def answers_to(model, X, y, name="test.csv", coverage=0.8):
    mean, std = model.predict(X, return_std=True)
    ends = model.predict_interval(X, coverage)
    return report_rows.Tested(y, mean, std, *ends, coverage, name, np.asarray(X))


def fit_small(**parameters):
    return ManyGPRegressor(**{**SMALL, **parameters}).fit(*data(150))


def fit_named():
    X, y = data(150)
    return ManyGPRegressor(**SMALL).fit(pd.DataFrame(X, columns=NAMES), y)


def fit_table():
    """Categories, few and many, dates and missing values."""
    X, y = data(150)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X[:, :2], columns=["size", "age"])
    frame.loc[rng.random(150) < 0.1, "age"] = np.nan
    frame["colour"] = rng.choice(["RED", "GREEN", "A VERY LONG NAME OF A COLOUR"], 150)
    frame["town"] = rng.choice([f"town {k}" for k in range(30)], 150)
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 150), "D")
    return ManyGPRegressor(**SMALL).fit(frame, y + (frame["colour"] == "RED"))


KINDS = {
    "shared": fit_small,
    "named": fit_named,
    "hierarchical": lambda: fit_small(hyperparameters="hierarchical", overlap="auto", **AUTO),
    "label": lambda: ManyGPRegressor.from_label(
        "bt-ent-c", points_per_expert=50, random_state=0
    ).fit(*data(150)),
    "one expert": lambda: ManyGPRegressor(random_state=0).fit(*data(60)),
    "one column": lambda: ManyGPRegressor(**SMALL).fit(*data(150, d=1)),
    "own kernel": lambda: fit_small(kernel=Matern(0.4, nu=1.5) * RBF(2.0) + White(0.1)),
    "table": fit_table,
    "two targets": lambda: ManyGPRegressor(**SMALL).fit(
        data(150)[0], np.column_stack([data(150)[1], 100 * data(150)[1]])
    ),
}


@pytest.fixture(scope="module")
def models():
    return {kind: fit() for kind, fit in KINDS.items()}


@pytest.fixture(scope="module")
def written(models, tmp_path_factory):
    """The page of a kind of model, with tested data if asked for."""
    folder = tmp_path_factory.mktemp("reports")
    pages = {}

    def page_of(kind, with_tested=False):
        if (kind, with_tested) not in pages:
            tested = None
            if with_tested:
                X, y = data(80, models[kind].n_features_in_, seed=1)
                if kind == "named":
                    X = pd.DataFrame(X, columns=NAMES)
                tested = answers_to(models[kind], X, y)
            write_report(models[kind], folder / "page.html", name="a.model", tested=tested)
            pages[kind, with_tested] = (folder / "page.html").read_text(encoding="utf-8")
        return pages[kind, with_tested]

    return page_of


def page_about(model, folder, **options):
    write_report(model, folder / "page.html", **options)
    return (folder / "page.html").read_text(encoding="utf-8")


def table_of(html, title):
    """The part of a page under a heading within a section."""
    (found,) = re.findall(
        rf"<h3>{re.escape(escape(title))}</h3>(.*?)(?=<h3|</section>)", html, re.S
    )
    return found


def section(html, name):
    """What stands between a heading and the next."""
    (found,) = re.findall(rf"<h2[^>]*>{re.escape(escape(name))}</h2>(.*?)</section>", html, re.S)
    return found


def cells(html):
    """The text of each cell of each row of the tables."""
    lines = re.findall(r"<tr>(.*?)</tr>", html, re.S)
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh].*?</t[dh]>", line)]
        for line in lines
    ]


class Outline(HTMLParser):
    """Headings, pictures, and whatever a page would fetch."""

    def __init__(self, html):
        super().__init__()
        self.headings, self.charts, self.links = [], [], []
        self.tags = {}
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags[tag] = given
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "svg":
            self.charts.append(given)
        self.links += [given[name] for name in ("src", "href", "srcset") if name in given]


SHORT = "In short"
GOOD = "How good are the predictions?"
TRUST = "Can the uncertainty be trusted?"
MATTER = "Which columns matter?"
WORST = "Which rows were predicted worst?"
BEYOND = "Where does the model extrapolate?"
FOUND = "What was found, and chosen"
APPENDIX = "Appendix: technical details"
SECTIONS = (SHORT, GOOD, TRUST, MATTER, WORST, BEYOND, FOUND, APPENDIX)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_every_section_with_something_in_it(written, kind):
    html = written(kind)
    for name in SECTIONS:
        assert re.search("<(p|table|svg|div|ul)", section(html, name)), name
    n_targets = 2 if kind == "two targets" else 1
    assert section(html, GOOD).count("<svg") == 3 * n_targets
    assert section(html, TRUST).count("<svg") == 3 * n_targets
    assert section(html, MATTER).count("<svg") >= n_targets
    assert "nan" not in re.sub("<style>.*?</style>", "", html, flags=re.S)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_small_needs_nothing_from_outside_and_runs_nothing(written, kind):
    html = written(kind)
    assert len(html.encode()) < 500_000
    assert "<script" not in html.lower()
    assert "http" not in html
    assert "@import" not in html
    assert "url(" not in html
    assert all(link.startswith("#") for link in Outline(html).links)


def test_a_page_can_be_read_aloud(written):
    outline = Outline(written("hierarchical", with_tested=True))
    assert outline.tags["html"]["lang"] == "en"
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.charts) > 5
    assert all(chart["role"] == "img" for chart in outline.charts)
    assert all(len(chart["aria-label"]) > 20 for chart in outline.charts)


def test_a_page_has_colours_for_the_dark_and_a_layout_for_paper(written):
    html = written("shared")
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    _, rest = html.split("</style>")
    assert not re.search("#[0-9a-f]{6}", rest)  # every colour is one of the palette


def test_scores_stand_beside_those_of_a_constant_and_a_linear_fit(written, models):
    header, *lines = cells(table_of(written("shared"), "150 training rows, each left out"))
    assert header == [
        "", "this model", "linear fit", "constant", "standard error", "what it means",
    ]  # fmt: skip
    table = {line[0]: line[1:] for line in lines}
    X, y = data(150)
    found = models["shared"].loo_score()
    assert table["RMSE"][0] == score(found["rmse"])
    assert table["NLL"][0] == score(found["nll"])
    assert table["ENCE"][0] == score(found["ence"])
    others = (y.sum() - y) / 149
    assert table["RMSE"][2] == score(metrics.rmse(y, others))
    line = [
        np.r_[1, X[i]] @ np.linalg.lstsq(
            np.c_[np.ones(149), np.delete(X, i, 0)], np.delete(y, i), rcond=None
        )[0]
        for i in range(150)
    ]  # fmt: skip
    assert float(table["RMSE"][1]) == pytest.approx(metrics.rmse(y, line), rel=0.02)
    assert float(table["RMSE"][0]) < float(table["RMSE"][1]) < float(table["RMSE"][2])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "two targets"])
def test_scores_are_those_of_rows_left_out(written, models, kind):
    n = answers.training_rows(models[kind].model_)[0].shape[0]
    html = written(kind)
    table = {
        line[0]: line[1] for line in cells(table_of(html, f"{n} training rows, each left out"))
    }
    found = models[kind].loo_score()
    assert [table[name] for name in ("RMSE", "NLL", "ENCE")] == [
        score(found[name]) for name in ("rmse", "nll", "ence")
    ]
    assert "each left out in turn" in html


def test_scores_of_tested_rows_come_before_those_left_out(written, models):
    X, y = data(80, seed=1)
    tested = answers_to(models["shared"], X, y)
    html = written("shared", with_tested=True)
    good = section(html, GOOD)
    assert good.index("80 rows of test.csv") < good.index("150 training rows, each left out")
    table = {line[0]: line[1:] for line in cells(table_of(html, "80 rows of test.csv"))}
    for name in ("rmse", "nll", "ence", "crps"):
        value = getattr(metrics, name)(tested.y, tested.mean, tested.std)
        assert table[name.upper()][0] == score(value)
        assert len(table[name.upper()][-1]) > 20
    assert table["90% by std"][0] == percent(metrics.coverage(y, tested.mean, tested.std))
    y_train = data(150)[1]
    assert table["RMSE"][2] == score(metrics.rmse(y, np.full(80, y_train.mean())))
    held = np.mean((tested.lower <= y) & (y <= tested.upper))
    assert f"hold {percent(held)}" in section(html, SHORT)
    assert "Intervals of 80%" in section(html, SHORT)


def test_tested_rows_without_inputs_have_no_linear_fit_nor_places(models, tmp_path):
    X, y = data(80, seed=1)
    tested = answers_to(models["shared"], X, y)._replace(X=None)
    html = page_about(models["shared"], tmp_path, tested=tested)
    header = cells(table_of(html, "80 rows of test.csv"))[0]
    assert header == ["", "this model", "constant", "standard error", "what it means"]
    assert "without the values of the rows" in section(html, BEYOND)


def test_each_of_several_targets_is_scored_in_its_own_units(written, models, tmp_path):
    html = written("two targets")
    title = "{}: 150 training rows, each left out"
    first, second = (
        dict(line[:2] for line in cells(table_of(html, title.format(name))))
        for name in ("target 1", "target 2")
    )
    assert float(second["RMSE"]) == pytest.approx(100 * float(first["RMSE"]), rel=0.01)
    html = page_about(models["two targets"], tmp_path, target=["mass [kg]", "price"])
    assert "A model of mass [kg] and price" in html
    assert "Size of a typical error, in kg." in html
    assert "Size of a typical error, in the units of price." in html


def test_a_target_has_the_units_that_its_name_tells(models, tmp_path):
    html = page_about(models["shared"], tmp_path, target="wind speed (m/s)")
    assert "<title>A model of wind speed (m/s)</title>" in html
    rmse = number(models["shared"].loo_score()["rmse"])
    assert f"<strong>{rmse} m/s</strong>" in html


def test_a_large_model_leaves_out_some_rows_and_says_how_many(monkeypatch, tmp_path):
    monkeypatch.setattr(report_rows, "LEFT_OUT_ROWS", 40)
    html = page_about(fit_small(), tmp_path)
    title = "40 random ones of 150 training rows, each left out"
    assert cells(table_of(html, title))[1][0] == "RMSE"
    assert "of 150 training rows, each left out in turn" in html


def test_dots_are_limited_and_counted(monkeypatch, models, tmp_path):
    monkeypatch.setattr(scores, "MOST_DOTS", 50)
    assert "50 random ones of 150 rows are drawn" in page_about(models["shared"], tmp_path)


def test_names_stand_in_the_page_as_they_are(written, models, tmp_path):
    html = written("named")
    for name in NAMES:
        assert f">{escape(name)}</span>" in html
        assert f"length_scale: {escape(name)}</td>" in html
    X, y = data(30, seed=1)
    tested = answers_to(models["shared"], X, y, name="<b>$\\frac$ & ü")
    options = {"name": "<i>x</i>", "target": "</title><u>y</u>", "tested": tested}
    html = page_about(models["shared"], tmp_path, **options)
    assert "<i>x" not in html
    assert "<u>" not in html
    assert "<title>A model of &lt;/title&gt;&lt;u&gt;y&lt;/u&gt;</title>" in html
    assert "&lt;b&gt;$\\frac$ &amp; ü" in html


def test_hostile_names_and_categories_are_only_text(tmp_path):
    rng = np.random.default_rng(0)
    evil = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
    frame = pd.DataFrame(
        {evil: rng.random(120), "kind": rng.choice([evil, '"><svg onload=1>', "c"], 120)}
    )
    y = frame[evil] + (frame["kind"] == "c")
    model = ManyGPRegressor(**SMALL).fit(frame, y)
    html = page_about(model, tmp_path, name=evil, target=evil)
    outline = Outline(html)
    assert "img" not in outline.tags
    assert all(
        set(chart) == {"class", "viewbox", "role", "aria-label"} for chart in outline.charts
    )
    assert "\u202e" not in html
    assert "\x1b" not in html


def test_a_page_says_what_was_fitted(written, models):
    facts = dict(cells(table_of(written("shared"), "What was fitted")))
    assert facts["rows"] == "150"
    assert facts["features"] == "4"
    assert facts["experts"] == "3, each with 50 rows of its own and 0 rows of neighbours"
    assert facts["kernel"] == "Constant * Matern(nu=2.5) + White"
    assert facts["changed parameters"] == (
        "calibration='none', hyperparameters='shared', overlap=0, points_per_expert=50, "
        "random_state=0, routing=2, temperature=1"
    )
    assert facts["plan"] == str(models["shared"].plan_)
    assert "About a row the 2 nearest ones are asked." in written("shared")
    assert "About a row all of them are asked." in written("label")
    assert "kernel=Matern(nu=1.5) * RBF + White" in written("own kernel")
    assert "<td>targets</td><td>2</td>" in written("two targets")
    assert "One Gaussian process knows all rows." in written("one expert")
    assert "left nothing to choose" in written("label")


def test_a_page_says_what_leave_one_out_chose_and_from_what(written, models):
    html, choice = written("hierarchical"), models["hierarchical"].calibration_report_
    title = f"Chosen by leaving out {choice.n_rows} rows in turn"
    shown = {line[0]: line[1] for line in cells(table_of(html, title))}
    for parameter, value in choice.chosen.items():
        assert shown[parameter] == (value if isinstance(value, str) else f"{value:.3g}")
    lines = cells(table_of(html, "What was compared"))[1:]
    assert len(lines) == len(choice.alternatives)
    for line, one in zip(lines, choice.alternatives, strict=True):
        assert line[0].startswith(f"{one.parameter}: ")
        assert line[2].replace("−", "-") == f"{one.nll:.4f}"
        assert line[3].startswith("chosen") == one.chosen
    assert "What was compared" not in written("label")


def test_a_choice_beside_a_better_score_is_explained_in_its_line():
    two = [Alternative("overlap", 1, -0.25, True), Alternative("overlap", 4, -0.2625, False)]
    assert appendix.why_chosen(two[0], two) == (
        "chosen: it is simpler, and the gain of 4, 0.0125, may be chance"
    )
    assert appendix.why_chosen(two[1], two) == ""
    better = [two[0], two[1]._replace(nll=-0.2)]
    assert appendix.why_chosen(better[0], better) == "chosen"
    later = [two[1]._replace(parameter="nearest"), two[0]._replace(parameter="nearest")]
    assert appendix.why_chosen(later[1], later) == "chosen: the gain of 4, 0.0125, may be chance"
    assert "it is simpler, and the gain of linear, 0.0125, may be chance; the other was" in (
        story._told("trend", [two[0]._replace(value="none"), two[1]._replace(value="linear")])
    )


def test_the_ten_length_scales_that_matter_are_shown(tmp_path):
    X, y = data(120, d=30)
    X[:, 20:] *= 1000  # of these a length-scale of 100 is short
    scales = np.r_[np.full(20, 5.0), np.full(10, 100.0)]
    kernel = Constant(1.0, "fixed") * RBF(tuple(scales)) + White(0.1)
    model = ManyGPRegressor(kernel, **{**SMALL, "normalize_X": False}, optimizer=None).fit(X, y)
    table = table_of(page_about(model, tmp_path), "Hyperparameters")
    shown = [name for name, _ in cells(table) if "length_scale" in name]
    assert sorted(shown) == sorted(f"RBF.length_scale: x{k}" for k in range(20, 30))
    assert "the 10 that matter most are shown" in table
    assert "20 others are not" in table


def test_errors_of_millions_are_written_in_words(tmp_path):
    X, y = data(100)
    html = page_about(ManyGPRegressor(**SMALL).fit(X, 7e7 * y), tmp_path)
    assert re.search(r"<strong>\d+(\.\d+)? million</strong>", html)
    assert not re.search(r"\de\d", re.sub("<style>.*?</style>|<path[^>]*>", "", html, flags=re.S))


def test_rows_have_the_numbers_of_the_table_that_they_are_in(models, tmp_path):
    numbers = 1000 + 2 * np.arange(150)
    html = page_about(models["shared"], tmp_path, numbers=numbers)
    shown = [int(line[0].replace(",", "")) for line in cells(table_of(html, "Largest errors"))[1:]]
    left_out = answers.left_out_answers(models["shared"].model_, 150)
    error = np.abs(left_out[1][:, 0] - left_out[2])
    assert shown == (1000 + 2 * np.argsort(-error, kind="stable")[:10]).tolist()


def test_rows_keep_their_numbers_where_copies_of_others_are_left_out():
    X, y = data(100)
    with pytest.warns(UserWarning, match="30 rows are copies"):
        model = ManyGPRegressor(random_state=0).fit(np.r_[X[:30], X], np.r_[y[:30], y])
    for numbers, first in ((None, 31), (1000 + np.arange(130), 1030)):
        rows = report_rows.left_out_set(
            model.model_, report_rows.target_names(model.model_, ()), numbers=numbers
        )
        assert rows.numbers.tolist() == list(range(first, first + 100))
        np.testing.assert_allclose(rows.scored[0].y, y)


def test_repeated_rows_trend_and_noise_are_told_in_words(tmp_path):
    X, y = data(100, d=1)
    X[60:] = X[:40]
    model = ManyGPRegressor(trend="linear", random_state=0).fit(X, y)
    found = section(page_about(model, tmp_path), FOUND)
    assert "40 rows (40.0%) repeat the columns of another row." in found
    assert "How their targets differ tells the least noise" in found
    assert "a straight line in each column (linear)" in found
    assert "Noise that no column explains: about ±" in found


def test_shared_hyperparameters_are_listed_and_own_ones_are_spread_out(written, models):
    listed = dict(cells(table_of(written("shared"), "Hyperparameters")))
    kernel = models["shared"].experts_[0].kernel
    names = [re.sub(r"\[(\d)\]", r": x\1", name) for name in kernel.theta_names]
    assert set(listed) == set(names)
    for name, value in zip(names, kernel.values, strict=True):
        assert listed[name] == number(value)
    own = table_of(written("label"), "Hyperparameters")
    header, *lines = cells(own)
    assert header == ["hyperparameter", "across experts", "smallest", "median", "largest"]
    assert {line[0] for line in lines} == set(names)
    noise = sorted(expert.noise_variance for expert in models["label"].experts_)
    (line,) = (line for line in lines if line[0] == "White.variance")
    assert line[2:] == [number(value) for value in noise]  # of three experts
    places = [float(share) for share in re.findall(r"(?:left|width):(-?[\d.]+)%", own)]
    assert min(places) >= 0
    assert max(places) <= 100


def test_many_columns_are_cut_to_the_most_relevant_and_the_page_stays_small(tmp_path):
    X, y = data(120, d=50)
    kernel = RBF(tuple(np.linspace(1, 50, 50)), "fixed") + White(0.1)
    model = ManyGPRegressor(kernel, **SMALL).fit(X, y)
    X, y = data(5000, d=50, seed=1)
    html = page_about(model, tmp_path, tested=answers_to(model, X, y))
    lines = cells(section(html, MATTER))[1:]
    assert len(lines) == effects.EFFECTS.bars
    assert [line[0] for line in lines[:5]] == [f"x{i}" for i in range(5)]
    assert "Not shown: 20 columns of at most" in section(html, MATTER)
    assert len(html.encode()) < 500_000


def test_columns_that_explain_nothing_have_no_relevance(tmp_path):
    X, y = data(20)
    kernel = Constant(1.0, "fixed") + White(0.1, "fixed")
    html = page_about(ManyGPRegressor(kernel, trend="none", random_state=0).fit(X, y), tmp_path)
    assert "the columns explain nothing of y" in section(html, MATTER)
    assert "no hyperparameters" in table_of(html, "Hyperparameters")


@pytest.mark.filterwarnings("ignore:one row tells nothing")
@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_rows_give_a_page_that_says_what_is_missing(tmp_path, n):
    html = page_about(ManyGPRegressor(random_state=0).fit(*data(n)), tmp_path)
    assert f"these need 10 rows, and there are {n}." in section(html, TRUST)
    assert "<svg" not in section(html, TRUST)
    table = {line[0]: line[1] for line in cells(section(html, GOOD))}
    assert table["ENCE"] == "-"
    assert float(table["RMSE"]) >= 0


def test_few_rows_can_be_compared_with_many_tested_ones(tmp_path):
    model = ManyGPRegressor(random_state=0).fit(*data(6))
    X, y = data(40, seed=1)
    html = page_about(model, tmp_path, tested=answers_to(model, X, y))
    assert section(html, TRUST).count("<svg") == 3
    tested, left_out = (line for line in cells(section(html, GOOD)) if line[0] == "ENCE")
    assert float(tested[1]) > 0
    assert left_out[1] == "-"


@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e200])
def test_targets_of_any_size_can_be_drawn(tmp_path, scale):
    X, y = data(100)
    html = page_about(ManyGPRegressor(**SMALL).fit(X, scale * y), tmp_path)
    assert html.count("<svg") > 5
    assert not re.search('(nan|inf)[ LMHV"]', "".join(re.findall('d="[^"]*"', html)))


@pytest.mark.filterwarnings("ignore:y is constant")
def test_a_constant_target_gives_a_page(tmp_path):
    model = ManyGPRegressor(**SMALL).fit(data(100)[0], np.full(100, 3.0))
    html = page_about(model, tmp_path)
    assert section(html, TRUST).count("<svg") == 3


def test_a_model_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        write_report(ManyGPRegressor(), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_page_takes_the_place_of_another_and_leaves_nothing_beside_it(models, tmp_path):
    (tmp_path / "page.html").write_text("old")
    assert "old" not in page_about(models["one expert"], tmp_path)[:100]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_report_needs_no_extra(monkeypatch, models, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # importing it is an error
    assert "<svg" in page_about(models["one expert"], tmp_path)


def test_importing_reports_does_not_import_matplotlib():
    code = "import sys, manygp.display.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_may_write_at_the_same_time(models, written, tmp_path):
    expected = written("shared")
    paths = [tmp_path / "1.html", tmp_path / "2.html"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda path: write_report(models["shared"], path, name="a.model"), paths))
    assert all(path.read_text(encoding="utf-8") == expected for path in paths)


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (1300, 390)
# The page in frames of several widths, and a script outside of it that writes down what it sees.
FRAMES = """<!doctype html><meta charset="utf-8"><body>{frames}<pre id="seen"></pre><script>
window.onload = () => {{
  for (const frame of document.querySelectorAll("iframe")) {{
    const page = frame.contentDocument, root = page.scrollingElement;
    const every = selector => [...page.querySelectorAll(selector)];
    const fits = e => e.getBoundingClientRect().right <= root.clientWidth + 0.5;
    const blocks = every("h1,h2,h3,p,li,figure,svg,.card,.scroll");
    const boxed = every("table").filter(t => {{
      const box = t.closest(".scroll");
      return box && frame.contentWindow.getComputedStyle(box).overflowX === "auto";
    }});
    const cut = every("svg text").filter(t => {{
      const a = t.getBoundingClientRect(), b = t.closest("svg").getBoundingClientRect();
      return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1;
    }});
    const small = every("svg").filter(e => e.clientWidth < 250);
    const narrow = every("table").filter(t =>
      t.getBoundingClientRect().width < 0.97 * t.closest(".scroll").clientWidth);
    const unshaded = every(".scroll").filter(e => e.scrollWidth > e.clientWidth + 1 &&
      !frame.contentWindow.getComputedStyle(e).backgroundImage.includes("gradient"));
    document.getElementById("seen").textContent += [
      frame.contentWindow.innerWidth, root.scrollWidth, blocks.length,
      blocks.filter(fits).length, every("table").length, boxed.length, cut.length, small.length,
      narrow.length, unshaded.length
    ].join(" ") + ";";
  }}
}};
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium or google-chrome")
@pytest.mark.parametrize("kind", ["named", "hierarchical", "two targets", "table"])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_the_page_without_scrolling_sideways(written, tmp_path, kind, dark):
    html = written(kind, with_tested=kind in ("named", "hierarchical"))
    if kind == "named":  # a word that no line holds
        html = html.replace("a&amp;b", "a&amp;b" * 60).replace("test.csv", "test.csv" * 30)
    frames = "".join(
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{escape(html)}"></iframe>'
        for width in WIDTHS
    )
    (tmp_path / "frames.html").write_text(FRAMES.format(frames=frames), encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        "--dump-dom", (tmp_path / "frames.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    (seen,) = re.findall('<pre id="seen">(.*?);</pre>', done.stdout)
    for width, numbers in zip(WIDTHS, seen.split(";"), strict=True):
        inner, needed, n_blocks, n_inside, n_tables, n_boxed, *faults = map(int, numbers.split())
        assert inner == width
        assert needed <= inner
        assert n_blocks == n_inside
        assert n_tables == n_boxed == html.count("<table")
        assert faults == [0] * 4  # words cut, charts small, tables narrow, no sign of scrolling
