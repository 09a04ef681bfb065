"""Other numbers for a stage while a test runs."""

from dataclasses import replace


def with_numbers(patch, module, record, **numbers):
    """Let a module see its record of numbers with some others."""
    patch.setattr(module, record, replace(getattr(module, record), **numbers))
