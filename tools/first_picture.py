"""Draw the first picture of README and site: examples/plot_boosted_trees.py, as a file.

Usage: python tools/first_picture.py docs/images/first.png
"""

import runpy
import sys
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")

import matplotlib.pyplot as plt  # noqa: E402

runpy.run_path(str(Path(__file__).parents[1] / "examples" / "plot_boosted_trees.py"))
plt.gcf().savefig(sys.argv[1], dpi=130)
print(f"{sys.argv[1]}: written")
