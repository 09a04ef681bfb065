"""
A million rows
==============

Nothing changes in the code: this page fits a million rows while the site is built.
:doc:`/scale` has more rows than fit in memory, and clusters.
"""

# %%
# A map of two columns with structure of many sizes.
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor


def height(X):
    a, b = X[:, 0], X[:, 1]
    return (
        np.sin(3 * a) * np.cos(2 * b)
        + 0.4 * np.sin(a * b * 2)
        + 0.5 * np.tanh(8 * (a - 0.5 * b - 1))
    )


rng = np.random.default_rng(0)
X = rng.uniform(0, 4, size=(1_100_000, 2))
X = X[(X[:, 0] - 3) ** 2 + (X[:, 1] - 3) ** 2 > 0.3][:1_000_000]  # a hole without rows
y = height(X) + 0.2 * rng.normal(size=len(X))

# %%
# ``n_jobs=-1`` uses all cores, and the model is the same whatever their number.
start = perf_counter()
model = ManyGPRegressor(n_jobs=-1, random_state=0).fit(X, y)
print(f"{len(X):,} rows, {len(model.experts_):,} experts, {perf_counter() - start:.0f} s")

# %%
# Each row is predicted by the few experts nearest to it, so a prediction costs the same
# whatever n is.
side = np.linspace(0, 4, 100)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
mean, std = model.predict(grid, return_std=True, latent=True)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
extent = (0, 4, 0, 4)
pictures = {
    "truth": (height(grid), "viridis"),
    "mean": (mean, "viridis"),
    "std of the function": (std, "magma"),
}
for ax, (title, (values, colours)) in zip(axes, pictures.items()):
    image = ax.imshow(values.reshape(100, 100), origin="lower", extent=extent, cmap=colours)
    ax.set(title=title)
    figure.colorbar(image, ax=ax, shrink=0.8)
plt.show()

# %%
X_test = rng.uniform(0, 4, size=(5_000, 2))
y_test = height(X_test) + 0.2 * rng.normal(size=5_000)
lower, upper = model.predict_interval(X_test, coverage=0.9)
print(f"RMSE {np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)):.3f} (noise 0.2)")
print(f"90% intervals cover {np.mean((lower <= y_test) & (y_test <= upper)):.1%}")

# %%
# ``time_budget=10`` makes ``fit`` do what it can in ten seconds; ``plan_`` shows the plan.
#
# From files: ``ManyGPRegressor().fit("flights.parquet", target="delay")``. On a cluster:
# ``manygp.dask.DaskManyGPRegressor``. After a crash, ``fit(X, y, checkpoint="folder")`` resumes
# where it stopped.
