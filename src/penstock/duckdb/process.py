"""Processes beside the driver that compute queries in Spark's local mode.

They save the Spark jobs that would compute a query in a task and exchange its result. A process computes one query at
a time. An idle process remains for the next query; all end with the driver.
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
from contextlib import contextmanager, suppress
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
_PROGRAM = (
    "import sys; folder = sys.argv.pop(); folder in sys.path or sys.path.insert(0, folder); "
    f"from {server.__name__} import main; main()"
)
_END_SECONDS = 1.0
"""Seconds that a process has to end by itself after it closed its connection, so that its own exit code is reported."""
_MAX_IDLE = 2
"""Number of idle processes that are retained: each holds about 100 MB."""


class QueryProcess:
    """A process that computes queries; `local_folders` are Spark's local directories, separated by commas.

    It ends when this process closes its end of a pipe, for any reason.
    """

    def __init__(self, local_folders: str) -> None:
        self.local_folders = local_folders
        ours, theirs = socket.socketpair()
        lifeline, ours_lifeline = os.pipe()
        self._lifeline: int | None = ours_lifeline
        descriptors = [theirs.fileno(), lifeline]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - the same interpreter and package
                [sys.executable, "-c", _PROGRAM, *map(str, descriptors), _PACKAGES],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, _LOCAL_DIRS: local_folders},
                start_new_session=True,  # Ctrl-C reaches only the driver, which decides what ends
            )
        os.close(lifeline)
        self._connection = Connection(ours.detach())

    def compute(self, function: QueryFunction, limit: int) -> SentRows | StoredRows:
        """Compute a query; rows of more than `limit` bytes in the JVM are stored.

        Raise `NotNativeError` if DuckDB fails, or if the process ends.
        """
        try:
            self._connection.send_bytes(pickle.dumps((function, limit)))
            reply: SentRows | StoredRows | NotNativeError | str = self._connection.recv()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self.kill()
            raise NotNativeError(f"its process ended with code {self._process.returncode}") from None
        if isinstance(reply, NotNativeError):
            raise reply
        if isinstance(reply, str):
            raise NotNativeError(reply)
        return reply

    def release(self) -> bool:
        """Delete the stored rows of the last query; return whether the process still runs."""
        try:
            self._connection.send_bytes(b"")
        except OSError:
            return False
        return self.is_running()

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process, and the query that it computes."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process, and close the connection to it."""
        self.kill()
        self.forget()

    def forget(self) -> None:
        """Close the connection to the process, which ends if no other process has it."""
        if self._lifeline is not None:
            self._connection.close()
            os.close(self._lifeline)
            self._lifeline = None


class _IdleProcesses:
    """The processes that compute nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[QueryProcess] = []
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Forget all processes: a process that the user forks must neither use them nor keep them alive."""
        self._lock = threading.Lock()
        while self._processes:
            self._processes.pop().forget()

    def take(self, local_folders: str) -> QueryProcess:
        """Return an idle process for these local directories, or a new one."""
        with self._lock:
            while self._processes:
                process = self._processes.pop()
                if process.is_running() and process.local_folders == local_folders:
                    return process
                process.close()
        return QueryProcess(local_folders)

    def add(self, process: QueryProcess) -> None:
        """Retain a process for a later query, or end it."""
        with self._lock:
            if process.is_running() and len(self._processes) < _MAX_IDLE:
                self._processes.append(process)
                return
        process.close()


_IDLE = _IdleProcesses()


def is_available(bridge: Bridge) -> bool:
    """Whether a process beside the driver can replace a task of Spark: the same machine, interpreter and limits."""
    context, workers = bridge.spark.sparkContext, shutil.which(str(bridge.spark.sparkContext.pythonExec))
    if os.name != "posix" or not workers or not sys.executable or context._conf.contains(_PYTHON_MEMORY):
        return False
    is_same_folder = Path(workers).parent == Path(sys.executable).parent  # of a virtual environment
    is_same_python = is_same_folder and Path(workers).resolve() == Path(sys.executable).resolve()
    return is_same_python and jobs.is_local(bridge)


def prepare(bridge: Bridge) -> None:
    """Start a process if none is idle, so that it imports DuckDB while the query is planned."""
    if not is_available(bridge):
        return
    _IDLE.add(_IDLE.take(_local_folders(bridge)))


@contextmanager
def computed_rows(bridge: Bridge, function: QueryFunction, limit: int) -> Iterator[SentRows | StoredRows]:
    """Compute a query; rows of more than `limit` bytes in the JVM are stored until the block ends.

    Raise `NotNativeError` if DuckDB fails, and `JobCancelledError` if the vertex of this thread is cancelled.
    """
    process = _IDLE.take(_local_folders(bridge))
    is_idle = False
    try:
        try:
            with jobs.cancellable(bridge, process.kill):
                rows = process.compute(function, limit)
        except NotNativeError:
            is_idle = True
            raise
        yield rows
        is_idle = isinstance(rows, SentRows) or process.release()
    finally:
        if is_idle:
            _IDLE.add(process)
        else:
            process.close()


def _local_folders(bridge: Bridge) -> str:
    """Return the folders that Spark's Python workers get, so that all share a budget of memory."""
    return str(bridge.helper("NativeDecoder", on_executors=True).localFolders())
