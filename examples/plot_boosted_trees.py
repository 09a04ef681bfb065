"""
Comparison with boosted trees
=============================

Gradient boosting is the usual choice for a table of numbers. It can predict quantiles too, with
one model for each. Here both are fitted to the same 1,500 rows, which are noisy in two places and
have a gap.
"""

# %%
# The data
# --------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from manygp import ManyGPRegressor


def truth(x):
    return np.sin(2 * x) + 0.15 * x**1.5


def noise(x):
    bursts = np.exp(-0.5 * ((x - 2.6) / 0.7) ** 2) + np.exp(-0.5 * ((x - 8.3) / 0.8) ** 2)
    return 0.07 + 0.45 * bursts


rng = np.random.default_rng(3)
x = rng.uniform(0, 10, size=1800)
x = x[(x < 4.4) | (x > 6)][:1500]
y = truth(x) + noise(x) * rng.normal(size=len(x))

# %%
# Two models
# ----------
# manygp takes one line; the trees take one model of the median and one for each end of the
# interval.
model = ManyGPRegressor(random_state=0).fit(x[:, None], y)

trees = {
    level: HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(
        x[:, None], y
    )
    for level in (0.05, 0.5, 0.95)
}

# %%
# Two bands
# ---------
grid = np.linspace(0, 10, 600)[:, None]
bands = {
    "manygp": (model.predict(grid), *model.predict_interval(grid, coverage=0.9)),
    "boosted trees, three quantile models": tuple(
        trees[level].predict(grid) for level in (0.5, 0.05, 0.95)
    ),
}

figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, layout="constrained")
for ax, (name, (middle, lower, upper)), colour in zip(axes, bands.items(), ("C0", "C1")):
    ax.axvspan(4.4, 6, color="0.96", linewidth=0)
    ax.text(5.2, -1.8, "no rows", ha="center", color="0.45")
    ax.plot(x, y, ".", color="0.75", markersize=2.5, rasterized=True, label="rows")
    ax.fill_between(
        grid[:, 0], lower, upper, color=colour, alpha=0.35, linewidth=0, label="90% interval"
    )
    ax.plot(grid, middle, color=colour, linewidth=2, label="prediction")
    ax.plot(grid, truth(grid), "k--", linewidth=0.9, label="truth")
    ax.set(xlabel="x", xlim=(0, 10), ylim=(-2.2, 6.6))
    ax.set_title(name, color=colour, fontweight="bold", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(loc="upper left", frameon=False)
axes[0].set_ylabel("y")
plt.show()

# %%
# New rows, where there were rows to learn from, and in the gap:
x_new = rng.uniform(0, 10, size=10_000)
y_new = truth(x_new) + noise(x_new) * rng.normal(size=len(x_new))
gap = (x_new > 4.4) & (x_new < 6)
ends = {
    "manygp": model.predict_interval(x_new[:, None], coverage=0.9),
    "boosted trees": tuple(trees[level].predict(x_new[:, None]) for level in (0.05, 0.95)),
}
print(f"{'coverage':20} {'seen':>7} {'gap':>7}")
for name, (lower, upper) in ends.items():
    held = (lower <= y_new) & (y_new <= upper)
    print(f"{name:20} {held[~gap].mean():7.1%} {held[gap].mean():7.1%}")

# %%
# manygp's band is smooth where experts meet, and follows the noise, which is learned from left-out
# rows. In the gap the experts know less, and say so, whereas the trees repeat the nearest leaf.
#
# Trees and experts can be combined: ``trend="boosted"`` uses trees as the trend of the experts
# (:doc:`trends </trend>`). :ref:`sphx_glr_gallery_plot_local_noise.py` explains local noise, and
# :doc:`tables </tables>` what becomes of categories, dates and missing values.
