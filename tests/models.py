"""Small models of small data, single experts, and what tests ask of them."""

import numpy as np
import pytest

from data import noisy_rows, slope_and_wave
from manygp import ManyGPRegressor
from manygp.gp.expert import condition
from manygp.gp.marginal_likelihood import Objective, TrainingData, maximise
from manygp.kernels import RBF, Constant, Matern, White
from manygp.kernels.base import split_noise
from manygp.training import experts as fitting

X, y, QUERIES = noisy_rows(slope_and_wave, 60, 10)

FIXED = Matern(0.9, "fixed", nu=1.5) + White(0.02, "fixed")  # nothing to fit
OWN = 1.0 * RBF(1.0) + White(0.1)
FREE = split_noise(Constant(1.0) * Matern(0.8, (0.05, 20.0), nu=1.5) + White(0.05))
ONE_AND_THREE_EXPERTS = pytest.mark.parametrize(
    "points_per_expert", [100, 20], ids=["one-expert", "three-experts"]
)
# Nothing is left to choose by leave-one-out.
CHOSEN = {
    "overlap": 0,
    "weighting": "entropy",
    "temperature": 4.0,
    "calibration": "information",
    "hyperparameters": "hierarchical",
    "routing": None,
}


def choosing(**parameters):
    """A small model with the library's defaults: three experts of the rows above."""
    return ManyGPRegressor(**{"points_per_expert": 20, "random_state": 0, **parameters})


def model(**parameters):
    """A small model of the rules above."""
    return choosing(**{**CHOSEN, **parameters})


def answers_at(queries):
    """A function of a model, and of other rows: all numbers that predict gives for each."""

    def answers(fitted, rows=queries):
        mean, std = fitted.predict(rows, return_std=True)
        _, latent = fitted.predict(rows, return_std=True, latent=True)
        return np.stack([mean, std, latent, fitted.predict(rows)])

    return answers


answers = answers_at(QUERIES)


def assert_sound(fitted, rows=QUERIES):
    """The rule: finite means and positive standard deviations."""
    mean, std, latent, alone = answers(fitted, rows)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(alone))
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.all((latent > 0) & (latent <= std))


def no_work(*arguments, **options):
    """In the place of what must not be reached."""
    raise AssertionError("work was done")


def interrupt_after(n, monkeypatch):
    """Let the fit of an expert be interrupted, as by Ctrl-C, once n are finished."""
    fit_kernel, count = fitting.fit_kernel, iter(range(n))

    def interrupted(*arguments):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return fit_kernel(*arguments)

    monkeypatch.setattr(fitting, "fit_kernel", interrupted)


# Experts

NOBODY = np.empty(0, dtype=np.intp)


def fit_expert(X, Y, alpha, indices, kernel, precision, constant_mean):
    """The expert of the rows `indices`, which knows no others."""
    data = TrainingData(X, Y, alpha, constant_mean)
    likelihoods, starts = [data.likelihood(indices)], kernel.theta[None]
    found = maximise(likelihoods, Objective(kernel, precision, fitting.FITTING.tolerance), starts)
    return condition(data, indices, NOBODY, found)
