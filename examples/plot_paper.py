"""
The paper, reproduced
=====================

``from_label`` names the models of the paper, of which manygp is an independent implementation:
GP-pro-c, a product of experts whose variances are corrected by a bound on the information
gain. Here are five of them on a smaller version of its 10-d Ackley task.
"""

# %%
# A label is a partition (``bt`` ball tree, ``kx`` k-means, ``rd`` random), a weighting
# (``ent``, ``var``, ``uni``), and ``-c`` for calibrated.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor
from manygp.display import ReliabilityDisplay
from manygp.metrics import ence, nll, rmse

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (5000, 10))
bowl = 20 * np.exp(-0.2 * np.sqrt(np.mean(X**2, axis=1)))
ripples = np.exp(np.mean(np.cos(2 * np.pi * X), axis=1))
y = 20 + np.e - bowl - ripples + rng.normal(0, 0.5, 5000)

# %%
# As in the paper, a random half is for training, and tells how both halves are scaled.
train, test = np.split(np.random.default_rng(0).permutation(5000), 2)
X = (X - X[train].min(axis=0)) / np.ptp(X[train], axis=0)
y = (y - y[train].mean()) / y[train].std()
X_test, y_test = X[test], y[test]
X, y = X[train[:800]], y[train[:800]]

labels = {
    "bt-ent": "GP-pro",
    "bt-ent-c": "GP-pro-c (calibrated)",
    "kx-var-c": "k-means, variance weights",
    "gp-pro-sm": "GP-pro-sm (softmax)",
    "gp-full": "GP-full (one GP)",
}

# %%
figure, ax = plt.subplots(figsize=(6, 5.2), layout="constrained")
print(f"{'':28} {'RMSE':>6} {'NLL':>6} {'ENCE':>6}")
for label, name in labels.items():
    model = ManyGPRegressor.from_label(label, random_state=0).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    scores = [metric(y_test, mean, std) for metric in (rmse, nll, ence)]
    print(f"{name:28} " + " ".join(f"{one:6.3f}" for one in scores))
    ReliabilityDisplay.from_predictions(y_test, mean, std, name=name, ax=ax)
ax.set_title("10-d Ackley, 800 training rows")
plt.show()

# %%
# ``calibration_ratio`` returns the ratio by which GP-pro-c multiplies each expert's variance: 1
# where an expert knows a row exactly, and smaller the less it knows.
calibrated = ManyGPRegressor.from_label("bt-ent-c", random_state=0).fit(X, y)
ratio = calibrated.calibration_ratio(X_test[:500])
print("experts, rows:", ratio.shape)
print(f"ratio from {ratio.min():.3f} to {ratio.max():.3f}")

# %%
# The rules can be changed after ``fit``, and the same experts answer by another one:
for aggregation in ("gpoe", "rbcm", "bcm", "poe"):
    calibrated.set_params(aggregation=aggregation, calibration="none")
    mean, std = calibrated.predict(X_test, return_std=True)
    print(f"{aggregation:5} NLL {nll(y_test, mean, std):8.3f}")

# %%
# ``python -m benchmarks paper``, in a clone of the repository, computes every table and figure of
# the paper at full size: :doc:`/reproduction`. Which function is which equation: :doc:`/design`.
