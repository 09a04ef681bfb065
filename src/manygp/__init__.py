"""Many small Gaussian processes, one calibrated answer."""

from manygp.regressor import ManyGPRegressor

__all__ = ["ManyGPRegressor"]
