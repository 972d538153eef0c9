"""Starts Spark without its startup messages."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

from pyspark.logger import PySparkLogger

from penstock.errors import SessionError

_STARTUP_LINE = re.compile(
    rb"WARNING: |NOTE: Picked up |Picked up |Using Spark's default log4j profile|Setting default log level to |"
    rb"Setting Spark log level to |To adjust logging level use |\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN |\s*$"
)
"""Matches lines about the start of the JVM, its modules and Spark's log, all warnings of that log, and empty lines."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that write each raised error to standard error as JSON."""


@contextmanager
def quiet_start() -> Iterator[None]:
    """Suppress PySpark's log of errors in the block, and `_STARTUP_LINE`s of JVMs started in it, also afterwards."""
    context: Any = import_module("pyspark.core.context")
    original_launch = context.launch_gateway

    @wraps(original_launch)
    def launch_gateway(*arguments: Any, **options: Any) -> Any:
        return _launch_filtered(lambda: original_launch(*arguments, **options))

    levels = {logger: logger.level for logger in map(PySparkLogger.getLogger, _LOGGERS)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    context.launch_gateway = launch_gateway
    try:
        yield
    finally:
        context.launch_gateway = original_launch
        for logger, level in levels.items():
            logger.setLevel(level)


def _launch_filtered(launch: Callable[[], Any]) -> Any:
    """Launch a JVM with filtered standard error; raise `SessionError` if it does not start."""
    original_stderr = os.dup(2)
    reader, writer = os.pipe()
    stderr_filter = _Filter(reader, original_stderr)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        return launch()
    except Exception as error:
        os.dup2(original_stderr, 2)  # closes the write end here, so that the filter ends when the JVM has ended
        lines = stderr_filter.drain()
        cause = next((line for line in lines if "Exception" in line), lines[0] if lines else str(error))
        hint = "--verbose shows the complete output"
        raise SessionError("Spark could not be started", cause=cause, hint=hint) from error
    finally:
        os.dup2(original_stderr, 2)
        stderr_filter.pass_on()


class _Filter:
    """Reads the standard error of a JVM in a thread; buffers relevant lines, which explain errors, until `pass_on`."""

    def __init__(self, reader: int, original_stderr: int) -> None:
        self._reader = reader
        self._original_stderr = original_stderr
        self._buffered: list[bytes] | None = []  # None after `pass_on`: lines are forwarded
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="penstock-stderr", daemon=True)
        self._thread.start()

    def drain(self) -> list[str]:
        """Return the output of a JVM that has ended, without forwarding it."""
        self._thread.join(1)
        with self._lock:
            buffered, self._buffered = self._buffered or [], []
        return [line.decode(errors="replace").strip() for line in buffered]

    def pass_on(self) -> None:
        """Forward the buffered lines, and all later lines."""
        with self._lock:
            buffered, self._buffered = self._buffered or [], None
            for line in buffered:
                os.write(self._original_stderr, line)

    def _run(self) -> None:
        with os.fdopen(self._reader, "rb") as lines:
            for line in lines:
                if _STARTUP_LINE.match(line):
                    continue
                with self._lock:
                    if self._buffered is None:
                        os.write(self._original_stderr, line)
                    else:
                        self._buffered.append(line)
