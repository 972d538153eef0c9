"""Completing, or taking back, what jobs have left half committed."""

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
    """What becomes of a commit that was begun."""

    BACK = "back"
    FORWARD = "forward"
    ALIVE = "left alone"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found of one commit, and what it needs.

    Parameters
    ----------
    journal
        The journal's file.
    job
        The name of the job.
    direction
        Where it goes.
    targets
        Its targets, in words.
    """

    journal: str
    job: str
    direction: Direction
    targets: tuple[str, ...]


def look(access: Access, path: str) -> Recovery:
    """Return what a journal needs, without doing it."""
    journal = read_journal(access, path)
    if journal is None:
        return Recovery(path, "", Direction.GONE, ())
    targets = tuple(part.target for part in journal.parts)
    direction = Direction.ALIVE if journal.is_alive(access) else _direction(access, journal)
    return Recovery(path, journal.name, direction, targets)


def recover(access: Access, path: str) -> Recovery:
    """Complete or undo what a journal names, unless its process still lives.

    If a sink that cannot be undone has committed or may still do so, or all have, the others follow; else nothing stays
    of it.

    Raises
    ------
    UntrustedJournalError
        If it, or a claim to it, may come from another user: nothing is done then.
    """
    found = read_journal(access, path)
    if found is None:
        return Recovery(path, "", Direction.GONE, ())
    if found.is_alive(access):
        return Recovery(path, found.name, Direction.ALIVE, tuple(part.target for part in found.parts))
    claim = Folder(access.bridge, claim_of(path))
    if is_foreign(claim):
        raise UntrustedJournalError.foreign(str(claim), f"it stands for the journal {path}, which stays as it is")
    with claimed(access, str(claim)) as is_mine:
        journal = read_journal(access, path)  # another process may have ended it meanwhile
        if journal is None:
            return Recovery(path, found.name, Direction.GONE, ())
        targets = tuple(part.target for part in journal.parts)
        if not is_mine or journal.is_alive(access):
            return Recovery(path, journal.name, Direction.ALIVE, targets)
        direction = _follow(access, journal)
        journal.remove(access)
        remove_lease(access, path)
    log.warning("the commit of job %r was %s: %s", journal.name, _DONE[direction], _targets(journal))
    return Recovery(path, journal.name, direction, targets)


_DONE = {Direction.FORWARD: "completed", Direction.BACK: "undone"}


def recover_target(access: Access, target: Folder) -> bool:
    """Recover the commits that a dead process has left half-way at a target; called before it is written again.

    Returns
    -------
    bool
        Whether there were any: what was read of the target before is no longer true then.
    """
    is_changed = False
    for path in journals_at(access, folder_beside(access, str(target))):
        journal = read_own_journal(access, path)
        if journal is not None and any(part.is_at(target) for part in journal.parts):
            is_changed |= recover_own(access, path) in _DONE
    return is_changed


def recover_own(access: Access, path: str) -> Direction:
    """Do as `recover`; what may come from another user counts as gone, with a warning, so that it stops no job."""
    try:
        return recover(access, path).direction
    except UntrustedJournalError as error:
        warn_of(error)
        return Direction.GONE


def _follow(access: Access, journal: Journal) -> Direction:
    """Do what a journal needs."""
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
            f"again. If they are right as they are, remove {journal.path}"
        )
        raise
    return direction


def _targets(journal: Journal) -> str:
    return ", ".join(part.target for part in journal.parts)


def _direction(access: Access, journal: Journal) -> Direction:
    if journal.back:
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
