"""The user's call that waits for a query, read from thread stacks: PySpark sets ``callSite.short`` for few calls."""

from __future__ import annotations

import sys
import sysconfig
import threading
from traceback import walk_stack
from types import FrameType

from penstock.base.location import PACKAGE, UserLine

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {PACKAGE, "<frozen"}
)  # beginnings of the paths of files outside the user's program
_BRIDGE_PATHS = ("/py4j/", "/pyspark/")
"""Parts of the file paths of the libraries that call the JVM."""


def waiting_call() -> str | None:
    """Return the user's call that waits for the JVM, such as ``show at job.py:12``; None if none or several wait."""
    calls = []
    for thread, innermost in sys._current_frames().items():
        if thread != threading.get_ident() and (call := _user_call(innermost)) is not None:
            calls.append(call)
    return calls[0] if len(calls) == 1 else None


def _user_call(innermost: FrameType) -> str | None:
    """Return the user's call of PySpark in which a thread waits, by its innermost frame; None if there is none."""
    pyspark_function, is_waiting = "", False
    for frame, line in walk_stack(innermost):
        file = frame.f_code.co_filename
        is_bridge = any(part in file for part in _BRIDGE_PATHS)
        if is_waiting and not is_bridge and not file.startswith(_LIBRARIES):
            return f"{pyspark_function} at {UserLine(file, line).short}"
        is_waiting = is_waiting or is_bridge
        pyspark_function = frame.f_code.co_name if is_bridge else pyspark_function
    return None
