"""Figures of a fitted model, and a page about it. Importing this does not import matplotlib."""

from manygp.display.plots import (
    CalibrationDisplay,
    PITDisplay,
    PosteriorDisplay,
    ReliabilityDisplay,
)
from manygp.display.report import Tested, write_report
from manygp.display.trend import TrendDisplay

__all__ = [
    "CalibrationDisplay",
    "PITDisplay",
    "PosteriorDisplay",
    "ReliabilityDisplay",
    "Tested",
    "TrendDisplay",
    "write_report",
]
