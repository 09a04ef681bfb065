"""Figures of a fitted model, and a page about it. Importing this does not import matplotlib."""

from manygp.display.plots import (
    CalibrationDisplay,
    OptimisationDisplay,
    PITDisplay,
    PosteriorDisplay,
    ReliabilityDisplay,
    TrendDisplay,
)
from manygp.display.report import Tested, write_emulator_report, write_report

__all__ = [
    "CalibrationDisplay",
    "OptimisationDisplay",
    "PITDisplay",
    "PosteriorDisplay",
    "ReliabilityDisplay",
    "Tested",
    "TrendDisplay",
    "write_emulator_report",
    "write_report",
]
