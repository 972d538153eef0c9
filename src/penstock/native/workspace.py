"""Spill directories and memory, which the native tasks of an executor share.

Each task has a directory and a lock file beside it, in the first of Spark's local directories. The operating system
releases the lock when the process ends, however it ends, so the next task removes what a killed process left behind.
The lock file holds the bytes that the task has reserved: together they stay within the budget of the executor.
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

from penstock.native.memory import free_memory

try:
    import fcntl
except ImportError:  # Windows: nothing is shared there
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "penstock-duckdb-"
_LOCK = ".lock"
_LEDGER = "penstock-duckdb.ledger"
"""The file that is locked while reservations are read and made."""
_LEAST = 64 << 20
"""Bytes that a task gets in any case when it is alone: DuckDB needs some megabytes for each thread."""
_PAUSE = 0.05
"""Seconds between two looks at the reservations of others; most queries run for longer."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """What a task may use.

    Parameters
    ----------
    directory
        Where it spills.
    memory
        The bytes that it may use before it spills.
    """

    directory: str
    memory: int

    @property
    def most_spilled(self) -> int:
        """The bytes that it may spill: half of what is free, as other tasks spill and Spark writes there, too."""
        return shutil.disk_usage(self.directory).free // 2


def granted(wanted: int, budget: int, reserved: int, free: int) -> int | None:
    """Return how many bytes of memory a task gets, None if it must wait.

    A task shrinks to half of what it asks for at most, and waits for others otherwise.

    Parameters
    ----------
    wanted, budget
        The bytes that it asks for, and those that all tasks of the executor may use together.
    reserved
        The bytes that other tasks have reserved.
    free
        The bytes of memory that are free on the machine. A task takes half of them at most.

    Examples
    --------
    >>> granted(wanted=100, budget=300, reserved=0, free=1000)
    100
    >>> granted(wanted=100, budget=300, reserved=240, free=1000)
    60
    >>> granted(wanted=100, budget=300, reserved=280, free=1000)
    """
    available = min(budget - reserved, max(free - reserved, 0) // 2)
    if available >= wanted // 2 and available > 0:
        return min(wanted, available)
    return None if reserved else min(wanted, _LEAST)


@contextmanager
def workspace(wanted: int, budget: int | None = None) -> Iterator[Workspace]:
    """Reserve memory and make a spill directory; release both at the end.

    Parameters
    ----------
    wanted
        The bytes of memory that the task asks for.
    budget
        The bytes that all tasks of the executor may use together. The task waits for its part of them. None if the
        number of tasks that run at a time limits their memory already.
    """
    local_dirs = os.environ.get("SPARK_LOCAL_DIRS", "")
    if fcntl is None or not local_dirs:  # the driver, which looks at samples only
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as directory:
            yield Workspace(directory, wanted)
        return
    root = Path(local_dirs.split(",", maxsplit=1)[0])
    space, lock = _reserve(root, wanted, budget)
    try:
        yield space
    finally:
        shutil.rmtree(space.directory, ignore_errors=True)
        Path(space.directory + _LOCK).unlink(missing_ok=True)
        os.close(lock)


def _reserve(root: Path, wanted: int, budget: int | None) -> tuple[Workspace, int]:
    """Return a workspace, and the descriptor of its lock file."""
    while True:
        ledger = _locked(root / _LEDGER)
        try:
            reserved = _reserved(root)
            memory = wanted if budget is None else granted(wanted, budget, reserved, free_memory())
            if memory is not None:
                directory = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
                lock = _locked(Path(directory + _LOCK))
                os.write(lock, str(memory).encode())
                return Workspace(directory, memory), lock
        finally:
            os.close(ledger)
        time.sleep(_PAUSE)


def _reserved(root: Path) -> int:
    """Return the bytes that running tasks have reserved; remove what is left of tasks that were killed."""
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


def _locked(file: Path) -> int:
    """Return the descriptor of a file that no other process has locked."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
