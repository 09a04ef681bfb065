"""How much memory this process or another takes."""

import os
from pathlib import Path

import pytest

# The beginning of a program. What getrusage knows of a process begins with the peak of its parent.
PEAK_BYTES = """
def peak_bytes():
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
"""


def resident_bytes():
    """What this process has now, or 0 where nothing is known of it."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MEASURABLE = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
