"""Frees JVM memory that is held only by unreachable Python objects.

py4j creates reference cycles in its Python proxies, so only Python's garbage collector detects that a proxy is
unreachable. The collector counts Python objects: it does not see that a plan of a few hundred of them holds a client's
two million local rows, or the table of a broadcast join.
"""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import SparkContext

_DELAY_SECONDS = 1.0
"""By then the last frames of a job have returned; jobs that end together share a collection."""
_PAUSE_SECONDS = 5.0
"""Minimum time between collections: a collection takes 0.05 s with 100 000 Python objects."""
_FILLED = 0.5
"""Fraction of the driver's maximum heap below which no collection runs."""

_LOCK = threading.Lock()
_last = _next = 0.0


def collect_soon() -> None:
    """Run Python's garbage collector a moment later if the driver's heap is half full; called when a job ends."""
    global _next  # noqa: PLW0603 - one collector for the process
    with _LOCK:
        now = time.monotonic()
        if _next > now:
            return
        _next = max(now + _DELAY_SECONDS, _last + _PAUSE_SECONDS)
        timer = threading.Timer(_next - now, _collect)
    timer.name, timer.daemon = "penstock-garbage", True
    timer.start()


def _collect() -> None:
    global _last  # noqa: PLW0603
    if _is_filled():
        with _LOCK:
            _last = time.monotonic()
        gc.collect()


def _is_filled() -> bool:
    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        runtime: Any = JavaClass("java.lang.Runtime", context._gateway._gateway_client).getRuntime()  # type: ignore[union-attr]
        return bool(runtime.totalMemory() - runtime.freeMemory() > _FILLED * runtime.maxMemory())
    except (Py4JError, OSError):  # the JVM is gone
        return False
