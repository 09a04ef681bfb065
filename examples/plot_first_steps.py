"""
First steps
===========

Fit a model with no arguments, predict with a standard deviation (std), ask for an interval
that covers y as often as promised, and see how good the model is without any test rows.
"""

# %%
# 240 noisy values of a function of one column, with a gap where nothing was measured.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, size=300)
x = x[(x < 6) | (x > 7.2)][:240]
y = np.sin(1.5 * x) + 0.3 * x + 0.3 * rng.normal(size=len(x))
X = x[:, None]

# %%
# There is nothing to tune. ``random_state`` makes the fit repeatable.
model = ManyGPRegressor(random_state=0).fit(X, y)
model

# %%
# ``std`` is that of a new value of y. ``latent=True`` leaves the noise out, and gives the std
# of the function itself. ``predict_interval`` covers y with the probability that you name.
grid = np.linspace(-0.5, 10.5, 400)[:, None]
mean, std = model.predict(grid, return_std=True)
_, function_std = model.predict(grid, return_std=True, latent=True)
lower, upper = model.predict_interval(grid, coverage=0.9)

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(x, y, ".", color="0.5", markersize=4, label="training rows")
ax.fill_between(grid[:, 0], lower, upper, alpha=0.25, color="C0", label="90% interval of y")
ax.plot(grid, mean, color="C0", label="mean")
ax.set(xlabel="x", ylabel="y", ylim=(-2, 5))
ax.legend(loc="upper left")
plt.show()

# %%
# How good is it? ``loo_score`` predicts every training row as if it had been left out. RMSE is
# the typical error. NLL judges mean and std together. ENCE tells how far the std is from the
# errors: 0 is perfect. The :doc:`glossary </glossary>` has all of these words.
for name, value in model.loo_score().items():
    print(f"{name:5} {value:.3f}")

# %%
# The noise that was put in has a std of 0.3, so the RMSE cannot be much below that. Where rows
# are, the function is known much better than its values:
print(f"std of y at x = 3:            {np.interp(3, grid[:, 0], std):.3f}")
print(f"std of the function at x = 3: {np.interp(3, grid[:, 0], function_std):.3f}")

# %%
# The kernel that was fitted, in the units of x and of the normalised y:
print(model.kernel_)

# %%
# Next: :ref:`sphx_glr_gallery_plot_intervals.py` and :ref:`sphx_glr_gallery_plot_many_rows.py`.
