"""Concurrent commits to the same files: a job waits until the other has committed or was undone."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock.commit.journal import Journal, folder_beside, journals_at, read_own_journal
from penstock.commit.paths import are_within
from penstock.commit.recovery import Direction, recover_own
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.commit.prepared import Access, Prepared
    from penstock.spark.filesystem import Folder

log = logging.getLogger("penstock.commit")

WAIT_TIMEOUT = 300.0
"""Seconds to wait for the commit of another job."""
_PAUSE = 0.2


def wait_for_others(access: Access, journal: Journal, on_wait: Callable[[], None]) -> None:
    """Wait until no other commit runs whose files, or whose rollback, conflict with this commit.

    Every commit writes its journal, then looks for others. If two commits see each other, the commit whose journal has
    the later name withdraws its journal while it waits. `on_wait` is called during the wait, and may raise.

    Raises
    ------
    CommitError
        If the other commit does not end within `WAIT_TIMEOUT`.
    """
    deadline = time.monotonic() + WAIT_TIMEOUT
    while others := _others(access, journal):
        withdraws = any(_name(other) < _name(journal) for other in others)
        if withdraws:
            journal.remove(access)
        for other in others:
            _wait(access, other, deadline, on_wait)
        if withdraws:
            journal.point(access)
            journal.write(access)


def wait_for_commits_at(access: Access, target: Folder) -> None:
    """Wait until no commit runs at a target, as its current content may still be undone."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    for path in journals_at(access, folder_beside(access, str(target))):
        journal = read_own_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            _wait(access, journal, deadline, lambda: None)


def _wait(access: Access, other: Journal, deadline: float, on_wait: Callable[[], None]) -> None:
    is_logged = False
    while recover_own(access, other.path) is Direction.ALIVE:
        if time.monotonic() > deadline:
            raise CommitError.busy(other.name, [part.target for part in other.parts], str(other.owner), other.path)
        if not is_logged:
            log.info("waiting for the commit of job %r by %s", other.name, other.owner)
            is_logged = True
        on_wait()
        time.sleep(_PAUSE)


def _others(access: Access, mine: Journal) -> list[Journal]:
    """Return the journals of other jobs that conflict with this commit."""
    changed = (part.folder for part in mine.parts if part.folder is not None and (part.replaced or part.added))
    parents = {str(parent): parent for parent in (folder_beside(access, folder) for folder in changed)}
    paths = {path for parent in parents.values() for path in journals_at(access, parent)}
    others = (read_own_journal(access, path) for path in sorted(paths) if _last(path) != _name(mine))
    return [
        other
        for other in others
        if other is not None and any(_conflict(part, other_part) for part in mine.parts for other_part in other.parts)
    ]


def _name(journal: Journal) -> str:
    """Return the name of a journal's file, which is unique, while its folder may have several paths."""
    return _last(journal.path)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _conflict(left: Prepared, right: Prepared) -> bool:
    """Whether a path that either record replaces, and would restore, contains a path that the other writes to."""
    return any(
        are_within((*second.replaced, *second.added), first.replaced)
        for first, second in ((left, right), (right, left))
    )
