"""CPU seconds of a step with BoTorch, beside its SingleTaskGP: Ackley in 20 columns.

    python -m benchmarks.acquisition              # 1,000 and 3,000 rows; minutes

Of each model the fit (of SingleTaskGP one with 30 evaluations of the likelihood), LogEI with its
gradient at 20 rows, and the joint posterior of 5 batches of q = 10 rows with its gradient. One
thread. It needs `botorch`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.models import SingleTaskGP
from gpytorch.mlls import ExactMarginalLogLikelihood
from threadpoolctl import threadpool_limits

from benchmarks.optimise import COLUMNS, TASKS
from manygp import ManyGPRegressor
from manygp.botorch import ManyGPModel
from manygp.optimise import lean

EVALUATIONS, REPEATS = 30, 5


def seconds(act: Callable[[], Any], repeats: int = REPEATS) -> float:
    """CPU seconds of one call, after another one."""
    act()
    start = process_time()
    for _ in range(repeats):
        act()
    return (process_time() - start) / repeats


def steps(model: Any, best: float, rng: np.random.Generator) -> list[float]:
    """Seconds of LogEI and of the joint posterior, each with its gradient."""
    wanted = LogExpectedImprovement(model, best_f=best)
    single, joint = rng.random((20, 1, COLUMNS)), rng.random((5, 10, COLUMNS))

    def log_ei() -> None:
        X = torch.tensor(single, requires_grad=True)
        torch.autograd.grad(wanted(X).sum(), X)

    def together() -> None:
        X = torch.tensor(joint, requires_grad=True)
        posterior = model.posterior(X)
        total = posterior.mean.sum() + posterior.distribution.covariance_matrix.sum()
        torch.autograd.grad(total, X)

    return [seconds(log_ei), seconds(together)]


def single_task(X: Any, y: Any) -> tuple[Any, float]:
    """Their model, and the seconds of as many evaluations of its likelihood."""
    model = SingleTaskGP(torch.tensor(X), torch.tensor(y)[:, None])
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model).train()

    def evaluate() -> None:
        loss = -likelihood(model(*model.train_inputs), model.train_targets)
        loss.backward()

    return model, EVALUATIONS * seconds(evaluate, 2)


def row(name: str, n: int, times: list[float]) -> None:
    fit, log_ei, joint = times
    print(f"| {n:,} | {name} | {fit:.1f} | {1000 * log_ei:.1f} | {1000 * joint:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1000,3000")
    torch.set_num_threads(1)
    print("| rows | model | fit, s | LogEI, ms | q = 10, ms |")
    print("|---|---|---|---|---|")
    function, low, high = TASKS["ackley"]
    with threadpool_limits(1):
        for n in map(int, parser.parse_args().rows.split(",")):
            rng = np.random.default_rng(0)
            X = rng.random((n, COLUMNS))
            y = -function(low + (high - low) * X)
            sizes = {"lean": lean(n), "one expert": {**lean(n), "points_per_expert": n}}
            for name, parameters in sizes.items():
                start = process_time()
                known = ManyGPRegressor(**parameters, n_jobs=1).fit(X, y)
                fit = process_time() - start
                row(name, n, [fit, *steps(ManyGPModel(known), y.max(), rng)])
            theirs, fit = single_task(X, y)
            row("SingleTaskGP", n, [fit, *steps(theirs.eval(), y.max(), rng)])


if __name__ == "__main__":
    main()
