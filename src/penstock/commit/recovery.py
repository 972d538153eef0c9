"""Recovery of interrupted commits, which completes or undoes them; and waiting for commits that still run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product, starmap
from typing import TYPE_CHECKING

from penstock.commit.claims import hold_claim, remove_lease
from penstock.commit.journal import (
    Journal,
    claim_of,
    journal_folder_of,
    journals_at,
    read_if_trusted,
    read_journal,
    trusted_journals_of,
)
from penstock.commit.names import are_within
from penstock.commit.trust import is_foreign, warn_once
from penstock.errors import CommitError, UntrustedJournalError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")

WAIT_TIMEOUT = 300.0
"""Seconds to wait for the commit of another job."""
_POLL_SECONDS = 0.2  # between two checks whether another commit has ended


class Outcome(StrEnum):
    """What recovery does with a commit: undo or complete it; nothing if it still runs, or its journal is gone."""

    UNDONE = "undone"
    COMPLETED = "completed"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Recovery:
    """The planned or actual recovery of an interrupted commit; `journal` is the path of its journal."""

    journal: str
    job_name: str
    outcome: Outcome
    targets: tuple[str, ...]


def plan_recovery(access: Access, path: str) -> Recovery:
    """Return what `recover` would do with a journal."""
    journal = read_journal(access, path)
    if journal is None:
        return Recovery(path, "", Outcome.GONE, ())
    outcome = Outcome.RUNNING if journal.is_alive(access) else _choose_outcome(access, journal)
    return Recovery(path, journal.job_name, outcome, journal.targets)


def recover(access: Access, path: str) -> Recovery:
    """Complete or undo the commit of a journal, unless the committing process is alive.

    The commit is completed if all sinks have committed, or an irreversible sink has committed or may still do so.
    Otherwise, or if its rollback has begun, it is undone. Raise `UntrustedJournalError` and change nothing if another
    user may have written the journal, or the claim (the lock of a process that recovers the journal).
    """
    first_read = read_journal(access, path)
    if first_read is None:
        return Recovery(path, "", Outcome.GONE, ())
    if first_read.is_alive(access):
        return Recovery(path, first_read.job_name, Outcome.RUNNING, first_read.targets)
    claim = HadoopPath(access.bridge, claim_of(path))
    if is_foreign(claim):
        raise UntrustedJournalError.foreign(str(claim), f"it claims the journal {path}, which is left unchanged")
    with hold_claim(access, str(claim)) as is_mine:
        journal = read_journal(access, path)  # another process may have recovered it in the meantime
        if journal is None:
            return Recovery(path, first_read.job_name, Outcome.GONE, ())
        if not is_mine or journal.is_alive(access):
            return Recovery(path, journal.job_name, Outcome.RUNNING, journal.targets)
        outcome = _complete_or_undo(access, journal)
        journal.remove(access)
        remove_lease(access, path)
    log.warning("the commit of job %r was %s: %s", journal.job_name, outcome, ", ".join(journal.targets))
    return Recovery(path, journal.job_name, outcome, journal.targets)


def recover_target(access: Access, target: HadoopPath) -> bool:
    """Recover the interrupted commits at a target; return whether any was completed or undone."""
    outcomes = [recover_if_trusted(access, journal.path) for journal in trusted_journals_of(access, target)]
    return any(outcome in {Outcome.COMPLETED, Outcome.UNDONE} for outcome in outcomes)


def recover_if_trusted(access: Access, path: str) -> Outcome:
    """Recover a journal as `recover` does; log a warning and return GONE if another user may have written it."""
    try:
        return recover(access, path).outcome
    except UntrustedJournalError as error:
        warn_once(error)
        return Outcome.GONE


def _complete_or_undo(access: Access, journal: Journal) -> Outcome:
    try:
        for part in journal.parts:
            part.check(access)
        outcome = _choose_outcome(access, journal)
        if outcome is Outcome.COMPLETED:
            _complete(access, journal)
        else:
            for part in reversed(journal.parts):
                part.undo(access)
    except Exception as error:
        error.add_note(
            f"the commit of job {journal.job_name!r} could not be recovered; the next job at "
            f"{', '.join(journal.targets)} tries again. If the targets are correct, remove {journal.path}"
        )
        raise
    return outcome


def _choose_outcome(access: Access, journal: Journal) -> Outcome:
    if journal.rollback_started:
        return Outcome.UNDONE
    if journal.all_committed or any(_has_begun(access, part) for part in journal.parts) or journal.may_succeed_late:
        return Outcome.COMPLETED
    return Outcome.UNDONE


def _has_begun(access: Access, part: Prepared) -> bool:
    if part.is_reversible:
        return False
    try:
        return part.has_begun(access)
    except CommitError:
        raise
    except Exception as error:
        raise CommitError(
            f"an earlier job was interrupted while it committed to {part.target}, and whether it committed is unknown",
            cause=str(error),
            hint="make the target reachable; `penstock recover --help` says how to pass passwords",
        ) from error


def _complete(access: Access, journal: Journal) -> None:
    if not journal.all_committed:
        for part in journal.parts:
            if not part.is_committed(access):
                part.complete(access)
        replace(journal, all_committed=True).write(access)
    for part in journal.parts:
        part.finish(access)


def wait_for_other_commits(access: Access, journal: Journal, on_wait: Callable[[], None]) -> None:
    """Wait until no other commit runs whose files, or whose rollback, conflict with this commit.

    Every commit writes its journal, then looks for other journals. If two commits see each other's journal, the commit
    whose journal's name sorts last removes its journal while it waits, to avoid a deadlock. `on_wait` is called during
    the wait, and may raise to cancel. Raise `CommitError` if the other commits do not end within `WAIT_TIMEOUT`.
    """
    deadline = time.monotonic() + WAIT_TIMEOUT
    while others := _conflicting_journals(access, journal):
        withdraws = any(other.file_name < journal.file_name for other in others)
        if withdraws:
            journal.remove(access)
        for other in others:
            _wait_for(access, other, deadline, on_wait)
        if withdraws:
            journal.write_pointers(access)
            journal.write(access)


def wait_for_commits_at(access: Access, target: HadoopPath) -> None:
    """Wait until no commit to a target runs, so that its rows are final; raise `CommitError` after `WAIT_TIMEOUT`."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    for journal in trusted_journals_of(access, target):
        _wait_for(access, journal, deadline, lambda: None)


def _wait_for(access: Access, other: Journal, deadline: float, on_wait: Callable[[], None]) -> None:
    """Wait until another commit has ended; recover it if its process is dead."""
    is_logged = False
    while recover_if_trusted(access, other.path) is Outcome.RUNNING:
        if time.monotonic() > deadline:
            raise CommitError(
                f"job {other.job_name!r} is still committing to {', '.join(other.targets)}",
                cause=f"{other.owner} owns {other.path}",
                hint="run this job again when the other job has ended",
            )
        if not is_logged:
            log.info("waiting for the commit of job %r by %s", other.job_name, other.owner)
            is_logged = True
        on_wait()
        time.sleep(_POLL_SECONDS)


def _conflicting_journals(access: Access, journal: Journal) -> list[Journal]:
    """Return the journals of other jobs that conflict with this commit."""
    parts = (part for part in journal.parts if part.exclusive_paths or part.extended_folders)
    changed_folders = (part.folder for part in parts if part.folder is not None)
    parents = {str(parent): parent for parent in (journal_folder_of(access, folder) for folder in changed_folders)}
    paths = {path for parent in parents.values() for path in journals_at(access, parent)}
    others = (read_if_trusted(access, path) for path in sorted(paths) if path.rpartition("/")[2] != journal.file_name)
    trusted = [other for other in others if other is not None]
    return [other for other in trusted if any(starmap(_conflicts, product(journal.parts, other.parts)))]


def _conflicts(left: Prepared, right: Prepared) -> bool:
    """Whether an exclusive path of either record contains a path that the other record writes to."""
    return any(
        are_within((*second.exclusive_paths, *second.extended_folders), first.exclusive_paths)
        for first, second in ((left, right), (right, left))
    )
