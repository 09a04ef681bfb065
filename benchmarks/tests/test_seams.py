"""Borders between experts are found, and steps there are measured."""

import numpy as np
from numpy.testing import assert_allclose

from benchmarks.seams import Seams, borders, seams
from manygp import ManyGPRegressor


def test_borders_are_bisected_down_to_rounding():
    def queried(X):
        return np.column_stack([X[:, 0] > 0.3, X[:, 0] > 0.75]).astype(int)

    starts, ends = np.array([[0.0, 0.0], [0.4, 1.0], [0.8, 0.0]]), np.array([[1.0, 1.0]] * 3)
    near, far = borders(queried, starts, ends)
    assert_allclose(near[:, 0], [0.3, 0.75, 0.75], rtol=1e-13)
    assert_allclose(near, far, rtol=1e-13)
    assert np.all(np.any(queried(near) != queried(far), axis=1))


def test_steps_are_those_of_the_mean_and_the_std(monkeypatch):
    class Stepped:
        """Two experts that meet at 0.3, where the mean steps by 1 and the std by a tenth."""

        class committee:
            class layout:
                @staticmethod
                def nearest(X, k):
                    return (X > 0.3).astype(int), None

        class rules:
            nearest = 1

        class x_scaling:
            apply = staticmethod(np.asarray)

    def predict(model, X):
        beyond = X[:, 0] > 0.3
        return beyond * 1.0, 2 + 0.2 * beyond

    monkeypatch.setattr("benchmarks.seams.predict", predict)
    found = seams(Stepped, np.array([[0.0]]), np.array([[1.0]]))
    assert found.n_borders == 1
    assert_allclose(found[1:], [0.5, 0.1])
    assert seams(Stepped, np.array([[0.0]]), np.array([[0.2]])) == Seams(0, 0.0, 0.0)


def test_a_fitted_model_is_followed():
    rng = np.random.default_rng(0)
    X = rng.random((120, 2))
    model = ManyGPRegressor(points_per_expert=20, routing=2, trend="constant", random_state=0)
    fitted = model.fit(X, np.sin(5 * X[:, 0])).model_
    assert seams(fitted, X[:10], X[10:20]).n_borders > 0
