"""The names of tasks, models and scores that the studies and their commands share.

This module imports nothing, so that the command line can list the names at once.
"""

# The ten tasks of the paper's tables, in their order.
PAPER_TASKS = (
    "ackley", "levy", "rastrigin", "rosenbrock", "concrete", "airfoil", "parkinsons", "power",
    "kin40k", "protein",
)  # fmt: skip

# The scores that the paper reports; lower is better.
PAPER_SCORES = ("rmse", "nll", "ence")

# The models of `bench quality`, and the heads of their columns.
QUALITY_MODELS = {
    "manygp": "manygp",
    "manygp-nested": "manygp, nested",
    "manygp-grbcm": "manygp, GRBCM",
    "exact": "exact GP, shared kernel",
    "neighbours": "GP on 400 neighbours",
    "scikit-learn": "scikit-learn GPR",
    "gpboost": "GPBoost, Vecchia",
    "svgp": "GPyTorch SVGP",
    "muygps": "MuyGPs, 30 neighbours",
    "manygp-5s": "manygp, 5 s to fit",
}

# Training rows of the synthetic tasks of `bench speed`, from the smallest to the largest.
SYNTHETIC_ROWS = {"synthetic-10k": 10_000, "synthetic-100k": 100_000, "synthetic-1m": 1_000_000}

# The tasks of `bench speed`.
SPEED_TASKS = (*SYNTHETIC_ROWS, "kin40k", "protein", "rosenbrock")

# The models of `bench speed`, and their names in its tables and figures.
SPEED_MODELS = {
    "manygp": "manygp",
    "manygp-5s": "manygp, 5 s budget",
    "muygps": "MuyGPs",
    "gpboost": "GPBoost, Vecchia",
    "svgp": "GPyTorch SVGP",
    "scikit-learn": "scikit-learn GPR",
}
