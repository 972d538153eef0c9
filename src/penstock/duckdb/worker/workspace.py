"""Spill directories and memory reservations, which the native tasks of an executor share.

Each task has a spill directory in the first of Spark's local directories, and a lock file beside it. The operating
system releases the lock when the process ends for any reason, so the next task can remove what a killed process left
behind. The lock file holds the bytes that the task has reserved. The sum of all reservations stays within the
executor's budget.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker.memory import free_memory

try:
    import fcntl
except ImportError:  # Windows: nothing is shared there
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "penstock-duckdb-"
_LOCK = ".lock"
_LEDGER = "penstock-duckdb.ledger"
"""The file that is locked while reservations are read and written."""
_LEAST = 64 << 20
"""Minimum bytes for a task that runs alone: DuckDB needs some megabytes for each thread."""
_PAUSE = 0.05
"""Seconds between two checks for released memory; most queries run longer."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The spill directory of a task, and the bytes that the task may use before it spills."""

    directory: str
    memory: int

    @property
    def most_spilled(self) -> int:
        """The bytes that the task may spill: half of the free disk space, as other tasks and Spark write there, too."""
        return shutil.disk_usage(self.directory).free // 2


def granted_memory(requested: int, budget: int, reserved: int, free: int) -> int | None:
    """Return the bytes of memory that a task gets, None if it must wait.

    A task gets at least half of its request, or waits until other tasks release memory. All arguments are bytes:
    `requested` by the task, the `budget` of all tasks of the executor together, `reserved` by other tasks, and `free`
    on the machine, of which a task gets at most half.

    Examples
    --------
    >>> granted_memory(requested=100, budget=300, reserved=0, free=1000)
    100
    >>> granted_memory(requested=100, budget=300, reserved=240, free=1000)
    60
    >>> granted_memory(requested=100, budget=300, reserved=280, free=1000)
    """
    available = min(budget - reserved, max(free - reserved, 0) // 2)
    if available >= requested // 2 and available > 0:
        return min(requested, available)
    return None if reserved else min(requested, _LEAST)


@contextmanager
def workspace(requested: int, budget: int | None = None) -> Iterator[Workspace]:
    """Reserve memory and create a spill directory; release both at the end.

    `budget` is the bytes that all tasks of the executor may use together; the task waits for its share. None if the
    number of concurrent tasks limits their memory already.
    """
    local_dirs = os.environ.get("SPARK_LOCAL_DIRS", "")
    if fcntl is None or not local_dirs:  # the driver, which reads only samples
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as directory:
            yield Workspace(directory, requested)
        return
    root = Path(local_dirs.split(",", maxsplit=1)[0])
    space, lock = _reserve(root, requested, budget)
    try:
        yield space
    finally:
        shutil.rmtree(space.directory, ignore_errors=True)
        Path(space.directory + _LOCK).unlink(missing_ok=True)
        os.close(lock)


def _reserve(root: Path, requested: int, budget: int | None) -> tuple[Workspace, int]:
    """Return a workspace, and the descriptor of its lock file."""
    while True:
        ledger = _lock_file(root / _LEDGER)
        try:
            reserved = _reserved_memory(root)
            memory = requested if budget is None else granted_memory(requested, budget, reserved, free_memory())
            if memory is not None:
                directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
                lock = _lock_file(Path(directory + _LOCK))
                os.write(lock, str(memory).encode())
                return Workspace(directory, memory), lock
        finally:
            os.close(ledger)
        time.sleep(_PAUSE)


def _reserved_memory(root: Path) -> int:
    """Return the bytes that running tasks have reserved; remove the directories of killed tasks."""
    total = 0
    for file in root.glob(f"{_PREFIX}*{_LOCK}"):
        try:
            lock = os.open(file, os.O_RDWR)
        except OSError:  # its task has just ended
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            total += int(os.read(lock, 32) or 0)
        else:
            shutil.rmtree(str(file).removesuffix(_LOCK), ignore_errors=True)
            file.unlink(missing_ok=True)
        finally:
            os.close(lock)
    return total


def _lock_file(file: Path) -> int:
    """Lock a file, waiting for other processes; return its descriptor."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
