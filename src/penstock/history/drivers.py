"""Jobs whose driver died before they ended."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.history.record import JobRecord

INTERRUPTED = "INTERRUPTED"
_STALE = 3600.0
"""Seconds after which a log of another machine that has no end counts as interrupted."""


def is_alive(host: str, pid: int, modified: float) -> bool:
    """Whether the driver that writes a log still lives, as far as can be told from here.

    Parameters
    ----------
    host, pid
        The driver.
    modified
        When the log was changed, seconds since the epoch.
    """
    if host != socket.gethostname():
        return time.time() - modified < _STALE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError, ValueError):
        return True
    return True


def interrupt(record: JobRecord) -> None:
    """Let a job end where its log ends."""
    record.state = INTERRUPTED
    record.ended = record.changed
    for vertex in record.vertices.values():
        if vertex["state"] in {"CREATED", "SCHEDULED", "RUNNING"}:
            vertex["state"] = "CANCELED"
