"""Claims: lock files of a process that other processes take over when it dies."""

from __future__ import annotations

import hashlib
import logging
import uuid
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.commit.lease import Lease, is_young, remove_lease
from penstock.commit.owner import Owner
from penstock.commit.signing import signed
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

_HELD: set[bytes] = set()
"""The content of claims that threads of this process hold; a claim file that could not be removed is free."""


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
