"""How a process shows those on other machines, which cannot look for it, that it still lives."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING

from penstock.commit.signing import signed
from penstock.commit.trust import is_foreign
from penstock.spark.filesystem import Folder, is_denied

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

LEASE = 60.0
"""Seconds after which the process of another machine counts as dead, if it has not renewed what it holds."""


class Lease:
    """Keeps a file young: one beside it is written again and again, as not every file system lets a time be set.

    Parameters
    ----------
    access
        The session.
    path
        The file.
    """

    def __init__(self, access: Access, path: str) -> None:
        self._file = Folder(access.bridge, _lease_of(path))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"penstock-lease-{self._file.name}", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        written = False
        while not self._ended.wait(LEASE / 3):
            try:
                self._file.write(signed(self._file.name, {}), overwrite=True, private=True)
                written = True
            except Exception:
                log.warning("the lease %s could not be renewed", self._file, exc_info=True)
        if written:
            self._file.delete()

    def end(self) -> None:
        """Renew it no more."""
        self._ended.set()
        self._thread.join(LEASE / 3)


def is_young(access: Access, path: str) -> bool:
    """Whether a file was written or renewed a short while ago, by the clock of its file system.

    A lease that another user has written does not count: it could keep a dead process alive for ever.
    """
    file, lease = Folder(access.bridge, path), Folder(access.bridge, _lease_of(path))
    times = [time for time in (_modified(file), None if is_foreign(lease) else _modified(lease)) if time is not None]
    return bool(times) and _now(lease) - max(times) < LEASE


def remove_lease(access: Access, path: str) -> None:
    """Remove what a dead process has left of its lease."""
    Folder(access.bridge, _lease_of(path)).delete()


def _lease_of(path: str) -> str:
    return f"{path}.lease"


def _modified(file: Folder) -> float | None:
    try:
        return file.modified() if file.exists() else None
    except Exception:
        if file.exists():
            raise
        return None


def _now(beside: Folder) -> float:
    probe = beside.parent.child(f"{beside.name}-{uuid.uuid4().hex[:8]}")
    try:
        probe.write(b"")
    except Exception as error:
        if not is_denied(error) and beside.parent.may_write():  # object stores tell of no permissions, and refuse
            raise
        log.info("%s may not be written to: its age is told by this machine's clock", beside.parent)
        return time.time()
    try:
        return probe.modified()
    finally:
        probe.delete()
