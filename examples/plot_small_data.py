"""
Small data
==========

With a handful of rows the likelihood says little, and a Gaussian process that relies on it is
overconfident. Below 2,000 rows a single expert therefore learns its correction from folds, and a
weak prior holds its hyperparameters.
"""

# %%
# Eight rows of a smooth function, fitted by scikit-learn's model and by manygp, both with noise.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from manygp import ManyGPRegressor

warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn: optima at a bound


def problem(seed, n):
    """Rows and targets of a random smooth function, with noise of std 0.2; n to learn from."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(0, 5, n), np.linspace(0, 5, 200)])
    phase, speed = rng.uniform(0, 6), rng.uniform(0.8, 2)
    y = np.sin(speed * x + phase) + 0.2 * rng.normal(size=len(x))
    return x[:n, None], y[:n], x[n:, None], y[n:]


def theirs(X, y):
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)


def both(X, y):
    return {"scikit-learn": theirs(X, y), "manygp": ManyGPRegressor(random_state=0).fit(X, y)}


def band(model, X):
    if isinstance(model, ManyGPRegressor):
        return model.predict_dist(X).interval(0.9)
    mean, std = model.predict(X, return_std=True)
    return mean - 1.645 * std, mean + 1.645 * std


# %%
shared = {"sharex": True, "sharey": True, "layout": "constrained"}
figure, axes = plt.subplots(2, 3, figsize=(11, 5.5), **shared)
for column, seed in enumerate((2, 5, 8)):
    X, y, X_test, y_test = problem(seed, 8)
    for ax, (name, model), colour in zip(axes[:, column], both(X, y).items(), ("C1", "C0")):
        lower, upper = band(model, X_test)
        ax.plot(X_test, y_test, ".", color="0.8", markersize=3)
        ax.fill_between(X_test[:, 0], lower, upper, color=colour, alpha=0.3)
        ax.plot(X_test, model.predict(X_test), color=colour)
        ax.plot(X, y, "ko", markersize=5)
        ax.set(title=name, ylim=(-3, 3))
plt.show()

# %%
# How often do their 90% intervals cover y, over ten such problems of each size?
for n in (5, 12):
    held = {"scikit-learn": [], "manygp": []}
    for seed in range(10):
        X, y, X_test, y_test = problem(seed, n)
        for name, model in both(X, y).items():
            lower, upper = band(model, X_test)
            held[name].append(np.mean((lower <= y_test) & (y_test <= upper)))
    print(f"{n:2} rows: " + ", ".join(f"{name} {np.mean(one):.0%}" for name, one in held.items()))

# %%
# With few rows ask ``predict_dist(X).interval(0.9)``: an interval of ``predict_interval`` can
# only promise what so many left-out rows can show, and says so if they cannot. More in
# :doc:`calibration </calibration>`.
