"""Claims and leases of processes.

A claim is a lock file that other processes take over if the process that holds it dies. A lease shows processes on
other machines that a process is alive.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.owner import Owner
from penstock.commit.trust import is_foreign, signed_json
from penstock.spark.io.filesystem import HadoopPath, is_denied

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

LEASE_SECONDS = 60.0
"""Seconds without a renewal after which a process on another machine counts as dead."""
_HELD_CLAIMS: set[bytes] = set()
"""The content of claims that threads of this process hold; other claim files of this process can be taken over."""


class Lease:
    """Lease on a file, renewed in a thread until `end`.

    Each renewal writes a lease file beside that file, because not every file system can set a modification time.
    """

    def __init__(self, access: Access, path: str) -> None:
        self._file = HadoopPath(access.bridge, _lease_path(path))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"penstock-lease-{self._file.name}", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        is_written = False
        while not self._ended.wait(LEASE_SECONDS / 3):
            try:
                self._file.write(signed_json(self._file.name, {}), overwrite=True, private=True)
                is_written = True
            except Exception:
                log.warning("the lease %s could not be renewed", self._file, exc_info=True)
        if is_written:
            self._file.delete()

    def end(self) -> None:
        """Stop renewing the lease, and remove the lease file if a renewal has written it."""
        self._ended.set()
        self._thread.join(LEASE_SECONDS / 3)


def is_recent(access: Access, path: str) -> bool:
    """Whether a file was written, or its lease renewed, less than `LEASE_SECONDS` ago by the clock of its file system.

    A lease that another user has written does not count: it could make a dead process look alive forever.
    """
    file, lease = HadoopPath(access.bridge, path), HadoopPath(access.bridge, _lease_path(path))
    times = (_modification_time(file), None if is_foreign(lease) else _modification_time(lease))
    written_at = max((seconds for seconds in times if seconds is not None), default=None)
    return written_at is not None and _file_system_time(lease) - written_at < LEASE_SECONDS


def remove_lease(access: Access, path: str) -> None:
    """Remove the lease file of a path, if it exists."""
    HadoopPath(access.bridge, _lease_path(path)).delete()


def _lease_path(path: str) -> str:
    return f"{path}.lease"


def _modification_time(file: HadoopPath) -> float | None:
    try:
        return file.modification_time() if file.exists() else None
    except Exception:
        if file.exists():
            raise
        return None


def _file_system_time(lease: HadoopPath) -> float:
    """Return the time by the clock of a lease's file system; by this machine's clock if its folder is read-only."""
    probe = lease.parent.child(f"{lease.name}-{uuid.uuid4().hex[:8]}")
    try:
        probe.write(b"")
    except Exception as error:
        if not is_denied(error) and lease.parent.may_write():  # object stores deny writes that `may_write` allows
            raise
        log.info("%s is not writable: ages of its files are measured by this machine's clock", lease.parent)
        return time.time()
    try:
        return probe.modification_time()
    finally:
        probe.delete()


@contextmanager
def hold_claim(access: Access, path: str) -> Iterator[bool]:
    """Hold a claim during the block; yield False if another process, or another thread of this process, holds it."""
    claim = HadoopPath(access.bridge, path)
    content = signed_json(claim.name, asdict(Owner.current()) | {"claim": uuid.uuid4().hex})
    _HELD_CLAIMS.add(content)
    try:
        if not _acquire(access, claim, content):
            yield False
            return
        lease = Lease(access, path)
        try:
            yield True
        finally:
            lease.end()
            _remove(access, claim, content)
    finally:
        _HELD_CLAIMS.discard(content)


def holder_of(access: Access, path: str) -> Owner | None:
    """Return the process that a claim names, dead or alive; None if there is no valid claim."""
    content = HadoopPath(access.bridge, path).read_if_exists()
    return None if content is None else Owner.from_json(content)


def _acquire(access: Access, claim: HadoopPath, content: bytes) -> bool:
    if claim.write(content, private=True):
        return claim.read_if_exists() == content  # on object stores, two writers may both succeed: the last wins
    abandoned = _abandoned_content(access, claim)
    return abandoned is not None and _replace(access, claim, abandoned, content)


def _remove(access: Access, claim: HadoopPath, content: bytes) -> None:
    """Remove a claim, unless another process has replaced it because this process counted as dead."""
    try:
        if claim.read_if_exists() != content:
            return
        claim.delete()
        remove_lease(access, str(claim))
    except Exception:
        log.warning("the claim %s could not be removed; it is valid until this process ends", claim, exc_info=True)


def _abandoned_content(access: Access, claim: HadoopPath) -> bytes | None:
    """Return the content of a claim that can be taken over; None if a live process or thread may hold the claim."""
    try:
        content = claim.read()
        owner = Owner.from_json(content)
        if owner == Owner.current():
            return None if content in _HELD_CLAIMS else content
        is_alive = None if owner is None else owner.is_alive()
        if is_alive is None:
            is_alive = is_recent(access, str(claim))
    except Exception:
        log.debug("the claim %s cannot be read: it is being removed or created", claim, exc_info=True)
        return None
    return None if is_alive else content


def _replace(access: Access, claim: HadoopPath, abandoned: bytes, content: bytes) -> bool:
    """Replace a claim whose content is `abandoned`; return False if another process replaces or has replaced it.

    A second claim, named after a hash of that content, lets only a single process replace the claim at a time. The
    content of each claim is unique, so the claim of a live process is never replaced.
    """
    replacement = claim.parent.child(f"{claim.name}-{hashlib.sha256(abandoned).hexdigest()[:16]}")
    if not _acquire(access, replacement, content):
        return False
    try:
        if claim.read_if_exists() != abandoned:  # an earlier holder of the second claim has replaced it
            return False
        claim.write(content, overwrite=True, private=True)
        return claim.read_if_exists() == content
    finally:
        _remove(access, replacement, content)
