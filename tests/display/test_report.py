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

pytest.importorskip("matplotlib")

from manygp import ManyGPRegressor, metrics
from manygp.display import report, write_report
from manygp.kernels import RBF, Linear, Matern, White

# Small experts, and nothing to choose: what was compared takes the longest to draw.
SMALL = {
    "points_per_expert": 50, "hyperparameters": "shared", "overlap": 0, "temperature": 1.0,
    "calibration": "none", "routing": 2, "random_state": 0,
}  # fmt: skip
AUTO = {"temperature": "auto", "calibration": "auto", "routing": "auto"}
NAMES = ["<script>alert(1)</script>", "a&b", "$_$", "温度, \"°C\""]  # fmt: skip


def rows(n, d=4, seed=0):
    """Inputs (n, d), and a target that depends most on the first, less on the second."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    y = np.sin(6 * X[:, 0]) + 0.5 * X[:, min(1, d - 1)] + rng.normal(0, 0.2, n)
    return X, y


def answers_to(model, X, y, name="test.csv", coverage=0.8):
    mean, std = model.predict(X, return_std=True)
    return report.Tested(y, mean, std, *model.predict_interval(X, coverage), coverage, name)


def fit_small(**parameters):
    return ManyGPRegressor(**{**SMALL, **parameters}).fit(*rows(150))


def fit_named():
    X, y = rows(150)
    return ManyGPRegressor(**SMALL).fit(pd.DataFrame(X, columns=NAMES), y)


KINDS = {
    "shared": fit_small,
    "named": fit_named,
    "hierarchical": lambda: fit_small(hyperparameters="hierarchical", overlap="auto", **AUTO),
    "label": lambda: ManyGPRegressor.from_label(
        "bt-ent-c", points_per_expert=50, random_state=0
    ).fit(*rows(150)),
    "one expert": lambda: ManyGPRegressor(random_state=0).fit(*rows(60)),
    "one column": lambda: ManyGPRegressor(**SMALL).fit(*rows(150, d=1)),
    "own kernel": lambda: fit_small(kernel=Matern(0.4, nu=1.5) * RBF(2.0) + White(0.1)),
    "two targets": lambda: ManyGPRegressor(**SMALL).fit(
        rows(150)[0], np.column_stack([rows(150)[1], 100 * rows(150)[1]])
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
                X, y = rows(80, models[kind].n_features_in_, seed=1)
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


def section(html, name):
    """What stands between a heading and the next."""
    (found,) = re.findall(
        rf"<h2[^>]*>{re.escape(escape(name))}</h2>(.*?)(?=<h2|</body>)", html, re.S
    )
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
        self.headings, self.images, self.links = [], [], []
        self.tags = {}
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags[tag] = given
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img":
            self.images.append(given)
        self.links += [given[name] for name in ("src", "href", "srcset") if name in given]


SECTIONS = (
    "What was fitted", "Scores", "How honest is the std?", "Experts", "Hyperparameters",
    "Relevance of columns", "What was compared",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_every_section_with_something_in_it(written, kind):
    html = written(kind)
    for name in SECTIONS:
        assert re.search("<(p|table|img)", section(html, name)), name
    assert len(re.findall("<img", section(html, "How honest is the std?"))) == 3
    assert "nan" not in re.sub('base64,[^"]*', "", html)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_small_needs_nothing_from_outside_and_runs_nothing(written, kind):
    html = written(kind)
    assert len(html.encode()) < 1_500_000
    assert "<script" not in html.lower()
    assert "http" not in re.sub('base64,[^"]*', "", html)
    assert "@import" not in html
    assert "url(" not in html
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in Outline(html).links)


def test_a_page_can_be_read_aloud(written):
    outline = Outline(written("hierarchical", with_tested=True))
    assert outline.tags["html"]["lang"] == "en"
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.images) > 3
    assert all(len(image["alt"]) > 20 for image in outline.images)


def test_a_page_says_what_was_fitted(written, models):
    facts = dict(cells(section(written("shared"), "What was fitted"))[:6])
    assert facts["rows"] == "150"
    assert facts["columns"] == "4"
    assert facts["experts"] == "3, the nearest 2 of which are queried about a row"
    assert facts["kernel"] == "Constant * Matern(nu=2.5) + White"
    assert facts["changed parameters"] == (
        "calibration='none', hyperparameters='shared', overlap=0, points_per_expert=50, "
        "random_state=0, routing=2, temperature=1"
    )
    assert facts["plan"] == str(models["shared"].plan_)
    assert "3, all of which are queried about a row" in written("label")
    own = section(written("own kernel"), "What was fitted")
    assert "kernel=Matern(nu=1.5) * RBF + White" in own
    assert "<td>targets</td><td>2</td>" in section(written("two targets"), "What was fitted")
    assert "corrected" in section(written("one expert"), "What was fitted")
    assert "left nothing to choose" in section(written("label"), "What was fitted")


def test_a_page_says_what_leave_one_out_chose_and_from_what(written, models):
    html, choice = written("hierarchical"), models["hierarchical"].calibration_report_
    shown = {line[0]: line[1] for line in cells(section(html, "What was fitted"))}
    for parameter, value in choice.chosen.items():
        assert shown[parameter] == (value if isinstance(value, str) else f"{value:.3g}")
    images = Outline(section(html, "What was compared")).images
    assert len(images) == len({one.parameter for one in choice.alternatives})
    for one in choice.alternatives:
        (alt,) = (i["alt"] for i in images if i["alt"].startswith(f"NLL by {one.parameter}."))
        mark = " (chosen)" if one.chosen else ""
        value = one.value if isinstance(one.value, str) else f"{one.value:.3g}"
        assert f"{value}{mark}: {one.nll:.3g}" in alt
    assert "Nothing was compared" in section(written("label"), "What was compared")


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_rows_left_out(written, models, kind):
    table = {line[0]: line[1] for line in cells(section(written(kind), "Scores"))[1:]}
    score = models[kind].loo_score()
    assert table["RMSE"] == f"{score['rmse']:.3g}"
    assert table["NLL"] == f"{score['nll']:.3g}"
    assert table["ENCE"] == f"{score['ence']:.3g}"
    assert "each left out in turn" in written(kind)


def test_scores_of_tested_rows_stand_beside_those_left_out(written, models):
    X, y = rows(80, seed=1)
    tested = answers_to(models["shared"], X, y)
    header, *lines = cells(section(written("shared", with_tested=True), "Scores"))
    assert header == ["", "leave-one-out", "test.csv", "what is good"]
    table = {name: values for name, *values in lines}
    assert table["rows"][:2] == ["150", "80"]
    for name in ("rmse", "nll", "ence", "crps"):
        value = getattr(metrics, name)(tested.y, tested.mean, tested.std)
        assert table[name.upper()][1] == f"{value:.3g}"
        assert len(table[name.upper()][2]) > 20
    held = metrics.coverage(tested.y, tested.mean, tested.std)
    assert table["coverage of 90%"][1] == f"{100 * held:.3g}%"
    held = np.mean((tested.lower <= y) & (y <= tested.upper))
    assert table["coverage of intervals"][:2] == ["-", f"{100 * held:.3g}%"]
    assert "It should be 80%" in table["coverage of intervals"][2]


def test_a_large_model_leaves_out_some_rows_and_says_how_many(monkeypatch, models, tmp_path):
    monkeypatch.setattr(report, "LEFT_OUT_ROWS", 40)
    html = page_about(models["shared"], tmp_path)
    assert "40 random ones of the 150 training rows" in html
    assert cells(section(html, "Scores"))[1][:2] == ["rows", "40"]
    assert "all 150 training rows" not in html


def test_dots_are_limited_and_counted(monkeypatch, models, tmp_path):
    monkeypatch.setattr(report, "MOST_DOTS", 50)
    assert "50 random ones of 150 rows are drawn" in page_about(models["shared"], tmp_path)


def test_names_stand_in_the_page_as_they_are(written, models, tmp_path):
    html = written("named")
    for name in NAMES:
        assert f'<span class="label">{escape(name)}</span>' in html
        assert f"length_scale: {escape(name)}</td>" in html
    X, y = rows(30, seed=1)
    tested = answers_to(models["shared"], X, y, name="<b>$\\frac$ & ü")
    html = page_about(models["shared"], tmp_path, name="<i>x</i>", tested=tested)
    assert "<i>" not in html
    assert "<title>Model &lt;i&gt;x&lt;/i&gt;</title>" in html
    assert html.count("&lt;b&gt;$\\frac$ &amp; ü") == 2


def test_shared_hyperparameters_are_listed_and_own_ones_are_spread_out(written, models):
    listed = dict(cells(section(written("shared"), "Hyperparameters")))
    kernel = models["shared"].experts_[0].kernel
    names = [re.sub(r"\[(\d)\]", r": x\1", name) for name in kernel.theta_names]
    assert set(listed) == set(names)
    for name, value in zip(names, kernel.values, strict=True):
        assert listed[name] == report._number(value)
    own = section(written("label"), "Hyperparameters")
    header, *lines = cells(own)
    assert header == ["hyperparameter", "across experts", "smallest", "median", "largest"]
    assert {line[0] for line in lines} == set(names)
    noise = sorted(expert.noise_variance for expert in models["label"].experts_)
    (line,) = (line for line in lines if line[0] == "White.variance")
    assert line[2:] == [report._number(value) for value in noise]  # of three experts
    places = [float(share) for share in re.findall(r"(?:left|width):(-?[\d.]+)%", own)]
    assert min(places) >= 0
    assert max(places) <= 100


def test_sizes_of_experts_are_told_and_drawn_where_they_differ(written, tmp_path):
    assert "Each of 3 experts has 50 rows of its own and 0 rows" in written("shared")
    assert "<img" not in section(written("shared"), "Experts")
    assert "Every expert knows all rows." in section(written("one expert"), "Experts")
    several = section(page_about(fit_small(partition="kmeans"), tmp_path), "Experts")
    assert several.count("<img") == 1


def test_columns_come_in_the_order_of_their_relevance(written, models):
    lines = cells(section(written("shared"), "Relevance of columns"))[1:]
    lengths = models["shared"].kernel_.inverse_lengths(4)
    assert [line[0] for line in lines] == [f"x{i}" for i in np.argsort(-lengths)]
    assert lines[0] == ["x0", "", report._number(lengths[0])]  # inputs are scaled to [0, 1]
    widths = re.findall(r"width:([\d.]+)%", section(written("shared"), "Relevance of columns"))
    np.testing.assert_allclose(
        [float(w) for w in widths], 100 * np.sort(lengths)[::-1] / lengths[0], atol=0.01
    )


def test_relevance_does_not_depend_on_the_units_of_a_column(tmp_path):
    X, y = rows(60)
    kernel = RBF((0.5, 2.0, 2.0, 2.0), "fixed") + White(0.1)
    raw = RBF((500.0, 2.0, 2.0, 2.0), "fixed") + White(0.1)
    pages = [
        page_about(ManyGPRegressor(k, **SMALL).fit(X * [scale, 1, 1, 1], y), tmp_path)
        for k, scale in ((kernel, 1), (raw, 1000))
    ]
    first, second = (cells(section(html, "Relevance of columns")) for html in pages)
    assert first == second
    assert first[1][0] == "x0"


def test_many_columns_are_cut_to_the_most_relevant_and_the_page_stays_small(tmp_path):
    X, y = rows(120, d=50)
    kernel = RBF(tuple(np.linspace(1, 50, 50)), "fixed") + White(0.1)
    model = ManyGPRegressor(kernel, **SMALL).fit(X, y)
    X, y = rows(5000, d=50, seed=1)
    html = page_about(model, tmp_path, tested=answers_to(model, X, y))
    relevance = section(html, "Relevance of columns")
    assert [line[0] for line in cells(relevance)[1:]] == [f"x{i}" for i in range(30)]
    assert "Not shown: 20 columns of at most" in relevance
    assert len(html.encode()) < 1_500_000


def test_a_kernel_without_length_scales_has_no_relevance(tmp_path):
    X, y = rows(20)
    model = ManyGPRegressor(Linear(1.0, "fixed") + White(0.1, "fixed"), random_state=0).fit(X, y)
    html = page_about(model, tmp_path)
    assert "the kernel has no length-scales" in section(html, "Relevance of columns")
    assert "no hyperparameters" in section(html, "Hyperparameters")


@pytest.mark.filterwarnings("ignore:one row tells nothing")
@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_rows_give_a_page_that_says_what_is_missing(tmp_path, n):
    html = page_about(ManyGPRegressor(random_state=0).fit(*rows(n)), tmp_path)
    honesty = section(html, "How honest is the std?")
    assert f"It needs 10 rows, and there are {n}." in honesty
    assert honesty.count("<img") == 1
    table = {line[0]: line[1] for line in cells(section(html, "Scores"))}
    assert table["ENCE"] == "-"
    assert float(table["RMSE"]) >= 0


def test_few_rows_can_be_compared_with_many_tested_ones(tmp_path):
    model = ManyGPRegressor(random_state=0).fit(*rows(6))
    X, y = rows(40, seed=1)
    html = page_about(model, tmp_path, tested=answers_to(model, X, y))
    assert section(html, "How honest is the std?").count("<img") == 3
    ence = next(line for line in cells(section(html, "Scores")) if line[0] == "ENCE")
    assert ence[1] == "-"
    assert float(ence[2]) > 0


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_targets_of_any_size_can_be_drawn(tmp_path, scale):
    X, y = rows(100)
    html = page_about(ManyGPRegressor(**SMALL).fit(X, scale * y), tmp_path)
    assert html.count("<img") > 2


@pytest.mark.filterwarnings("ignore:y is constant")
def test_a_constant_target_gives_a_page(tmp_path):
    model = ManyGPRegressor(**SMALL).fit(rows(100)[0], np.full(100, 3.0))
    html = page_about(model, tmp_path)
    assert section(html, "How honest is the std?").count("<img") == 3


def test_a_model_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        write_report(ManyGPRegressor(), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_page_takes_the_place_of_another_and_leaves_nothing_beside_it(models, tmp_path):
    (tmp_path / "page.html").write_text("old")
    assert "old" not in page_about(models["one expert"], tmp_path)[:100]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_without_matplotlib_the_extra_is_named(monkeypatch, models, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'a report needs matplotlib: pip .*"manygp\[plot\]"'):
        write_report(models["one expert"], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_importing_reports_does_not_import_matplotlib():
    code = "import sys, manygp.display.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_may_write_at_the_same_time_and_pyplot_knows_nothing_of_it(
    models, written, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it is an error
    expected = written("shared")
    paths = [tmp_path / "1.html", tmp_path / "2.html"]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda path: write_report(models["shared"], path, name="a.model"), paths))
    assert all(path.read_text(encoding="utf-8") == expected for path in paths)


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (1300, 400)
# The page in frames of several widths, and a script outside of it that writes down what it sees.
FRAMES = """<!doctype html><meta charset="utf-8"><body>{frames}<pre id="seen"></pre><script>
window.onload = () => {{
  for (const frame of document.querySelectorAll("iframe")) {{
    const root = frame.contentDocument.documentElement;
    const images = [...frame.contentDocument.images];
    const loaded = images.filter(i => i.complete && i.naturalWidth > 0 && i.clientWidth > 100);
    const inside = [...frame.contentDocument.querySelectorAll("h1,h2,p,figure,.scroll")].filter(
      e => e.getBoundingClientRect().right <= root.clientWidth + 0.5);
    const all = frame.contentDocument.querySelectorAll("h1,h2,p,figure,.scroll").length;
    document.getElementById("seen").textContent += [
      root.clientWidth, root.scrollWidth, images.length, loaded.length, all, inside.length
    ].join(" ") + ";";
  }}
}};
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium or google-chrome")
@pytest.mark.parametrize("kind", ["named", "hierarchical"])
def test_a_browser_shows_the_page_without_scrolling_sideways(written, tmp_path, kind):
    html = written(kind, with_tested=True)
    if kind == "named":  # a word that no line holds
        html = html.replace("a&amp;b", "a&amp;b" * 60).replace("test.csv", "test.csv" * 30)
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px" srcdoc="{escape(html)}"></iframe>'
        for width in WIDTHS
    )
    (tmp_path / "frames.html").write_text(FRAMES.format(frames=frames), encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom", (tmp_path / "frames.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    (seen,) = re.findall('<pre id="seen">(.*?);</pre>', done.stdout)
    for width, numbers in zip(WIDTHS, seen.split(";"), strict=True):
        inner, needed, n_images, n_loaded, n_blocks, n_inside = map(int, numbers.split())
        assert width - 20 <= inner <= width
        assert needed <= inner
        assert n_images == n_loaded == html.count("<img")
        assert n_blocks == n_inside
