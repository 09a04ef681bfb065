"""
Choosing a kernel
=================

The default kernel (Matern-5/2, one length-scale per column, plus noise) is right for most
tables. You need another one if you know something about the function: that it repeats, that it
is a line, or that it is a sum of functions of single columns.
"""

# %%
# Monthly values for 25 years: a rise, a year that repeats, and noise.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor
from manygp.kernels import RBF, Constant, Linear, Matern, Periodic, White

rng = np.random.default_rng(0)
year = np.arange(0, 30, 1 / 12)
value = 0.4 * year + np.sin(2 * np.pi * year) + 0.5 * np.cos(4 * np.pi * year)
value += 0.3 * rng.normal(size=len(year))
known = year < 25
X, y = year[known, None], value[known]

# %%
# Kernels are added and multiplied. Noise is a ``White`` term; ``Constant`` is the variance of
# a term. A kernel of yours sees X in its own units, here years.
kernels = {
    "Matern": Constant(1.0) * Matern(1.0) + White(0.1),
    "Linear + RBF": Linear() + Constant(1.0) * RBF(1.0) + White(0.1),
    "Linear + Periodic": Linear() + Constant(1.0) * Periodic(1.0, period=1.0) + White(0.1),
}

# %%
# ``loo_score`` compares them without test rows. Leaving out one row in turn shows which kernel
# fills gaps well; the last five years show which one can also extrapolate.
fitted = {
    name: ManyGPRegressor(kernel, random_state=0).fit(X, y) for name, kernel in kernels.items()
}
print(f"{'':18} {'left out: NLL':>14} {'last 5 years: RMSE':>20}")
for name, model in fitted.items():
    error = np.sqrt(np.mean((model.predict(year[~known, None]) - value[~known]) ** 2))
    print(f"{name:18} {model.loo_score()['nll']:14.3f} {error:20.3f}")

# %%
figure, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, fitted.items()):
    mean, std = model.predict(year[:, None], return_std=True)
    ax.plot(year, value, ".", color="0.7", markersize=3)
    ax.fill_between(year, mean - 1.64 * std, mean + 1.64 * std, alpha=0.25)
    ax.plot(year, mean, linewidth=1)
    ax.axvline(25, color="0.5", linestyle=":")
    ax.set(title=name, xlim=(15, 30))
axes[-1].set_xlabel("year (dots right of the line were not known)")
plt.show()

# %%
# Reading and writing kernels
# ---------------------------
# A fitted kernel prints as one line. It is made of parts that can be read by name, and its
# text can be passed to ``manygp fit --kernel``.
from manygp.kernels import parse_kernel, write_kernel

best = fitted["Linear + Periodic"].kernel_
print(best)
print(parse_kernel(write_kernel(best)) == best)

# %%
# scikit-learn's kernels are accepted too: :ref:`sphx_glr_gallery_plot_migrating.py`.
# ``Additive``, ``Pairwise`` and ``structured_kernel`` are for sums over columns:
# :doc:`/parameters`. A kernel of your own is a class with two methods: :doc:`/extending`.
