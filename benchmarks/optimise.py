"""Optimisers in 20 columns, in batches of 50: best value after evaluations, and CPU seconds.

    python -m benchmarks.optimise                 # goes on where it stopped
    python -m benchmarks.optimise --table         # what benchmarks/optimise/cells.jsonl says
    python -m benchmarks.optimise --evaluations 3000 --seeds 1,2,3 --methods ours,cma,random

Methods: `ours` is `manygp.optimise`; `gp-pro` and `gp-pro-c` are the same loop with experts of 100
rows, weighted by entropy, without and with the paper's calibration; `cma` is CMA-ES with
generations of the batch, `cma-12` with its own of 12, one after the other; `turbo` is TuRBO-1 with
BoTorch's SingleTaskGP. It needs `cma`, and `turbo` also `botorch`.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from manygp.optimise import Optimiser

CELLS = Path(__file__).parent / "optimise" / "cells.jsonl"
COLUMNS, BATCH = 20, 50
PAPER = {"points_per_expert": 100, "weighting": "entropy", "routing": None, "overlap": 0}


def ackley(X: Any) -> Any:
    waves = np.exp(np.cos(2 * np.pi * X).mean(axis=1))
    return 20 + np.e - 20 * np.exp(-0.2 * np.sqrt((X**2).mean(axis=1))) - waves


def levy(X: Any) -> Any:
    w = 1 + (X - 1) / 4
    inner = (w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)
    last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    return np.sin(np.pi * w[:, 0]) ** 2 + inner.sum(axis=1) + last


def rastrigin(X: Any) -> Any:
    return 10 * X.shape[1] + (X**2 - 10 * np.cos(2 * np.pi * X)).sum(axis=1)


def rosenbrock(X: Any) -> Any:
    return (100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2).sum(axis=1)


def griewank(X: Any) -> Any:
    waves = np.cos(X / np.sqrt(np.arange(1, X.shape[1] + 1))).prod(axis=1)
    return 1 + (X**2).sum(axis=1) / 4000 - waves


def styblinski(X: Any) -> Any:
    return (X**4 - 16 * X**2 + 5 * X).sum(axis=1) / 2 + 39.16616571 * X.shape[1]


TASKS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "ackley": (ackley, -5.0, 10.0),
    "levy": (levy, -5.0, 10.0),
    "rastrigin": (rastrigin, -4.0, 5.0),
    "rosenbrock": (rosenbrock, -5.0, 10.0),
    "griewank": (griewank, -300.0, 600.0),
    "styblinski": (styblinski, -5.0, 5.0),
}


def with_model(function: Any, n: int, seed: int, model: dict[str, Any] | None = None) -> Any:
    """Values in the order of evaluation, of functions of the unit cube: (n,)."""
    optimiser = Optimiser([(0.0, 1.0)] * COLUMNS, random_state=seed, model=model)
    while len(optimiser.y_) < n:
        rows = optimiser.ask(min(BATCH, n - len(optimiser.y_)))
        optimiser.tell(rows, function(np.array(rows)))
    return optimiser.y_


def by_chance(function: Any, n: int, seed: int) -> Any:
    return function(np.random.default_rng(seed).random((n, COLUMNS)))


def by_cma(function: Any, n: int, seed: int, generation: int = BATCH) -> Any:
    import cma

    options = {"bounds": [0, 1], "popsize": generation, "seed": seed + 1, "verbose": -9}
    values: list[float] = []
    while len(values) < n:  # it stops where it has converged, and begins anew
        start = np.random.default_rng([seed, len(values)]).random(COLUMNS)
        search = cma.CMAEvolutionStrategy(start, 0.3, options)
        while len(values) < n and not search.stop():
            rows = search.ask()
            found = function(np.array(rows))
            search.tell(rows, found.tolist())
            values += found.tolist()
    return np.array(values[:n])


def by_turbo(function: Any, n: int, seed: int) -> Any:
    """TuRBO-1 of Eriksson et al. (2019), as in BoTorch's tutorial, but for its noise.

    Success is three steps in a row, as in the paper. A model of unknown noise is no worse here.
    """
    import torch
    from torch.quasirandom import SobolEngine

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    failures_allowed = int(np.ceil(max(4.0, COLUMNS) / BATCH))
    X, y = torch.empty(0, COLUMNS, dtype=torch.double), np.empty(0)
    while len(y) < n:  # begins anew
        begin, length, successes, failures = len(y), 0.8, 0, 0
        new = SobolEngine(COLUMNS, scramble=True, seed=seed + begin).draw(BATCH).double()
        while True:
            X, y = torch.cat([X, new]), np.concatenate([y, function(new.numpy())])
            if len(y) >= n:
                break
            if len(y) - begin > BATCH:
                known, found = y[begin:-BATCH].min(), y[-BATCH:].min()
                better = found < known - 1e-3 * abs(known)
                successes, failures = (successes + 1, 0) if better else (0, failures + 1)
                if successes == 3:
                    length, successes = min(2 * length, 1.6), 0
                elif failures == failures_allowed:
                    length, failures = length / 2, 0
                if length < 0.5**7:
                    break
            new = _turbo_rows(X[begin:], torch.tensor(-y[begin:]), length, seed + len(y))
    return y[:n]


def _turbo_rows(X: Any, y: Any, length: float, seed: int) -> Any:
    """The next batch: Thompson samples of a GP among Sobol candidates in the trust region."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.generation import MaxPosteriorSampling
    from botorch.models import SingleTaskGP
    from gpytorch.constraints import Interval
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from torch.quasirandom import SobolEngine

    d, scaled = X.shape[1], ((y - y.mean()) / y.std())[:, None]
    matern = MaternKernel(nu=2.5, ard_num_dims=d, lengthscale_constraint=Interval(0.005, 4.0))
    model = SingleTaskGP(X, scaled, covar_module=ScaleKernel(matern), outcome_transform=None)
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 50}}, max_attempts=1)
    centre, sides = X[y.argmax()], matern.lengthscale.detach().ravel()
    sides = length * sides / sides.log().mean().exp()
    low, high = ((centre + sign * sides / 2).clamp(0.0, 1.0) for sign in (-1, 1))
    n = min(5000, max(2000, 200 * d))
    inside = low + (high - low) * SobolEngine(d, scramble=True, seed=seed).draw(n).double()
    moved = torch.rand(n, d) <= min(20.0 / d, 1.0)
    moved[torch.arange(n), torch.randint(d, (n,))] = True
    with torch.no_grad():
        sampler = MaxPosteriorSampling(model, replacement=False)
        return sampler(torch.where(moved, inside, centre), num_samples=BATCH)


METHODS: dict[str, Callable[[Any, int, int], Any]] = {
    "ours": with_model,
    "cma": by_cma,
    "cma-12": lambda function, n, seed: by_cma(function, n, seed, 12),
    "random": by_chance,
    "gp-pro": lambda f, n, seed: with_model(f, n, seed, {**PAPER, "calibration": "none"}),
    "gp-pro-c": lambda f, n, seed: with_model(f, n, seed, {**PAPER, "calibration": "information"}),
    "turbo": by_turbo,
}


def run(task: str, method: str, n: int, seed: int) -> dict[str, Any]:
    """One search: the best value after each batch, and its seconds."""
    function, low, high = TASKS[task]
    start = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = METHODS[method](lambda U: function(low + (high - low) * U), n, seed)
    best = np.minimum.accumulate(values)[BATCH - 1 :: BATCH]
    cell = {"task": task, "method": method, "evaluations": n, "seed": seed}
    return {**cell, "best": best.tolist(), "seconds": round(process_time() - start, 2)}


def cells() -> list[dict[str, Any]]:
    if not CELLS.exists():
        return []
    return [json.loads(line) for line in CELLS.read_text().splitlines()]


def ratios(found: dict[tuple[str, str], list[dict[str, Any]]], task: str) -> list[float]:
    """Logarithms of best values with calibration by those without, of the seeds that both have."""
    plain, calibrated = (
        {one["seed"]: one["best"][-1] for one in found[task, method]}
        for method in ("gp-pro", "gp-pro-c")
    )
    both = sorted(plain.keys() & calibrated.keys())
    return [float(np.log(calibrated[seed] / plain[seed])) for seed in both]


def table(n: int) -> None:
    """Median best values and seconds, and the paired comparison of the paper's calibration."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for cell in cells():
        if cell["evaluations"] == n:
            found[cell["task"], cell["method"]].append(cell)
    print("| task | method | seeds | " + " | ".join(f"{q:.0%}" for q in (0.25, 0.5, 1)) + " | s |")
    print("|---|---|---|---|---|---|---|")
    for (task, method), some in sorted(found.items()):
        best = np.median([one["best"] for one in some], axis=0)
        shown = [f"{best[int(q * len(best)) - 1]:.3g}" for q in (0.25, 0.5, 1)]
        seconds = np.median([one["seconds"] for one in some])
        print(f"| {task} | {method} | {len(some)} | {' | '.join(shown)} | {seconds:.1f} |")
    pairs = [ratio for task in TASKS for ratio in ratios(found, task)]
    if len(pairs) > 5:
        better, p = sum(one < 0 for one in pairs), wilcoxon(pairs).pvalue
        print(f"\nCalibrated better in {better} of {len(pairs)} pairs; Wilcoxon p = {p:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--seeds", default="0,1,2,3,4,5,6,7,8,9")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    if not given.table:
        CELLS.parent.mkdir(exist_ok=True)
        names = ("task", "method", "evaluations", "seed")
        done = {tuple(cell[name] for name in names) for cell in cells()}
        for seed in map(int, given.seeds.split(",")):
            for method in given.methods.split(","):
                for task in given.tasks.split(","):
                    if (task, method, given.evaluations, seed) not in done:
                        cell = run(task, method, given.evaluations, seed)
                        with CELLS.open("a") as file:
                            file.write(json.dumps(cell) + "\n")
    table(given.evaluations)


if __name__ == "__main__":
    main()
