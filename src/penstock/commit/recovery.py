"""Recovery of interrupted commits: complete them or roll them back."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.commit.claims import claimed
from penstock.commit.journal import Journal, claim_of, folder_beside, journals_at, read_journal, read_own_journal
from penstock.commit.lease import remove_lease
from penstock.commit.trust import is_foreign, warn_of
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")


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
    targets = tuple(part.target for part in journal.parts)
    direction = Direction.ALIVE if journal.is_alive(access) else _direction(access, journal)
    return Recovery(path, journal.name, direction, targets)


def recover(access: Access, path: str) -> Recovery:
    """Complete or undo the commit of a journal, unless its process is alive.

    The commit is completed if all sinks have committed, or if an irreversible sink has committed or may still do so.
    Otherwise it is undone.

    Raises
    ------
    UntrustedJournalError
        If the journal, or the claim on it, may come from another user; nothing is changed then.
    """
    first_read = read_journal(access, path)
    if first_read is None:
        return Recovery(path, "", Direction.GONE, ())
    if first_read.is_alive(access):
        return Recovery(path, first_read.name, Direction.ALIVE, tuple(part.target for part in first_read.parts))
    claim = Folder(access.bridge, claim_of(path))
    if is_foreign(claim):
        raise UntrustedJournalError.foreign(str(claim), f"it claims the journal {path}, which is left unchanged")
    with claimed(access, str(claim)) as is_mine:
        journal = read_journal(access, path)  # another process may have recovered it in the meantime
        if journal is None:
            return Recovery(path, first_read.name, Direction.GONE, ())
        targets = tuple(part.target for part in journal.parts)
        if not is_mine or journal.is_alive(access):
            return Recovery(path, journal.name, Direction.ALIVE, targets)
        direction = _complete_or_undo(access, journal)
        journal.remove(access)
        remove_lease(access, path)
    log.warning("the commit of job %r was %s: %s", journal.name, _DONE[direction], _targets(journal))
    return Recovery(path, journal.name, direction, targets)


_DONE = {Direction.FORWARD: "completed", Direction.BACK: "undone"}


def recover_target(access: Access, target: Folder) -> bool:
    """Recover the interrupted commits at a target; called before the target is written again.

    Returns
    -------
    bool
        Whether a commit was recovered, so that the target has changed since it was read.
    """
    is_changed = False
    for path in journals_at(access, folder_beside(access, str(target))):
        journal = read_own_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            is_changed |= recover_own(access, path) in _DONE
    return is_changed


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
            f"the commit of job {journal.name!r} could not be recovered; the next job at {_targets(journal)} tries it "
            f"again. If the targets are correct as they are, remove {journal.path}"
        )
        raise
    return direction


def _targets(journal: Journal) -> str:
    return ", ".join(part.target for part in journal.parts)


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
