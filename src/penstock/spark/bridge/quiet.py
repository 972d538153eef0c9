"""Starts Spark without its startup messages."""

from __future__ import annotations

import logging
import os
import re
import threading
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.logger import PySparkLogger

from penstock.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NOISE = re.compile(
    rb"WARNING: |NOTE: Picked up |Picked up |Using Spark's default log4j profile|Setting default log level to |"
    rb"Setting Spark log level to |To adjust logging level use |\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN |\s*$"
)
"""Lines about the start of the JVM, its modules and Spark's log, which are irrelevant to the user."""
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that write each raised error to standard error as JSON."""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress startup messages of the JVM and PySpark's log entries of errors in the block, but no other output."""
    context: Any = import_module("pyspark.core.context")
    original = context.launch_gateway

    @wraps(original)
    def launch_gateway(*arguments: Any, **options: Any) -> Any:
        return _launch_filtered(lambda: original(*arguments, **options))

    levels = {logger: logger.level for logger in map(PySparkLogger.getLogger, _LOGGERS)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    context.launch_gateway = launch_gateway
    try:
        yield
    finally:
        context.launch_gateway = original
        for logger, level in levels.items():
            logger.setLevel(level)


def _launch_filtered(launch: Callable[[], Any]) -> Any:
    """Launch a JVM with filtered standard error; raise `SessionError` if it does not start."""
    terminal = os.dup(2)
    reader, writer = os.pipe()
    filtered = _Filter(reader, terminal)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        return launch()
    except Exception as error:
        os.dup2(terminal, 2)  # closes the pipe, so that the filter reads all output of the JVM
        lines = filtered.drain()
        cause = next((line for line in lines if "Exception" in line), lines[0] if lines else str(error))
        hint = "--verbose shows the complete output"
        raise SessionError("Spark could not be started", cause=cause, hint=hint) from error
    finally:
        os.dup2(terminal, 2)
        filtered.pass_on()


class _Filter:
    """Reads the standard error of a JVM on a thread of its own, and forwards relevant lines once it may."""

    def __init__(self, reader: int, terminal: int) -> None:
        self._reader = reader
        self._terminal = terminal
        self._buffered: list[bytes] | None = []
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
                os.write(self._terminal, line)

    def _run(self) -> None:
        with os.fdopen(self._reader, "rb") as lines:
            for line in lines:
                if _NOISE.match(line):
                    continue
                with self._lock:
                    if self._buffered is None:
                        os.write(self._terminal, line)
                    else:
                        self._buffered.append(line)
