"""Other Gaussian processes to compare with: X (n, d), y (n,), X_test (N, d), seed -> Answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from benchmarks.studies.answers import Answer, imported, seconds_of, timed
from benchmarks.studies.processes import CannotRunError
from manygp.arrays import Array
from manygp.gp.marginal_likelihood import TrainingData
from manygp.kernels.base import NoisyKernel, default_kernel, metric, split_noise
from manygp.training.experts import (
    FITTING,
    ExecutionContext,
    fit_shared,
    random_blocks,
    shared_objective,
    starts_of,
)

# Rows of the GP that each query has to itself.
NEIGHBOURS = 400
# Test rows that such GPs answer, since each costs 400^3.
MOST_LOCAL_ROWS = 2_000
# Test rows that an exact GP answers, since each costs n^2; and rows that scikit-learn fits.
MOST_EXACT_ROWS = 5_000
# Rows of a covariance matrix that are computed at a time.
COVARIANCE_ROWS = 512
# Inducing points of the variational GP.
SVGP_POINTS = 512
# Steps of its optimiser, at least.
SVGP_STEPS = 1000
# Rows of a step, and of a batch of queries.
BATCH = 1024
# Neighbours of a query of MuyGPs.
MUYGPS_NEIGHBOURS = 30
# Rows whose leave-one-out errors fit the kernel of MuyGPs.
MUYGPS_FITTED_ROWS = 500
# Neighbours of a row in the Vecchia approximation of GPBoost.
VECCHIA_NEIGHBOURS = 20
# The least variance of a latent function, against rounding.
LEAST_VARIANCE = 1e-14


def exact(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """One GP on all rows with the shared kernel: what a committee approximates."""
    kernel, fit_seconds = timed(lambda: shared_kernel(X, y, seed))

    def factorise() -> tuple[Array, Array]:
        K = _blockwise(kernel.signal, X, X)
        K[np.diag_indices(len(X))] += kernel.noise_variance
        L = cholesky(K.T, lower=True, overwrite_a=True, check_finite=False)
        return L, solve_triangular(L, y, lower=True, check_finite=False)

    (L, z), seconds = timed(factorise)
    rows = X_test[:MOST_EXACT_ROWS]

    def predict() -> tuple[Array, Array]:
        v = _blockwise(kernel.signal, rows, X).T
        v = solve_triangular(L, v, lower=True, overwrite_b=True, check_finite=False)
        variance = kernel.signal.diag(rows) - np.einsum("ij,ij->j", v, v)
        return v.T @ z, np.sqrt(np.maximum(variance, LEAST_VARIANCE) + kernel.noise_variance)

    (mean, std), predict_seconds = timed(predict)
    return Answer(mean, std, fit_seconds + seconds, predict_seconds)


def neighbours(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """A GP of the shared kernel on each query's 400 nearest rows in its metric."""
    kernel, fit_seconds = timed(lambda: shared_kernel(X, y, seed))
    columns = metric(kernel, X.shape[1])
    rows = X_test[:MOST_LOCAL_ROWS]

    def predict() -> tuple[Array, Array]:
        near = cKDTree(X * columns).query(rows * columns, k=min(NEIGHBOURS, len(X)))[1]
        noise = kernel.noise_variance
        mean, variance = np.empty((2, len(rows)))
        with threadpool_limits(1, "blas"):
            for i, own in enumerate(near):
                K = kernel.signal(X[own])
                K[np.diag_indices(len(own))] += noise
                L = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
                k = kernel.signal(X[own], rows[i : i + 1])
                both = np.column_stack([k[:, 0], y[own]])
                v = solve_triangular(L, both, lower=True, check_finite=False)
                mean[i] = v[:, 0] @ v[:, 1]
                variance[i] = kernel.signal.diag(rows[i : i + 1])[0] - v[:, 0] @ v[:, 0]
        return mean, np.sqrt(np.maximum(variance, LEAST_VARIANCE) + noise)

    (mean, std), seconds = timed(predict)
    return Answer(mean, std, fit_seconds, seconds)


def sklearn_gpr(
    X: Array, y: Array, X_test: Array, seed: int, most_rows: int | None = None
) -> Answer:
    """scikit-learn's exact GP, for at most `most_rows` rows (5,000 by default)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    most_rows = most_rows or MOST_EXACT_ROWS
    if len(X) > most_rows:
        raise CannotRunError(f"scikit-learn's GP is for at most {most_rows:,} rows")
    start = np.sqrt(X.shape[1]) * np.maximum(X.std(axis=0), 0.02)
    matern = Matern(start, (1e-2, 1e3), nu=2.5)
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * matern + WhiteKernel(0.1, (1e-6, 10))
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    fit_seconds = seconds_of(lambda: model.fit(X, y))
    (mean, std), seconds = timed(lambda: model.predict(X_test, return_std=True))
    return Answer(mean, std, fit_seconds, seconds)


def gpboost(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """GPBoost's Vecchia approximation with 20 neighbours and ARD."""
    gpb = imported("gpboost")
    model = gpb.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=2.5,
        likelihood="gaussian",
        gp_approx="vecchia",
        num_neighbors=VECCHIA_NEIGHBOURS,
        seed=seed,
    )
    fit_seconds = seconds_of(lambda: model.fit(y=y))
    found, seconds = timed(lambda: model.predict(gp_coords_pred=X_test, predict_var=True))
    return Answer(found["mu"], np.sqrt(found["var"]), fit_seconds, seconds)


def svgp(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """GPyTorch's stochastic variational GP with 512 inducing points."""
    torch, gpytorch = imported("torch"), imported("gpytorch")
    torch.manual_seed(seed)
    inputs, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, y))
    start = inputs[torch.randperm(len(inputs))[:SVGP_POINTS]].clone()

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(start))
            super().__init__(gpytorch.variational.VariationalStrategy(self, start, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    parameters = [*model.parameters(), *likelihood.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.01)

    def fit() -> None:
        n_batches = -(-len(targets) // BATCH)
        for _ in range(-(-SVGP_STEPS // n_batches)):
            for batch in torch.randperm(len(targets)).split(BATCH):
                optimiser.zero_grad()
                loss = -objective(model(inputs[batch]), targets[batch])
                loss.backward()
                optimiser.step()

    fit_seconds = seconds_of(fit)
    model.eval()
    likelihood.eval()

    def predict() -> tuple[Array, Array]:
        means, variances = [], []
        with torch.no_grad():
            for rows in torch.tensor(X_test, dtype=torch.float32).split(BATCH):
                said = likelihood(model(rows))
                means.append(said.mean.numpy())
                variances.append(said.variance.numpy())
        return np.concatenate(means).astype(float), np.sqrt(np.concatenate(variances), dtype=float)

    (mean, std), seconds = timed(predict)
    return Answer(mean, std, fit_seconds, seconds)


def muygps(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """MuyGPs: a GP on each query's 30 nearest rows, its kernel fitted by leave-one-out."""
    imported("MuyGPyS")
    from MuyGPyS.gp import MuyGPS
    from MuyGPyS.gp.deformation import Anisotropy, l2
    from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter, VectorParameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise
    from MuyGPyS.neighbors import NN_Wrapper
    from MuyGPyS.optimize import L_BFGS_B_optimize
    from MuyGPyS.optimize.batch import sample_batch
    from MuyGPyS.optimize.loss import lool_fn

    np.random.seed(seed)  # noqa: NPY002, it draws from the global generator
    start = np.sqrt(X.shape[1]) * np.maximum(X.std(axis=0), 0.02)
    scales = VectorParameter(*(Parameter(float(one), (1e-2, 1e3)) for one in start))
    model = MuyGPS(
        kernel=Matern(smoothness=Parameter(2.5), deformation=Anisotropy(l2, length_scale=scales)),
        noise=HomoscedasticNoise(0.01, (1e-6, 1.0)),
        scale=AnalyticScale(),
    )

    def fit() -> tuple[Any, Any]:
        near = NN_Wrapper(
            X, MUYGPS_NEIGHBOURS, nn_method="exact", algorithm="ball_tree", n_jobs=-1
        )
        batch, batch_near = sample_batch(near, MUYGPS_FITTED_ROWS, len(X))
        cross, pairs, targets, near_targets = model.make_train_tensors(batch, batch_near, X, y)
        found = L_BFGS_B_optimize(model, targets, near_targets, cross, pairs, loss_fn=lool_fn)
        return found.optimize_scale(pairs, near_targets), near

    (fitted, near), fit_seconds = timed(fit)

    def predict() -> tuple[Array, Array]:
        means, variances = [], []
        for start in range(0, len(X_test), BATCH):
            rows = X_test[start : start + BATCH]
            known, _ = near.get_nns(rows)
            queries = np.arange(len(rows))
            cross, pairs, targets = fitted.make_predict_tensors(queries, known, rows, X, y)
            K, k = fitted.kernel(pairs), fitted.kernel(cross)
            means.append(np.ravel(fitted.posterior_mean(K, k, targets)))
            variances.append(np.ravel(fitted.posterior_variance(K, k)))
        noise = np.ravel(fitted.noise() * fitted.scale())[0]
        return np.concatenate(means), np.sqrt(np.concatenate(variances) + noise)

    (mean, std), seconds = timed(predict)
    return Answer(mean, std, fit_seconds, seconds)


def shared_kernel(X: Array, y: Array, seed: int) -> NoisyKernel:
    """The kernel that this library would share among its experts."""
    kernel = split_noise(default_kernel(X.shape[1], X.std(axis=0)))
    data = TrainingData(X, y[:, None], np.zeros(len(X)), constant_mean=False)
    rng = np.random.default_rng(seed)
    blocks = random_blocks(len(X), FITTING.shared_rows, rng)
    run = ExecutionContext(-1)
    objective = shared_objective(kernel, run)
    return fit_shared(data, blocks, objective, starts_of(kernel, 0, rng), run)


def _blockwise(kernel: Any, A: Array, B: Array) -> Array:
    """Covariances (len(A), len(B)), without scratch arrays of that size."""
    K = np.empty((len(A), len(B)))
    for start in range(0, len(A), COVARIANCE_ROWS):
        block = slice(start, start + COVARIANCE_ROWS)
        K[block] = kernel(A[block], B)
    return K
