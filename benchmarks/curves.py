"""How much memory an emulator of curves needs that do not fit into it.

    python -m benchmarks.curves FOLDER                  # 5,000 runs of 100,000 outputs: 2 GB
    python -m benchmarks.curves FOLDER 500 10000

Curves are written to a file of FOLDER as float32, and fitted by `numpy.memmap`: two lean
components, since only the basis and what left-out curves teach need room for outputs. Peaks are
those of this process: all of its memory, which holds what the system keeps of the file too, and
that without pages of files.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from manygp import ManyGPEmulator, ManyGPRegressor

LEAN: dict[str, Any] = {
    "trend": "constant", "hyperparameters": "shared", "overlap": 0.25, "routing": 4,
    "noise": "constant", "target_transform": None,
}  # fmt: skip
BLOCK = 50


def curves_file(folder: Path, inputs: Any, n_outputs: int) -> Path:
    """A file of curves of three components and noise."""
    path, rng = folder / "curves.f32", np.random.default_rng(1)
    t = np.linspace(0, 1, n_outputs)
    Y = np.memmap(path, dtype=np.float32, mode="w+", shape=(len(inputs), n_outputs))
    for first in range(0, len(inputs), BLOCK):
        some = inputs[first : first + BLOCK]
        curves = np.sin(6 * t + 3 * some[:, :1]) * (1 + some[:, 1:2])
        Y[first : first + BLOCK] = curves + 0.05 * rng.normal(size=curves.shape)
    Y.flush()
    return path


class Peak:
    """The largest memory of this process without pages of files, asked many times a second."""

    def __init__(self) -> None:
        self.gigabytes, self.done = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.done.wait(0.05):
            self.gigabytes = max(self.gigabytes, memory("RssAnon"))

    def end(self) -> float:
        """Stop, and say what it was."""
        self.done.set()
        self.thread.join()
        return self.gigabytes


def memory(what: str) -> float:
    """A line of /proc/self/status in gigabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith(f"{what}:"))
    return int(line.split()[1]) / 2**20


def main(folder: str, n_runs: str = "5000", n_outputs: str = "100000") -> None:
    """Fit, predict and print."""
    n, T = int(n_runs), int(n_outputs)
    inputs = np.random.default_rng(0).uniform(size=(n, 3))
    path = curves_file(Path(folder), inputs, T)
    Y, peak, begin = np.memmap(path, dtype=np.float32, mode="r", shape=(n, T)), Peak(), 0.0
    begin = process_time()
    model = ManyGPEmulator(ManyGPRegressor(**LEAN), n_components=2, random_state=0).fit(inputs, Y)
    fitted = process_time() - begin
    lower, upper = model.predict_interval(inputs[:20], 0.9)
    held = np.mean((lower <= Y[:20]) & (upper >= Y[:20]))
    print(
        f"{n:,} runs of {T:,} outputs, {path.stat().st_size / 2**30:.2f} GB: fit {fitted:.0f} s "
        f"of processors; at most {peak.end():.2f} GB, with the file {memory('VmHWM'):.2f} "
        f"GB; 90% intervals of 20 runs hold {held:.1%}"
    )
    path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
