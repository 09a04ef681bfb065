"""Tables on disk, CSV and Parquet: read as arrays, encoded, and written."""

from manygp.tables.encoding import Column, Encoding
from manygp.tables.reading import open_table, parquet_batches, read_parquet
from manygp.tables.training_rows import (
    TrainingTable,
    read_evaluation,
    read_features,
    read_training,
)
from manygp.tables.writing import open_writer

__all__ = [
    "Column",
    "Encoding",
    "TrainingTable",
    "open_table",
    "open_writer",
    "parquet_batches",
    "read_evaluation",
    "read_features",
    "read_parquet",
    "read_training",
]
