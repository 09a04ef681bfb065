"""Threads and processes, progress, messages, and files that are there whole."""
