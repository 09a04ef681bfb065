"""
Which columns matter
====================

``relevance()`` shows which share of the variance of y each column explains. ``TrendDisplay``
draws what a linear or additive trend has learned about each of them.
"""

# %%
# Made-up prices of flats: three columns matter, two do not.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from manygp import ManyGPRegressor
from manygp.display import TrendDisplay

rng = np.random.default_rng(0)
n = 800
flats = pd.DataFrame(
    {
        "area": rng.uniform(20, 140, n),
        "age": rng.uniform(0, 100, n),
        "distance": rng.exponential(5, n),
        "floor": rng.integers(0, 9, n).astype(float),
        "door number": rng.integers(1, 99, n).astype(float),
    }
)
price = (
    4 * flats["area"]
    + 80 * np.exp(-flats["distance"] / 4)
    + 60 * np.cos(flats["age"] / 15)
    + 15 * rng.normal(size=n)
)

# %%
# ``trend="additive"`` learns a curve for each column, and the experts learn the rest.
model = ManyGPRegressor(trend="additive", random_state=0).fit(flats, price)
found = model.relevance()
print(found)

# %%
# *trend* is what the curve of the column explains, *local* what the experts add. Nothing is
# permuted or fitted again, so this costs nothing. Each *feature* of a category or a date has a
# line; :ref:`sphx_glr_gallery_plot_tables.py` sums them by column.
order = np.argsort(found.total)
names = [found.column[j] for j in order]
figure, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
ax.barh(names, found.trend[order], label="trend")
ax.barh(names, found.local[order], left=found.trend[order], label="local")
ax.set(xlabel="share of the variance of the price")
ax.legend(loc="lower right")
plt.show()

# %%
# The curves, with bands of two std:
display = TrendDisplay.from_estimator(model)
display.figure_.set_size_inches(10, 5.5)
plt.show()

# %%
# Any scikit-learn tool that takes an estimator works as well, for instance
# ``sklearn.inspection.permutation_importance``; :doc:`the report </files>` draws partial
# dependence. More in :doc:`/trend`.
