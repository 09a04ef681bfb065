"""Many small Gaussian processes, one calibrated answer."""

from typing import TYPE_CHECKING, Any

from manygp import _moved as _moved

if TYPE_CHECKING:
    from manygp.emulator import ManyGPEmulator
    from manygp.regressor import ManyGPRegressor
    from manygp.storage import ModelFileError

    load = ManyGPRegressor.load
    __version__: str

__all__ = ["ManyGPEmulator", "ManyGPRegressor", "ModelFileError", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: scikit-learn comes with the estimator."""
    if name == "__version__":
        from importlib.metadata import version

        return version("manygp")
    if name == "ModelFileError":
        from manygp.storage import ModelFileError

        return ModelFileError
    if name in ("ManyGPRegressor", "load"):
        from manygp.regressor import ManyGPRegressor

        return ManyGPRegressor if name == "ManyGPRegressor" else ManyGPRegressor.load
    if name == "ManyGPEmulator":
        from manygp.emulator import ManyGPEmulator

        return ManyGPEmulator
    raise AttributeError(f"module 'manygp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
