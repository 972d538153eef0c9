"""Processes beside the driver that compute queries in Spark's local mode.

They save the Spark jobs that would compute a query in a task and exchange its result, about 0.15 s. Each process
computes a query at a time. An idle process remains for the next query; all end with the driver.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.duckdb.worker import server
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.server import SentRows, StoredRows
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.duckdb.worker.query import QueryFunction
    from penstock.spark.bridge.jvm import Bridge

_PYTHON_MEMORY = "spark.executor.pyspark.memory"
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_PACKAGES = str(Path(server.__file__).parents[3])
"""The folder that contains the package ``penstock``."""
_MAX_IDLE = 2
"""Number of idle processes that are retained: each holds about 100 MB."""


class QueryProcess:
    """A process that computes queries; `local_folders` are Spark's local directories, separated by commas."""

    def __init__(self, local_folders: str) -> None:
        self.local_folders = local_folders
        ours, theirs = socket.socketpair()
        paths = [_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - the same interpreter and package
                [sys.executable, "-c", f"from {server.__name__} import main; main()", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, _LOCAL_DIRS: local_folders, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self._connection = Connection(ours.detach())

    def compute(self, function: QueryFunction) -> SentRows | StoredRows:
        """Compute a query. Raise `NotNativeError` if DuckDB fails, or if the process ends."""
        try:
            self._connection.send_bytes(pickle.dumps(function))
            reply: SentRows | StoredRows | NotNativeError | str = self._connection.recv()
        except (EOFError, OSError):
            raise NotNativeError(f"its process ended with code {self._process.wait()}") from None
        if isinstance(reply, NotNativeError):
            raise reply
        if isinstance(reply, str):
            raise NotNativeError(reply)
        return reply

    def release(self) -> None:
        """Delete the stored rows of the last query."""
        self._connection.send_bytes(b"")

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process, and the query that it computes."""
        self._process.kill()
        self._process.wait()


class _IdleProcesses:
    """The processes that compute nothing. Thread-safe."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Forget all processes: a forked process of the user's must not send queries to them."""
        self._lock = threading.Lock()
        self._processes: list[QueryProcess] = []

    def take(self, local_folders: str) -> QueryProcess:
        """Return an idle process for these local directories, or a new one."""
        with self._lock:
            while self._processes:
                process = self._processes.pop()
                if process.is_running() and process.local_folders == local_folders:
                    return process
                process.kill()
        return QueryProcess(local_folders)

    def add(self, process: QueryProcess) -> None:
        """Retain a process for a later query, or end it."""
        with self._lock:
            if process.is_running() and len(self._processes) < _MAX_IDLE:
                self._processes.append(process)
                return
        process.kill()


_IDLE = _IdleProcesses()


def is_available(bridge: Bridge) -> bool:
    """Whether a process beside the driver can replace a task of Spark: the same machine, interpreter and limits."""
    context = bridge.spark.sparkContext
    workers, driver = Path(shutil.which(str(context.pythonExec)) or ""), Path(sys.executable)
    is_same_python = workers.parent == driver.parent and workers.resolve() == driver.resolve()
    has_limit = context._conf.contains(_PYTHON_MEMORY)
    return os.name == "posix" and jobs.is_local(bridge) and is_same_python and not has_limit


def prepare(bridge: Bridge) -> None:
    """Start a process if none is idle, so that it imports DuckDB while the query is planned."""
    if not is_available(bridge):
        return
    _IDLE.add(_IDLE.take(_local_folders(bridge)))


@contextmanager
def computed_rows(bridge: Bridge, function: QueryFunction) -> Iterator[SentRows | StoredRows]:
    """Compute a query. Stored rows are deleted when the block ends.

    Raise `NotNativeError` if DuckDB fails, or if the vertex of this thread is cancelled.
    """
    process = _IDLE.take(_local_folders(bridge))
    try:
        with jobs.cancellable(bridge, process.kill):
            rows = process.compute(function)
        yield rows
        if isinstance(rows, StoredRows):
            process.release()
    except NotNativeError:
        _IDLE.add(process)
        raise
    except BaseException:
        process.kill()
        raise
    _IDLE.add(process)


def _local_folders(bridge: Bridge) -> str:
    """Return the folders that Spark's Python workers get, so that all share a budget of memory."""
    return str(bridge.helper("NativeDecoder", on_executors=True).localFolders())
