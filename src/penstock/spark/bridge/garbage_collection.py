"""Frees JVM memory that is held only by unreachable Python objects.

py4j's Python proxies of JVM objects are in reference cycles, so only Python's garbage collector frees them. It runs
after a number of new Python objects, and cannot see JVM memory: a plan of a few hundred Python objects may retain two
million local rows of a client, or the table of a broadcast join.
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
"""Delay of a collection: by then all functions of the ended job have returned, and more jobs may have ended."""
_PAUSE_SECONDS = 5.0
"""Minimum time between collections: a collection takes 0.05 s with 100 000 Python objects."""
_MIN_HEAP_FRACTION = 0.5
"""Fraction of the driver's maximum heap below which no collection runs."""

_LOCK = threading.Lock()
_last_collection = _next_collection = 0.0
"""Monotonic times of the last collection, and of the latest scheduled collection."""


def collect_soon() -> None:
    """Run Python's garbage collector in 1 to 5 s if the driver's heap is then over half full; called after a job."""
    global _next_collection  # noqa: PLW0603 - one collector for the process
    with _LOCK:
        now = time.monotonic()
        if _next_collection > now:  # it is scheduled already
            return
        _next_collection = max(now + _DELAY_SECONDS, _last_collection + _PAUSE_SECONDS)
        timer = threading.Timer(_next_collection - now, _collect)
    timer.name, timer.daemon = "penstock-garbage", True
    timer.start()


def _collect() -> None:
    global _last_collection  # noqa: PLW0603
    if _is_heap_filled():
        with _LOCK:
            _last_collection = time.monotonic()
        gc.collect()


def _is_heap_filled() -> bool:
    context = SparkContext._active_spark_context
    if context is None:
        return False
    try:
        runtime: Any = JavaClass("java.lang.Runtime", context._gateway._gateway_client).getRuntime()  # type: ignore[union-attr]
        return bool(runtime.totalMemory() - runtime.freeMemory() > _MIN_HEAP_FRACTION * runtime.maxMemory())
    except (Py4JError, OSError):  # the JVM has exited
        return False
