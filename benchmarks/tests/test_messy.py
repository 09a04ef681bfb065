"""The study of messy tables: how rows are split, and what its tables say."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.studies import messy
from benchmarks.studies.answers import Answer
from benchmarks.studies.messy_tables import promises, score_table


def table(**roles):
    frame = pd.DataFrame({
        "a": np.arange(100.0), "who": np.arange(100) // 4, "y": np.sin(np.arange(100.0)),
        "day": pd.date_range("2024-01-01", periods=100)[::-1],
    })  # fmt: skip
    return messy.Messy("pandas", lambda: frame, "y", **roles)


@pytest.fixture(autouse=True)
def nothing_kept():
    messy.rows_of.cache_clear()
    yield
    messy.rows_of.cache_clear()


def test_new_groups_are_scored(monkeypatch):
    monkeypatch.setitem(messy.TABLES, "cars", table(groups="who"))
    data = messy.rows_of("cars", 0)
    train, test = (set(data.frame.who.iloc[rows]) for rows in (data.train, data.test))
    assert train
    assert test
    assert not train & test
    assert "y" not in data.frame


def test_the_last_rows_are_scored(monkeypatch):
    monkeypatch.setitem(messy.TABLES, "cars", table(time="day"))
    data = messy.rows_of("cars", 0)
    days = data.frame.day
    assert days.iloc[data.train].max() < days.iloc[data.test].min()


def test_scores_are_in_units_of_the_std_and_by_prediction():
    y = np.arange(10.0)
    ends = (np.where(y < 8, y - 1, y + 1), y + 2)
    scores = messy._scores(Answer(y, np.ones(10), 0.0, 0.0, interval=ends), y, 2.0)
    assert (scores["held"], scores["held_lowest"], scores["held_highest"]) == (0.8, 1.0, 0.0)
    assert scores["rmse"] == 0
    assert scores["nll"] == pytest.approx(0.5 * np.log(2 * np.pi))


def test_tables_name_each_model_and_what_was_promised():
    numbers = dict.fromkeys(("interval_score", "crps", "rmse", "nll"), 1.0)
    held = dict.fromkeys(("held", "held_lowest", "held_highest"), 0.9)
    more = {"rmse_constant": 2.0, "rmse_line": 1.5, "promised_nll": 0.5, "cpu_seconds": 3.0}
    one = {
        "task": "cars", "model": "manygp", "rows": 70, "package": "p 1", "std_of_y": np.e,
        **numbers, **held, **more,
    }  # fmt: skip
    other = {**one, "model": "catboost", "promised_nll": None}
    assert [row[2] for row in score_table([other, one]).rows] == [
        "manygp", "CatBoost, uncertainty",
    ]  # fmt: skip
    assert promises([one, other]).rows == [
        ["cars", "p 1", "-0.50", "0.00", "1.000", "2.000", "1.500"]
    ]
