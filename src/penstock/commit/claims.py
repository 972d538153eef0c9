"""Claims: files by which one process at a time does something; others take over what a dead one has left."""

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
"""The claims that threads of this process hold now: one that could only not be removed is nobody's."""


@contextmanager
def claimed(access: Access, path: str) -> Iterator[bool]:
    """Keep others from what a claim stands for; gives False where somebody else has it, a thread of this process too.

    Parameters
    ----------
    access
        The session.
    path
        The file. It is there only in the block.
    """
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
    """Return the process that has a claim; None if there is none (any more)."""
    content = Folder(access.bridge, path).read_if_there()
    return None if content is None else Owner.told(content)


def _take(access: Access, claim: Folder, content: bytes) -> bool:
    if claim.write(content, private=True):
        return claim.read_if_there() == content  # object stores may let two make it: the later one has it
    dead = _left_by_dead(access, claim)
    return dead is not None and _replace(access, claim, dead, content)


def _remove(access: Access, claim: Folder, content: bytes) -> None:
    """Remove a claim that is one's own; one that was taken for dead may have been replaced."""
    try:
        if claim.read_if_there() != content:
            return
        claim.delete()
        remove_lease(access, str(claim))
    except Exception:
        log.warning("the claim %s could not be removed; it ends with this process", claim, exc_info=True)


def _left_by_dead(access: Access, claim: Folder) -> bytes | None:
    """Return what a claim holds that nobody has any more; None of any other."""
    try:
        content = claim.read()
        owner = Owner.told(content)
        if owner == Owner.me():
            return None if content in _HELD else content
        alive = None if owner is None else owner.is_alive()
        if alive is None:
            alive = is_young(access, str(claim))
    except Exception:
        log.debug("the claim %s cannot be read: it has just gone away, or is just being made", claim, exc_info=True)
        return None
    return None if alive else content


def _replace(access: Access, claim: Folder, dead: bytes, content: bytes) -> bool:
    """Replace what a dead process has left: whoever claims the right to replace just that.

    No two claims hold the same, so that the claim of a process that lives is neither moved nor replaced.
    """
    right = claim.parent.child(f"{claim.name}-{hashlib.sha256(dead).hexdigest()[:16]}")
    if not _take(access, right, content):
        return False
    try:
        if claim.read_if_there() != dead:  # somebody who had the right before has replaced it
            return False
        claim.write(content, overwrite=True, private=True)
        return claim.read_if_there() == content
    finally:
        _remove(access, right, content)
