"""Freeing what the JVM holds for Python objects that nobody holds any more.

py4j ties each Python object that stands for one of the JVM to itself, so only Python's garbage collector finds that it
is gone. The collector counts Python objects: it does not see that a plan of a few hundred of them has a client's two
million local rows, or the table of a broadcast join.
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
"""The last frames of a job have returned by then, and several jobs that end together are cleaned up after at once."""
_PAUSE_SECONDS = 5.0
"""At most one collection in this time: it takes 0.05 s where there are 100 000 Python objects."""
_FILLED = 0.5
"""The part of the driver's largest heap below which nothing is done: until then, garbage does no harm."""

_LOCK = threading.Lock()
_last = _next = 0.0


def collect_soon() -> None:
    """Let Python's garbage collector run a moment later, if the driver's heap is half full; called when a job ends."""
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
