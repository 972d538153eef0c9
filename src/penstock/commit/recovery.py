"""Recovery of interrupted commits: complete them or roll them back. Waiting for commits that still run."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.commit.claims import claimed, remove_lease
from penstock.commit.journal import (
    Journal,
    claim_of,
    folder_beside,
    journals_at,
    own_journals_of,
    read_journal,
    read_own_journal,
)
from penstock.commit.names import are_within
from penstock.commit.trust import is_foreign, warn_of
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")

WAIT_TIMEOUT = 300.0
"""Seconds to wait for the commit of another job."""
_PAUSE = 0.2


class Direction(StrEnum):
    """The outcome of an interrupted commit: undone, completed, still running, or no longer there."""

    BACK = "back"
    FORWARD = "forward"
    ALIVE = "left alone"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Recovery:
    """An interrupted commit, and what recovery does, or has done, with it."""

    journal: str
    job: str
    direction: Direction
    targets: tuple[str, ...]


def plan_recovery(access: Access, path: str) -> Recovery:
    """Return what `recover` would do with a journal."""
    journal = read_journal(access, path)
    if journal is None:
        return Recovery(path, "", Direction.GONE, ())
    direction = Direction.ALIVE if journal.is_alive(access) else _direction(access, journal)
    return Recovery(path, journal.name, direction, journal.targets)


def recover(access: Access, path: str) -> Recovery:
    """Complete or undo the commit of a journal, unless its process is alive.

    The commit is completed if all sinks have committed, or if an irreversible sink has committed or may still do so.
    Otherwise it is undone. Raise `UntrustedJournalError` if the journal, or the claim on it, may come from another
    user; nothing is changed then.
    """
    first_read = read_journal(access, path)
    if first_read is None:
        return Recovery(path, "", Direction.GONE, ())
    if first_read.is_alive(access):
        return Recovery(path, first_read.name, Direction.ALIVE, first_read.targets)
    claim = Folder(access.bridge, claim_of(path))
    if is_foreign(claim):
        raise UntrustedJournalError.foreign(str(claim), f"it claims the journal {path}, which is left unchanged")
    with claimed(access, str(claim)) as is_mine:
        journal = read_journal(access, path)  # another process may have recovered it in the meantime
        if journal is None:
            return Recovery(path, first_read.name, Direction.GONE, ())
        if not is_mine or journal.is_alive(access):
            return Recovery(path, journal.name, Direction.ALIVE, journal.targets)
        direction = _complete_or_undo(access, journal)
        journal.remove(access)
        remove_lease(access, path)
    log.warning("the commit of job %r was %s: %s", journal.name, _DONE[direction], ", ".join(journal.targets))
    return Recovery(path, journal.name, direction, journal.targets)


_DONE = {Direction.FORWARD: "completed", Direction.BACK: "undone"}


def recover_target(access: Access, target: Folder) -> bool:
    """Recover the interrupted commits at a target; return whether there were any, so that it has changed."""
    directions = [recover_own(access, journal.path) for journal in own_journals_of(access, target)]
    return any(direction in _DONE for direction in directions)


def recover_own(access: Access, path: str) -> Direction:
    """Do as `recover`, but log a warning for a journal that may come from another user, and return GONE for it."""
    try:
        return recover(access, path).direction
    except UntrustedJournalError as error:
        warn_of(error)
        return Direction.GONE


def _complete_or_undo(access: Access, journal: Journal) -> Direction:
    try:
        for part in journal.parts:
            part.check(access)
        direction = _direction(access, journal)
        if direction is Direction.FORWARD:
            _complete(access, journal)
        else:
            for part in reversed(journal.parts):
                part.undo(access)
    except Exception as error:
        error.add_note(
            f"the commit of job {journal.name!r} could not be recovered; the next job at {', '.join(journal.targets)} "
            f"tries it again. If the targets are correct as they are, remove {journal.path}"
        )
        raise
    return direction


def _direction(access: Access, journal: Journal) -> Direction:
    if journal.is_rolled_back:
        return Direction.BACK
    if journal.decided or any(_has_committed(access, part) for part in journal.parts) or journal.may_land:
        return Direction.FORWARD
    return Direction.BACK


def _has_committed(access: Access, part: Prepared) -> bool:
    if part.is_reversible:
        return False
    try:
        return part.has_begun(access)
    except CommitError:
        raise
    except Exception as error:
        raise CommitError.unreachable(part.target, str(error)) from error


def _complete(access: Access, journal: Journal) -> None:
    if not journal.decided:
        for part in journal.parts:
            if not part.is_committed(access):
                part.complete(access)
        replace(journal, decided=True).write(access)
    for part in journal.parts:
        part.finish(access)


def wait_for_others(access: Access, journal: Journal, on_wait: Callable[[], None]) -> None:
    """Wait until no other commit runs whose files, or whose rollback, conflict with this commit.

    Every commit writes its journal, then looks for others. If two commits see each other, the commit whose journal has
    the later name withdraws its journal while it waits. `on_wait` is called during the wait, and may raise. Raise
    `CommitError` if the other commit does not end within `WAIT_TIMEOUT`.
    """
    deadline = time.monotonic() + WAIT_TIMEOUT
    while others := _conflicting_journals(access, journal):
        withdraws = any(other.file_name < journal.file_name for other in others)
        if withdraws:
            journal.remove(access)
        for other in others:
            _wait_for(access, other, deadline, on_wait)
        if withdraws:
            journal.point(access)
            journal.write(access)


def wait_for_commits_at(access: Access, target: Folder) -> None:
    """Wait until no commit runs at a target, as its current content may still be undone."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    for journal in own_journals_of(access, target):
        _wait_for(access, journal, deadline, lambda: None)


def _wait_for(access: Access, other: Journal, deadline: float, on_wait: Callable[[], None]) -> None:
    is_logged = False
    while recover_own(access, other.path) is Direction.ALIVE:
        if time.monotonic() > deadline:
            raise CommitError.busy(other.name, list(other.targets), str(other.owner), other.path)
        if not is_logged:
            log.info("waiting for the commit of job %r by %s", other.name, other.owner)
            is_logged = True
        on_wait()
        time.sleep(_PAUSE)


def _conflicting_journals(access: Access, mine: Journal) -> list[Journal]:
    """Return the journals of other jobs that conflict with this commit."""
    changed = (part.folder for part in mine.parts if part.folder is not None and (part.replaced or part.added))
    parents = {str(parent): parent for parent in (folder_beside(access, folder) for folder in changed)}
    paths = {path for parent in parents.values() for path in journals_at(access, parent)}
    others = (read_own_journal(access, path) for path in sorted(paths) if path.rpartition("/")[2] != mine.file_name)
    return [
        other
        for other in others
        if other is not None and any(_conflict(part, other_part) for part in mine.parts for other_part in other.parts)
    ]


def _conflict(left: Prepared, right: Prepared) -> bool:
    """Whether a path that either record replaces, and would restore, contains a path that the other writes to."""
    return any(
        are_within((*second.replaced, *second.added), first.replaced)
        for first, second in ((left, right), (right, left))
    )
