"""Experts of a loaded model, whose factors are built when they are needed."""

import numpy as np

from manygp import ManyGPRegressor
from manygp.committee import committee
from manygp.gp import expert as factors
from manygp.gp.expert import Expert
from patching import with_numbers


def test_a_query_builds_each_factor_once_although_none_is_kept(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((600, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=600)
    settings = {"points_per_expert": 50, "trend": "constant", "hyperparameters": "shared"}
    ManyGPRegressor(**settings, overlap=0.0, routing=2, random_state=0).fit(X, y).save(
        tmp_path / "model"
    )
    model = ManyGPRegressor.load(tmp_path / "model")
    n_experts, built = len(model.experts_), []

    def build(expert, build=Expert._build):
        built.append(expert)
        return build(expert)

    with_numbers(monkeypatch, factors, "MEMORY", factor_bytes=0)
    with_numbers(monkeypatch, committee, "QUERYING", block_numbers=64)  # blocks of 32 rows
    monkeypatch.setattr(Expert, "_build", build)
    queries = rng.random((32 * n_experts, 2))
    mean, std = model.predict(queries, return_std=True)
    assert len(built) == n_experts
    pieces = [model.predict(one, return_std=True) for one in np.array_split(queries, 5)]
    np.testing.assert_allclose(np.concatenate([one[0] for one in pieces]), mean, atol=1e-10)
    np.testing.assert_allclose(np.concatenate([one[1] for one in pieces]), std, atol=1e-10)
