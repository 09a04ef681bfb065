"""The code in README and docs runs as printed."""

import re
import shlex
import tomllib
import warnings
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from manygp._moved import MOVED
from manygp.committee.committee import PARTITIONS
from manygp.kernels.text import KERNELS
from manygp.rules import AGGREGATIONS, CALIBRATIONS, WEIGHTINGS
from manygp.trend import registry

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES_WITH_CODE = [page for page in PAGES if "```python\n" in page.read_text()]


@pytest.fixture
def registries():
    """What a page registers is forgotten after it."""
    every = [WEIGHTINGS, CALIBRATIONS, AGGREGATIONS, PARTITIONS, KERNELS, registry._registered]
    before = [dict(one) for one in every]
    yield
    for one, entries in zip(every, before, strict=True):
        one.clear()
        one.update(entries)


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=lambda page: page.name)
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch, registries):
    rng = np.random.default_rng(0)
    X = rng.random((500, 2))
    names = {"X": X, "y": np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=500), "X_new": X[:5]}
    monkeypatch.chdir(tmp_path)
    for name in ("flights.parquet", "new.parquet"):  # that a page reads
        columns = {"distance": X[:, 0], "hour": X[:, 1], "delay": names["y"]}
        parquet.write_table(pyarrow.table(columns), name)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    if "model" in names:
        model = names["model"]
        mean, std = model.fit(names["X"], names["y"]).predict(names["X_new"], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


def test_commands_of_the_readme_run_in_order(tmp_path, monkeypatch):
    pytest.importorskip("click")
    from click.testing import CliRunner

    from manygp.cli import main

    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for name in ("train.csv", "new.csv", "test.csv"):
        rows = rng.random((300, 3))
        rows[:, 2] += rows[:, 0]
        np.savetxt(name, rows, delimiter=",", header="size,rooms,price", comments="")
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for line in block.splitlines():
        name, *arguments = shlex.split(line)
        assert name == "manygp"
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "answers.csv").read_text().startswith("mean,std,lower,upper\n")


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def link_checker():
    spec = spec_from_file_location("check_links", ROOT / "tools" / "check_links.py")
    checker = module_from_spec(spec)
    spec.loader.exec_module(checker)
    return checker


def test_links_out_of_the_pages_are_well_formed_and_of_known_hosts():
    checker = link_checker()
    links = [link for page in PAGES for link in checker.links_of_markdown(page.read_text())]
    assert list(checker.problems_outside(links)) == []
    used = {link.split("/")[2] for link in links if link.startswith("https://")}
    assert used == checker.HOSTS, "HOSTS has what the pages use, and nothing else"
    assert len({host.removeprefix("www.") for host in used}) == len(used)


@pytest.mark.parametrize(
    ("links", "why"),
    [
        (["http://github.com/a"], "not https"),
        (["//github.com/a"], "not https"),
        (["https:/github.com/a"], "not https"),
        (["https://github.com/a b"], "malformed"),
        (["https://[github.com"], "malformed"),
        (["https://www.github.com/a"], "host"),
        (["https://example.org"], "host"),
        (["https://github.com/a", "https://github.com/a/"], "spelt"),
        (["https://github.com/a#b", "https://github.com/a/#b"], "spelt"),
    ],
)
def test_a_bad_link_out_of_the_site_is_found(links, why):
    (found,) = link_checker().problems_outside(links)
    assert why in found


def named(dotted):
    """The module, or the attribute of one, that a dotted name stands for."""
    module, *rest = dotted.split(".")
    found = import_module(module)
    for name in rest:
        if not hasattr(found, name):
            import_module(f"{found.__name__}.{name}")
        found = getattr(found, name)
    return found


TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
ALL_TESTS = "".join(path.read_text() for path in TESTS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_tests_that_a_page_names_exist(page):
    text = page.read_text()
    for dotted in set(re.findall(r"(?<![\w./-])manygp(?:\.[A-Za-z_]\w*)+", text)):
        if dotted.startswith("manygp.dask") and find_spec("distributed") is None:
            continue  # an extra of its own, which `make test-dask` installs
        if dotted.startswith("manygp.river") and find_spec("river") is None:
            continue  # likewise, and `make test-clients`
        if dotted.startswith("manygp.botorch") and find_spec("torch") is None:
            continue  # the same of `make test-botorch`
        tells_of_old_names = page.name in ("stability.md", "changelog.md")
        if dotted in MOVED and tells_of_old_names:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if tells_of_old_names else "error", FutureWarning)
            assert named(dotted) is not None, dotted
    for path in set(re.findall(r"(?:benchmarks/)?\btests/[\w/]+\.py", text)):
        assert (ROOT / path).exists(), path
    known = {path.stem for path in TESTS} | set(re.findall(r"\bdef (test_\w+)", ALL_TESTS))
    ours = text if page.name != "migrating.md" else ""  # it names tests of scikit-learn
    for name in set(re.findall(r"`(test_\w+)`", ours)):
        assert name in known, name


@pytest.mark.parametrize("module", ["", ".kernels", ".display", ".tables"])
def test_the_api_reference_lists_every_public_name(module):
    listed = set(re.findall(r"\w+", (ROOT / "docs" / "api.md").read_text()))
    public = {name for name in import_module(f"manygp{module}").__all__ if name != "__version__"}
    assert public <= listed


def test_the_gallery_has_an_order_for_every_example():
    order = (ROOT / "docs" / "conf.py").read_text()
    for example in (ROOT / "examples").glob("plot_*.py"):
        assert f'"{example.name}"' in order


def test_the_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in ("CITATION.cff", "CHANGELOG.md", "docs/citing.md"):
        assert version in (ROOT / name).read_text(), name


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
