"""The optimiser: what it finds, what it keeps, and what it refuses."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

from manygp.cli import main
from manygp.display import OptimisationDisplay
from manygp.kernels.text import parse_kernel
from manygp.optimise import Optimiser, minimise
from manygp.optimise.trust import TrustRegion, chosen, descended, levelled, score

MIXED = {"a": (0, 10), "kind": ["tree", "line", "net"], "rate": (1e-4, 10.0, "log")}


def bowl(row):
    return float(((np.array(row) - 0.3) ** 2).sum())


def mixed(row):
    penalty = {"tree": 2.0, "line": 0.0, "net": 1.0}[row["kind"]]
    return (row["a"] - 7) ** 2 / 10 + penalty + np.log10(row["rate"] / 0.1) ** 2


def test_it_finds_the_least_value_of_a_smooth_function():
    found = minimise(bowl, [(-1.0, 1.0)] * 4, 80, 8, random_state=1).best
    rng = np.random.default_rng(0)
    assert found.value < 0.01 < min(bowl(row) for row in rng.uniform(-1, 1, (80, 4)))
    assert found.value == bowl(found.x)


def test_whole_numbers_categories_and_logarithms():
    optimiser = minimise(mixed, MIXED, 48, 4, random_state=0)
    assert optimiser.best.x["kind"] == "line"
    assert optimiser.best.value < 0.3  # of at least 0, where a is 7 and the rate 0.1
    assert {type(row["a"]) for row in optimiser.X_} == {int}


def test_constraints_are_kept_by_the_best_row():
    def function(row):
        return bowl(row), [0.5 - row[0]]  # the least value 0.04 is at 0.5

    best = minimise(function, [(-1.0, 1.0)] * 2, 60, 6, n_constraints=1).best
    assert best.is_feasible
    assert best.x[0] >= 0.5
    assert best.value < 0.06


def test_failed_and_noisy_evaluations_are_borne():
    rng = np.random.default_rng(0)

    def function(row):
        return np.nan if row[0] > 0.6 else bowl(row) + 0.01 * rng.normal()

    optimiser = minimise(function, [(-1.0, 1.0)] * 3, 60, 6)
    assert np.isnan(optimiser.y_).any()
    assert bowl(optimiser.best.x) < 0.1


def test_a_search_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path):
    space, state = [(-1.0, 1.0)] * 3, tmp_path / "state.json"
    whole = minimise(bowl, space, 40, 5)
    calls = []

    def breaks(row):
        calls.append(row)
        if len(calls) == 23:
            raise RuntimeError("the cluster is gone")
        return bowl(row)

    with pytest.raises(RuntimeError):
        minimise(breaks, space, 40, 5, path=state)
    assert len(Optimiser.load(state).y_) == 22
    json.loads(state.read_text())
    minimise(bowl, space, 20, 5, path=tmp_path / "other.json")
    again = minimise(bowl, space, 40, 5, path=tmp_path / "other.json")
    assert_array_equal(again.X_, whole.X_)
    assert_array_equal(again.y_, whole.y_)


def test_rows_of_one_ask_differ_and_a_second_ask_gives_others():
    optimiser = Optimiser({"a": (0, 3), "b": ["x", "y"]}, n_initial=4)
    optimiser.tell([{"a": a, "b": "x"} for a in range(4)], [3.0, 1.0, 2.0, 5.0])
    rows = optimiser.ask(4)
    assert len({tuple(row.items()) for row in rows}) == 4
    assert all(row["b"] == "y" for row in rows)  # the others are known
    line = Optimiser([(0.0, 1.0)])
    assert line.ask(2) != line.ask(2)


def test_a_table_may_be_told():
    optimiser = Optimiser(MIXED)
    rows = optimiser.ask(5)
    optimiser.tell(pd.DataFrame(rows), [mixed(row) for row in rows])
    assert_allclose([mixed(row) for row in optimiser.X_], optimiser.y_)


def test_a_region_shrinks_grows_and_begins_anew():
    region, worse = TrustRegion(), np.array([[0.0, 1.0]] * 6)
    better = np.vstack([worse, [[0.0, 0.5]]])
    for _ in range(3):
        region = region.after(better, 6, 4, 2)
    assert region.length == 1.6
    for _ in range(40):
        region = region.after(np.vstack([worse, worse]), 6, 4, 2)
        if region.begin:
            break
    assert region == TrustRegion(begin=12)
    assert TrustRegion().after(worse, 2, 4, 2) == TrustRegion()  # still spread over the space


def test_failed_rows_are_the_worst_and_violations_count_first():
    scores = score(np.array([1.0, np.nan, -5.0]), np.array([[0.0], [0.0], [2.0]]))
    assert np.lexsort(scores.T[::-1]).tolist() == [0, 2, 1]
    values = np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]])
    assert chosen(values, np.empty((0, 3, 2))).tolist() == [1, 0]
    limits = np.array([[[-1.0, 1.0], [1.0, 2.0], [-1.0, 3.0]]])
    assert chosen(values, limits).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ([(1.0, 0.0)], "x0 must have low < high"),
        ([(0.0, np.nan)], "range of x0 is"),
        ([(-1.0, 1.0, "log")], "begin above 0"),
        ({"a": ["one"]}, "categories of a are two or more"),
        ({"a": 3}, "range of a is"),
        ([[0.0, 1.0, 1.0]], "categories of x0"),
        ([[0.0, 1.0]], "a range is a tuple"),
        ("abc", "a list or a dictionary"),
        ([], "a column or more"),
        ([(-1e308, 1e308)], "too wide"),
        ([(1e-320, 1.0, "log")], "too wide"),
        ([(0.0, 1e-320)], "too narrow"),
        ([["a", np.nan, 3.0]], "categories of x0"),
        ({1: (0, 1), "1": (0, 1)}, "two columns of a space have one name"),
    ],
)
def test_spaces_that_cannot_be_meant_are_refused(space, message):
    with pytest.raises(ValueError, match=message):
        Optimiser(space)


def test_what_is_told_wrongly_is_refused_and_nothing_is_lost():
    optimiser = Optimiser(MIXED)
    rows = optimiser.ask(2)
    for X, y, message in [
        (rows, [1.0], "y has one value for each row.*shape"),
        (rows, ["a", "b"], "y has one value for each row"),
        ([{**rows[0], "kind": "tea"}], [1.0], "row 0: kind is one of"),
        ([{**rows[0], "a": 11}], [1.0], "row 0: a lies from 0 to 10"),
        ([{**rows[0], "a": 1.5}], [1.0], "row 0: a is a whole number"),
        ([{"a": 1}], [1.0], "row 0 has the columns"),
        (rows[0], 1.0, "is one row"),
        ([[1, 2]], [1.0], "row 0 has 2 values"),
        (None, [1.0], "a list of rows"),
        ([{**rows[0], "a": 10**400}], [1.0], "row 0: a lies from 0 to 10"),
        (rows, np.ma.masked_array([1.0, 2.0], [True, False]), "masked"),
    ]:
        with pytest.raises(ValueError, match=message):
            optimiser.tell(X, y)
        assert len(optimiser.y_) == 0
    with pytest.raises(ValueError, match="no evaluation has succeeded"):
        _ = optimiser.best
    with pytest.raises(ValueError, match="n must be an integer"):
        optimiser.ask(0)
    with pytest.raises(ValueError, match="tell them too"):
        Optimiser([(0.0, 1.0)], n_constraints=1).tell([[0.5]], [1.0])


@pytest.mark.parametrize("where", ["_asked", "save"])
def test_a_step_that_fails_or_is_interrupted_is_no_step(monkeypatch, where):
    def stopped(*_):
        raise KeyboardInterrupt

    optimiser, twin = (minimise(bowl, [(-1.0, 1.0)], 6, 3) for _ in range(2))
    with monkeypatch.context() as patched:
        patched.setattr(optimiser, where, stopped)
        with pytest.raises(KeyboardInterrupt):
            optimiser.ask(2)
        if where == "save":
            with pytest.raises(KeyboardInterrupt):
                optimiser.tell([[0.5]], [3.0])
    assert optimiser.ask(2) == twin.ask(2)
    assert optimiser.tell([[0.5]], [3.0]).ask() == twin.tell([[0.5]], [3.0]).ask()


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "state.json"
    states = [
        b"{}",
        b"[1]",
        b"no json",
        b'{"format": "manygp optimiser 9"}',
        b"\xff",
        b"[" * 10**5,
    ]
    optimiser = Optimiser([(0.0, 1.0)], path=path, n_initial=2, random_state=np.int64(1))
    optimiser.tell(optimiser.ask(3), [1.0, 2.0, 3.0]).ask()
    state = json.loads(path.read_text())
    for name, wrong in {
        "units": [[2.0]] * 3, "n_asked": 1.5, "learned": [], "model": {"no": 1}, "y": [[1.0]],
        "region": {**state["region"], "begin": -1}, "space": {"bounds": [], "kinds": []},
    }.items():  # fmt: skip
        states.append(json.dumps({**state, name: wrong}).encode())
    for place in ("kernel", "n_rows"):
        learned = {**state["learned"][0], place: 0.5}
        states.append(json.dumps({**state, "learned": [learned]}).encode())
    for text in states:
        path.write_bytes(text)
        with pytest.raises(ValueError, match="holds no state of an optimiser"):
            Optimiser.load(path)
    with pytest.raises(ValueError, match="is not plain"):
        Optimiser([(0.0, 1.0)], path=path, model={"n_jobs": np.int64(1)}).ask()
    path.unlink()
    Optimiser([(0.0, 1.0)], path=path).ask()
    with pytest.raises(ValueError, match="another space"):
        minimise(bowl, [(0.0, 2.0)], 3, path=path)


def test_hyperparameters_are_learned_again_only_as_rows_grow():
    optimiser = minimise(bowl, [(-1.0, 1.0)] * 2, 26, 2)
    learned = optimiser._learned[0]
    assert learned.n_rows < 24
    model, units = optimiser.fitted_model()
    assert len(units) == 26
    assert model.predict(optimiser.space.features(units)).shape == (26,)


def test_the_model_goes_on_explaining_what_it_is_told():
    rng = np.random.default_rng(0)  # where 40 rows of 10 columns leave no noise to learn from
    optimiser = Optimiser([(-5.0, 10.0)] * 10, random_state=0)
    for _ in range(3):
        rows = rng.uniform(-5, 10, (50, 10))
        optimiser.tell(rows, (100 * (rows[:, 1:] - rows[:, :-1] ** 2) ** 2).sum(axis=1))
        optimiser.ask()
    kernel = parse_kernel(optimiser._learned[0].kernel)
    assert kernel.values[-1] < 0.5 * kernel.values[0]  # noise, and signal


def test_candidates_go_downhill_by_their_own_paths_and_stay_different():
    rows = np.full((3, 2), 0.5)
    targets = np.array([[0.2, 0.3], [0.4, 0.9], [0.7, 0.1]])

    def slopes(X):
        return ((X - targets) ** 2).sum(axis=1), 2 * (X - targets)

    ends = np.array([[0.1, 0.2], [0.6, 0.8]])
    assert_allclose(descended(rows, ends, slopes), np.clip(targets, *ends), atol=1e-4)
    optimiser = minimise(sum, [(0.0, 1.0)] * 3, 40, 10)  # all paths end in one corner
    assert len(np.unique(optimiser.X_, axis=0)) == 40
    assert optimiser.best.value == 0
    kinds = Optimiser({"a": (0, 9), "b": ["x", "y"]}, n_initial=4)
    assert len(minimise(lambda row: row["a"], kinds.space.spec(), 20, 5).y_) == 20
    forest = minimise(bowl, [(-1.0, 1.0)] * 2, 12, 6, model={"trend": "boosted"})
    assert len(forest.y_) == 12


def test_levels_keep_the_order_and_what_has_failed():
    levels = levelled(np.array([3.0, 1.0, np.nan, 1e6, 2.0]))
    assert np.isnan(levels[2])
    assert np.argsort(levels).tolist() == [1, 4, 0, 3, 2]
    assert levelled(np.full(3, 2.0)).tolist() == [2.0] * 3


def test_its_display_draws_what_it_has_found():
    optimiser = minimise(mixed, MIXED, 30, 6)
    drawn = OptimisationDisplay.from_optimiser(optimiser, most=3)
    assert np.nanmin(drawn.values) == optimiser.best.value
    assert sum(drawn.relevance.values()) == pytest.approx(1.0)
    assert len(drawn.axes_[0]) == 5
    (along,) = [one for one in drawn.slices if one.name == "kind"]
    assert along.x == ["tree", "line", "net"]
    plt.close(drawn.figure_)


def test_the_command_line_suggests_rows(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("rate,kind,loss\n0.01,tree,3.5\n0.1,line,\n0.05,tree,2.5\n")
    ranges = ["--range", "rate=1e-3:1:log", "--range", "kind=tree,line"]
    for given in ([], [str(path)]):
        said = CliRunner().invoke(
            main, ["suggest", *given, "--target", "loss", *ranges, "-n", "3"]
        )
        assert said.exit_code == 0, said.output
        header, *rows = said.stdout.splitlines()
        assert header == "rate,kind"
        assert len(rows) == 3
    said = CliRunner().invoke(
        main, ["suggest", str(path), "--target", "loss", *ranges[:1], "rate=1:2"]
    )
    assert said.exit_code == 1
    assert "row 0: rate lies from 1 to 2, and is 0.01" in said.output
    for wrong in ("rate", "rate=1:2:lg", "rate=a:b"):
        said = CliRunner().invoke(main, ["suggest", "--target", "loss", "--range", wrong])
        assert said.exit_code == 2
