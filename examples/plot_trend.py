"""
A trend under the experts
=========================

An expert knows a few hundred rows. A trend learns patterns that hold everywhere (y oscillates
along one column and rises along another) once, from all rows, and the experts learn the rest.
"""

# %%
# A function of six columns: a wave along each, and one local bump.
import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor
from manygp.metrics import nll, rmse

rng = np.random.default_rng(0)


def function(X):
    bump = 3 * np.exp(-20 * ((X[:, 0] - 0.7) ** 2 + (X[:, 1] - 0.3) ** 2))
    return np.sin(9 * X).sum(axis=1) + bump


X, X_test = rng.random((1000, 6)), rng.random((1000, 6))
y = function(X) + 0.1 * rng.normal(size=len(X))
y_test = function(X_test) + 0.1 * rng.normal(size=len(X_test))

# %%
# ``trend="auto"``, the default, compares all of them on left-out rows. Here each is chosen
# by name. ``temperature``, ``overlap`` and so on stay automatic.
scores = {}
for trend in ("constant", "linear", "additive"):
    model = ManyGPRegressor(trend=trend, random_state=0).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    scores[trend] = rmse(y_test, mean), nll(y_test, mean, std)
    print(f"{trend:9} RMSE {scores[trend][0]:.3f}   NLL {scores[trend][1]:6.3f}")

# %%
# Along the first column, all others at 0.5:
line = np.full((200, 6), 0.5)
line[:, 0] = np.linspace(-0.3, 1.3, 200)
mean, std = model.predict(line, return_std=True)

figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained", width_ratios=(2, 3))
axes[0].bar(list(scores), [one[0] for one in scores.values()], color=["0.6", "0.6", "C0"])
axes[0].set(ylabel="RMSE of new rows", title="which trend")
axes[1].axvspan(0, 1, color="0.95")
axes[1].fill_between(line[:, 0], mean - 1.64 * std, mean + 1.64 * std, alpha=0.25)
axes[1].plot(line[:, 0], mean, label="additive trend and experts")
axes[1].plot(line[:, 0], function(line), "k--", linewidth=0.8, label="truth")
axes[1].set(title="along the first column (rows lie in the grey part)", xlabel="first column")
axes[1].legend(loc="upper center")
plt.show()

# %%
# Outside the range of the rows the spline fades out, and the std grows to that of y itself.
#
# ``trend`` also takes ``"boosted"`` and any regressor with ``fit`` and ``predict``, such as
# CatBoost or a ``Pipeline``: :doc:`/trend`.
