"""Blocks of rows on a disk: row groups of Parquet files, or arrays that were stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from manygp.arrays import LARGEST, Array
from manygp.runtime.files import replacing
from manygp.tables.parquet_files import from_arrow, open_parquet, parquet_paths, require_numbers

# Rows of a block that are in memory at a time.
PIECE_ROWS = 2**17


class Block(Protocol):
    """Rows that one task reads."""

    def pieces(self) -> Iterator[Array]:
        """Pieces (N, c) of the rows, in their order: inputs, targets, and noise if it is known."""


class ParquetBlock(NamedTuple):
    """A row group of a Parquet file.

    Attributes
    ----------
    path : str
    group : int
    columns : tuple of str
    first : int
        Number of the first row in its file, for messages.
    """

    path: str
    group: int
    columns: tuple[str, ...]
    first: int

    def pieces(self) -> Iterator[Array]:
        """Pieces (N, c) of the rows; NaN where a value is missing."""
        with open_parquet(Path(self.path)) as file:
            batches = file.iter_batches(
                PIECE_ROWS, row_groups=[self.group], columns=list(self.columns)
            )
            for batch in batches:
                yield np.column_stack([self._numbers(batch, name) for name in self.columns])

    def _numbers(self, batch: Any, name: str) -> Array:
        values = from_arrow(batch.column(name))
        if values.dtype.kind == "O":
            raise ValueError(
                f"{self.path}: column {name!r} has integers of more digits than a number can "
                "hold, as ids have; leave the column out"
            )
        return np.asarray(values, dtype=float)

    @property
    def place(self) -> str:
        return self.path


class StoredBlock(NamedTuple):
    """Rows that were written to a file by `store`."""

    path: str
    first: int = 0

    def pieces(self) -> Iterator[Array]:
        """Pieces (N, c) of the rows."""
        rows = np.load(self.path, mmap_mode="r")
        for start in range(0, len(rows), PIECE_ROWS):
            yield np.array(rows[start : start + PIECE_ROWS])

    @property
    def place(self) -> str:
        return "the data"


def store(path: str | PathLike[str], values: Array) -> int:
    """Write rows (N, c) to a file, whole or not at all, and count them."""
    with replacing(path) as file:
        np.save(file, np.ascontiguousarray(values, dtype=float))
    return len(values)


class Columns(NamedTuple):
    """Roles of the columns of a block.

    Attributes
    ----------
    names : tuple of str
        Inputs; they come first.
    n_targets : int
    noise : bool
        Whether the last column is a known noise variance.
    named : bool
        Whether the names are those of the data; else they are made up.
    """

    names: tuple[str, ...]
    n_targets: int = 1
    noise: bool = False
    named: bool = True

    @classmethod
    def of(cls, n_inputs: int, n_targets: int) -> Columns:
        """Inputs without names, and targets."""
        return cls(tuple(f"x{j}" for j in range(n_inputs)), n_targets, named=False)

    @property
    def described(self) -> tuple[str, ...] | int:
        """Names of the inputs, or their number if they have none."""
        return self.names if self.named else len(self.names)

    @property
    def width(self) -> int:
        return len(self.names) + self.n_targets + self.noise

    @property
    def targets(self) -> npt.NDArray[np.intp]:
        return len(self.names) + np.arange(self.n_targets)

    def refuse(self, values: Array, place: str, first: int) -> None:
        """Refuse rows with values that are missing or too large, and say where."""
        finite = np.isfinite(values)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ValueError(
                f"{place}: {self._name(column)} has no finite value in row {first + row + 1}; "
                "drop or fill it"
            )
        own = values[:, self.targets]
        if np.any(np.abs(own) > LARGEST):
            raise ValueError(f"{place}: the square of a target overflows; scale the targets")
        if self.noise and np.any(values[:, -1] < 0):
            raise ValueError(f"{place}: a noise variance is negative")

    def _name(self, column: int) -> str:
        d = len(self.names)
        if column < d:
            return f"column {self.names[column]!r}"
        return "the target" if column < d + self.n_targets else "the noise variance"


def parquet_blocks(
    path: str | PathLike[str], columns: Sequence[str]
) -> tuple[list[ParquetBlock], list[int]]:
    """The row groups of a Parquet file, or of all in a folder, and their sizes."""
    blocks, sizes = [], []
    for one in parquet_paths(Path(path)):
        with open_parquet(one) as file:
            remedy = "more rows than fit into memory must be numbers: leave it out"
            require_numbers(one, file.schema_arrow, columns, remedy)
            first = 0
            for group in range(file.metadata.num_row_groups):
                blocks.append(ParquetBlock(str(one), group, tuple(columns), first))
                sizes.append(file.metadata.row_group(group).num_rows)
                first += sizes[-1]
    return blocks, sizes
