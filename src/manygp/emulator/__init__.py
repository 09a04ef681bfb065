"""Many outputs: curves, fields and spectra by their principal components."""

from manygp.emulator.estimator import ManyGPEmulator

__all__ = ["ManyGPEmulator"]
