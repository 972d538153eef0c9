"""The call of the user's program that waits for a query: PySpark names few of them itself (``callSite.short``)."""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.location import SourceLine

if TYPE_CHECKING:
    from types import FrameType

_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parent.parent), "<frozen"}
)
_BRIDGE = ("/py4j/", "/pyspark/")
"""Parts of the paths of the modules that call the JVM, wherever they are installed."""


def waiting_call() -> str | None:
    """Return the call of the user's program that waits for the JVM, such as ``show at job.py:12``.

    None if no thread of the program waits, or several do.
    """
    calls = []
    for thread, top in sys._current_frames().items():
        if thread != threading.get_ident():
            calls.append(_call_of_user(top))
    found = [call for call in calls if call is not None]
    return found[0] if len(found) == 1 else None


def _call_of_user(top: FrameType) -> str | None:
    """Return the user's call at the bottom of which a frame waits in PySpark; None if there is none."""
    frame: FrameType | None = top
    called, is_waiting = "", False
    while frame is not None:
        file = frame.f_code.co_filename
        is_bridge = any(part in file for part in _BRIDGE)
        if is_waiting and not is_bridge and not file.startswith(_LIBRARIES):
            return f"{called} at {SourceLine(file, frame.f_lineno).short}"
        is_waiting = is_waiting or is_bridge
        called = frame.f_code.co_name if is_bridge else called
        frame = frame.f_back
    return None
