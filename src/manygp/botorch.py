"""A fitted model as a model of BoTorch, for its acquisition functions (extra `botorch`).

Means, variances and weights of the experts come from the rules themselves, which pass slopes on,
and covariances from the experts, whose kernels have slopes. PyTorch joins them: the posterior of q
rows is joint, and has derivatives by all of them. Numbers are computed in double precision on the
CPU, and returned in the type and on the device of the rows.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

try:
    import torch
    from botorch.models.model import FantasizeMixin, Model
    from botorch.posteriors import GPyTorchPosterior
    from botorch.sampling.pathwise.paths import SamplePath
    from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
    from gpytorch.constraints import Positive
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.likelihoods import GaussianLikelihood
    from linear_operator.utils.cholesky import psd_safe_cholesky
    from torch.autograd.function import once_differentiable
except ImportError as error:
    raise ImportError(
        'manygp.botorch needs an extra: pip install torch, then pip install "manygp[botorch]"'
    ) from error

from manygp import answers, inputs
from manygp.answers import Rows
from manygp.arrays import AnyArray, Array, IndexArray
from manygp.committee.committee import Query
from manygp.committee.gradients import Asked, combined, record_of
from manygp.dual import Dual, with_slopes
from manygp.gp.expert import PRECISION, Expert
from manygp.kernels.base import Kernel
from manygp.model import FittedModel
from manygp.optimise import lean
from manygp.paths import SamplePaths, Slopes, in_units_of_z, slopes_of_z
from manygp.regressor import ManyGPRegressor

# Rows of which all covariances are computed, also those between batches, which are not needed:
# fewer calls of the kernel cost less than these.
PRIOR_ROWS = 64
# Rows of the data that tell the noise of the likelihood, and the least noise.
NOISE_ROWS, LEAST_NOISE = 1000, 1e-20
# Weights are taken to be at least so large where their root has a slope.
SMALLEST = 1e-300

NOT_GAUSSIAN = (
    "the model has learned a transform of y, given which y is not normal; fit with "
    "target_transform=None"
)
ENCODED = (
    "the columns are those of a table, which are encoded: a tensor has none; fit plain numbers"
)
MANY_TARGETS = (
    "the model has {} targets; fit each by itself, and join the models with "
    "botorch.models.model.ModelList"
)

IMAGINED = "functions are drawn from a model of evaluated rows, and this one knows imagined ones"
# Ax asks the class to make a model, then this module to fit it.
AX = "ax.generators.torch.botorch_modular.utils"


class Joint(NamedTuple):
    """Joint normal distributions of q rows each: tensors (..., q), (..., q, q), (..., q).

    The last one is the variance of the noise, which is no part of the covariance.
    """

    mean: Any
    covariance: Any
    noise: Any


class ManyGPModel(Model, FantasizeMixin):
    """A fitted `ManyGPRegressor` for BoTorch.

    Its posterior has the mean, std and covariance of `predict`, with `latent=True` unless
    `observation_noise` is asked for. Gradients are those of first order.

    Parameters
    ----------
    regressor : ManyGPRegressor
        Fitted, of one target. The model stays as it is when the regressor is fitted again.

    Attributes
    ----------
    likelihood : GaussianLikelihood
        With the mean variance of the noise at the training rows.

    Raises
    ------
    ValueError
        If the model has no derivatives, or is not normal: the message names the remedy.
    """

    def __init__(self, regressor: Any) -> None:
        super().__init__()
        self._fitted: FittedModel = _usable(regressor.model_)
        rows = answers.training_rows(self._fitted)[0]
        rows = rows[answers.sample_rows(len(rows), NOISE_ROWS)]
        noise = float(np.mean(answers.noise_std(self._fitted, rows) ** 2))
        self.likelihood = GaussianLikelihood(noise_constraint=Positive())
        self.likelihood.noise = max(noise, LEAST_NOISE)
        self.likelihood.to(torch.double).requires_grad_(False)
        self._observed: tuple[Any, Any, Any] | None = None
        self.eval()

    @classmethod
    def construct_inputs(
        cls, training_data: Any, regressor: Any = None, **unknown: Any
    ) -> dict[str, Any]:
        """What the class is called with, of a data set: a fitted regressor. Ax asks for it.

        Parameters
        ----------
        training_data : SupervisedDataset
            Of one outcome; known variances of its values are the noise of its rows.
        regressor : ManyGPRegressor, optional
            With the parameters that are wanted; by default those of `manygp.optimise.lean`.
        """
        if unknown:
            raise ValueError(
                f"a model of plain numbers has no {', '.join(sorted(unknown))}; give categories "
                "and fidelities as columns of numbers"
            )
        if training_data.Y.shape[-1] != 1:
            raise ValueError(MANY_TARGETS.format(training_data.Y.shape[-1]))
        X, y = _double(training_data.X).numpy(), _double(training_data.Y)[:, 0].numpy()
        wanted = ManyGPRegressor(**lean(len(X))) if regressor is None else clone(regressor)
        if training_data.Yvar is not None:
            wanted.set_params(alpha=_double(training_data.Yvar)[:, 0].numpy())
        if AX in sys.modules:  # there is nothing left to fit
            sys.modules[AX].fit_botorch_model.register(cls)(lambda model, **options: None)
        return {"regressor": wanted.fit(X, y)}

    @property
    def num_outputs(self) -> int:
        """1: a model is of one target."""
        return 1

    @property
    def batch_shape(self) -> Any:
        """That of the observations which a model was conditioned on; else empty."""
        if self._observed is None:
            return torch.Size()
        rows, y, _ = self._observed
        return torch.broadcast_shapes(rows.shape[:-2], y.shape[:-1])

    def posterior(
        self,
        X: Any,
        output_indices: Any = None,
        observation_noise: Any = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint distributions of rows X (..., q, d): a `GPyTorchPosterior`.

        Parameters
        ----------
        X : Tensor of shape (..., q, d)
        output_indices : list of int, optional
            Of the only output.
        observation_noise : bool or Tensor of shape (..., q, 1), default=False
            Add the noise of the model, or these variances.
        posterior_transform : PosteriorTransform, optional
        """
        if output_indices is not None:
            self.subset_output(output_indices)
        mean, covariance, noise = self._joint(X)
        if torch.is_tensor(observation_noise):
            noise = observation_noise[..., 0].to(mean).expand(mean.shape)
        if torch.is_tensor(observation_noise) or observation_noise:
            covariance = covariance + torch.diag_embed(noise)
        posterior = GPyTorchPosterior(MultivariateNormal(mean.to(X), covariance.to(X)))
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def forward(self, X: Any) -> Any:
        """The joint distributions of the latent function: a `MultivariateNormal`."""
        return self.posterior(X).distribution

    def subset_output(self, idcs: list[int]) -> ManyGPModel:
        """The model itself, which has one output."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"the model has one output, [0]; there is no {list(idcs)}")
        return self

    def condition_on_observations(self, X: Any, Y: Any, **kwargs: Any) -> ManyGPModel:
        """The model that knows further rows: its joint distribution, given their values.

        No expert, weight or correction changes, and none is learned: this is for what an
        acquisition function imagines. `partial_fit` takes rows that were evaluated.

        Parameters
        ----------
        X : Tensor of shape (..., n, d)
        Y : Tensor of shape (..., n, 1)
        noise : Tensor of shape (..., n, 1), optional
            Their noise variances instead of those of the model.
        """
        noise = kwargs.get("noise")
        if Y.ndim < 2 or Y.shape[-1] != 1 or Y.shape[-2] != X.shape[-2]:
            raise ValueError(
                f"Y must have one value for each row of X, (..., {X.shape[-2]}, 1); its shape is "
                f"{tuple(Y.shape)}"
            )
        known = _double(X), _double(Y)[..., 0], None if noise is None else _double(noise)[..., 0]
        if noise is None:
            known = *known[:2], _pointwise(self._fitted, known[0])[2]
        if self._observed is not None:
            known = _with(self._observed, known)
        more = object.__new__(type(self))
        more.__dict__.update(self.__dict__)
        more._observed = known
        return more

    def _joint(self, X: Any) -> Joint:
        """The joint latent distributions of rows (..., q, d), given what was observed."""
        rows = _rows(self._fitted, X)
        if self._observed is None or self._observed[0].shape[-2] == 0:
            return _expanded(_joint(self._fitted, rows), self.batch_shape)
        known, y, noise = self._observed
        batch = torch.broadcast_shapes(rows.shape[:-2], known.shape[:-2])
        n, both = known.shape[-2], [one.expand(*batch, *one.shape[-2:]) for one in (known, rows)]
        mean, covariance, own = _joint(self._fitted, torch.cat(both, dim=-2))
        root = psd_safe_cholesky(covariance[..., :n, :n] + torch.diag_embed(noise))
        across = covariance[..., :n, n:]
        solved = torch.cholesky_solve(across, root)
        moved = ((y - mean[..., :n]).unsqueeze(-2) @ solved).squeeze(-2)
        rest = covariance[..., n:, n:] - across.mT @ solved
        smallest = PRECISION.smallest_variance * covariance.diagonal(dim1=-2, dim2=-1)[..., n:]
        variance = torch.maximum(rest.diagonal(dim1=-2, dim2=-1), smallest)
        rest = torch.diagonal_scatter((rest + rest.mT) / 2, variance, dim1=-2, dim2=-1)
        return _expanded(Joint(mean[..., n:] + moved, rest, own[..., n:]), moved.shape[:-1])


class Paths(SamplePath):
    """Functions drawn from a model, for BoTorch: see `ManyGPRegressor.sample_paths`.

    Of rows (..., n, d) the values are (..., n), of every function where the shape of the drawing,
    `shape`, is in front of that of the rows; batches of rows are broadcast against it.
    """

    def __init__(self, model: FittedModel, shape: Any) -> None:
        super().__init__()
        seed = int(torch.randint(2**31, ()))  # what torch.manual_seed makes the same again
        self.shape, self._fitted = torch.Size(shape), model
        self._drawn = SamplePaths(model, self.shape.numel(), seed, lambda X: Rows(X, None))

    def set_ensemble_as_batch(self, ensemble_as_batch: Any) -> None:
        """Nothing: no model is an ensemble."""

    def forward(self, x: Any) -> Any:
        X = _rows(self._fitted, x)
        if X.ndim == 2 and not _wants_slopes(X):
            values = torch.tensor(self._drawn(X.numpy()).T).reshape(*self.shape, -1)
            return values.to(x)
        batch = torch.broadcast_shapes(self.shape, X.shape[:-2])
        paths = torch.arange(self.shape.numel()).reshape(*self.shape, 1)
        paths = paths.expand(*batch, X.shape[-2]).reshape(-1).numpy()
        flat = X.expand(*batch, *X.shape[-2:]).reshape(-1, X.shape[-1])
        found = self._drawn.slopes(flat.detach().numpy(), paths)
        return _sloped(flat, found.value, found.slope).reshape(*batch, -1).to(x)


def _draw_paths(model: ManyGPModel, *, sample_shape: Any, **unused: Any) -> Paths:
    """What `draw_matheron_paths` does; prior and update are those of `sample_paths`."""
    if model._observed is not None:
        raise ValueError(IMAGINED)
    return Paths(model._fitted, sample_shape)


DrawMatheronPaths.register(ManyGPModel)(_draw_paths)


def _usable(model: FittedModel) -> FittedModel:
    """The model, if BoTorch can have it."""
    if model.encoder is not None:
        raise ValueError(ENCODED)
    if model.n_targets > 1:
        raise ValueError(MANY_TARGETS.format(model.n_targets))
    if not answers.is_of_y(model):
        raise ValueError(NOT_GAUSSIAN)
    slopes_of_z(model, answers.training_rows(model)[0][:1])  # says what has no derivative
    return model


def _double(values: Any) -> Any:
    return values.to("cpu", torch.double)


def _rows(model: FittedModel, X: Any) -> Any:
    """Rows (..., q, d), checked."""
    if not torch.is_tensor(X) or X.ndim < 2 or X.shape[-1] != model.n_columns:
        shape = tuple(X.shape) if torch.is_tensor(X) else type(X).__name__
        raise ValueError(
            f"X must be a tensor of rows (..., q, {model.n_columns}), one number for each column "
            f"that the model was fitted to; it is {shape}"
        )
    if not X.is_floating_point():
        raise ValueError(f"X must be of floating point, whose type the answer has, not {X.dtype}")
    if not torch.isfinite(X).all():
        raise ValueError("X contains NaN or infinity; rows must be complete")
    return _double(X)


def _with(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Rows, values and noise that were observed, and further ones, as one."""
    (a, *old_columns), (b, *new_columns) = old, new
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = torch.cat([one.expand(*batch, *one.shape[-2:]) for one in (a, b)], dim=-2)
    columns = []
    for a, b in zip(old_columns, new_columns, strict=True):
        batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        columns.append(torch.cat([one.expand(*batch, -1) for one in (a, b)], dim=-1))
    return rows, columns[0], columns[1]


def _expanded(joint: Joint, batch: Any) -> Joint:
    """The same distributions for each member of a batch."""
    batch = torch.broadcast_shapes(batch, joint.mean.shape[:-1], joint.covariance.shape[:-2])
    q = joint.mean.shape[-1]
    mean, noise = (one.expand(*batch, q) for one in (joint.mean, joint.noise))
    return Joint(mean, joint.covariance.expand(*batch, q, q), noise)


def _joint(model: FittedModel, X: Any) -> Joint:
    """The joint latent distributions of rows (..., q, d): see `covariance.between_rows`."""
    *batch, q, d = X.shape
    if q == 1:
        mean, variance, noise = _pointwise(model, X)
        return Joint(mean, variance.unsqueeze(-1), noise)
    flat = X.reshape(-1, d)
    Z = inputs.scaled_rows(flat.detach().numpy(), model.x_scaling, model.columns)
    known = None
    if _wants_slopes(X):  # experts answer once, about moments, weights and covariances
        kept: list[Asked] = []
        record = record_of(model.committee, model.rules, Z, kept=kept)
        slopes = in_units_of_z(model, Z, combined(model.rules, record))
        found, known = _sloped_moments(flat, *slopes), _by_expert(kept)
        weights: Any = model.rules.normalised_weights([record])[0]
    else:
        found = _pointwise(model, flat)
        query = Query(Z, model.rules.nearest, tapered=model.rules.tapered)
        (weights,) = model.committee.map_blocks(
            model.rules.normalised_weights, query, model.settings.n_jobs
        )
    mean, variance, noise = (one.reshape(*batch, q) for one in found)
    unit = (flat - torch.tensor(model.x_scaling.shift)) / torch.tensor(model.x_scaling.scale)
    correlation = _correlation(model, unit.reshape(-1, q, d), _roots(unit, weights), known)
    std = variance.sqrt()
    covariance = correlation.reshape(*batch, q, q) * std.unsqueeze(-1) * std.unsqueeze(-2)
    covariance = torch.diagonal_scatter(covariance, variance, dim1=-2, dim2=-1)
    return Joint(mean, covariance, noise)


def _wants_slopes(X: Any) -> bool:
    return bool(X.requires_grad and torch.is_grad_enabled())


def _pointwise(model: FittedModel, X: Any) -> tuple[Any, Any, Any]:
    """Means, latent variances and noise variances of rows (..., d): (...,) each."""
    shape, flat = X.shape[:-1], X.reshape(-1, X.shape[-1])
    rows = flat.detach().numpy()
    if _wants_slopes(X):
        found = _sloped_moments(flat, *slopes_of_z(model, rows))
    else:
        mean, std = (torch.tensor(one) for one in answers.predict(model, rows, latent=True))
        found = mean, std**2, torch.tensor(answers.noise_std(model, rows)) ** 2
    mean, variance, noise = (one.reshape(shape) for one in found)
    return mean, variance, noise


def _sloped_moments(X: Any, total: Slopes, latent: Slopes) -> tuple[Any, Any, Any]:
    """Means, latent variances and noise variances of rows (N, d): (N,) each."""
    mean = _sloped(X, latent.mean, latent.mean_slope)
    std = _sloped(X, latent.std, latent.std_slope)
    whole = _sloped(X, total.std, total.std_slope)
    return mean, std**2, (whole**2 - std**2).clamp(min=0.0)


def _by_expert(kept: list[Asked]) -> dict[int, tuple[Array, Array]]:
    """K^-1/2 k and K^-1 k of the rows that each expert was asked about, in their order."""
    pieces: dict[int, list[Asked]] = {}
    for one in kept:
        pieces.setdefault(one.m, []).append(one)
    found = {}
    for m, some in pieces.items():
        order = np.argsort(np.concatenate([one.rows for one in some]))
        whitened = np.concatenate([one.answer.whitened for one in some])
        solved = np.concatenate([one.answer.solved for one in some])
        found[m] = whitened[order], solved[order]
    return found


def _roots(Z: Any, weights: Any) -> Any:
    """Roots of the weights of scaled rows (N, d), which may have slopes: (K, N)."""
    roots: Any = np.where(weights > 0, np.sqrt(np.maximum(weights, SMALLEST)), 0.0)
    if not isinstance(roots, Dual):  # without slopes, or weights that do not depend on the rows
        return torch.tensor(roots)
    return _sloped(Z, roots.value.T, roots.slope.swapaxes(0, 1)).mT


def _correlation(
    model: FittedModel, Z: Any, roots: Any, known: dict[int, tuple[Array, Array]] | None
) -> Any:
    """Posterior correlations of scaled rows (b, q, d), joined by the weights: (b, q, q).

    The sum over experts m of sqrt(w_m(x) w_m(x')) R_m(x, x').
    """
    b, q, d = Z.shape
    committee, flat, trend = model.committee, Z.reshape(-1, d), model.committee.trend
    rows, basis = flat.detach().numpy(), None
    if trend is not None:
        terms: Any = trend.model.at(with_slopes(rows)).basis
        basis = None if terms is None else _sloped(flat, terms.value, terms.slope)
    seats = np.broadcast_to(np.arange(len(roots))[:, None], roots.shape)
    if committee.is_single:  # it may count several times
        seats, roots = np.zeros((1, b * q), dtype=int), torch.ones(1, b * q, dtype=torch.double)
    elif model.rules.nearest is not None:
        seats = committee.layout.nearest(rows, model.rules.nearest)[0].T
    prior, total = None, torch.zeros(b, q, q, dtype=torch.double)
    if committee.has_one_kernel:
        prior = _Within.apply(Z, committee.experts[0].kernel.signal)
    for m in np.unique(seats).tolist():
        expert, own = committee.experts[m], seats == m
        places = np.flatnonzero(own.any(axis=0))
        asking = np.unique(places // q)
        inside = np.searchsorted(asking, places // q) * q + places % q
        some, root = Z[asking], torch.where(torch.tensor(own), roots, 0.0).sum(dim=0)
        first = _Within.apply(some, expert.kernel.signal) if prior is None else prior[asking]
        explained = _Explained.apply(some, expert, inside, None if known is None else known[m])
        own_basis = None if basis is None else basis.reshape(b, q, -1)[asking]
        correlation = _of_expert(expert, some, first, explained, own_basis)
        root = root.reshape(b, q)[asking]
        total = total.index_add(
            0, torch.tensor(asking), correlation * root[..., None] * root[:, None]
        )
    return total


def _of_expert(expert: Expert, Z: Any, prior: Any, explained: Any, terms: Any) -> Any:
    """Posterior correlations of one expert at scaled rows (b, q, d): (b, q, q).

    `prior` and `explained` (b, q, q) are the covariances before its rows, and what these have
    taken away; `terms` (b, q, r) are those of a trend.
    """
    n, covariance = len(expert.X), prior - explained
    if terms is not None and expert.factor.terms is not None:
        k = _Across.apply(Z.reshape(-1, Z.shape[-1]), expert.X, expert.kernel.signal)
        of_rows = k @ torch.tensor(expert.factor.terms.coefficients[:n])
        left = terms - of_rows.reshape(terms.shape) - torch.tensor(expert.factor.terms.mean)
        covariance = covariance + left @ left.mT
    least = prior.diagonal(dim1=-2, dim2=-1).clamp(min=PRECISION.smallest_prior)
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    std = torch.maximum(variance, PRECISION.smallest_variance * least).sqrt()
    return covariance / (std[..., None] * std[:, None])


class _Explained(torch.autograd.Function):
    """k' K^-1 k of the rows of each batch (b, q, d), of those at `places`: (b, q, q), or 0."""

    @staticmethod
    def forward(
        ctx: Any, X: Any, expert: Expert, places: IndexArray, known: tuple[Array, Array] | None
    ) -> Any:
        b, q, d = X.shape
        ctx.expert, ctx.places, ctx.known = expert, places, known
        ctx.X, n = X.detach().numpy().reshape(-1, d)[places], len(expert.X)
        if known is None:
            whitened = expert.kernel.signal(ctx.X, expert.X) @ expert.factor.whitener[:n, :n].T
        else:
            whitened = known[0]
        v = _at(places, whitened, b * q).reshape(b, q, n)
        return torch.from_numpy(v @ v.swapaxes(1, 2))

    @staticmethod
    def _slope(ctx: Any, by_k: Any) -> tuple[Any, None, None, None]:
        b, q, expert = len(by_k), by_k.shape[1], ctx.expert
        solved = _at(ctx.places, ctx.known[1], b * q).reshape(b, q, -1)
        by_rows = ((by_k + by_k.mT).numpy() @ solved).reshape(b * q, -1)[ctx.places]
        slope = expert.kernel.signal.slopes(ctx.X, expert.X, by_rows)
        return torch.from_numpy(_at(ctx.places, slope, b * q)).reshape(b, q, -1), None, None, None

    backward = staticmethod(once_differentiable(_slope))


def _at(places: IndexArray, rows: Array, n: int) -> Array:
    """Rows (N, k) at these places of n, among rows of zeros: (n, k)."""
    if len(places) == n:
        return rows
    found = np.zeros((n, rows.shape[1]))
    found[places] = rows
    return found


class _Across(torch.autograd.Function):
    """Covariances of rows (N, d) with rows that are known (n, d): (N, n)."""

    @staticmethod
    def forward(ctx: Any, X: Any, known: Array, kernel: Kernel) -> Any:
        ctx.X, ctx.known, ctx.kernel = X.detach().numpy(), known, kernel
        return torch.from_numpy(kernel(ctx.X, known))

    @staticmethod
    def _slope(ctx: Any, by_k: Any) -> tuple[Any, None, None]:
        return torch.from_numpy(ctx.kernel.slopes(ctx.X, ctx.known, by_k.numpy())), None, None

    backward = staticmethod(once_differentiable(_slope))


class _Within(torch.autograd.Function):
    """Prior covariances of the rows of each batch (b, q, d): (b, q, q)."""

    @staticmethod
    def forward(ctx: Any, X: Any, kernel: Kernel) -> Any:
        ctx.X, ctx.kernel = X.detach().numpy(), kernel
        found = np.empty((*X.shape[:2], X.shape[1]))
        for part, rows in _groups(ctx.X):
            own = np.arange(len(found[part]))
            shape = (len(own), X.shape[1]) * 2
            found[part] = kernel(rows).reshape(shape)[own, :, own]
        return torch.from_numpy(found)

    @staticmethod
    def _slope(ctx: Any, by_k: Any) -> tuple[Any, None]:
        both, slope = (by_k + by_k.mT).numpy(), np.empty(ctx.X.shape)
        for part, rows in _groups(ctx.X):
            own = np.arange(len(slope[part]))
            blocks = np.zeros((len(own), slope.shape[1]) * 2)
            blocks[own, :, own] = both[part]
            slopes = ctx.kernel.slopes(rows, rows, blocks.reshape(len(rows), len(rows)))
            slope[part] = slopes.reshape(slope[part].shape)
        return torch.from_numpy(slope), None

    backward = staticmethod(once_differentiable(_slope))


def _groups(X: AnyArray) -> Any:
    """Some batches of (b, q, d) at a time, and their rows."""
    b, q, d = X.shape
    step = max(1, PRIOR_ROWS // q)
    for start in range(0, b, step):
        part = slice(start, start + step)
        yield part, np.ascontiguousarray(X[part].reshape(-1, d))


class _Sloped(torch.autograd.Function):
    """Values (N, ...) at rows X (N, d) whose slopes (N, ..., d) are known."""

    @staticmethod
    def forward(ctx: Any, X: Any, value: Any, slope: Any) -> Any:
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def _slope(ctx: Any, by_value: Any) -> tuple[Any, None, None]:
        (slope,) = ctx.saved_tensors
        by_x = (by_value.unsqueeze(-1) * slope).reshape(len(slope), -1, slope.shape[-1]).sum(dim=1)
        return by_x, None, None

    backward = staticmethod(once_differentiable(_slope))


def _sloped(X: Any, value: Array, slope: Array) -> Any:
    """Values (N, ...) at rows X (N, d) as a tensor that passes gradients on."""
    return _Sloped.apply(X, torch.tensor(value), torch.tensor(slope))
