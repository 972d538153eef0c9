"""Leases: files by which a process shows other machines, which cannot see its process id, that it is alive."""

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
"""Seconds without a renewal after which the process of another machine counts as dead."""


class Lease:
    """Lease on a file, renewed in a thread until `end`.

    Each renewal writes a file beside it, because not every file system can set a modification time.
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
        """Stop renewing the lease."""
        self._ended.set()
        self._thread.join(LEASE / 3)


def is_young(access: Access, path: str) -> bool:
    """Whether a file was written, or its lease renewed, less than `LEASE` seconds ago by its file system's clock.

    A lease that another user has written does not count: it could make a dead process look alive forever.
    """
    file, lease = Folder(access.bridge, path), Folder(access.bridge, _lease_of(path))
    times = [time for time in (_modified(file), None if is_foreign(lease) else _modified(lease)) if time is not None]
    return bool(times) and _now(lease) - max(times) < LEASE


def remove_lease(access: Access, path: str) -> None:
    """Remove the lease of a dead process."""
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
        if not is_denied(error) and beside.parent.may_write():  # object stores deny writes that `may_write` allows
            raise
        log.info("%s is not writable: ages of its files are measured by this machine's clock", beside.parent)
        return time.time()
    try:
        return probe.modified()
    finally:
        probe.delete()
