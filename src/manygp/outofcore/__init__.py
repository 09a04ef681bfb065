"""Fits of more rows than memory holds: stages that any engine can run, on files in a folder."""
