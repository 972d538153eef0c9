"""The journal of a commit that this process runs."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.commit.concurrent_commits import wait_for_others
from penstock.commit.journal import COMMITTING, Journal, claim_of
from penstock.commit.lease import Lease
from penstock.commit.trust import is_foreign
from penstock.errors import CommitError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")


class HeldJournal:
    """The file of a journal, from its first write to its removal."""

    def __init__(self, access: Access, journal: Journal) -> None:
        self._access = access
        self._journal = journal
        self._lease: Lease | None = None

    @property
    def path(self) -> str:
        """The path of the journal's file."""
        return self._journal.path

    @property
    def may_land(self) -> bool:
        """Whether rows may become visible after this process has stopped working on the commit."""
        return self._journal.may_land

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    def begin(self, on_wait: Callable[[], None]) -> None:
        """Write the journal, and wait until no other commit touches the same files, or `on_wait` raises."""
        self._journal.check()
        COMMITTING.add(self._name)
        self._journal.point(self._access)
        self._journal.write(self._access)
        self._lease = Lease(self._access, self.path)
        wait_for_others(self._access, self._journal, on_wait)

    def renew(self, parts: Sequence[Prepared], on_wait: Callable[[], None]) -> None:
        """Write the records that the sinks have prepared again, and wait for other commits once more."""
        self._journal = replace(self._journal, parts=tuple(parts))
        self._journal.check()
        self._journal.point(self._access)
        self._journal.write(self._access)
        wait_for_others(self._access, self._journal, on_wait)

    def check(self) -> None:
        """Check that this process still owns the commit.

        Raises
        ------
        CommitError
            If another process has taken it over, as this process did not renew its lease in time.
        """
        claim = Folder(self._access.bridge, claim_of(self.path))
        is_claimed = claim.exists() and not is_foreign(claim)
        if is_claimed or not Folder(self._access.bridge, self.path).exists():
            raise CommitError.taken_over(self.path)

    def record_request(self) -> None:
        """Record that a commit is about to be requested that may land late.

        Raises
        ------
        CommitError
            If another process has recovered the commit.
        """
        changed = replace(self._journal, is_requested=True)
        if changed.may_land:
            self.check()
            self._journal = changed  # before the write: its answer may be lost
            changed.write(self._access)

    def record_rollback(self, *, is_written: bool) -> None:
        """Record that the commit is about to be undone, if a later process could otherwise complete it.

        Parameters
        ----------
        is_written
            Whether another run's token appeared during the commit: a later process would take it for this job's.

        Raises
        ------
        CommitError
            If another process has recovered the commit.
        """
        if is_written or self._journal.may_land:
            self.check()
            changed = replace(self._journal, is_rolled_back=True)
            changed.write(self._access)
            self._journal = changed

    def record_decision(self) -> None:
        """Record that all sinks have committed."""
        if not self._journal.decided:
            decided = replace(self._journal, decided=True)
            decided.write(self._access)
            self._journal = decided

    def leave(self) -> None:
        """Stop renewing the lease, and leave the file to the process that has taken over the commit."""
        if self._lease is not None:
            self._lease.end()
        COMMITTING.discard(self._name)

    def release(self) -> None:
        """Release the journal, so that the next job, of this process too, can recover the commit."""
        try:
            self._journal.released().write(self._access)
        except Exception:
            log.warning("the journal %s could not be released", self.path, exc_info=True)
        self.leave()

    def end(self) -> None:
        """Remove the journal."""
        if self._lease is not None:
            self._lease.end()
        try:
            self._journal.remove(self._access)
        except Exception:
            log.warning("the journal %s could not be removed", self.path, exc_info=True)
        COMMITTING.discard(self._name)


def write_released_journal(access: Access, journal: Journal) -> str | None:
    """Write a journal for the next job to recover, and return its path; None if it cannot be written."""
    try:
        journal.check()
        journal.write(access)
    except Exception:
        log.warning("the journal %s could not be written", journal.path, exc_info=True)
        return None
    try:
        journal.point(access)
    except Exception:  # such as an unreachable database; the error of the job names the journal
        log.warning("the pointers to the journal %s could not be written", journal.path, exc_info=True)
    return journal.path
