"""Real data sets that are tables with names and categories: found in a folder, and checked."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.datasets.files import file_without_download, verify
from manygp.arrays import Array


class TableData(NamedTuple):
    """A table, the target and the columns (name -> kind) that it is learned from."""

    file_name: str
    target: str
    columns: Mapping[str, str]
    # Of the file, uncompressed if it is gzipped.
    sha256: str
    source: str


TABLE_FILES = {
    "diamonds": TableData(
        "diamonds.csv.gz",
        "price",
        {
            "carat": "number", "cut": "category", "color": "category", "clarity": "category",
            "depth": "number", "table": "number", "x": "number", "y": "number", "z": "number",
        },
        "0e7164799468299f8dc09b006cf396c43717c3dc71f947f0a32cc6e199895b46",
        "the R package ggplot2 (data set diamonds, as CSV with a header, gzipped)",
    ),
    "flights": TableData(
        "flights.parquet",
        "arr_delay",
        {
            "month": "number", "day": "number", "hour": "number", "minute": "number",
            "sched_dep_time": "number", "sched_arr_time": "number", "dep_delay": "number",
            "distance": "number", "carrier": "category", "origin": "category",
        },
        "268f733a640a8ff648f695c3b187203259b0b194043c943839d1970f993094b5",
        "the R package nycflights13 (data set flights, as Parquet)",
    ),
}  # fmt: skip


def read_table_file(
    name: str, folder: str | os.PathLike[str] | None = None
) -> tuple[Array, Array]:
    """Inputs (n, d) and targets (n,) of a table, without the rows whose target is missing.

    Each category is a column of zeros and ones. The file is looked for in `folder`, or else in
    the folder that the environment variable MANYGP_DATA names.
    """
    from manygp.tables.base import is_missing
    from manygp.tables.formats import open_table

    data = TABLE_FILES[name]
    path = file_without_download(data.file_name, folder, data.source)
    content = path.read_bytes()
    verify(gzip.decompress(content) if path.suffix == ".gz" else content, path, *data[-2:])
    pieces = []
    for batch in open_table(path).batches([*data.columns, data.target]):
        known = ~is_missing(batch.columns[data.target])
        pieces.append({column: values[known] for column, values in batch.columns.items()})
    rows = {column: np.concatenate([piece[column] for piece in pieces]) for column in pieces[0]}
    inputs = []
    for column, kind in data.columns.items():
        values = rows[column]
        if kind == "category":
            inputs += [(values == one).astype(float) for one in sorted(set(values))]
        else:
            inputs.append(values.astype(float))
    return np.column_stack(inputs), rows[data.target].astype(float)
