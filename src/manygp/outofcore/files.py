"""Fits of tables on a disk: in memory if they are small, else by the stages."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from manygp.model import FittedModel
from manygp.outofcore import training
from manygp.outofcore.blocks import Columns, parquet_blocks
from manygp.outofcore.engine import Engine
from manygp.outofcore.work import WorkFolder
from manygp.runtime.files import temporary_folder
from manygp.settings import Settings
from manygp.tables.base import starts_with
from manygp.tables.parquet_files import PARQUET_SUFFIXES, count_rows
from manygp.tables.reading import open_table
from manygp.tables.training_rows import Chosen, TrainingTable, input_names, read_training


class Source(NamedTuple):
    """A table on a disk.

    Attributes
    ----------
    path : path
    chosen : Chosen
        Its columns that matter.
    folder : path or None
        Where to work; a temporary folder by default.
    """

    path: Path
    chosen: Chosen
    folder: str | PathLike[str] | None = None

    @property
    def is_large(self) -> bool:
        """Whether it has more rows than are read into memory."""
        return _is_parquet(self.path) and count_rows(self.path) > training.MEMORY_ROWS

    @property
    def has_numbers(self) -> bool:
        """Whether all of its columns that matter hold numbers, as files say themselves."""
        columns = [*input_names(open_table(self.path), self.chosen), *self.chosen.apart]
        try:
            parquet_blocks(self.path, columns)
        except ValueError:
            return False
        return True

    def read(self) -> TrainingTable:
        """All of its rows."""
        return read_training(self.path, self.chosen)


def _is_parquet(path: Path) -> bool:
    """Whether a path is a Parquet file, or a folder, which may hold some."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir() or path.suffix.lower() in PARQUET_SUFFIXES:
        return True
    return path.is_file() and starts_with(path, b"PAR1")


def train_file(settings: Settings, source: Source, engine: Engine, seed: int) -> FittedModel:
    """The model of a large Parquet file, or of all in a folder."""
    training.check_settings(settings)
    chosen = source.chosen
    names = tuple(input_names(open_table(source.path), chosen))
    blocks, sizes = parquet_blocks(source.path, [*names, *chosen.apart])
    columns = Columns(names, noise=chosen.noise is not None)
    with working(source.folder) as folder:
        work = WorkFolder(folder, engine)
        job = training.FitJob(settings, blocks, sizes, columns, work, chosen.target)
        return training.train_blocks(job, seed)


def working(folder: str | PathLike[str] | None) -> AbstractContextManager[Path]:
    """The folder to work in, or a temporary one."""
    return temporary_folder() if folder is None else nullcontext(Path(folder))
