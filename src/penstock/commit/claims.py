"""Claims: lock files of a process that other processes take over when it dies. Leases: files that show that it lives.

Other machines need leases, because they cannot see the process id.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.owner import Owner
from penstock.commit.trust import is_foreign, signed
from penstock.spark.io.filesystem import Folder, is_denied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

LEASE = 60.0
"""Seconds without a renewal after which the process of another machine counts as dead."""
_HELD: set[bytes] = set()
"""The content of claims that threads of this process hold; a claim file that could not be removed is free."""


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


@contextmanager
def claimed(access: Access, path: str) -> Iterator[bool]:
    """Hold a claim during the block; yield False if another process, or another of its threads, holds it."""
    claim = Folder(access.bridge, path)
    content = signed(claim.name, asdict(Owner.me()) | {"claim": uuid.uuid4().hex})
    _HELD.add(content)
    try:
        if not _take(access, claim, content):
            yield False
            return
        lease = Lease(access, path)
        try:
            yield True
        finally:
            lease.end()
            _remove(access, claim, content)
    finally:
        _HELD.discard(content)


def holder_of(access: Access, path: str) -> Owner | None:
    """Return the process that holds a claim; None if no process holds it."""
    content = Folder(access.bridge, path).read_if_exists()
    return None if content is None else Owner.from_json(content)


def _take(access: Access, claim: Folder, content: bytes) -> bool:
    if claim.write(content, private=True):
        # On object stores both of two writers may succeed. The later write wins.
        return claim.read_if_exists() == content
    dead = _left_by_dead(access, claim)
    return dead is not None and _replace(access, claim, dead, content)


def _remove(access: Access, claim: Folder, content: bytes) -> None:
    """Remove a claim if this process still holds it; another may have replaced it if this process counted as dead."""
    try:
        if claim.read_if_exists() != content:
            return
        claim.delete()
        remove_lease(access, str(claim))
    except Exception:
        log.warning("the claim %s could not be removed; it ends with this process", claim, exc_info=True)


def _left_by_dead(access: Access, claim: Folder) -> bytes | None:
    """Return the content of a claim that no live process holds; None of any other claim."""
    try:
        content = claim.read()
        owner = Owner.from_json(content)
        if owner == Owner.me():
            return None if content in _HELD else content
        alive = None if owner is None else owner.is_alive()
        if alive is None:
            alive = is_young(access, str(claim))
    except Exception:
        log.debug("the claim %s cannot be read: it is being removed or created", claim, exc_info=True)
        return None
    return None if alive else content


def _replace(access: Access, claim: Folder, dead: bytes, content: bytes) -> bool:
    """Replace the claim of a dead process, under a second claim on the replacement of exactly this content.

    The content of each claim is unique, so the claim of a live process is never replaced.
    """
    replacement = claim.parent.child(f"{claim.name}-{hashlib.sha256(dead).hexdigest()[:16]}")
    if not _take(access, replacement, content):
        return False
    try:
        if claim.read_if_exists() != dead:  # an earlier holder of the second claim has replaced it
            return False
        claim.write(content, overwrite=True, private=True)
        return claim.read_if_exists() == content
    finally:
        _remove(access, replacement, content)
