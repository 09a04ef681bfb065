"""From rows to a fitted model."""
