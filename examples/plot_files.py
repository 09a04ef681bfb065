"""
Model files and reports
=======================

A model is saved to one file, which contains numbers and no code, and is described by one HTML page
that can be mailed to whoever relies on it.
"""

# %%
# A small data set from scikit-learn: 442 patients, ten measurements, and the progression of a
# disease.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import manygp
from manygp import ManyGPRegressor
from manygp.display import CalibrationDisplay, write_report

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
model = ManyGPRegressor(trend="linear", random_state=0).fit(X, y)

# %%
# Save and load
# -------------
# ``save`` writes the file completely or not at all; ``load`` checks every byte, and executes
# nothing.
folder = Path(tempfile.mkdtemp())
model.save(folder / "progression.manygp")
same = manygp.load(folder / "progression.manygp")
print("the same predictions:", np.array_equal(model.predict(X), same.predict(X)))
print(f"{(folder / 'progression.manygp').stat().st_size / 1000:.0f} kB")

# %%
# A report
# --------
# The report compares scores with those of simpler models, and shows whether the uncertainty can
# be trusted, which columns matter, and which rows were predicted worst. It needs no test rows:
# each training row is left out in turn.
write_report(model, folder / "progression.html", target="progression")
print(f"{(folder / 'progression.html').stat().st_size / 1000:.0f} kB of HTML, without scripts")

# %%
# What part of it says, in numbers:
mean, std = model.loo_predict()
print({name: round(value, 3) for name, value in model.loo_score().items()})
print(model.relevance())

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].errorbar(mean, y, xerr=std, fmt=".", color="C0", ecolor="0.85", zorder=1)
axes[0].plot([y.min(), y.max()], [y.min(), y.max()], "k--", linewidth=0.8)
axes[0].set(xlabel="predicted, each row left out", ylabel="actual progression")
manygp.display.ReliabilityDisplay.from_predictions(y, mean, std, ax=axes[1])
plt.show()

# %%
# What was compared to choose the model:
CalibrationDisplay.from_estimator(model)
plt.show()

# %%
# The same without Python (``pip install ".[cli]"`` in a clone):
#
# .. code-block:: sh
#
#    manygp fit patients.csv --target progression -o progression.manygp --report progression.html
#    manygp predict progression.manygp new.csv -o answers.csv
#    manygp info progression.manygp
#    manygp verify progression.manygp
#
# :doc:`/files` has the format, checkpoints, all commands, and a picture of a report.
