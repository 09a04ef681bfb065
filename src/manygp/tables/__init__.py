"""Tables: columns of any kind as numbers; CSV and Parquet files read and written."""

from typing import TYPE_CHECKING, Any

from manygp.tables.reading import open_table, parquet_batches, read_parquet
from manygp.tables.training_rows import Chosen, TrainingTable, read_training, survey_table
from manygp.tables.writing import open_writer

if TYPE_CHECKING:
    from manygp.tables.encoder import TableEncoder

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


def __getattr__(name: str) -> Any:
    """Import the encoder when it is first used: scikit-learn comes with it."""
    if name == "TableEncoder":
        from manygp.tables.encoder import TableEncoder

        return TableEncoder
    raise AttributeError(f"module 'manygp.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
