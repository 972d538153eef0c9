"""Spill directories and memory reservations of the DuckDB tasks of an executor.

Each task has a spill directory in the first of Spark's local directories, and a lock file beside it. The operating
system releases the lock when the process ends for any reason, so the next task can remove what a killed process left
behind. The lock file holds the bytes that the task has reserved. A task with a budget waits until all reservations
together fit into the budget, unless no other task has a reservation.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.duckdb.worker.memory import free_memory

try:
    import fcntl
except ImportError:  # Windows: tasks share no budget
    fcntl = None  # type: ignore[assignment]


_PREFIX = "penstock-duckdb-"
_LOCK_SUFFIX = ".lock"
_RESERVATIONS_LOCK = "penstock-duckdb.ledger"
"""The file, always empty, that is locked while reservations are read and written."""
_MIN_MEMORY = 64 << 20
"""Bytes that a task gets even if little is free, unless other tasks run: DuckDB needs some megabytes per thread."""
_POLL_SECONDS = 0.05
"""Seconds between two checks for released memory; most queries run longer."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The spill directory of a task, and the bytes that the task may use before it spills."""

    directory: str
    memory: int

    @property
    def max_spilled_bytes(self) -> int:
        """The bytes that the task may spill: half of the free disk space, as Spark and other tasks write to it, too."""
        return shutil.disk_usage(self.directory).free // 2


def granted_memory(requested: int, budget: int, reserved: int, free: int) -> int | None:
    """Return the bytes of memory that a task gets, None if it must wait until other tasks release memory.

    All arguments are bytes: `requested` by the task, the `budget` of all tasks of the executor together, `reserved` by
    other tasks, and `free` on the machine. `free` may include reserved memory that is not used yet, so a task gets at
    most half of ``free - reserved``, and at most the rest of the budget. If that is less than half of its request, the
    task waits; without reservations of other tasks, it gets up to 64 MiB instead.

    >>> granted_memory(requested=100, budget=300, reserved=0, free=1000)
    100
    >>> granted_memory(requested=100, budget=300, reserved=240, free=1000)
    60
    >>> granted_memory(requested=100, budget=300, reserved=280, free=1000)
    """
    available = min(budget - reserved, max(free - reserved, 0) // 2)
    if available >= requested // 2 and available > 0:
        return min(requested, available)
    return None if reserved else min(requested, _MIN_MEMORY)


@contextmanager
def workspace(requested: int, budget: int | None = None) -> Iterator[Workspace]:
    """Reserve memory and create a spill directory; release both when the block ends.

    `budget` is the number of bytes that all tasks of the executor may use together; a task waits for its share. Without
    a budget, a task gets all that it requests.
    """
    local_dirs = os.environ.get("SPARK_LOCAL_DIRS", "")
    if fcntl is None or not local_dirs:  # in the driver, which reads only samples, or on Windows
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as directory:
            yield Workspace(directory, requested)
        return
    root = Path(local_dirs.split(",", maxsplit=1)[0])
    space, lock = _reserve(root, requested, budget)
    try:
        yield space
    finally:
        shutil.rmtree(space.directory, ignore_errors=True)
        Path(space.directory + _LOCK_SUFFIX).unlink(missing_ok=True)
        os.close(lock)


def _reserve(root: Path, requested: int, budget: int | None) -> tuple[Workspace, int]:
    """Wait for memory; return a workspace and the descriptor of its lock file."""
    while True:
        reservations_lock = _lock_file(root / _RESERVATIONS_LOCK)
        try:
            reserved = _reserved_memory(root)
            memory = requested if budget is None else granted_memory(requested, budget, reserved, free_memory())
            if memory is not None:
                directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
                lock = _lock_file(Path(directory + _LOCK_SUFFIX))
                os.write(lock, str(memory).encode())
                return Workspace(directory, memory), lock
        finally:
            os.close(reservations_lock)
        time.sleep(_POLL_SECONDS)


def _reserved_memory(root: Path) -> int:
    """Return the bytes that running tasks have reserved; remove the directories of killed tasks."""
    total = 0
    for file in root.glob(f"{_PREFIX}*{_LOCK_SUFFIX}"):
        try:
            lock = os.open(file, os.O_RDWR)
        except OSError:  # its task has just ended
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            total += int(os.read(lock, 32) or 0)
        else:
            shutil.rmtree(str(file).removesuffix(_LOCK_SUFFIX), ignore_errors=True)
            file.unlink(missing_ok=True)
        finally:
            os.close(lock)
    return total


def _lock_file(file: Path) -> int:
    """Lock a file, waiting for other processes; return its descriptor."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
