"""The names of tasks, models and scores that the studies and their commands share.

This module imports nothing, so that the command line can list the names at once.
"""

# The ten tasks of the paper's tables, in their order.
PAPER_TASKS = (
    "ackley", "levy", "rastrigin", "rosenbrock", "concrete", "airfoil", "parkinsons", "power",
    "kin40k", "protein",
)  # fmt: skip

# The tasks of the study `paper`: those of the tables, after a 1-d illustration.
REPRODUCED_TASKS = ("ackley1d", *PAPER_TASKS)

# The scores that the paper reports; lower is better.
PAPER_SCORES = ("rmse", "nll", "ence")

# The tasks of the study `quality`, and those whose scores are in the units of y.
RAW_UNITS = {"flights": "minutes"}
QUALITY_TASKS = (*PAPER_TASKS, "flights")

# The models of the study `quality`, and the heads of their columns.
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
    "catboost": "CatBoost, uncertainty",
    "catboost-conformal": "CatBoost, conformal",
    "ngboost": "NGBoost",
    "lightgbm": "LightGBM",
    "hist-boosting": "scikit-learn boosting",
    "manygp-5s": "manygp, 5 s to fit",
}

# Training rows of those tasks of the study `trust` that have few, and how often each is simulated.
FEW_ROWS = {2: 100, 3: 100, 5: 100, 8: 60, 12: 60, 30: 30, 100: 10, 500: 3, 2000: 1}

# The same for simulations of all kinds of columns and functions.
MIXED_ROWS = {30: 30, 60: 30, 120: 20, 250: 20, 500: 10, 1000: 6}

# The parts of each task of the study `trust`: seeds of a split, or official folds.
TRUST_TASKS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(PAPER_TASKS, (0,)),
    "pol-folds": tuple(range(10)),
    "kin40k-folds": (0, 1),
    "protein-folds": (0, 1),
    "wine": (0,),
    "housing": (0,),
    "diamonds": (0,),
    "flights": (0,),
    "heteroscedastic": (0,),
    "student-noise": (0,),
    "repeated-rows": (0,),
    "deterministic": (0,),
    **{f"rows-{n}": (0,) for n in FEW_ROWS},
    **{f"mixed-{n}": (0,) for n in MIXED_ROWS},
}

# The models of the study `trust`, and their names in its tables.
TRUST_MODELS = {
    "manygp": "manygp",
    "manygp-uncalibrated": "manygp, not calibrated",
    "scikit-learn": "scikit-learn GPR",
    "catboost": "CatBoost, uncertainty",
    "catboost-conformal": "CatBoost, conformal",
    "catboost-quantiles": "CatBoost, conformal quantiles",
    "lightgbm-quantiles": "LightGBM, conformal quantiles",
    "ngboost": "NGBoost",
    "treeffuser": "Treeffuser",
    "mapie": "MAPIE on manygp",
}

# The tasks and models of the study `folds`, and the names of the models in its tables.
FOLD_TASKS = ("kin40k", "protein", "pol")
FOLD_MODELS = {
    "manygp": "manygp",
    "catboost": "CatBoost, uncertainty",
    "catboost-conformal": "CatBoost, conformal",
    "ngboost": "NGBoost",
    "lightgbm": "LightGBM",
    "gpboost": "GPBoost, Vecchia",
}

# Training rows of the synthetic tasks of the study `speed`, from the smallest to the largest.
SYNTHETIC_ROWS = {"synthetic-10k": 10_000, "synthetic-100k": 100_000, "synthetic-1m": 1_000_000}

# The tasks of the study `speed`.
SPEED_TASKS = (*SYNTHETIC_ROWS, "kin40k", "protein", "rosenbrock")

# The models of the study `speed`, and their names in its tables and figures.
SPEED_MODELS = {
    "manygp": "manygp",
    "manygp-5s": "manygp, 5 s budget",
    "muygps": "MuyGPs",
    "gpboost": "GPBoost, Vecchia",
    "svgp": "GPyTorch SVGP",
    "scikit-learn": "scikit-learn GPR",
}

# The data sets of the study `small`, and how many rows are learned from.
SMALL_ROWS: dict[str, tuple[int, ...]] = {
    "housing": (50, 100, 200),
    "diabetes": (50, 100, 200),
    **dict.fromkeys(
        ("wine", "concrete", "airfoil", "diamonds", "flights", "pol", "protein", "kin40k"),
        (50, 100, 200, 500, 1000),
    ),
}
SMALL_ROWS |= {"concrete": (50, 100, 200, 500)}

# The models of the study `small`, and their names in its tables.
SMALL_MODELS = {
    "manygp": "manygp",
    "scikit-learn": "scikit-learn GPR",
    "extra-trees": "extra trees, conformal",
    "catboost": "CatBoost, uncertainty",
    "ngboost": "NGBoost",
    "lightgbm": "LightGBM",
}

# The tables of the study `messy`, from packages on the registry: see `messy.TABLES`.
MESSY_TASKS = (
    "cars", "seattle-weather", "stocks", "rand-hie", "fair", "co2", "exam", "ames", "chicago",
    "diamonds", "movies", "towny",
)  # fmt: skip

# The models of the study `messy`, and their names in its tables.
MESSY_MODELS = {
    "manygp": "manygp",
    "scikit-learn": "scikit-learn GPR",
    "catboost": "CatBoost, uncertainty",
    "catboost-quantiles": "CatBoost, conformal quantiles",
    "lightgbm-quantiles": "LightGBM, conformal quantiles",
    "ngboost": "NGBoost",
}
