"""How the sinks of a job commit together: prepare, write the journal, commit, finish."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock.commit.held import HeldJournal, left
from penstock.commit.journal import Journal, journal_path
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared, needs_journal
from penstock.errors import CommitError, CommitUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.commit.committing import Committing
    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

_TRIES = 3
_PAUSE = 0.5
"""Seconds before what cannot be undone is tried again; twice as long each time."""


class Commit:
    """The commit of one job.

    Parameters
    ----------
    access
        The session.
    job, name
        The job.
    sinks
        Its sinks, all of whose rows are written.
    go_on
        Called while it waits for the commits of other jobs; raises what ends that.
    begin
        Called when all is ready and nothing is visible yet; the last moment to raise.
    """

    def __init__(
        self,
        access: Access,
        job: str,
        name: str,
        sinks: Sequence[Committing],
        go_on: Callable[[], None] | None = None,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self._access = access
        self._job = job
        self._name = name
        self._sinks = list(sinks)
        self._go_on = go_on or _nothing
        self._begin_commit = begin or _nothing
        self._prepared: dict[int, Prepared | None] = {}
        self._journal: HeldJournal | None = None
        self._irreversible = False
        self._is_lost = False
        self._waiting: list[Prepared] = []

    def run(self) -> None:
        """Commit all sinks: first those that can be undone.

        Raises
        ------
        CommitError
            If some have committed for good and others could not, or whether they have is unknown; a later process
            completes them.
        """
        for place, sink in enumerate(self._sinks):
            self._prepared[place] = sink.prepare()
            self._access.secrets.update(sink.secrets)
        self._begin()
        try:
            parts = self._parts()
            for part in parts:
                part.ready(self._access)
            self._begin_commit()
            for part in parts:
                if part.is_reversible:
                    self._check()
                    part.commit(self._access)
            for place, sink in enumerate(self._sinks):
                if self._prepared[place] is None:
                    sink.commit()
            # What another run has written decides nothing: if the first of the others fails, all can be undone.
            self._commit_for_good(
                [part for part in parts if not part.is_reversible and not part.is_written(self._access)]
            )
        finally:
            self._access.close()
        self._refresh()

    def finish(self) -> None:
        """Remove what was only needed to undo; from here on nothing can be.

        Raises
        ------
        Exception
            If that cannot be written into the journal, and all can be undone: the job fails.
        """
        if self._journal is not None:
            try:
                self._check()
                self._journal.decide()
            except Exception:
                if not self._irreversible:
                    raise
                log.warning("the journal %s could not be written again", self._journal.path, exc_info=True)
                self._release()  # it still tells how to go on: what was needed to undo is removed then
                return
        for part in self._parts():
            try:
                part.finish(self._access)
            except Exception:  # everything is visible: what is left over harms nobody, and the journal removes it later
                log.warning("what was replaced in %s could not be removed", part.target, exc_info=True)
                self._release()
                return
        self._end()

    def fail(self, error: BaseException) -> None:
        """Undo everything, unless a sink has committed for good, or may have: then leave the rest to the journal."""
        if self._is_lost or self._waiting:
            self._release()
            return
        if self._irreversible:
            error.add_note("all sinks of the job had committed by then; their rows are visible")
            self.finish()
            return
        if not self._may_undo(error):
            self._release()
            return
        undone = True
        for place, sink in reversed(list(enumerate(self._sinks))):
            part = self._prepared.get(place)
            try:
                if part is None:
                    sink.abort()
                else:
                    part.undo(self._access)
            except Exception as problem:  # noqa: BLE001 - the first error is the one to show
                undone = False
                error.add_note(f"while cleaning up: {problem}")
        self._refresh()
        if undone:
            self._end()
        else:
            self._release()

    def _may_undo(self, error: BaseException) -> bool:
        """Whether a later process would undo the rest, too: it is written down where that is not plain."""
        if self._journal is None:
            return True
        try:
            self._journal.turn_back(is_written=bool(self._access.committed))
        except Exception as problem:  # noqa: BLE001 - the first error is the one to show
            self._is_lost = isinstance(problem, CommitError)
            if self._is_lost or self._journal.may_land:
                error.add_note(f"nothing was undone: {problem}")
                return False
            error.add_note(f"the journal could not be written any more: {problem}")
        return True

    def _parts(self) -> list[Prepared]:
        """Return what was prepared, what can be undone first."""
        found = [part for _, part in sorted(self._prepared.items()) if part is not None]
        return sorted(found, key=lambda part: not part.is_reversible)

    def _begin(self) -> None:
        parts = self._parts()
        if not needs_journal(parts):
            return
        path = journal_path(self._access, parts, self._job)
        self._journal = HeldJournal(self._access, Journal(path, self._job, self._name, Owner.me(), tuple(parts)))
        self._journal.begin(self._go_on)
        while self._is_overtaken():
            self._journal.renew(self._parts(), self._go_on)

    def _is_overtaken(self) -> bool:
        """Look again what there is to replace: other jobs may have changed it before they saw the journal."""
        before = dict(self._prepared)
        for place, part in before.items():
            if part is not None and (part.replaced or part.added):
                self._prepared[place] = self._sinks[place].prepare()
        return self._prepared != before

    def _check(self) -> None:
        """Look whether nobody has recovered the commit, which would be for good then, whatever this process does."""
        if self._journal is None:
            return
        try:
            self._journal.check()
        except CommitError:
            self._is_lost = True
            raise

    def _commit_for_good(self, parts: Sequence[Prepared]) -> None:
        if self._journal is not None:
            self._check()
            self._journal.ask()
        for number in range(len(parts)):
            try:
                self._commit_first(parts[number:])
            except BaseException as error:
                if self._irreversible:
                    self._waiting = list(parts[number:])
                elif not isinstance(error, Exception):  # told to end in the midst of a commit
                    self._waiting = list(parts[number:])
                    try:
                        error.add_note(str(self._unknown(error)))
                    except Exception:  # what ends the process goes first
                        log.warning("no journal could be left of the commit", exc_info=True)
                raise
            self._irreversible = True

    def _commit_first(self, rest: Sequence[Prepared]) -> None:
        """Commit one of those that wait, once more if it fails and nothing can be undone."""
        part, unknown = rest[0], False
        for attempt in range(_TRIES):
            self._check()
            try:
                (part.complete if unknown else part.commit)(self._access)
                break
            except Exception as error:
                self._access.close()
                if isinstance(error, CommitUnknownError):  # whatever later attempts say: this one may still succeed
                    unknown, self._waiting = True, list(rest)
                if self._told(part.is_committed, rest, error):
                    break
                if not (self._irreversible or unknown or self._told(part.has_begun, rest, error)):
                    raise
                self._irreversible |= not unknown
                if attempt == _TRIES - 1:
                    self._waiting = list(rest)
                    raise (self._unknown(error) if unknown else self._incomplete(error)) from error
                time.sleep(_PAUSE * 2**attempt)
        self._waiting = []

    def _told(self, asked: Callable[[Access], bool], rest: Sequence[Prepared], error: Exception) -> bool:
        """Whether a commit that failed has happened all the same; if that cannot be told, nothing may be undone."""
        try:
            return asked(self._access)
        except Exception as problem:  # noqa: BLE001 - the first error is the one to show
            self._waiting = list(rest)
            error.add_note(f"whether {rest[0].target} has committed cannot be told: {problem}")
            raise self._unknown(error) from error

    def _incomplete(self, error: Exception) -> CommitError:
        return CommitError.incomplete(*self._done_and_waiting(), error, self._left_to())

    def _unknown(self, error: BaseException) -> CommitUnknownError:
        cause = error.cause if isinstance(error, CommitUnknownError) else None
        told = cause or f"{type(error).__name__}: {error}".removesuffix(": ")
        return CommitUnknownError.kept(*self._done_and_waiting(), told, self._left_to())

    def _done_and_waiting(self) -> tuple[list[str], list[str]]:
        done = [part.target for part in self._parts() if part not in self._waiting]
        return done, [part.target for part in self._waiting]

    def _left_to(self) -> str | None:
        """Return the journal by which a later process ends the commit; it is made now for sinks that needed none."""
        if self._journal is not None:
            return self._journal.path
        parts = self._parts()
        path = journal_path(self._access, parts, self._job)
        return left(self._access, Journal(path, self._job, self._name, None, tuple(parts), asked=True))

    def _release(self) -> None:
        """Leave the journal to whoever comes next, or to the process that has taken it."""
        if self._journal is None:
            return
        if self._is_lost:
            self._journal.leave()
        else:
            self._journal.release()

    def _end(self) -> None:
        if self._journal is not None:
            self._journal.end()

    def _refresh(self) -> None:
        for sink in self._sinks:
            try:
                sink.refresh()
            except Exception:
                log.warning("cached readers of a sink could not be refreshed", exc_info=True)


def _nothing() -> None:
    """Let the commit go on."""
