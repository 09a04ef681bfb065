"""scikit-learn's own tests of GaussianProcessRegressor, run against manygp: `make sklearn-suite`.

The tests are those that are installed with scikit-learn. The class that they test is replaced by a
thin alias: `ManyGPRegressor` with scikit-learn's defaults where they differ. Each test that does
not pass is printed with its error. docs/migrating.md has the reasons.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

import pytest
import sklearn
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from manygp import ManyGPRegressor

MODULE = "sklearn.gaussian_process.tests.test_gpr"


class Alias(ManyGPRegressor):
    """What somebody who migrates writes: the parameters of scikit-learn, and two of its defaults.

    The default kernel is a constant times RBF, and targets stay as they are. All else, alpha too,
    is manygp's own default.
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        alpha: Any = 0.0,
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts_optimizer: int = 0,
        normalize_y: bool = False,
        copy_X_train: bool = True,
        n_targets: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            ConstantKernel() * RBF() if kernel is None else kernel,
            alpha=alpha,
            optimizer=optimizer,
            n_restarts_optimizer=n_restarts_optimizer,
            normalize_y=normalize_y,
            copy_X_train=copy_X_train,
            n_targets=n_targets,
            random_state=random_state,
        )


class Recorder:
    """Replaces the class in the module of tests, and notes how each test ends."""

    def __init__(self, estimator: type | None) -> None:
        self.estimator = estimator
        self.outcomes: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for module in {item.module for item in items}:
            if self.estimator is not None:
                module.GaussianProcessRegressor = self.estimator

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.failed:
            expected_to_fail = hasattr(report, "wasxfail")
            outcome = f"expected to fail, {report.outcome}" if expected_to_fail else report.outcome
            crash = getattr(report.longrepr, "reprcrash", None)
            message = "" if crash is None else crash.message.splitlines()[0]
            self.outcomes[report.nodeid.rpartition("::")[2]] = outcome, message


def run(estimator: type | None) -> dict[str, tuple[str, str]]:
    """The outcome and error of each test, by its name; None is scikit-learn's own class."""
    recorder = Recorder(estimator)
    options = ["-c", os.devnull, "-p", "no:cacheprovider", "-q", "--no-summary", "--no-header"]
    pytest.main([*options, "--disable-warnings", "--pyargs", MODULE], plugins=[recorder])
    return recorder.outcomes


def main() -> None:
    own = "--scikit-learn" in sys.argv
    outcomes = run(None if own else Alias)
    print(
        f"scikit-learn {sklearn.__version__}: {dict(Counter(one for one, _ in outcomes.values()))}"
    )
    for name, (outcome, message) in outcomes.items():
        if outcome == "failed":
            print(f"  {name}: {message}")


if __name__ == "__main__":
    main()
