"""`manygp.botorch`: a fitted model answers BoTorch as it answers everybody, with gradients."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("torch")
pytest.importorskip("botorch")

import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
    qUpperConfidenceBound,
)
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.max_value_entropy_search import (
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
)
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.utils import get_optimal_samples
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import ModelList
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean

from manygp import ManyGPRegressor
from manygp.answers import Rows
from manygp.botorch import ManyGPModel
from manygp.kernels import Matern, White
from manygp.optimise import lean
from manygp.paths import SamplePaths

# Warnings of other libraries about themselves are not ours.
pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error:::manygp"),
]
KERNEL = 1.5 * Matern((0.4, 0.7), nu=2.5) + White(0.01)
PLAIN = {
    "optimizer": None, "random_state": 0, "n_jobs": 1, "trend": "constant", "noise": "constant",
    "target_transform": None, "hyperparameters": "shared", "overlap": 1, "temperature": 4.0,
    "routing": 3,
}  # fmt: skip
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(160, 2)) * [2.0, 5.0]
Y = 10 + 3 * (np.sin(3 * X[:, 0]) - (X[:, 1] / 5 - 0.4) ** 2) + 0.1 * RNG.normal(size=160)
QUERIES = RNG.uniform(size=(3, 4, 2)) * [2.0, 5.0]
BOUNDS = torch.tensor([[0.0, 0.0], [2.0, 5.0]], dtype=torch.double)


LOUDER = Y + RNG.normal(size=160) * X[:, 0] ** 3 / 4  # on the right


def fitted(n=160, kernel=KERNEL, y=Y, **parameters):
    return ManyGPRegressor(kernel, **{**PLAIN, **parameters}).fit(X[:n], y[:n])


MODELS = {
    "one-expert": fitted(40),
    "committee": fitted(points_per_expert=40),
    "all-experts": fitted(points_per_expert=40, weighting="entropy", routing=None),
    "uniform": fitted(points_per_expert=40, weighting="uniform"),
    "linear-trend": fitted(points_per_expert=40, trend="linear"),
    "local-noise": fitted(kernel=None, y=LOUDER, points_per_expert=40, noise="local"),
    "own-kernels": fitted(
        points_per_expert=40, hyperparameters="independent", optimizer="fmin_l_bfgs_b"
    ),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def tensor(rows, *, slopes=False):
    return torch.tensor(rows, dtype=torch.double, requires_grad=slopes)


def test_the_models_of_these_tests_are_what_their_names_say():
    assert len(MODELS["one-expert"].model_.committee) == 1
    assert all(len(MODELS[name].model_.committee) == 4 for name in list(MODELS)[1:])
    assert MODELS["linear-trend"].model_.committee.trend is not None
    assert MODELS["local-noise"].model_.noise is not None
    assert not MODELS["own-kernels"].model_.committee.has_one_kernel


@EVERY
@pytest.mark.parametrize("slopes", [False, True])
def test_moments_are_those_of_predict(name, slopes):
    known, model = MODELS[name], ManyGPModel(MODELS[name])
    latent = model.posterior(tensor(QUERIES, slopes=slopes))
    noisy = model.posterior(tensor(QUERIES, slopes=slopes), observation_noise=True)
    alone = model.posterior(tensor(QUERIES, slopes=slopes).unsqueeze(-2))
    assert latent.mean.shape == (3, 4, 1)
    for i, rows in enumerate(QUERIES):
        mean, cov = known.predict(rows, return_cov=True, latent=True)
        _, total = known.predict(rows, return_cov=True)
        close = {"rtol": 1e-8, "atol": 1e-8 * cov.max()}
        assert_allclose(latent.mean[i, :, 0].detach(), mean, rtol=1e-8)
        assert_allclose(latent.distribution.covariance_matrix[i].detach(), cov, **close)
        assert_allclose(noisy.distribution.covariance_matrix[i].detach(), total, **close)
        assert_allclose(alone.variance[i, :, 0, 0].detach(), np.diag(cov), **close)


@EVERY
def test_gradients_are_finite_differences(name):
    model = ManyGPModel(MODELS[name])
    rng = np.random.default_rng(1)
    by_cov, by_mean = (tensor(rng.normal(size=shape)) for shape in ((3, 4, 4), (3, 4)))

    def value(rows):
        answer = model.posterior(rows, observation_noise=True)
        return (answer.distribution.covariance_matrix * by_cov).sum() + (
            answer.mean[..., 0] * by_mean
        ).sum()

    rows = tensor(QUERIES, slopes=True)
    (gradient,) = torch.autograd.grad(value(rows), rows)
    step = 1e-5
    for _ in range(3):
        along = rng.normal(size=QUERIES.shape)
        ends = [float(value(tensor(QUERIES + sign * step * along))) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * step)
        assert_allclose(float((gradient * tensor(along)).sum()), expected, rtol=1e-5, atol=1e-5)


def test_a_single_expert_is_a_single_task_gp():
    known = fitted(40, trend="none", calibration="none")
    scaling, expert = known.model_, known.model_.committee.experts[0]
    assert expert.kernel.values.tolist() == KERNEL.values.tolist()
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    other = SingleTaskGP(
        tensor(expert.X), tensor(expert.Y), covar_module=kernel, mean_module=ZeroMean(),
        outcome_transform=None,
    )  # fmt: skip
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.5, torch.tensor([0.4, 0.7])
    other.to(torch.double)
    kernel.base_kernel.lengthscale = tensor([0.4, 0.7])
    other.likelihood.noise = 0.01
    rows = tensor(scaling.x_scaling.apply(QUERIES.reshape(-1, 2)).reshape(QUERIES.shape))
    theirs, ours = other.posterior(rows), ManyGPModel(known).posterior(tensor(QUERIES))
    unit = scaling.y_scaling.scale[0]
    mean = scaling.y_scaling.undo(theirs.mean.detach().numpy())
    assert_allclose(ours.mean, mean, rtol=1e-6)
    expected = theirs.distribution.covariance_matrix.detach() * unit**2
    assert_allclose(ours.distribution.covariance_matrix, expected, rtol=1e-6, atol=1e-6)


@EVERY
def test_conditioning_is_that_of_the_joint_distribution(name):
    known, model = MODELS[name], ManyGPModel(MODELS[name])
    new, rows = QUERIES[0], QUERIES[1]
    values = np.array([[9.0], [10.0], [11.0], [12.0]])
    both = np.concatenate([new, rows])
    mean, cov = known.predict(both, return_cov=True, latent=True)
    gain = np.linalg.solve(cov[:4, :4] + np.diag(known.noise_std(new) ** 2), cov[:4, 4:]).T
    expected = mean[4:] + gain @ (values[:, 0] - mean[:4])
    left = cov[4:, 4:] - gain @ cov[:4, 4:]
    at_once = model.condition_on_observations(tensor(new), tensor(values))
    one, two = (tensor(new[i : i + 2]) for i in (0, 2))
    in_turn = model.condition_on_observations(one, tensor(values[:2]))
    in_turn = in_turn.condition_on_observations(two, tensor(values[2:]))
    for conditioned in (at_once, in_turn):
        answer = conditioned.posterior(tensor(rows))
        assert_allclose(answer.mean[:, 0], expected, rtol=1e-8)
        assert_allclose(answer.distribution.covariance_matrix, left, atol=1e-8 * cov.max())
    assert_allclose(model.posterior(tensor(rows)).mean[:, 0], mean[4:], rtol=1e-8)


def test_fantasies_have_a_batch_of_their_own():
    model = ManyGPModel(MODELS["committee"])
    sampler = SobolQMCNormalSampler(torch.Size([5]), seed=0)
    fantasies = model.fantasize(tensor(QUERIES), sampler)
    assert fantasies.batch_shape == (5, 3)
    assert fantasies.posterior(tensor(QUERIES[0])).mean.shape == (5, 3, 4, 1)
    assert fantasies.posterior(tensor(QUERIES[:, :1])).variance.shape == (5, 3, 1, 1)


def acquisition(name, model):
    best = float(Y.max())
    sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
    return {
        "LogEI": lambda: LogExpectedImprovement(model, best_f=best),
        "qLogEI": lambda: qLogExpectedImprovement(model, best_f=best, sampler=sampler),
        "qUCB": lambda: qUpperConfidenceBound(model, beta=4.0, sampler=sampler),
        "qLogNEI": lambda: qLogNoisyExpectedImprovement(
            model, tensor(X[:10]), sampler=sampler, cache_root=False
        ),
        "qKG": lambda: qKnowledgeGradient(model, num_fantasies=3),
        "qMES": lambda: qMaxValueEntropy(model, tensor(X), num_fantasies=2),
        "GIBBON": lambda: qLowerBoundMaxValueEntropy(model, tensor(X)),
        "qJES": lambda: qJointEntropySearch(
            model, *get_optimal_samples(model, BOUNDS, num_optima=4, raw_samples=64)
        ),
        "qLogNEHVI": lambda: qLogNoisyExpectedHypervolumeImprovement(
            ModelListGP(model, ManyGPModel(MODELS["uniform"])),
            ref_point=[8.0, 8.0],
            X_baseline=tensor(X[:20]),
            sampler=sampler,
            cache_root=False,
        ),
    }[name]()


# With how many rows at once.
ACQUISITIONS = {
    "LogEI": 1, "qLogEI": 2, "qUCB": 2, "qLogNEI": 2, "qKG": 1, "qMES": 1, "GIBBON": 1, "qJES": 2,
    "qLogNEHVI": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("model", ["one-expert", "committee"])
def test_acquisition_functions_are_optimised(name, model):
    torch.manual_seed(0)
    wanted, q = acquisition(name, ManyGPModel(MODELS[model])), ACQUISITIONS[name]
    begin = tensor(QUERIES if name == "qKG" else QUERIES[:, :q])
    chosen, value = optimize_acqf(
        wanted,
        BOUNDS,
        q=q,
        num_restarts=3,
        batch_initial_conditions=begin,
        options={"maxiter": 5},
    )
    assert chosen.shape == (q, 2)
    assert torch.all((chosen >= BOUNDS[0]) & (chosen <= BOUNDS[1]))
    assert float(value) > float(wanted(begin).detach().max())


@EVERY
def test_paths_are_those_of_sample_paths(name):
    known, model = MODELS[name], ManyGPModel(MODELS[name])
    torch.manual_seed(3)
    paths = draw_matheron_paths(model, torch.Size([2, 3]))
    torch.manual_seed(3)
    seed = int(torch.randint(2**31, ()))
    drawn = SamplePaths(known.model_, 6, seed, lambda rows: Rows(rows, None))
    expected = drawn(QUERIES[0]).T.reshape(2, 3, 4)
    assert_array_equal(paths(tensor(QUERIES[0])), expected)
    assert paths(tensor(QUERIES)[:, None, None]).shape == (3, 2, 3, 4)
    assert paths(tensor(QUERIES[0]).float()).dtype == torch.float32
    for rows in (
        tensor(QUERIES[0], slopes=True),
        tensor(np.tile(QUERIES[0], (2, 3, 1, 1)), slopes=True),
    ):
        values = paths(rows)  # batches of rows are one for each path
        assert_allclose(values.detach(), expected, rtol=1e-8)
        (slope,) = torch.autograd.grad(values.sum(), rows)
        if rows.ndim == 4:
            by_path = drawn.slopes(QUERIES[0]).slope.transpose(1, 0, 2).reshape(2, 3, 4, 2)
            assert_allclose(slope, by_path, rtol=1e-7, atol=1e-9)


def test_thompson_sampling_takes_rows_of_a_candidate_set():
    model, among = ManyGPModel(MODELS["committee"]), tensor(RNG.uniform(size=(50, 2)) * [2, 5])
    taken = MaxPosteriorSampling(model, replacement=False)(among, num_samples=3)
    assert all(row.tolist() in among.tolist() for row in taken)
    assert len(np.unique(taken, axis=0)) == 3


def test_no_functions_are_drawn_given_imagined_rows():
    model = ManyGPModel(MODELS["committee"])
    model = model.condition_on_observations(tensor(QUERIES[0]), tensor(np.ones((4, 1))))
    with pytest.raises(ValueError, match="imagined"):
        draw_matheron_paths(model, torch.Size([2]))


@pytest.mark.parametrize("kind", ["lean", "own", "known-noise"])
def test_a_model_is_made_of_a_data_set(kind):
    names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
    noise = torch.full((60, 1), 0.5, dtype=torch.double) if kind == "known-noise" else None
    data = SupervisedDataset(tensor(X[:60]), tensor(Y[:60, None]), Yvar=noise, **names)
    own = ManyGPRegressor(KERNEL, **PLAIN)
    expected = {
        "lean": lambda: ManyGPRegressor(**lean(60)),
        "own": lambda: ManyGPRegressor(KERNEL, **PLAIN),
        "known-noise": lambda: ManyGPRegressor(KERNEL, **PLAIN, alpha=np.full(60, 0.5)),
    }[kind]()
    options = {} if kind == "lean" else {"regressor": own}
    made = ManyGPModel(**ManyGPModel.construct_inputs(data, **options))
    mean = expected.fit(X[:60], Y[:60]).predict(QUERIES[0])
    assert_array_equal(made.posterior(tensor(QUERIES[0])).mean[:, 0], mean)
    assert not hasattr(own, "model_")
    with pytest.raises(ValueError, match="categorical_features"):
        ManyGPModel.construct_inputs(data, categorical_features=[1])
    names["outcome_names"] = ["y", "z"]
    both = SupervisedDataset(tensor(X[:60]), tensor(np.ones((60, 2))), **names)
    with pytest.raises(ValueError, match="ModelList"):
        ManyGPModel.construct_inputs(both)


PAGE = (Path(__file__).parents[1] / "docs" / "optimisation.md").read_text()
RECIPES = re.findall(r"\n\n```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("library", ["botorch", "optuna_integration", "ax"])
def test_recipes_of_the_page_run(library, capsys):
    pytest.importorskip(library)
    first = next(one for one in RECIPES if f"\nfrom {library}" in f"\n{one}")
    names = {"X": X, "y": Y}
    exec(compile(first, "optimisation.md", "exec"), names)
    if library == "botorch":
        assert names["rows"].shape == (4, 2)
        return
    found = eval(capsys.readouterr().out.splitlines()[-1])
    assert abs(found["width"] - 0.3) < 0.2
    assert abs(found["depth"] - 0.6) < 0.2


def test_types_outputs_and_lists():
    model = ManyGPModel(MODELS["committee"])
    assert model.num_outputs == 1
    assert model.batch_shape == ()
    assert model.subset_output([0]) is model
    single = tensor(QUERIES).float()
    assert model.posterior(single).mean.dtype == torch.float32
    assert_allclose(model.posterior(single).mean, model.posterior(tensor(QUERIES)).mean, 1e-5)
    noise = torch.full((3, 4, 1), 0.5, dtype=torch.double)
    rows = tensor(QUERIES)
    added = (
        model.posterior(rows, observation_noise=noise).variance - model.posterior(rows).variance
    )
    assert_allclose(added, noise)
    assert ModelList(model, ManyGPModel(MODELS["uniform"])).posterior(rows).mean.shape == (3, 4, 2)


def test_wrong_rows_and_values_are_refused():
    model = ManyGPModel(MODELS["one-expert"])
    with pytest.raises(ValueError, match=r"rows \(..., q, 2\).*\(4, 3\)"):
        model.posterior(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"floating point.*torch.int64"):
        model.posterior(torch.zeros(4, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="NaN or infinity"):
        model.posterior(torch.full((4, 2), torch.nan))
    with pytest.raises(ValueError, match="one value for each row"):
        model.condition_on_observations(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="one output"):
        model.subset_output([1])


@pytest.mark.parametrize(
    ("parameters", "remedy"),
    [
        ({"trend": "boosted"}, "trend='additive', 'linear', 'constant'"),
        ({"target_transform": "log"}, "target_transform=None"),
        ({"aggregation": "nested", "points_per_expert": 40}, "aggregation='gpoe'"),
    ],
)
def test_a_model_that_cannot_be_is_refused_with_a_remedy(parameters, remedy):
    with pytest.raises(ValueError, match=remedy):
        ManyGPModel(fitted(**parameters))


def test_many_targets_are_refused_with_a_remedy():
    many = ManyGPRegressor(KERNEL, **PLAIN).fit(X[:40], np.column_stack([Y, -Y])[:40])
    with pytest.raises(ValueError, match="ModelList"):
        ManyGPModel(many)
