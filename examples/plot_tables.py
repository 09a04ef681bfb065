"""
Categories, dates and missing values
====================================

``fit`` takes pandas, polars and pyarrow tables as they come. A value that is missing, or was never
seen, widens the std instead of stopping the work.
"""

# %%
# A table of rents with a number, a category, a date, and gaps.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from manygp import ManyGPRegressor

rng = np.random.default_rng(0)
n = 900
towns = {"Bern": 1500, "Bonn": 900, "Graz": 800, "Ulm": 700}
table = pd.DataFrame(
    {
        "area": rng.uniform(20, 140, n),
        "town": rng.choice(list(towns), n),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1800, n), "D"),
    }
)
rent = table["town"].map(towns) + 9 * table["area"] + 50 * rng.normal(size=n)
table.loc[rng.random(n) < 0.15, "area"] = np.nan
table.head()

# %%
model = ManyGPRegressor(trend="linear", random_state=0).fit(table, rent)
print(model.encoder_.get_feature_names_out())

# %%
# Four flats that differ in what is known about them:
asked = pd.DataFrame(
    {
        "area": [70.0, np.nan, 70.0, np.nan],
        "town": ["Bonn", "Bonn", "Rome", "Rome"],
        "since": pd.Timestamp("2022-06-01"),
    },
    index=["all known", "area missing", "town never seen", "neither known"],
)
mean, std = model.predict(asked, return_std=True)

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.errorbar(mean, asked.index, xerr=1.64 * std, fmt="o", capsize=4)
ax.set(xlabel="rent: mean and 90% band")
ax.margins(y=0.15)
ax.invert_yaxis()
plt.show()

# %%
for name, one, its_std in zip(asked.index, mean, std):
    print(f"{name:16} {one:6.0f} +- {its_std:4.0f}")

# %%
# ``relevance()`` tells which columns matter.
print(model.relevance())

# %%
# ``columns=TableEncoder(unknown="error", missing="error")`` refuses such rows instead, and
# ``columns="numeric"`` takes complete numbers only. ``manygp check data.csv --target rent``
# lists what is wrong with a file. More in :doc:`/tables`.
