"""The HTML report about a fitted model."""

from manygp.display.report.emulator import write_emulator_report
from manygp.display.report.rows import Tested, are_training_rows
from manygp.display.report.write import write_report

__all__ = ["Tested", "are_training_rows", "write_emulator_report", "write_report"]
