"""Tables: columns of any kind as numbers; CSV and Parquet files read and written."""

from manygp.tables.encoder import TableEncoder
from manygp.tables.reading import open_table, parquet_batches, read_parquet
from manygp.tables.training_rows import Chosen, TrainingTable, read_training, survey_table
from manygp.tables.writing import open_writer

__all__ = [
    "Chosen",
    "TableEncoder",
    "TrainingTable",
    "open_table",
    "open_writer",
    "parquet_batches",
    "read_parquet",
    "read_training",
    "survey_table",
]
