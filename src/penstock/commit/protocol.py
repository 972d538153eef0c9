"""Atomic commit of the sinks of a job: prepare, write the journal, commit, finish."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.commit.claims import Lease
from penstock.commit.journal import COMMITTING, Journal, claim_of, journal_path
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared, needs_journal
from penstock.commit.recovery import wait_for_others
from penstock.commit.trust import is_foreign
from penstock.errors import CommitError, CommitUnknownError
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")


class Committing(Protocol):
    """A sink of a job after all of its rows are written."""

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Properties that journals do not store, such as passwords, by `Prepared.address`."""

    def prepare(self) -> Prepared | None:
        """Make everything durable, and return its record; None if only this process can commit the sink.

        A record that replaces files or adds to folders is prepared again after waiting for other commits.
        """

    def commit(self) -> None:
        """Make everything visible; called only if `prepare` returned None."""

    def abort(self) -> None:
        """Remove what was written."""

    def refresh(self) -> None:
        """Refresh cached relations that read the target."""


_ATTEMPTS = 3
_PAUSE = 0.5
"""Seconds before an irreversible commit is retried; doubled after each attempt."""


class HeldJournal:
    """The file of a journal, from its first write to its removal."""

    def __init__(self, access: Access, journal: Journal) -> None:
        self._access = access
        self.journal = journal
        self._lease: Lease | None = None

    def begin(self, on_wait: Callable[[], None]) -> None:
        """Write the journal, and wait until no other commit touches the same files, or `on_wait` raises."""
        self.journal.check()
        COMMITTING.add(self.journal.file_name)
        self.journal.point(self._access)
        self.journal.write(self._access)
        self._lease = Lease(self._access, self.journal.path)
        wait_for_others(self._access, self.journal, on_wait)

    def renew(self, parts: Sequence[Prepared], on_wait: Callable[[], None]) -> None:
        """Write the records that the sinks have prepared again, and wait for other commits once more."""
        self.journal = replace(self.journal, parts=tuple(parts))
        self.journal.check()
        self.journal.point(self._access)
        self.journal.write(self._access)
        wait_for_others(self._access, self.journal, on_wait)

    def check(self) -> None:
        """Raise `CommitError` if another process took over the commit, as this process did not renew its lease."""
        claim = Folder(self._access.bridge, claim_of(self.journal.path))
        is_claimed = claim.exists() and not is_foreign(claim)
        if is_claimed or not Folder(self._access.bridge, self.journal.path).exists():
            raise CommitError.taken_over(self.journal.path)

    def record_request(self) -> None:
        """Record that a commit that may land late is about to be requested; raise `CommitError` as `check` does."""
        changed = replace(self.journal, is_requested=True)
        if changed.may_land:
            self.check()
            self.journal = changed  # before the write: its answer may be lost
            changed.write(self._access)

    def record_rollback(self, *, is_written: bool) -> None:
        """Record that the commit is about to be undone, if a later process could otherwise complete it.

        `is_written` says whether another run's token appeared during the commit: a later process would take it for this
        job's. Raise `CommitError` as `check` does.
        """
        if is_written or self.journal.may_land:
            self.check()
            self._rewrite(replace(self.journal, is_rolled_back=True))

    def record_decision(self) -> None:
        """Record that all sinks have committed."""
        if not self.journal.decided:
            self._rewrite(replace(self.journal, decided=True))

    def _rewrite(self, changed: Journal) -> None:
        changed.write(self._access)
        self.journal = changed

    def leave(self) -> None:
        """Stop renewing the lease, and leave the file to the process that has taken over the commit."""
        if self._lease is not None:
            self._lease.end()
        COMMITTING.discard(self.journal.file_name)

    def release(self) -> None:
        """Release the journal, so that the next job, of this process too, can recover the commit."""
        try:
            replace(self.journal, owner=None).write(self._access)
        except Exception:
            log.warning("the journal %s could not be released", self.journal.path, exc_info=True)
        self.leave()

    def end(self) -> None:
        """Remove the journal."""
        if self._lease is not None:
            self._lease.end()
        try:
            self.journal.remove(self._access)
        except Exception:
            log.warning("the journal %s could not be removed", self.journal.path, exc_info=True)
        COMMITTING.discard(self.journal.file_name)


class Commit:
    """The commit of a job.

    `on_wait` is called while the commit waits for those of other jobs. `before_commit` is called when everything is
    prepared and nothing is visible yet. Both may raise to cancel.
    """

    def __init__(
        self,
        access: Access,
        job: str,
        name: str,
        sinks: Sequence[Committing],
        on_wait: Callable[[], None] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self._access = access
        self._job = job
        self._name = name
        self._sinks = list(sinks)
        self._on_wait = on_wait or (lambda: None)
        self._before_commit = before_commit or (lambda: None)
        self._prepared: dict[int, Prepared | None] = {}
        self._journal: HeldJournal | None = None
        self._irreversible = False
        self._is_lost = False
        self._waiting: list[Prepared] = []

    def run(self) -> None:
        """Commit all sinks: first those that can be undone.

        Raise `CommitError` if some sinks have committed irreversibly and others could not, or the outcome is unknown. A
        later process completes the commit.
        """
        for index, sink in enumerate(self._sinks):
            self._prepared[index] = sink.prepare()
            self._access.secrets.update(sink.secrets)
        self._begin()
        try:
            parts = self._parts()
            for part in parts:
                part.ready(self._access)
            self._before_commit()
            for part in parts:
                if part.is_reversible:
                    self._check()
                    part.commit(self._access)
            for index, sink in enumerate(self._sinks):
                if self._prepared[index] is None:
                    sink.commit()
            # Rows that another run has written do not make the commit irreversible: if the next sink fails, all
            # sinks can still be undone.
            self._commit_irreversible(
                [part for part in parts if not part.is_reversible and not part.is_written(self._access)]
            )
        finally:
            self._access.close()
        self._refresh()

    def finish(self) -> None:
        """Record that all sinks have committed, and remove what was only needed to undo.

        Raise `Exception` if the journal cannot be written and all sinks can still be undone: the job fails.
        """
        if self._journal is not None:
            try:
                self._check()
                self._journal.record_decision()
            except Exception:
                if not self._irreversible:
                    raise
                log.warning("the journal %s could not be written again", self._journal.journal.path, exc_info=True)
                self._release()  # recovery completes the commit and removes the replaced rows
                return
        for part in self._parts():
            try:
                part.finish(self._access)
            except Exception:  # all rows are visible, and recovery removes the replaced ones later
                log.warning("the replaced rows of %s could not be removed", part.target, exc_info=True)
                self._release()
                return
        self._end()

    def fail(self, error: BaseException) -> None:
        """Undo everything, unless a sink has, or may have, committed irreversibly: then leave the rest to recovery."""
        is_open = self._is_lost or bool(self._waiting)
        if self._irreversible and not is_open:
            error.add_note("all sinks of the job had committed by then; their rows are visible")
            self.finish()
            return
        if is_open or not self._may_undo(error):
            self._release()
            return
        undone = True
        for index, sink in reversed(list(enumerate(self._sinks))):
            part = self._prepared.get(index)
            try:
                if part is None:
                    sink.abort()
                else:
                    part.undo(self._access)
            except Exception as problem:  # noqa: BLE001 - the first error is raised
                undone = False
                error.add_note(f"while cleaning up: {problem}")
        self._refresh()
        (self._end if undone else self._release)()

    def _may_undo(self, error: BaseException) -> bool:
        """Record the rollback if a later process could otherwise complete the commit; return False if that fails."""
        if self._journal is None:
            return True
        try:
            self._journal.record_rollback(is_written=bool(self._access.committed))
        except Exception as problem:  # noqa: BLE001 - the first error is raised
            self._is_lost = isinstance(problem, CommitError)
            if self._is_lost or self._journal.journal.may_land:
                error.add_note(f"nothing was undone: {problem}")
                return False
            error.add_note(f"the journal could not be written any more: {problem}")
        return True

    def _parts(self) -> list[Prepared]:
        """Return the prepared records, reversible ones first."""
        parts = [part for _, part in sorted(self._prepared.items()) if part is not None]
        return sorted(parts, key=lambda part: not part.is_reversible)

    def _begin(self) -> None:
        parts = self._parts()
        if not needs_journal(parts):
            return
        path = journal_path(self._access, parts, self._job)
        self._journal = HeldJournal(self._access, Journal(path, self._job, self._name, Owner.me(), tuple(parts)))
        self._journal.begin(self._on_wait)
        while self._prepare_again():
            self._journal.renew(self._parts(), self._on_wait)

    def _prepare_again(self) -> bool:
        """Prepare sinks again, as jobs that did not see the journal may have changed targets; return if any differs."""
        before = dict(self._prepared)
        for index, part in before.items():
            if part is not None and (part.replaced or part.added):
                self._prepared[index] = self._sinks[index].prepare()
        return self._prepared != before

    def _check(self) -> None:
        """Raise `CommitError` if another process has recovered the commit, whose outcome is final then."""
        if self._journal is None:
            return
        try:
            self._journal.check()
        except CommitError:
            self._is_lost = True
            raise

    def _commit_irreversible(self, parts: Sequence[Prepared]) -> None:
        if self._journal is not None:
            self._check()
            self._journal.record_request()
        for index in range(len(parts)):
            try:
                self._commit_first(parts[index:])
            except BaseException as error:
                if self._irreversible:
                    self._waiting = list(parts[index:])
                elif not isinstance(error, Exception):  # interrupted during a commit, such as by Ctrl+C
                    self._waiting = list(parts[index:])
                    try:
                        error.add_note(str(self._unknown(error)))
                    except Exception:  # the interrupt must not be replaced by this error
                        log.warning("no journal could be left of the commit", exc_info=True)
                raise
            self._irreversible = True

    def _commit_first(self, rest: Sequence[Prepared]) -> None:
        """Commit the first of the remaining records; retry it if it fails and nothing can be undone any more."""
        part, unknown = rest[0], False
        for attempt in range(_ATTEMPTS):
            self._check()
            try:
                (part.complete if unknown else part.commit)(self._access)
                break
            except Exception as error:
                self._access.close()
                if isinstance(error, CommitUnknownError):  # this attempt may still succeed, even if later ones fail
                    unknown, self._waiting = True, list(rest)
                if self._query(part.is_committed, rest, error):
                    break
                if not (self._irreversible or unknown or self._query(part.has_begun, rest, error)):
                    raise
                self._irreversible |= not unknown
                if attempt == _ATTEMPTS - 1:
                    self._waiting = list(rest)
                    if unknown:
                        raise self._unknown(error) from error
                    raise CommitError.incomplete(*self._done_and_waiting(), error, self._recovery_journal()) from error
                time.sleep(_PAUSE * 2**attempt)
        self._waiting = []

    def _query(self, has_committed: Callable[[Access], bool], rest: Sequence[Prepared], error: Exception) -> bool:
        """Whether a failed commit has happened nevertheless; raise `CommitUnknownError` if the target cannot say."""
        try:
            return has_committed(self._access)
        except Exception as problem:  # noqa: BLE001 - the first error is raised
            self._waiting = list(rest)
            error.add_note(f"whether {rest[0].target} has committed is unknown: {problem}")
            raise self._unknown(error) from error

    def _unknown(self, error: BaseException) -> CommitUnknownError:
        cause = error.cause if isinstance(error, CommitUnknownError) else None
        cause = cause or f"{type(error).__name__}: {error}".removesuffix(": ")
        return CommitUnknownError.unresolved(*self._done_and_waiting(), cause, self._recovery_journal())

    def _done_and_waiting(self) -> tuple[list[str], list[str]]:
        done = [part.target for part in self._parts() if part not in self._waiting]
        return done, [part.target for part in self._waiting]

    def _recovery_journal(self) -> str | None:
        """Return the path of the journal for a later process; write a journal now if the sinks needed none."""
        if self._journal is not None:
            return self._journal.journal.path
        parts = self._parts()
        path = journal_path(self._access, parts, self._job)
        journal = Journal(path, self._job, self._name, None, tuple(parts), is_requested=True)
        return _write_released_journal(self._access, journal)

    def _release(self) -> None:
        """Leave the journal to the next job, or to the process that has taken it over."""
        if self._journal is not None:
            (self._journal.leave if self._is_lost else self._journal.release)()

    def _end(self) -> None:
        if self._journal is not None:
            self._journal.end()

    def _refresh(self) -> None:
        for sink in self._sinks:
            try:
                sink.refresh()
            except Exception:
                log.warning("cached readers of a sink could not be refreshed", exc_info=True)


def _write_released_journal(access: Access, journal: Journal) -> str | None:
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
