"""The journal of a commit that this process is making."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.commit.journal import COMMITTING, Journal, claim_of
from penstock.commit.lease import Lease
from penstock.commit.trust import is_foreign
from penstock.commit.turns import wait_for_others
from penstock.errors import CommitError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.commit.prepared import Access, Prepared

log = logging.getLogger("penstock.commit")


class HeldJournal:
    """A journal from its first word to its end.

    Parameters
    ----------
    access
        The session.
    journal
        What it says.
    """

    def __init__(self, access: Access, journal: Journal) -> None:
        self._access = access
        self._journal = journal
        self._lease: Lease | None = None

    @property
    def path(self) -> str:
        """Its file."""
        return self._journal.path

    @property
    def may_land(self) -> bool:
        """Whether some of it may become visible although no process works at it any more."""
        return self._journal.may_land

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    def begin(self, go_on: Callable[[], None]) -> None:
        """Write it, and wait until no other commit touches the same files, or `go_on` raises."""
        self._journal.check()
        COMMITTING.add(self._name)
        self._journal.point(self._access)
        self._journal.write(self._access)
        self._lease = Lease(self._access, self.path)
        wait_for_others(self._access, self._journal, go_on)

    def renew(self, parts: Sequence[Prepared], go_on: Callable[[], None]) -> None:
        """Write what has become of the sinks' records since it began, and wait for others once more."""
        self._journal = replace(self._journal, parts=tuple(parts))
        self._journal.check()
        self._journal.point(self._access)
        self._journal.write(self._access)
        wait_for_others(self._access, self._journal, go_on)

    def check(self) -> None:
        """Look whether it is still this process that commits.

        Raises
        ------
        CommitError
            If another process took it for dead: it was held up for longer than its lease.
        """
        claim = Folder(self._access.bridge, claim_of(self.path))
        is_claimed = claim.exists() and not is_foreign(claim)
        if is_claimed or not Folder(self._access.bridge, self.path).exists():
            raise CommitError.taken_over(self.path)

    def ask(self) -> None:
        """Write down, before it is true, that a commit may be asked for that lands late.

        Raises
        ------
        CommitError
            If another process has recovered it.
        """
        changed = replace(self._journal, asked=True)
        if changed.may_land:
            self.check()
            self._journal = changed  # though the answer to the write may be lost
            changed.write(self._access)

    def turn_back(self, *, is_written: bool) -> None:
        """Write down, before it is true, that all is undone, where a later process could take it for committed.

        Parameters
        ----------
        is_written
            Whether another run's token was found while it was being committed: it looks like this job's.

        Raises
        ------
        CommitError
            If another process has recovered it.
        """
        if is_written or self._journal.may_land:
            self.check()
            changed = replace(self._journal, back=True)
            changed.write(self._access)
            self._journal = changed

    def decide(self) -> None:
        """Write that all sinks have committed."""
        if not self._journal.decided:
            decided = replace(self._journal, decided=True)
            decided.write(self._access)
            self._journal = decided

    def leave(self) -> None:
        """Leave it as it is: it belongs to another process."""
        if self._lease is not None:
            self._lease.end()
        COMMITTING.discard(self._name)

    def release(self) -> None:
        """Leave it to whoever comes next, also in this process: only once nothing more is written to it."""
        try:
            self._journal.released().write(self._access)
        except Exception:
            log.warning("the journal %s could not be released", self.path, exc_info=True)
        self.leave()

    def end(self) -> None:
        """Remove it."""
        if self._lease is not None:
            self._lease.end()
        try:
            self._journal.remove(self._access)
        except Exception:
            log.warning("the journal %s could not be removed", self.path, exc_info=True)
        COMMITTING.discard(self._name)


def left(access: Access, journal: Journal) -> str | None:
    """Write a journal for whoever comes next, and return its file; None if that cannot be."""
    try:
        journal.check()
        journal.write(access)
    except Exception:
        log.warning("the journal %s could not be written", journal.path, exc_info=True)
        return None
    try:
        journal.point(access)
    except Exception:  # such as a database that is away: people can find it by the error
        log.warning("the targets could not be told of the journal %s", journal.path, exc_info=True)
    return journal.path
