"""Detection of jobs whose driver died before they ended."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.history.record import JobRecord

INTERRUPTED = "INTERRUPTED"
_STALE = 3600.0
"""Seconds without a change after which an unfinished log of another machine counts as interrupted."""


def is_alive(host: str, pid: int, modified: float) -> bool:
    """Whether the driver that writes a log is alive; for another machine this is a guess from the age of the log.

    Parameters
    ----------
    host, pid
        The machine and process id of the driver.
    modified
        When the log was last changed, in seconds since the epoch.
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
    """Mark a job as interrupted at the end of its log."""
    record.state = INTERRUPTED
    record.ended = record.changed
    for vertex in record.vertices.values():
        if vertex["state"] in {"CREATED", "SCHEDULED", "RUNNING"}:
            vertex["state"] = "CANCELED"
