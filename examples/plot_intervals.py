"""
Intervals and distributions
===========================

Three answers to "how sure are you?": a standard deviation, an interval that covers y as often as
it promises, and a whole distribution for each row, with realistic tails. Two pictures show
whether they can be trusted.
"""

# %%
# Noise that grows along the first column and has heavy tails: most errors are small, some are
# huge. A normal distribution fits neither.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor, metrics
from manygp.display import PITDisplay, ReliabilityDisplay

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(3200, 2))
spread = 0.05 + 0.1 * (X[:, 0] + 3)
y = np.sin(X[:, 0]) * X[:, 1] + spread * rng.standard_t(3, size=3200)
X, X_test, y, y_test = X[:1200], X[1200:], y[:1200], y[1200:]

model = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)

# %%
# An interval
# -----------
# ``predict_interval`` learns from rows that were left out how wide it must be (conformal
# prediction).
for coverage in (0.5, 0.8, 0.9, 0.99):
    lower, upper = model.predict_interval(X_test, coverage=coverage)
    held = np.mean((lower <= y_test) & (y_test <= upper))
    print(f"promised {coverage:.0%}, held {held:.1%}")

# %%
# The promise holds on average over rows like the training rows, whatever the distribution of y.
# Use it if an interval is all that you need.
#
# A distribution
# --------------
# ``predict_dist`` returns a Student-t distribution for each row, or a normal one where that is as
# good.
found = model.predict_dist(X_test)
print(f"degrees of freedom: {np.min(found.dof):g}")
quantiles = model.predict_quantiles(X_test[:1], [0.05, 0.5, 0.95])
print("first row, 5%, 50% and 95%:", quantiles.round(2))
print(f"probability that the first row is above 1: {1 - found.cdf(1.0)[0]:.3f}")
mean, std = found.mean, found.std
print(f"log score: {metrics.log_score(y_test, found):.3f}")
print(f"the same of normal distributions: {metrics.nll(y_test, mean, std):.3f}")

# %%
# Can it be trusted?
# ------------------
# Left: rows are sorted by their predicted std into ten bins; on the diagonal the errors are as
# large as promised. Right: the PIT histogram is flat if the distributions are right.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
ReliabilityDisplay.from_predictions(y_test, mean, std, ax=axes[0])
PITDisplay.from_estimator(model, X_test, y_test, ax=axes[1])
plt.show()

# %%
# In numbers: ENCE is the mean distance from the diagonal, relative to it. CRPS is in the units
# of y.
print(f"ENCE {metrics.ence(y_test, mean, std):.3f}, CRPS {metrics.crps(y_test, found):.3f}")

# %%
# How all of this is learned, and what its limits are: :doc:`/calibration_method`.
