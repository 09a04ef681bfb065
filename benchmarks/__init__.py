"""Every table of this project: `python -m benchmarks`, from the root of the repository."""
