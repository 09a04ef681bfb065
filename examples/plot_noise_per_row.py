"""
Noise per row
=============

Some measurements are better than others, and you know by how much. Pass the noise *variance*
of each row, in squared units of y, as ``alpha``.
"""

# %%
# Two instruments: a good one with a noise std of 0.1, and a bad one with 1.0.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, size=250)
noise_std = np.where(rng.random(250) < 0.25, 0.1, 1.0)
y = np.sin(2 * x) + noise_std * rng.normal(size=250)
X = x[:, None]

told = ManyGPRegressor(random_state=0).fit(X, y, alpha=noise_std**2)
untold = ManyGPRegressor(random_state=0).fit(X, y)

# %%
# ``alpha`` may also be a parameter of the estimator. As an argument of ``fit``,
# cross-validation splits it with the rows: ``cross_validate(model, X, y, params={"alpha":
# noise_std**2})``.
grid = np.linspace(0, 6, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (untold, told), ("without alpha", "with alpha")):
    mean, std = model.predict(grid, return_std=True, latent=True)
    bad = noise_std > 0.5
    ax.plot(x[bad], y[bad], ".", color="0.8", label="noise std 1.0")
    ax.plot(x[~bad], y[~bad], ".", color="C2", label="noise std 0.1")
    ax.fill_between(grid[:, 0], mean - 1.64 * std, mean + 1.64 * std, alpha=0.3)
    ax.plot(grid, mean, label="mean, and 90% of the function")
    ax.plot(grid, np.sin(2 * grid), "k--", linewidth=0.8, label="truth")
    ax.set(title=title, xlabel="x", ylim=(-3, 3))
axes[0].legend(loc="lower left", fontsize="small")
plt.show()

# %%
for name, model in {"without alpha": untold, "with alpha": told}.items():
    error = np.sqrt(np.mean((model.predict(grid) - np.sin(2 * grid[:, 0])) ** 2))
    print(f"{name:14} RMSE of the function: {error:.3f}")

# %%
# The noise of training rows says nothing about a new row. If you know that too, pass it to
# ``predict``:
_, with_good = told.predict([[3.0]], return_std=True, alpha=0.1**2)
_, with_bad = told.predict([[3.0]], return_std=True, alpha=1.0**2)
print(f"std of a new value by the good instrument: {with_good[0]:.2f}")
print(f"std of a new value by the bad instrument:  {with_bad[0]:.2f}")

# %%
# ``alpha`` is a number for all new rows, or one for each. ``predict_interval``,
# ``predict_dist`` and ``predict_quantiles`` take it too.
X_new, its_noise_std = [[1.0], [3.0], [5.0]], np.array([0.1, 0.1, 1.0])
lower, upper = told.predict_interval(X_new, coverage=0.9, alpha=its_noise_std**2)
for row, low, high in zip(X_new, lower, upper):
    print(f"x = {row[0]}: {low:5.2f} to {high:5.2f}")

# %%
# On the command line, use ``manygp fit data.csv --target y --noise-column variance``. Noise that
# ``alpha`` does not include is learned by the kernel: both are added. Repeated rows, and
# how noise counts when rows are left out: :doc:`/calibration_method`.
