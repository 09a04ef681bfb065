"""Tables: columns of any kind as numbers; CSV and Parquet files read and written."""

import warnings
from typing import TYPE_CHECKING, Any

from manygp.tables.formats import open_table, open_writer
from manygp.tables.parquet_files import parquet_batches, read_parquet
from manygp.tables.training_rows import ColumnRoles, TrainingTable, read_training, survey_table

if TYPE_CHECKING:
    from manygp.tables.encoder import TableEncoder

__all__ = [
    "ColumnRoles",
    "TableEncoder",
    "TrainingTable",
    "open_table",
    "open_writer",
    "parquet_batches",
    "read_parquet",
    "read_training",
    "survey_table",
]


def __getattr__(name: str) -> Any:
    """Import the encoder when it is first used, and scikit-learn with it; know an old name."""
    if name == "TableEncoder":
        from manygp.tables.encoder import TableEncoder

        return TableEncoder
    if name == "Chosen":
        new = "manygp.tables.Chosen is now ColumnRoles; the old name goes in version 0.5"
        warnings.warn(new, FutureWarning, stacklevel=2)
        return ColumnRoles
    raise AttributeError(f"module 'manygp.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
