"""Runs Spark without what it says about itself.

Uses (Spark 4.0 to 4.3): ``pyspark.core.context.launch_gateway``, which starts the JVM of the driver, and
PySpark's loggers of errors.
"""

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
"""Lines about the start of a JVM, of its modules and of Spark's log, none of which a user can do anything about."""


_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""To which PySpark writes each error that it raises, as JSON on standard error."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep off the terminal, in the block, what a JVM says of its own start, and a second copy of PySpark's errors.

    All else that the JVM or its Python workers say goes to standard error as before.
    """
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with _quiet_launch():
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _quiet_launch() -> Iterator[None]:
    context: Any = import_module("pyspark.core.context")
    plain = context.launch_gateway

    @wraps(plain)
    def launched(*arguments: Any, **options: Any) -> Any:
        return _launched(lambda: plain(*arguments, **options))

    context.launch_gateway = launched
    try:
        yield
    finally:
        context.launch_gateway = plain


def _launched(launch: Callable[[], Any]) -> Any:
    """Launch a JVM whose standard error comes through a filter.

    Raises
    ------
    SessionError
        If it does not start.
    """
    terminal = os.dup(2)
    reader, writer = os.pipe()
    filtered = _Filter(reader, terminal)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        return launch()
    except Exception as error:
        os.dup2(terminal, 2)  # so that the filter comes to the end of what the JVM has said
        said = filtered.said()
        cause = next((line for line in said if "Exception" in line), said[0] if said else str(error))
        hint = "--verbose shows all that it says"
        raise SessionError("Spark could not be started", cause=cause, hint=hint) from error
    finally:
        os.dup2(terminal, 2)
        filtered.pass_on()


class _Filter:
    """Reads what a JVM says, on a thread of its own, and passes on what is worth it, once told so."""

    def __init__(self, reader: int, terminal: int) -> None:
        self._reader = reader
        self._terminal = terminal
        self._held: list[bytes] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="penstock-stderr", daemon=True)
        self._thread.start()

    def said(self) -> list[str]:
        """Return what a JVM that has ended said, and pass nothing of it on."""
        self._thread.join(1)
        with self._lock:
            held, self._held = self._held or [], []
        return [line.decode(errors="replace").strip() for line in held]

    def pass_on(self) -> None:
        """Pass on what comes from now on, and what came so far."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                os.write(self._terminal, line)

    def _run(self) -> None:
        with os.fdopen(self._reader, "rb") as lines:
            for line in lines:
                if _NOISE.match(line):
                    continue
                with self._lock:
                    if self._held is None:
                        os.write(self._terminal, line)
                    else:
                        self._held.append(line)
