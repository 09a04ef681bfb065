"""
Local noise
===========

Some regions are noisier than others, and nobody has told you which. By default manygp finds out
(``noise="auto"``): training rows that were left out show where errors are larger or smaller
than the model says. Here is the same model with and without local noise, and boosted trees that
predict quantiles for comparison.
"""

# %%
# The data
# --------
# 1,000 rows of a smooth function, quiet at both ends and noisy in the middle.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from manygp import ManyGPRegressor


def truth(x):
    return np.sin(2 * x) + 0.5 * x


def noise(x):
    return 0.06 + 0.6 * np.exp(-0.5 * ((x - 2.5) / 0.5) ** 2)


rng = np.random.default_rng(0)
x = rng.uniform(0, 5, size=1000)
y = truth(x) + noise(x) * rng.normal(size=len(x))
X = x[:, None]

# %%
# Three models
# ------------
# ``noise="constant"`` switches it off. All experts have one kernel here, and with it one noise;
# by default each learns a noise of its own as well. Trees need one model for each end of the
# interval.
settings = {"hyperparameters": "shared", "overlap": 2, "trend": "constant", "random_state": 0}
constant = ManyGPRegressor(noise="constant", **settings).fit(X, y)
local = ManyGPRegressor(noise="auto", **settings).fit(X, y)
trees = [
    HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(X, y)
    for level in (0.05, 0.5, 0.95)
]

# %%
# Left-out rows have decided whether the noise is local; a smaller NLL is better:
for one in local.calibration_report_.alternatives:
    if one.parameter == "local noise":
        print(f"{one.value:9} NLL {one.nll:6.3f}{'  <- chosen' if one.chosen else ''}")

# %%
# Three bands
# -----------
grid = np.linspace(0, 5, 500)[:, None]


def band(model):
    return *model.predict_interval(grid, coverage=0.9), model.predict(grid)


bands = {
    'noise="constant"': band(constant),
    'noise="auto"': band(local),
    "boosted trees": (trees[0].predict(grid), trees[2].predict(grid), trees[1].predict(grid)),
}
half = 1.645 * noise(grid)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
for ax, (title, (lower, upper, middle)), colour in zip(axes, bands.items(), ("C2", "C0", "C1")):
    ax.plot(x, y, ".", color="0.75", markersize=3)
    ax.fill_between(grid[:, 0], lower, upper, color=colour, alpha=0.35, linewidth=0)
    ax.plot(grid, middle, color=colour, linewidth=2)
    ax.plot(grid, truth(grid) - half, "k:", linewidth=1)
    ax.plot(grid, truth(grid) + half, "k:", linewidth=1)
    ax.set(title=title, xlabel="x", xlim=(0, 5))
    ax.spines[["top", "right"]].set_visible(False)
labels = ["rows", "90% interval", "prediction", "90% of the truth"]
axes[0].legend(labels, loc="upper left", frameon=False, fontsize="small")
axes[0].set_ylabel("y")
plt.show()

# %%
# Coverage of 90% intervals for new rows, in the noisy middle and at the quiet ends. The interval
# score is the width of an interval, plus a penalty for targets outside; smaller is better.
from manygp.metrics import interval_score

x_new = rng.uniform(0, 5, size=10_000)
y_new = truth(x_new) + noise(x_new) * rng.normal(size=len(x_new))
middle = np.abs(x_new - 2.5) < 1
X_new = x_new[:, None]
ends = {
    "constant": constant.predict_interval(X_new, coverage=0.9),
    "local": local.predict_interval(X_new, coverage=0.9),
    "boosted trees": (trees[0].predict(X_new), trees[2].predict(X_new)),
}
print(f"{'coverage':20} {'middle':>7} {'ends':>7} {'score':>7}")
for name, (lower, upper) in ends.items():
    held = (lower <= y_new) & (y_new <= upper)
    score = interval_score(y_new, lower, upper, 0.9)
    print(f"{name:20} {held[middle].mean():7.1%} {held[~middle].mean():7.1%} {score:7.3f}")

# %%
# The noise itself
# ----------------
# ``noise_std`` returns the noise alone, without what the model does not know:
for place in (0.5, 2.5, 4.5):
    found = local.noise_std([[place]])[0]
    print(f"x = {place}: noise std {found:.2f}, in truth {noise(place):.2f}")

# %%
# If you know the noise of each row, pass it as ``alpha``:
# :ref:`sphx_glr_gallery_plot_noise_per_row.py`. How local noise is learned:
# :doc:`/calibration_method`.
