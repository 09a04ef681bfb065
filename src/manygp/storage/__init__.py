"""Model files: a fitted model written and read without pickle."""

from manygp.storage.container import ModelFileError
from manygp.storage.model_file import check_model, read_model, write_model

__all__ = ["ModelFileError", "check_model", "read_model", "write_model"]
