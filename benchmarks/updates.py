"""Rows that come after a fit: what one costs, and how good a model stays in a stream.

    python -m benchmarks.updates cost            # 10^4, 10^5 and 10^6 rows
    python -m benchmarks.updates cost 1e4 1e5
    python -m benchmarks.updates steady          # simulated days, without drift,
    python -m benchmarks.updates drift           # with an effect that changes slowly,
    python -m benchmarks.updates shift           # and with a sudden one, and more noise
    python -m benchmarks.updates flights         # needs flights.parquet in MANYGP_DATA, pandas

Streams: each day is predicted before it is known, and then added. `update` adds its rows by
`partial_fit`; `window` also forgets all but the last rows; `never` adds rows and learns nothing
else; `refit` fits all rows again each day. Others have intervals that are conformal on the last
rows, and categories as columns of 0 and 1: `sgd`, scikit-learn's `SGDRegressor`; `hgb`, its
`HistGradientBoostingRegressor` with `warm_start`; and `river`, an adaptive random forest, where
river is installed. Seconds are those of processors, on one core.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import SGDRegressor
from sklearn.preprocessing import StandardScaler

from manygp import ManyGPRegressor

LEVEL = 0.9
# Rows of a window in which coverage is counted, and what `window` keeps.
WINDOW = 2000
KEPT = 2000
# Boosted trees of a further day.
DAY_TREES = 10
# Rows before the stream, and its days and rows of a day.
FIRST, DAYS, DAY_ROWS = 2000, 24, 250
# Rows of flights that take part, as a share; its first month is before the stream.
SHARE, FLIGHT_DAYS = 0.1, 28
# What is left out of the choices of a fit, so that a study takes minutes.
LEAN: dict[str, Any] = {
    "trend": "constant", "hyperparameters": "shared", "overlap": 1.0, "random_state": 0,
    "n_jobs": 1,
}  # fmt: skip
# The model whose updates are timed: experts of up to 250 rows, of which a million rows need 5,000.
TIMED: dict[str, Any] = {
    **LEAN, "overlap": 0.25, "calibration": "information", "temperature": 1.0, "routing": 8,
}  # fmt: skip
# Updates of each kind.
REPEATS = (100, 20, 15)


# Cost.


def simulated_rows(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows of six columns."""
    X = rng.uniform(size=(n, 6))
    return X, np.sin(5 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=n)


def seconds_of(model: ManyGPRegressor, rows: tuple[Any, Any]) -> float:
    """Seconds of an update."""
    start = process_time()
    model.partial_fit(*rows, refresh="never")
    return process_time() - start


def cost(sizes: list[int]) -> None:
    """What it costs to add rows to models of these sizes, in turns, and how that grows."""
    rng = np.random.default_rng(0)

    def near(k: int) -> tuple[Any, Any]:
        """Rows that come together, as those of one place do."""
        X, y = simulated_rows(k, rng)
        return 0.4 + 0.01 * rng.uniform(size=6) + 0.02 * X, y

    kinds: dict[str, Callable[[], tuple[Any, Any]]] = {
        "1 row": lambda: simulated_rows(1, rng),
        "100 rows of one place": lambda: near(100),
        "100 rows anywhere": lambda: simulated_rows(100, rng),
    }
    models = [ManyGPRegressor(**TIMED).fit(*simulated_rows(n, rng)) for n in sizes]
    for n, model in zip(sizes, models, strict=True):
        first = seconds_of(model, kinds["1 row"]())
        print(f"{n:,} rows: the first update {1e3 * first:.1f} ms", flush=True)
    for (name, rows), repeats in zip(kinds.items(), REPEATS, strict=True):
        own = [copy.copy(model) for model in models]
        every = [[seconds_of(one, rows()) for one in own] for _ in range(repeats)]
        seconds = np.median(every, axis=0)
        for n, one, ratio in zip(sizes, seconds, seconds / seconds[0], strict=True):
            print(f"{name}, {n:,} rows: {1e3 * one:.1f} ms, {ratio:.2f} of the first size")


# Streams.


class Day(NamedTuple):
    """Rows of a day, and their targets."""

    X: Any
    y: Any


def simulated_days(kind: str) -> tuple[Day, list[Day]]:
    """Loads of a grid by hour, weekday and temperature: the first rows, and the days after."""
    rng = np.random.default_rng(1)
    n = FIRST + DAYS * DAY_ROWS
    hour, weekday = rng.uniform(0, 24, n), rng.integers(0, 7, n)
    warm = 12 + 8 * rng.normal(size=n)
    time = np.maximum(np.arange(n) - FIRST, 0) / (n - FIRST)
    effect, offset, noise = np.ones(n), np.zeros(n), np.full(n, 1.0)
    if kind == "drift":
        effect = 1 + time
    if kind == "shift":
        after = time > 0.4
        offset, noise = 4.0 * after, np.where(after, 2.0, 1.0)
    load = (
        30
        + 6 * np.sin(2 * np.pi * (hour - 8) / 24)
        + 3 * np.sin(4 * np.pi * hour / 24)
        + effect * 0.02 * (warm - 18) ** 2
        - 3 * (weekday >= 5)
        + offset
    )
    X, y = np.column_stack([hour, weekday, warm]), load + noise * rng.normal(size=n)
    ends = FIRST + DAY_ROWS * np.arange(DAYS)
    return Day(X[:FIRST], y[:FIRST]), [Day(X[i : i + DAY_ROWS], y[i : i + DAY_ROWS]) for i in ends]


def flight_days() -> tuple[Day, list[Day]]:
    """Flights of January, and those of each day of the next months."""
    import pandas

    from benchmarks.datasets.files import file_without_download
    from benchmarks.datasets.table_files import TABLE_FILES

    data = TABLE_FILES["flights"]
    frame = pandas.read_parquet(file_without_download(data.file_name, None, data.source))
    frame = frame.dropna(subset=[data.target])
    kept = np.random.default_rng(0).uniform(size=len(frame)) < SHARE
    frame = frame[kept].sort_values(["month", "day"], kind="stable")
    columns = [name for name in data.columns if name not in ("month", "day", "minute")]
    days = [
        Day(one[columns].reset_index(drop=True), one[data.target].to_numpy(float))
        for _, one in frame.groupby(["month", "day"])
    ]
    first = Day(pandas.concat([one.X for one in days[:31]], ignore_index=True),
                np.concatenate([one.y for one in days[:31]]))  # fmt: skip
    return first, days[31 : 31 + FLIGHT_DAYS]


class Streamed:
    """A model in a stream.

    Parameters
    ----------
    how : {"update", "window", "never", "refit"}
    """

    def __init__(self, how: str) -> None:
        self.how, self.model = how, ManyGPRegressor(**LEAN)
        self.days: list[Day] = []

    def answers(self, X: Any) -> tuple[Any, Any, Any]:
        """Mean, and the ends of intervals."""
        lower, upper = self.model.predict_interval(X, LEVEL)
        return (lower + upper) / 2, lower, upper

    def learn(self, day: Day) -> None:
        """Take the rows of a day."""
        if self.how == "refit":
            self.days.append(day)
            self.model.fit(stacked([one.X for one in self.days]),
                           np.concatenate([one.y for one in self.days]))  # fmt: skip
            return
        self.model.partial_fit(day.X, day.y, refresh="never" if self.how == "never" else "auto")
        if self.how == "window":
            last = self.model.row_ids_[-1]
            self.model.forget(older_than=max(0, int(last) + 1 - KEPT))


class Linear:
    """scikit-learn's linear model of scaled columns."""

    def __init__(self) -> None:
        self.scaler, self.model = StandardScaler(), SGDRegressor(random_state=0)

    def partial_fit(self, X: Any, y: Any) -> None:
        if not hasattr(self.scaler, "scale_"):
            self.scaler.fit(X)
        self.model.partial_fit(self.scaler.transform(X), y)

    def predict(self, X: Any) -> Any:
        return self.model.predict(self.scaler.transform(X))


class Boosted:
    """scikit-learn's boosted trees, to which each day adds some that correct the others."""

    def __init__(self) -> None:
        self.model = HistGradientBoostingRegressor(warm_start=True, random_state=0)

    def partial_fit(self, X: Any, y: Any) -> None:
        if hasattr(self.model, "n_iter_"):
            self.model.set_params(max_iter=self.model.n_iter_ + DAY_TREES)
        self.model.fit(X, y)

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


class Forest:
    """river's adaptive random forest, one row after the other."""

    def __init__(self) -> None:
        from river.forest import ARFRegressor

        self.model = ARFRegressor(seed=0)

    def partial_fit(self, X: Any, y: Any) -> None:
        for row, one in zip(X, y, strict=True):
            self.model.learn_one(dict(enumerate(row.tolist())), float(one))

    def predict(self, X: Any) -> Any:
        return np.array([self.model.predict_one(dict(enumerate(row.tolist()))) for row in X])


RIVALS: dict[str, Callable[[], Any]] = {"sgd": Linear, "hgb": Boosted, "river": Forest}


class Rival:
    """Another model, with conformal intervals of the last rows."""

    def __init__(self, kind: str) -> None:
        self.model = RIVALS[kind]()
        self.errors, self.columns = np.empty(0), None

    def _numbers(self, X: Any) -> Any:
        if isinstance(X, np.ndarray):
            return X
        import pandas

        found = pandas.get_dummies(X, dtype=float)
        self.columns = found.columns if self.columns is None else self.columns
        return found.reindex(columns=self.columns, fill_value=0.0).to_numpy()

    def answers(self, X: Any) -> tuple[Any, Any, Any]:
        """Mean, and the ends of intervals."""
        mean = self.model.predict(self._numbers(X))
        reach = np.quantile(self.errors, LEVEL)
        return mean, mean - reach, mean + reach

    def learn(self, day: Day) -> None:
        """Take the rows of a day; those of the first one are learned, and then scored."""
        X, is_first = self._numbers(day.X), not len(self.errors)
        if is_first:
            self.model.partial_fit(X, day.y)
        error = np.abs(day.y - self.model.predict(X))
        self.errors = np.concatenate([self.errors, error])[-WINDOW:]
        if not is_first:
            self.model.partial_fit(X, day.y)


def stacked(tables: list[Any]) -> Any:
    """Tables or arrays as one."""
    if isinstance(tables[0], np.ndarray):
        return np.concatenate(tables)
    import pandas

    return pandas.concat(tables, ignore_index=True)


def windows(held: Any, errors: Any) -> Iterator[tuple[float, float]]:
    """Coverage and RMSE of each window."""
    for start in range(0, len(held) - WINDOW // 2, WINDOW):
        some = slice(start, start + WINDOW)
        yield float(held[some].mean()), float(np.sqrt(np.mean(errors[some] ** 2)))


def stream(name: str, kinds: list[str]) -> None:
    """Each kind of model in one stream."""
    first, days = flight_days() if name == "flights" else simulated_days(name)
    print(f"{name}: {len(first.y):,} rows, then {len(days)} days of {len(days[0].y)} or so")
    for kind in kinds:
        model = Rival(kind) if kind in RIVALS else Streamed(kind)
        begin = process_time()
        model.learn(first)
        fit, seconds, held, errors = process_time() - begin, 0.0, [], []
        for day in days:
            mean, lower, upper = model.answers(day.X)
            held.append((day.y >= lower) & (day.y <= upper))
            errors.append(day.y - mean)
            begin = process_time()
            model.learn(day)
            seconds += process_time() - begin
        errors = np.concatenate(errors)
        shown = [f"{c:.3f}/{r:.3f}" for c, r in windows(np.concatenate(held), errors)]
        extra = ""
        if isinstance(model, Streamed) and kind != "refit":
            drift = model.model.drift_
            extra = f", {drift.n_refreshes} refreshes" if drift else ""
        print(
            f"  {kind}: RMSE {np.sqrt(np.mean(errors**2)):.3f}, coverage "
            f"{np.concatenate(held).mean():.3f}, first fit {fit:.1f} s, then {seconds:.1f} s"
            f"{extra}\n    windows of {WINDOW:,}, coverage/RMSE: {' '.join(shown)}",
            flush=True,
        )


def main(arguments: list[str]) -> None:
    """What the command line asks for."""
    what, *more = arguments or ["cost"]
    if what == "cost":
        cost([int(float(one)) for one in more] or [10_000, 100_000, 1_000_000])
    else:
        stream(what, more or ["update", "window", "never", "refit", "sgd", "hgb"])


if __name__ == "__main__":
    main(sys.argv[1:])
