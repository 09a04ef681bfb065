"""Trends: what holds everywhere, under the experts."""
