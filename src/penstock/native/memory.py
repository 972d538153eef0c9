"""The memory that the processes of this machine may use."""

from __future__ import annotations

import os
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where a container's limit stands (the control groups of Linux, version 2)."""


def machine_memory() -> int:
    """Return the bytes of memory that this machine has, or that its container may use."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(found, int(_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):  # there is no container, or it has no limit: ``max``
        return found
