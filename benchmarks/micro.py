"""Speed as ratios within one run: likelihood, fit, predict, one row, workers and import.

    python -m benchmarks.micro

The comparison of fits needs GPyTorch (benchmarks/requirements.txt) and is left out without it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from manygp import ManyGPRegressor
from manygp.committee.committee import balltree
from manygp.gp.marginal_likelihood import Likelihood, TrainingData
from manygp.kernels import default_kernel
from manygp.kernels.base import split_noise
from manygp.runtime.parallel import single_threaded_blas
from manygp.training import experts as fitting

# Timed rounds, after one that is not.
REPEATS = 5
# Experts that GPyTorch fits; its time is scaled to all of them.
SAMPLED_EXPERTS = 4


def seconds(task: Callable[[], object], inner: int = 1) -> float:
    """The mean seconds of a task that is run `inner` times."""
    start = perf_counter()
    for _ in range(inner):
        task()
    return (perf_counter() - start) / inner


def side_by_side(*tasks: Callable[[], object], inner: int = 1) -> list[float]:
    """Median seconds of each task; the tasks take turns, so that a busy machine slows all."""
    rounds = [[seconds(task, inner) for task in tasks] for _ in range(REPEATS + 1)][1:]
    return [median(column) for column in zip(*rounds, strict=True)]


def matrix_product(n: int) -> Callable[[], object]:
    """The task that multiplies two (n, n) matrices."""
    rng = np.random.default_rng(0)
    A, B, out = rng.normal(size=(n, n)), rng.normal(size=(n, n)), np.empty((n, n))
    return lambda: np.matmul(A, B, out=out)


def data(n: int, d: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Rows X (n, d) and standardised targets y (n,)."""
    rng = np.random.default_rng(1)
    X = rng.random((n, d))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(4 * X[:, 3]) + 0.1 * rng.normal(size=n)
    return X, (y - y.mean()) / y.std()


def likelihood(n: int, d: int = 8) -> None:
    """A likelihood and its gradient, against the flops of a matrix product."""
    X, y = data(n, d)
    evaluation = Likelihood(X, y[:, None], np.zeros(n), constant_mean=True)
    kernel = split_noise(default_kernel(d))
    with single_threaded_blas():
        ours, product = side_by_side(
            lambda: evaluation.value_and_gradient(kernel), matrix_product(n), inner=50
        )
    ratio = ours / (product / 2)  # a product is 2 n^3 flops
    print(f"likelihood + gradient, n={n}, d={d}: {1e3 * ours:.2f} ms, {ratio:.1f} x n^3 flops")


def predict(n: int = 20_000, points: int = 200) -> None:
    """All rows by all experts on one thread, against the flops of the triangular solves."""
    X, y = data(n)
    settings = {"points_per_expert": points, "hyperparameters": "shared", "random_state": 0}
    model = ManyGPRegressor.from_label("bt-ent-c", **settings).fit(X, y)
    with single_threaded_blas():
        ours, product = side_by_side(
            lambda: model.predict(X, return_std=True), matrix_product(points)
        )
        product = min(product, seconds(matrix_product(points), inner=200))
    flops = len(model.experts_) * points**2 * n
    ratio = ours / (flops * product / (2 * points**3))
    print(
        f"predict {n} rows with {len(model.experts_)} experts: {ours:.2f} s, {ratio:.1f} x flops"
    )


def routing(sizes: tuple[int, ...] = (100_000, 1_000_000), n_queries: int = 100_000) -> None:
    """A query of the eight nearest experts, with more and more experts."""
    queries = data(n_queries)[0]
    settings = {"overlap": 0, "hyperparameters": "shared", "temperature": 4, "routing": 8}
    models = [
        ManyGPRegressor(calibration="none", n_jobs=2, random_state=0, **settings).fit(*data(n))
        for n in sizes
    ]
    times = side_by_side(*(lambda m=m: m.predict(queries, return_std=True) for m in models))
    for n, model, time in zip(sizes, models, times, strict=True):
        each, ratio = 1e6 * time / n_queries, time / times[0]
        experts = len(model.experts_)
        print(f"query of 8 of {experts} experts, n={n}: {each:.0f} us, {ratio:.2f} x the first")


def one_row(sizes: tuple[int, ...] = (1000, 20_000), inner: int = 100) -> None:
    """One row with its std, against scikit-learn's exact GP of 1,000 rows."""
    X, y = data(1000)
    kernel = sk.ConstantKernel() * sk.Matern(np.ones(8), nu=2.5) + sk.WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True).fit(X, y)
    models = [ManyGPRegressor(random_state=0, n_jobs=2).fit(*data(n)) for n in sizes]
    rows = np.random.default_rng(2).random((inner, 1, 8))

    def task(model: ManyGPRegressor | GaussianProcessRegressor) -> Callable[[], object]:
        turns = cycle(rows)
        return lambda: model.predict(next(turns), return_std=True)

    theirs, *times = side_by_side(*map(task, [exact, *models]), inner=inner)
    print(f"one row by scikit-learn, n=1000: {1e3 * theirs:.2f} ms")
    for n, model, time in zip(sizes, models, times, strict=True):
        known = max(len(expert.X) for expert in model.experts_)
        queried = f"{model.nearest_ or len(model.experts_)} experts of {known} rows"
        ratio = time / theirs
        print(f"one row by {queried}, n={n}: {1e3 * time:.2f} ms, {ratio:.1f} x scikit-learn's")


def workers(n: int = 100_000) -> None:
    """The experts' own fits by one worker, two threads, and two processes."""
    X, y = data(n)
    rng = np.random.default_rng(0)
    training = TrainingData(X, y[:, None], np.zeros(n), constant_mean=True)
    start = split_noise(default_kernel(8))
    blocks = fitting.random_blocks(n, fitting.FITTING.shared_rows, rng)
    run = fitting.ExecutionContext(2)
    objective = fitting.shared_objective(start, run)
    kernel = fitting.fit_shared(training, blocks, objective, start.theta[None], run)
    parts = balltree(X, n // 200, rng)
    tasks = [fitting.Task(part, kernel.theta[None]) for part in parts]

    def task(n_jobs: int, worth_processes: float) -> Callable[[], object]:
        def run() -> None:
            fitting.FITTING = replace(fitting.FITTING, process_seconds=worth_processes)
            fitting.fit_kernels(training, tasks, kernel, 10.0, fitting.ExecutionContext(n_jobs))

        return run

    one, threads, processes = side_by_side(task(1, np.inf), task(2, np.inf), task(2, 0.0))
    print(
        f"fit {len(parts)} experts: {one:.1f} s; two threads {one / threads:.2f} times as fast, "
        f"two processes that have started {one / processes:.2f} times"
    )


def imports() -> None:
    """The import of the estimator, against that of scikit-learn's GP."""

    def task(statement: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)

    statement = "from manygp import ManyGPRegressor"
    ours, theirs = side_by_side(task(statement), task("import sklearn.gaussian_process"))
    print(f"{statement}: {ours:.2f} s, {ours / theirs:.2f} x import sklearn.gaussian_process")


def fit(n: int = 20_000) -> None:
    """A fit in both regimes of the paper's model, against GPyTorch."""
    X, y = data(n)
    for name in ("hierarchical", "independent"):
        settings = {"hyperparameters": name, "n_jobs": 2, "random_state": 0}
        model = ManyGPRegressor.from_label("bt-ent-c", **settings)
        try:
            ours, theirs = side_by_side(lambda m=model: m.fit(X, y), lambda m=model: adam(X, y, m))
        except ImportError:
            print("fit: GPyTorch is not installed, nothing to compare with")
            return
        theirs *= len(model.experts_) / SAMPLED_EXPERTS
        print(
            f"fit {n} rows, {len(model.experts_)} experts, {name}: {ours:.2f} s; GPyTorch "
            f"{theirs:.1f} s ({SAMPLED_EXPERTS} experts, scaled): {theirs / ours:.1f} times faster"
        )


def adam(X: np.ndarray, y: np.ndarray, model: ManyGPRegressor) -> None:
    """Fit the first experts as the paper did: GPyTorch, Adam, 100 steps."""
    import gpytorch
    import torch

    class ExactGP(gpytorch.models.ExactGP):
        def __init__(self, X: torch.Tensor, y: torch.Tensor, noise: object) -> None:
            super().__init__(X, y, noise)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
            )

        def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(X), self.covar_module(X)
            )

    for expert in model.experts_[:SAMPLED_EXPERTS]:
        rows = expert.indices
        inputs, targets = torch.as_tensor(X[rows]), torch.as_tensor(y[rows])
        noise = gpytorch.likelihoods.GaussianLikelihood().double()
        gp = ExactGP(inputs, targets, noise).double()
        gp.train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(noise, gp)
        optimiser = torch.optim.Adam(gp.parameters(), lr=0.1)
        for _ in range(100):
            optimiser.zero_grad()
            loss = -objective(gp(inputs), targets)
            loss.backward()
            optimiser.step()


if __name__ == "__main__":
    likelihood(200)
    likelihood(400)
    predict()
    routing()
    one_row()
    workers()
    imports()
    fit()
