"""Many small Gaussian processes, one calibrated answer."""

from importlib.metadata import version

from manygp.regressor import ManyGPRegressor

__all__ = ["ManyGPRegressor", "__version__"]
__version__ = version("manygp")
