"""The emulator of many outputs beside one model for each output, and scikit-learn on components.

Simulators of a few lines, each with six inputs between 0 and 1: a curve of 500 numbers, a field of
64 x 64, and a spectrum of 500 channels with peaks that move. A line of results.csv is one
simulator, number of runs, seed and model; what is there is not computed again.
"""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from threadpoolctl import threadpool_limits

from benchmarks.studies.study import csv_text
from manygp import ManyGPEmulator, ManyGPRegressor
from manygp.arrays import Array
from manygp.calibration import normal_crps

RESULTS = Path(__file__).parents[1] / "emulator" / "results.csv"
FIELDS = (
    "simulator", "runs", "seed", "model", "components", "rmse", "crps", "coverage", "band",
    "seconds", "rmse_all", "coverage_all",
)  # fmt: skip
INPUTS, TEST_RUNS, NOISE = 6, 500, 0.01
# Outputs that have a model each, and on which all models are compared.
SAMPLED = 10
COVERAGE = 0.9


def advection(P: Array, size: int = 500) -> Array:
    """Two waves on a ring after a second of advection, diffusion and decay: exact, by Fourier."""
    x = np.linspace(0, 1, size, endpoint=False)
    k = 2 * np.pi * np.fft.rfftfreq(size, 1 / size)
    speed, decay = 0.25 * P[:, :1], P[:, 1:2]
    diffusion = 10 ** (-3.5 + 1.5 * P[:, 2:3])
    first = _on_ring(x - 0.3, 0.03 + 0.07 * P[:, 3:4])
    second = (0.2 + 0.8 * P[:, 4:5]) * _on_ring(x - 0.5 - 0.3 * P[:, 5:6], 0.05)
    waves = np.fft.rfft(first + second) * np.exp(-1j * k * speed - diffusion * k**2 - decay)
    return np.fft.irfft(waves, size)


def _on_ring(distance: Array, width: Any) -> Array:
    nearest = np.abs(distance - np.round(distance))
    return np.exp(-0.5 * (nearest / width) ** 2)


def field(P: Array, size: int = 64) -> Array:
    """A cloud of smoke that wind carries, spreads and turns: (n, size, size)."""
    x, y = np.meshgrid(*2 * [np.linspace(0, 1, size)])
    x0, y0, angle, long, wide, strength = P.T[:, :, None, None]
    u, v = x - 0.35 - 0.3 * x0, y - 0.35 - 0.3 * y0
    along = u * np.cos(np.pi * angle) + v * np.sin(np.pi * angle)
    across = v * np.cos(np.pi * angle) - u * np.sin(np.pi * angle)
    sizes = (along / (0.15 + 0.15 * long)) ** 2 + (across / (0.1 + 0.1 * wide)) ** 2
    return (0.5 + strength) * np.exp(-0.5 * sizes)


def spectrum(P: Array, size: int = 500) -> Array:
    """Three peaks, of which two move by many of their widths."""
    x = np.linspace(0, 1, size)
    places = np.stack([0.2 + 0.2 * P[:, 0], 0.55 + 0.1 * P[:, 1], np.full(len(P), 0.85)], axis=1)
    widths = 0.01 + 0.01 * P[:, 2:5]
    heights = np.stack([0.5 + P[:, 5], np.ones(len(P)), 1.5 - P[:, 5]], axis=1)
    z = (x - places[:, :, None]) / widths[:, :, None]
    return (heights[:, :, None] / (1 + z**2)).sum(axis=1)


SIMULATORS = {"advection": advection, "field": field, "spectrum": spectrum}
MODELS = ("emulator", "one per output", "scikit-learn on components")


class Case(NamedTuple):
    """A simulator, the number of its runs, and a seed."""

    simulator: str
    runs: int
    seed: int

    def data(self) -> tuple[Array, Array, Array, Array]:
        """Inputs and curves (n, T) of training and test runs, with noise of 1% of their std."""
        rng = np.random.default_rng(self.seed)
        P = rng.uniform(size=(self.runs + TEST_RUNS, INPUTS))
        Y = SIMULATORS[self.simulator](P).reshape(len(P), -1)
        Y = Y + NOISE * Y.std() * rng.normal(size=Y.shape)
        n = self.runs
        return P[:n], Y[:n], P[n:], Y[n:]


class Answer(NamedTuple):
    """Means, std, interval and band ends of test runs at some outputs, and the cost."""

    mean: Array
    std: Array
    lower: Array
    upper: Array
    band: float
    components: int
    seconds: float


def by_emulator(X: Array, Y: Array, X_new: Array, truth: Array) -> Answer:
    begin = process_time()
    model = ManyGPEmulator(n_jobs=1, random_state=0).fit(X, Y)
    seconds = process_time() - begin
    mean, std = model.predict(X_new, return_std=True)
    lower, upper = model.predict_interval(X_new, COVERAGE)
    low, high = model.predict_interval(X_new, COVERAGE, simultaneous=True)
    band = float(np.mean(((low <= truth) & (truth <= high)).all(axis=1)))
    return Answer(mean, std, lower, upper, band, model.n_components_, seconds)


def one_per_output(X: Array, Y: Array, X_new: Array, outputs: Any) -> Answer:
    begin, answers = process_time(), []
    for j in outputs:
        model = ManyGPRegressor(n_jobs=1, random_state=0).fit(X, Y[:, j])
        answers.append(
            (*model.predict(X_new, return_std=True), *model.predict_interval(X_new, COVERAGE))
        )
    seconds = (process_time() - begin) / len(outputs) * Y.shape[1]
    columns = [np.stack(one, axis=1) for one in zip(*answers, strict=True)]
    return Answer(*columns, np.nan, 0, seconds)


def sklearn_on_components(X: Array, Y: Array, X_new: Array, k: int) -> Answer:
    """The usual recipe: PCA, and scikit-learn's model of each component with its own noise."""
    begin = process_time()
    mean, scale = Y.mean(axis=0), Y.std(axis=0)
    pca = PCA(k, svd_solver="full").fit((Y - mean) / scale)
    scores, answers = pca.transform((Y - mean) / scale), []
    for one in scores.T:
        kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=2.5) + WhiteKernel(0.01)
        model = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, one)
        answers.append(model.predict(X_new, return_std=True))
    seconds = process_time() - begin
    means, stds = (np.stack(one, axis=1) for one in zip(*answers, strict=True))
    centre = mean + scale * (means @ pca.components_)
    rest = (((Y - mean) / scale - scores @ pca.components_) ** 2).mean(axis=0)
    std = scale * np.sqrt(stds**2 @ pca.components_**2 + rest)
    low, high = centre - 1.645 * std, centre + 1.645 * std
    return Answer(centre, std, low, high, np.nan, k, seconds)


def scored(case: Case, model: str, answer: Answer, truth: Array, outputs: Any) -> dict[str, Any]:
    """A line of results: scores in units of each output's std, at sampled outputs and at all."""
    unit = truth.std(axis=0)
    n_all = answer.mean.shape[1] == truth.shape[1]
    every = {name: getattr(answer, name) for name in ("mean", "std", "lower", "upper")}
    part = {name: one[:, outputs] if n_all else one for name, one in every.items()}

    def scores(parts: dict[str, Array], y: Array, scale: Array) -> tuple[float, float, float]:
        error = y - parts["mean"]
        crps = normal_crps(error / parts["std"]) * parts["std"] / scale
        inside = (parts["lower"] <= y) & (y <= parts["upper"])
        return (
            float(np.sqrt(((error / scale) ** 2).mean())),
            float(crps.mean()),
            float(inside.mean()),
        )

    rmse, crps, coverage = scores(part, truth[:, outputs], unit[outputs])
    rmse_all, _, coverage_all = scores(every, truth, unit) if n_all else (np.nan,) * 3
    numbers = {
        "rmse": rmse, "crps": crps, "coverage": coverage, "band": answer.band,
        "seconds": answer.seconds, "rmse_all": rmse_all, "coverage_all": coverage_all,
    }  # fmt: skip
    line = {"simulator": case.simulator, "runs": case.runs, "seed": case.seed, "model": model}
    return {**line, "components": answer.components} | {
        name: f"{one:.5g}" for name, one in numbers.items()
    }


def read(path: Path = RESULTS) -> list[dict[str, str]]:
    """The lines that are there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(cases: list[Case], models: tuple[str, ...] = MODELS, path: Path = RESULTS) -> None:
    """Compute what is missing, and write each line as it is finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for case in cases:
        X, Y, X_new, truth = case.data()
        outputs = np.linspace(0, Y.shape[1] - 1, SAMPLED + 2).astype(int)[1:-1]
        for model in models:
            lines: list[Any] = read(path)
            own = [str(one) for one in case]
            known = {one["model"]: one for one in lines if [one[n] for n in FIELDS[:3]] == own}
            if model in known:
                continue
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if model == "emulator":
                    answer = by_emulator(X, Y, X_new, truth)
                elif model == "one per output":
                    answer = one_per_output(X, Y, X_new, outputs)
                else:
                    k = int(known.get("emulator", {"components": 10})["components"])
                    answer = sklearn_on_components(X, Y, X_new, k)
            lines.append(scored(case, model, answer, truth, outputs))
            path.write_text(csv_text(lines), encoding="utf-8")
            print(lines[-1], flush=True)


def table(lines: list[dict[str, str]]) -> str:
    """Means over seeds as Markdown."""
    head = ("simulator", "runs", "model", "seeds", *FIELDS[4:])
    text = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    keys = list(dict.fromkeys((one["simulator"], one["runs"], one["model"]) for one in lines))
    for key in keys:
        own = [one for one in lines if (one["simulator"], one["runs"], one["model"]) == key]
        means = [np.mean([float(one[name]) for one in own]) for name in FIELDS[4:]]
        cells = [*key, str(len(own)), *("" if np.isnan(one) else f"{one:.3g}" for one in means)]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)
