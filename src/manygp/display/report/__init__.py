"""The HTML report about a fitted model."""

from manygp.display.report.rows import Tested, are_training_rows
from manygp.display.report.write import write_report

__all__ = ["Tested", "are_training_rows", "write_report"]
