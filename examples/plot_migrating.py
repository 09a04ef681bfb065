"""
Coming from scikit-learn
========================

``ManyGPRegressor`` takes the place of ``GaussianProcessRegressor``: the same kernels, the same
``fit`` and ``predict``. This page shows that the answers agree, what the parameters are
called, in which units ``alpha`` is, and how to read a fitted kernel. The :doc:`user guide
</migrating>` has all differences.

.. list-table:: Parameters
   :header-rows: 1
   :widths: 30 30 40

   * - ``GaussianProcessRegressor``
     - ``ManyGPRegressor``
     - what differs
   * - ``kernel=None``
     - ``kernel=None``
     - here Matern-5/2 with one length-scale per column, plus noise
   * - ``alpha=1e-10``
     - ``alpha=0.0``
     - here always in squared units of y
   * - ``optimizer``, ``n_restarts_optimizer``
     - the same
     -
   * - ``normalize_y=False``
     - ``normalize_y=True``
     - other default
   * - ``n_targets``, ``copy_X_train``, ``random_state``
     - the same
     -
   * - (none)
     - ``points_per_expert=200``
     - up to 399 rows are one exact GP; more rows are dealt out among experts
   * - (none)
     - ``n_jobs``, ``time_budget``, ``verbose``
     - cores, seconds, progress
"""

# %%
# The same answers
# ----------------
# With fewer than 400 rows and your own kernel, one expert has all rows: exact GP regression.
from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from manygp import ManyGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(300, 2))
y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=300)
X_new = rng.uniform(-3, 3, size=(100, 2))

kernel = 1.0 * RBF([1.0, 1.0]) + WhiteKernel(0.1)
theirs = GaussianProcessRegressor(kernel, random_state=0).fit(X, y)
ours = ManyGPRegressor(kernel, normalize_y=False, random_state=0).fit(X, y)

mean, std = theirs.predict(X_new, return_std=True)
our_mean, our_std = ours.predict(X_new, return_std=True)
print(f"largest difference of means: {np.abs(mean - our_mean).max():.1e}")
print(f"largest difference of std:   {np.abs(std - our_std).max():.1e}")

# %%
# Small differences come from the optimiser, which stops at slightly different hyperparameters.
#
# Reading the kernel
# ------------------
# ``kernel_`` is what you wrote, with the fitted values, in the units of X.
print(theirs.kernel_)
print(ours.kernel_)
print("length-scales:", ours.kernel_.k1.k2.length_scale.round(2))
print("noise std:    ", round(ours.kernel_.k2.noise_level**0.5, 3))

# %%
# Units of alpha
# --------------
# Both add ``alpha`` to the diagonal. With ``normalize_y=True`` scikit-learn adds it to the
# *normalised* targets, so a known noise variance has to be divided by the variance of y first.
# Here it is always in squared units of y.
wide, known = 100 * y, 10.0**2  # noise with a std of 10
signal = 1.0 * RBF([1.0, 1.0])
theirs = GaussianProcessRegressor(signal, alpha=known / wide.var(), normalize_y=True).fit(X, wide)
ours = ManyGPRegressor(signal, alpha=known, random_state=0).fit(X, wide)
difference = np.abs(theirs.predict(X_new) - ours.predict(X_new)).max()
print(f"largest difference of means: {difference:.1e}, where y has a std of {wide.std():.0f}")

# %%
# More rows
# ---------
# One GP on n rows takes n³ operations; a committee about n.
sizes, seconds = (100, 200, 400, 800), {"scikit-learn": [], "manygp": []}
for n in sizes:
    X = rng.uniform(-3, 3, size=(n, 2))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)
    models = {
        "scikit-learn": GaussianProcessRegressor(kernel),
        "manygp": ManyGPRegressor(kernel, random_state=0),
    }
    for name, model in models.items():
        begin = process_time()
        model.fit(X, y)
        seconds[name].append(process_time() - begin)

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, values in seconds.items():
    ax.loglog(sizes, values, "o-", label=name)
ax.set(xlabel="training rows", ylabel="seconds of the processor", xticks=sizes, xticklabels=sizes)
ax.minorticks_off()
ax.legend()
plt.show()
