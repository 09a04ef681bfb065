"""What the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def physical_memory() -> float:
    """Bytes that a process may have at most; infinity where the system sets no limit."""
    memory = math.inf
    try:
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        memory = min(memory, float(CONTAINER_LIMIT.read_text()))  # "max" is no number
    except (AttributeError, ValueError, OSError):
        pass
    return memory
