"""The paper's six real data sets: found in a folder, or downloaded once and checked."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array

COLLECTION = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets"
# A server that is silent for longer is given up.
SECONDS_TO_WAIT = 30


class DataFile(NamedTuple):
    """What a file must hold. `sha256` and `n_bytes` are those of the uncompressed text."""

    n_rows: int
    n_features: int
    target_std: float
    sha256: str
    source: str
    url: str | None
    n_bytes: int

    @property
    def most_bytes(self) -> int:
        """More bytes than this the compressed file cannot have."""
        return self.n_bytes + self.n_bytes // 100 + 1000

    def check(self, path: Path) -> Array:
        """Read the file; a ValueError names it and what is wrong."""
        try:
            with gzip.open(path) as file:
                text = file.read(self.n_bytes + 1)  # one more shows in the checksum
        except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
            raise ValueError(f"{path} is not a readable gzip file: {error}") from error
        if hashlib.sha256(text).hexdigest() != self.sha256:
            raise ValueError(
                f"{path} is not the file that the benchmark was made for: its checksum differs. "
                f"Get it again from {self.source}"
            )
        table = np.loadtxt(text.decode().splitlines(), delimiter=",")
        std = float(table[:, -1].std())
        if table.shape != (self.n_rows, self.n_features + 1) or abs(std - self.target_std) > 1e-3:
            raise ValueError(f"{path} has shape {table.shape} and a target std of {std:.4f}")
        return table


def _collected(
    name: str, uci: str, shape: tuple[int, int], std: float, sha: str, n_bytes: int
) -> DataFile:
    source = f"the collection treforevans/uci_datasets (data set {name}{uci})"
    url = f"{COLLECTION}/{name}/data.csv.gz"
    return DataFile(*shape, std, sha, source, url, n_bytes)


DATA_FILES = {
    "concrete": _collected(
        "concrete", "; UCI 165", (1030, 8), 16.6976,
        "f7210967a49a2adbf6d19ac3dd853f820941ff37351562cd1a48e8521af3d80b", 68841,
    ),
    "airfoil": _collected(
        "airfoil", "; UCI 291", (1503, 5), 6.8964,
        "2862a364c396273028e7d421ae3cbf619ed0fe23d9a9cb2716e7a84ef81b4067", 74890,
    ),
    "parkinsons": _collected(
        "parkinsons", "; UCI 189", (5875, 20), 10.6994,
        "514813c9ae91ea070cb6eafcac612db990ea26cf631eb29e9457fbdd4a75f4bd", 1165778,
    ),
    "power": DataFile(
        9568, 4, 17.0661,
        "1771b67d90a3191b2ca7b5f6eac58162f51716a982437de7a550a38ba60e9943",
        "UCI 294, combined cycle power plant (first sheet of Folds5x2_pp.xlsx as CSV without "
        "header, gzipped)",
        None, 308680,
    ),
    "kin40k": _collected(
        "kin40k", "", (40000, 8), 0.9970,
        "72ad383c3281a7c85ac49cde9b9682d3e0181e24b1b8a6fe33fd9b993b7db16e", 2894011,
    ),
    "protein": _collected(
        "protein", "; UCI 265", (45730, 9), 0.7730,
        "6ccb1a6bf7e7ba40febe2b8226779cb62e4ca2fa4d193bdec8538c6b5f991ec5", 3707040,
    ),
}  # fmt: skip


def read_data_file(name: str, folder: str | os.PathLike[str] | None = None) -> Array:
    """The table of a data set; the last column is its target.

    The file is looked for in `folder`, or else in the folder that the environment variable
    MANYGP_DATA names, or else in a cache, into which it is downloaded once.
    """
    chosen = folder or os.environ.get("MANYGP_DATA")
    file = DATA_FILES[name]
    if chosen:
        path = Path(chosen) / f"{name}.csv.gz"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; get it from {file.source}")
        return file.check(path)
    path = cache_folder() / f"{name}.csv.gz"
    if not path.exists():
        _download(file, path)
    return file.check(path)


def cache_folder() -> Path:
    """Where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "manygp"


def _download(file: DataFile, path: Path) -> None:
    instead = (
        f"put it as {path.name} into a folder and name that folder with --data-dir or "
        f"MANYGP_DATA, or put it at {path}. Its source is {file.source}"
    )
    if file.url is None:
        raise FileNotFoundError(f"{path.name} has no download; {instead}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        try:
            with urllib.request.urlopen(file.url, timeout=SECONDS_TO_WAIT) as response:
                part.write(response.read(file.most_bytes + 1))
            if part.tell() > file.most_bytes:
                raise ValueError(f"it has more than {file.most_bytes:,} bytes")
            part.close()
            file.check(Path(part.name))
            os.replace(part.name, path)
        except (OSError, ValueError, urllib.error.URLError) as error:
            Path(part.name).unlink(missing_ok=True)
            raise FileNotFoundError(
                f"{path.name} could not be downloaded ({error}); {instead}"
            ) from error
