"""The call in the user's program that waits for a query; PySpark itself names only few calls (``callSite.short``)."""

from __future__ import annotations

import sys
import sysconfig
import threading
from traceback import walk_stack
from typing import TYPE_CHECKING

from penstock.base.location import PACKAGE, SourceLine

if TYPE_CHECKING:
    from types import FrameType

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {PACKAGE, "<frozen"}
)
_BRIDGE = ("/py4j/", "/pyspark/")
"""Parts of the module paths of the libraries that call the JVM."""


def waiting_call() -> str | None:
    """Return the program's call that waits for the JVM, such as ``show at job.py:12``; None if none or several wait."""
    calls = []
    for thread, top in sys._current_frames().items():
        if thread != threading.get_ident() and (call := _user_call(top)) is not None:
            calls.append(call)
    return calls[0] if len(calls) == 1 else None


def _user_call(top: FrameType) -> str | None:
    """Return the user's call that waits in PySpark in the stack below a frame; None if there is none."""
    called, is_waiting = "", False
    for frame, line in walk_stack(top):
        file = frame.f_code.co_filename
        is_bridge = any(part in file for part in _BRIDGE)
        if is_waiting and not is_bridge and not file.startswith(_LIBRARIES):
            return f"{called} at {SourceLine(file, line).short}"
        is_waiting = is_waiting or is_bridge
        called = frame.f_code.co_name if is_bridge else called
    return None
