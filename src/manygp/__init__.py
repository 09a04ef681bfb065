"""Many small Gaussian processes, one calibrated answer."""

from importlib.metadata import version

from manygp.regressor import ManyGPRegressor
from manygp.storage.container import ModelFileError

__all__ = ["ManyGPRegressor", "ModelFileError", "__version__", "load"]
__version__ = version("manygp")
load = ManyGPRegressor.load
