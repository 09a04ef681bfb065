"""
Bayesian optimisation
=====================

scikit-optimize takes any regressor that predicts a std, and follows the gradients of mean and
std that ``ManyGPRegressor`` returns. Here it looks for the minimum of the Branin function.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from skopt import Optimizer
from skopt.benchmarks import branin

from manygp import ManyGPRegressor

# %%
# A few dozen points need no trend. (Boosted trees and regressors of your own, as trends, have no
# gradients to follow.)
optimiser = Optimizer(
    [(-5.0, 10.0), (0.0, 15.0)],
    ManyGPRegressor(trend="constant", random_state=0),
    acq_func="EI",
    n_initial_points=8,
    random_state=0,
)
values = []
for _ in range(22):
    point = optimiser.ask()
    value = branin(point)
    optimiser.tell(point, value)
    values.append(value)
found = optimiser.get_result()
print(f"lowest value after {len(values)} evaluations: {found.fun:.3f} (the minimum is 0.398)")

# %%
side = np.linspace(0, 1, 120)
a, b = np.meshgrid(-5 + 15 * side, 15 * side)
surface = np.array([branin(point) for point in np.stack([a, b], -1).reshape(-1, 2)])
points = np.array(optimiser.Xi)

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
axes[0].contourf(a, b, np.log(surface.reshape(a.shape)), levels=20, cmap="viridis")
axes[0].scatter(*points.T, c=np.arange(len(points)), cmap="Reds", edgecolor="white", s=40)
axes[0].set(title="what was evaluated (later: darker)", xlabel="first", ylabel="second")
axes[1].plot(np.arange(1, len(values) + 1), np.minimum.accumulate(values), "o-", markersize=4)
axes[1].axhline(0.398, color="0.5", linestyle=":")
axes[1].set(title="lowest value so far", xlabel="evaluations", yscale="log")
plt.show()

# %%
# By hand
# -------
# Any other rule is a few lines: fit, ask for mean and std of many candidates, take the best.
rng = np.random.default_rng(0)
low, high = np.array([-5.0, 0.0]), np.array([10.0, 15.0])
X = rng.uniform(low, high, size=(8, 2))
y = np.array([branin(row) for row in X])
for _ in range(10):
    model = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
    candidates = rng.uniform(low, high, size=(2000, 2))
    mean, std = model.predict(candidates, return_std=True, latent=True)
    best = candidates[np.argmin(mean - 2 * std)]  # the lower confidence bound
    X, y = np.vstack([X, best]), np.append(y, branin(best))
print(f"lowest value after {len(y)} evaluations: {y.min():.3f}")

# %%
# How far can the std be trusted?
# -------------------------------
# Left-out rows teach the std and the intervals. They are few, and where the optimiser has chosen
# them they are not like the rest of the box: it has looked where values are low. Here are ten
# times 15 evaluations, at random and as chosen by the rule above, and how many of 500 random rows
# the 90% intervals cover:
X_test = rng.uniform(low, high, size=(500, 2))
y_test = np.array([branin(row) for row in X_test])


def evaluated(seed, n_random, n_chosen):
    own = np.random.default_rng(seed)
    X = own.uniform(low, high, size=(n_random, 2))
    y = np.array([branin(row) for row in X])
    for _ in range(n_chosen):
        model = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
        candidates = own.uniform(low, high, size=(500, 2))
        mean, std = model.predict(candidates, return_std=True, latent=True)
        best = candidates[np.argmin(mean - 2 * std)]
        X, y = np.vstack([X, best]), np.append(y, branin(best))
    return X, y


for name, (n_random, n_chosen) in {"15 at random": (15, 0), "8, and 7 chosen": (8, 7)}.items():
    held, ratio = [], []
    for seed in range(10):
        X, y = evaluated(seed, n_random, n_chosen)
        model = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
        found = model.predict_dist(X_test)
        lower, upper = found.interval(0.9)
        held.append(np.mean((lower <= y_test) & (y_test <= upper)))
        ratio.append(np.sqrt(np.mean((y_test - found.mean) ** 2) / np.mean(found.std**2)))
    print(f"{name:16} cover {np.mean(held):.0%}; RMSE / std: median {np.median(ratio):.1f}")

# %%
# With so few rows of a function like this one, errors are larger than the std. Where rows are
# spread at random, the heavy tails of ``predict_dist`` make up for that; after a search they do
# not quite. Use the std to choose the next row, and ``predict_dist`` if you report an interval.
# ``predict_interval`` refuses what so few rows cannot promise: 15 rows at most 93%. More in
# :ref:`sphx_glr_gallery_plot_small_data.py`; :doc:`/calibration_method` has the coverage with 2
# to 30 rows.

# %%
# Other libraries that take a regressor, and what works with each: :doc:`/migrating`.
