"""The engine of docs/scale.md on Spark, which another environment has: `make test-spark`."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from large import COLUMNS, bytes_of, lower_limits, make_rows, model, write
from manygp.outofcore.files import TableSource
from manygp.tables.training_rows import ColumnRoles

pytest.importorskip("pyspark")

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"

# What Spark says about its own sockets, and pandas about Spark's use of it, is not ours.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _limits():
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        yield


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    yield session
    session.stop()


def code_of_page(word):
    """The block of the page that has the word."""
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if word in block]
    return code


def test_the_model_is_that_of_this_machine(spark, tmp_path):
    found = {}
    exec(code_of_page("class Spark").split("\nspark = ")[0], found)
    path = write(tmp_path / "data.parquet", *make_rows(), 250)
    model().fit(path, target="y", work_dir=tmp_path / "here")
    source = TableSource(path, ColumnRoles("y"), folder=tmp_path / "there")
    model().fit_source(source, found["Spark"](spark))
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")


def test_rows_of_a_data_frame_are_predicted_as_here(spark, tmp_path):
    X, y = make_rows(1200)
    fitted = model().fit(write(tmp_path / "data.parquet", X, y), target="y")
    fitted.save(tmp_path / "delay.manygp")
    write(tmp_path / "new.parquet", X, y)
    code = code_of_page("mapInPandas").replace("/shared", str(tmp_path))
    exec(code, {"spark": spark})
    answers = spark.read.parquet(str(tmp_path / "answers")).toPandas()
    answers = answers.sort_values(list(COLUMNS), ignore_index=True)
    mean, std = fitted.predict(answers[list(COLUMNS)], return_std=True)
    np.testing.assert_allclose(answers["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(answers["std"], std, rtol=1e-9)
