"""A user's script, which type checkers read (`make lint`); no test runs it."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import manygp
from manygp import ManyGPRegressor

Floats = NDArray[np.float64]

rng = np.random.default_rng(0)
X = rng.random((60, 2))
y = np.sin(6 * X[:, 0])
model = ManyGPRegressor(random_state=0).fit(X, y)
assert_type(model, ManyGPRegressor)
assert_type(model.predict(X), Floats)
assert_type(model.predict(X, latent=True), Floats)

mean, std = model.predict(X, return_std=True)
assert_type(mean, Floats)
assert_type(std, Floats)
_, covariance = model.predict(X, return_cov=True)
assert_type(covariance, Floats)
lower, upper = model.predict_interval(X, coverage=0.9)
assert_type(upper - lower, Floats)
assert_type(model.predict_quantiles(X, [0.1, 0.9]), Floats)
assert_type(model.predict_dist(X).logpdf(y), Floats)
assert_type(model.loo_score(), dict[str, float])

model.save("model.manygp")
assert_type(manygp.load("model.manygp"), ManyGPRegressor)
