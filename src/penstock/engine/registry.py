"""The native engine of this installation."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE, NATIVE_EXCLUDE, NATIVE_MEMORY
from penstock.engine.interface import NativeExecution

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.engine.interface import NativeEngine

log = logging.getLogger("penstock.native")

GROUP = "penstock.engines"
_DUCKDB = EntryPoint("duckdb", "penstock.duckdb.engine:ENGINE", GROUP)
"""The engine of Penstock, also available without package metadata, as in a zip file of ``spark-submit``."""


@cache
def native_engine() -> NativeEngine | None:
    """Return the native engine, None if none can be imported; an engine of another package replaces DuckDB."""
    other_points = sorted(point for point in entry_points(group=GROUP) if point.value != _DUCKDB.value)
    for point in (*other_points, _DUCKDB):
        try:
            engine: NativeEngine = point.load()
        except Exception as error:  # another package must not break jobs
            if point is not _DUCKDB:
                log.warning("the native engine %s cannot be loaded", point.name, exc_info=True)
            elif not isinstance(error, ImportError):  # DuckDB may not be installed
                raise
        else:
            return engine
    return None


def native_execution(config: Configuration, *, is_local: bool) -> NativeExecution | None:
    """Return the native engine and its memory for a job, None without an engine or if ``execution.native`` is off.

    If this option is not set, and Spark runs locally, the engine computes only fragments that call Python functions
    or parse JSON.
    """
    only_expensive = config.get(NATIVE) is None and is_local
    engine = native_engine() if only_expensive or config.flag(NATIVE) else None
    if engine is None:
        return None
    return NativeExecution(engine, config.integer(NATIVE_MEMORY), excluded_expressions(config), only_expensive)


def excluded_expressions(config: Configuration) -> tuple[str, ...]:
    """Return the names of expressions that Spark must compute, in lower case."""
    names = config.get(NATIVE_EXCLUDE)
    return tuple(name.lower() for name in names) if isinstance(names, tuple) else ()
