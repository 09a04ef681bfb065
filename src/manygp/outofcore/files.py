"""Fits of tables on a disk: in memory if they are small, else by the stages."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from manygp._moved import renamed
from manygp.model import FittedModel
from manygp.outofcore import training
from manygp.outofcore.blocks import Columns, parquet_blocks
from manygp.outofcore.engine import Engine
from manygp.outofcore.work import WorkFolder
from manygp.runtime.files import temporary_folder
from manygp.settings import Settings
from manygp.tables.formats import format_of, open_table
from manygp.tables.parquet_files import PARQUET, count_rows
from manygp.tables.training_rows import ColumnRoles, TrainingTable, input_names, read_training


class TableSource(NamedTuple):
    """A table on a disk.

    Attributes
    ----------
    path : path
    roles : ColumnRoles
        Its columns that matter.
    folder : path or None
        Where to work; a temporary folder by default.
    """

    path: Path
    roles: ColumnRoles
    folder: str | PathLike[str] | None = None

    @property
    def is_large(self) -> bool:
        """Whether it has more rows than are read into memory."""
        return (
            format_of(self.path) is PARQUET
            and count_rows(self.path) > training.OUT_OF_CORE.memory_rows
        )

    @property
    def has_numbers(self) -> bool:
        """Whether all of its columns that matter hold numbers, as files say themselves."""
        columns = [*input_names(open_table(self.path), self.roles), *self.roles.apart]
        try:
            parquet_blocks(self.path, columns)
        except ValueError:
            return False
        return True

    def read(self) -> TrainingTable:
        """All of its rows."""
        return read_training(self.path, self.roles)


def train_file(settings: Settings, source: TableSource, engine: Engine, seed: int) -> FittedModel:
    """The model of a large Parquet file, or of all in a folder."""
    training.check_settings(settings)
    roles = source.roles
    if roles.splitting:
        raise ValueError(
            f"{source.path} has too many rows to leave some out by group or time; fit a sample of "
            "them"
        )
    names = tuple(input_names(open_table(source.path), roles))
    blocks, sizes = parquet_blocks(source.path, [*names, *roles.apart])
    columns = Columns(names, noise=roles.noise is not None)
    with working(source.folder) as folder:
        work = WorkFolder(folder, engine)
        job = training.FitJob(settings, blocks, sizes, columns, work, roles.target)
        return training.train_blocks(job, seed)


def working(folder: str | PathLike[str] | None) -> AbstractContextManager[Path]:
    """The folder to work in, or a temporary one."""
    return temporary_folder() if folder is None else nullcontext(Path(folder))


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Source": TableSource})
