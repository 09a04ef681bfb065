"""Real data sets of numbers: found in a folder, or downloaded once and checked."""

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
import numpy.typing as npt

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
        table = _numbers(path, self.sha256, self.source, self.n_bytes)
        std = float(table[:, -1].std())
        if table.shape != (self.n_rows, self.n_features + 1) or abs(std - self.target_std) > 1e-3:
            raise ValueError(f"{path} has shape {table.shape} and a target std of {std:.4f}")
        return table


def verify(content: bytes, path: Path, sha256: str, source: str) -> None:
    """Refuse the content of a file that has another checksum."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(
            f"{path} is not the file that the benchmark was made for: its checksum differs. "
            f"Get it again from {source}"
        )


def _numbers(path: Path, sha256: str, source: str, n_bytes: int) -> Array:
    """The numbers of a gzipped CSV file without a header, whose text has `n_bytes`."""
    try:
        with gzip.open(path) as file:
            text = file.read(n_bytes + 1)  # one more shows in the checksum
    except (OSError, EOFError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise ValueError(f"{path} is not a readable gzip file: {error}") from error
    verify(text, path, sha256, source)
    return np.loadtxt(text.decode().splitlines(), delimiter=",")


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
    "pol": _collected(
        "pol", "", (15000, 26), 41.7244,
        "1f4370e9c9448dc537601710d8744d3ea8f5532b93512288c27abb50120f367c", 3201791,
    ),
    "wine": _collected(
        "wine", "; UCI 186", (1599, 11), 1.0653,
        "573b29b56f82ee37960b87e0125cdc4da684611eb98536f8228ba12ed16fddf4", 168310,
    ),
    "housing": _collected(
        "housing", "", (506, 13), 9.1880,
        "75f3bf6e7f55f3e5cc97464f925a40797b4869a2a767ff404b94410a58362b50", 55740,
    ),
}  # fmt: skip

# Official folds of data sets: checksums of the uncompressed text of `<name>.folds.csv.gz`, which
# has a column for each fold, 1 for a test row.
FOLD_FILES = {
    "kin40k": "56908124080d079831505c36143ea4a6a0c635f480c0c1a07d7202063ca24acf",
    "protein": "7745295a642503ea0ef994841cbf352492e8fbf38b37c34473bb456f3ff13703",
    "pol": "48310e321c1299e631433261a2e3e4c9646f2ebdac613b9db5711b4d2b1e125f",
}
N_FOLDS = 10


def read_data_file(name: str, folder: str | os.PathLike[str] | None = None) -> Array:
    """The table of a data set; the last column is its target.

    The file is looked for in `folder`, or else in the folder that the environment variable
    MANYGP_DATA names, or else in a cache, into which it is downloaded once.
    """
    file = DATA_FILES[name]
    path = named_file(f"{name}.csv.gz", folder, file.source)
    if path is None:
        path = cache_folder() / f"{name}.csv.gz"
        if not path.exists():
            _download(file, path)
    return file.check(path)


def read_fold(
    name: str, fold: int, folder: str | os.PathLike[str] | None = None
) -> npt.NDArray[np.bool_]:
    """Which rows of a data set are test rows of an official fold: (n,).

    The file is looked for in `folder`, or else in the folder that MANYGP_DATA names.
    """
    if name not in FOLD_FILES:
        known = ", ".join(FOLD_FILES)
        raise ValueError(f"{name!r} has no official folds; {known} have")
    if not 0 <= fold < N_FOLDS:
        raise ValueError(f"a fold is a number from 0 to {N_FOLDS - 1}, not {fold!r}")
    source = f"the folds of the collection treforevans/uci_datasets (data set {name})"
    path = file_without_download(f"{name}.folds.csv.gz", folder, source)
    n_bytes = 2 * N_FOLDS * DATA_FILES[name].n_rows  # a digit, and a comma or an end of line
    return _numbers(path, FOLD_FILES[name], source, n_bytes)[:, fold] > 0.5


def named_file(name: str, folder: str | os.PathLike[str] | None, source: str) -> Path | None:
    """The file in `folder`, or in the folder that MANYGP_DATA names; None if none is named."""
    chosen = folder or os.environ.get("MANYGP_DATA")
    if not chosen:
        return None
    path = Path(chosen) / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; get it from {source}")
    return path


def file_without_download(name: str, folder: str | os.PathLike[str] | None, source: str) -> Path:
    """As `named_file`; a folder must be named."""
    path = named_file(name, folder, source)
    if path is None:
        raise FileNotFoundError(
            f"{name} has no download; put it into a folder and name that folder with --data-dir "
            f"or MANYGP_DATA. Its source is {source}"
        )
    return path


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
