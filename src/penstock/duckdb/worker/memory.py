"""The memory that the processes of this machine may use."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
"""Folder with the limits of the container (Linux control groups, version 2)."""
_MEMINFO = Path("/proc/meminfo")


def machine_memory() -> int:
    """Return the bytes of memory of this machine, or of the container if its limit is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _container_limit()
    return total if limit is None else min(total, limit)


def free_memory() -> int:
    """Return the bytes of memory that are free or used by cached files; all memory if the system does not report it."""
    free = machine_memory()
    available = _fields(_MEMINFO).get("MemAvailable:")
    if available is not None:
        free = min(free, available * 1024)
    limit, used = _container_limit(), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        cached = _fields(_CGROUP / "memory.stat").get("inactive_file", 0)
        free = min(free, max(limit - used + cached, 0))
    return free


def _container_limit() -> int | None:
    return _number(_CGROUP / "memory.max")


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or no limit (``max``)
        return None


def _fields(file: Path) -> dict[str, int]:
    """Return the numbers of a file with lines such as ``MemAvailable: 1000 kB``, by their first word."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) > 1 and words[1].isdigit()}
