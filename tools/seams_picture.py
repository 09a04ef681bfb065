"""Draw the band of one model with and without tapers, for docs/calibration_method.md.

Usage: python tools/seams_picture.py docs/images/seams.png
"""

import sys
from dataclasses import replace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from manygp import ManyGPRegressor
from manygp.answers import predict

TITLES = {False: "nearest experts, all or nothing", True: "nearest experts, fading out"}


def data():
    """1,500 rows whose noise grows, with a gap."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, size=1800)
    x = x[(x < 4.4) | (x > 6)][:1500]
    return x, np.sin(2 * x) + 0.15 * x**1.5 + (0.05 + 0.09 * x) * rng.normal(size=len(x))


def draw(path):
    x, y = data()
    model = ManyGPRegressor(trend="constant", calibration="none", routing=2, random_state=0)
    fitted = model.fit(x[:, None], y).model_
    grid = np.linspace(0, 10, 4000)
    figure, axes = plt.subplots(
        2,
        2,
        figsize=(11, 5.2),
        sharex=True,
        sharey="row",
        layout="constrained",
        height_ratios=[2, 1],
    )
    for (above, below), (tapered, title) in zip(axes.T, TITLES.items(), strict=True):
        rules = fitted.rules._replace(tapered=tapered)
        mean, std = predict(replace(fitted, rules=rules, chosen=rules), grid[:, None])
        colour = "C0" if tapered else "C3"
        above.plot(x, y, ".", color="0.8", markersize=2.5)
        above.fill_between(
            grid, mean - 1.645 * std, mean + 1.645 * std, color=colour, alpha=0.35, linewidth=0
        )
        above.plot(grid, mean, color=colour, linewidth=1.8)
        above.set_title(title, color=colour, fontweight="bold", loc="left")
        below.plot(grid, std, color=colour, linewidth=1.5)
        below.set(xlabel="x", xlim=(0, 10), ylim=(0, None))
    axes[0, 0].set_ylabel("y, and 90% band")
    axes[1, 0].set_ylabel("std")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(sys.argv[1])
    print(f"{sys.argv[1]}: written")
