"""Atomic commit of the sinks of a job: prepare, write a journal (for recovery after a crash), commit, finish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.commit.claims import Lease
from penstock.commit.journal import COMMITTING, Journal, claim_of, new_journal_path
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared, needs_journal
from penstock.commit.recovery import wait_for_other_commits
from penstock.commit.trust import is_foreign
from penstock.errors import CommitError, CommitUnknownError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")


class CommittableSink(Protocol):
    """A sink of a job after all of its rows are written."""

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """Properties that journals do not store, such as passwords, by `Prepared.address`."""

    def prepare(self) -> Prepared | None:
        """Make all rows durable, and return the record of the sink; None if only this process can commit the sink.

        Called again once other jobs can see the journal, if the record has `exclusive_paths` or `extended_folders`.
        """

    def commit(self) -> None:
        """Make all rows visible; called only if `prepare` returned None."""

    def abort(self) -> None:
        """Remove the written rows."""

    def refresh(self) -> None:
        """Refresh cached relations that read the target."""


_ATTEMPTS = 3  # at most, to commit the record of an irreversible sink
_FIRST_PAUSE = 0.5
"""Seconds before an irreversible commit is retried; doubled after each attempt."""


class JournalFile:
    """The file of a journal, from its first write to its removal."""

    def __init__(self, access: Access, journal: Journal) -> None:
        self._access = access
        self.journal = journal
        self._lease: Lease | None = None

    def begin(self, on_wait: Callable[[], None]) -> None:
        """Write the journal, and wait until no conflicting commit runs, or `on_wait` raises."""
        self.journal.check()
        COMMITTING.add(self.journal.file_name)
        self.journal.write_pointers(self._access)
        self.journal.write(self._access)
        self._lease = self._lease or Lease(self._access, self.journal.path)
        wait_for_other_commits(self._access, self.journal, on_wait)

    def update(self, parts: Sequence[Prepared], on_wait: Callable[[], None]) -> None:
        """Write the records that the sinks have prepared again, and wait for other commits again."""
        self.journal = replace(self.journal, parts=tuple(parts))
        self.begin(on_wait)

    def check(self) -> None:
        """Raise `CommitError` if another process has taken over the commit: this process did not renew its lease."""
        claim = HadoopPath(self._access.bridge, claim_of(self.journal.path))
        is_claimed = claim.exists() and not is_foreign(claim)
        if is_claimed or not HadoopPath(self._access.bridge, self.journal.path).exists():
            raise CommitError(
                f"another process recovered this commit: {self.journal.path} no longer exists",
                cause="this process did not renew its lease for a minute, so it counted as dead",
                hint="check whether the target has the new rows before you run the job again",
            )

    def record_request(self) -> None:
        """Record that commits which `may_succeed_late` will be requested next; raise `CommitError` as `check` does."""
        changed = replace(self.journal, commit_requested=True)
        if changed.may_succeed_late:
            self.check()
            self.journal = changed  # before the write, which may succeed although it raises
            changed.write(self._access)

    def record_rollback(self, *, has_foreign_token: bool) -> None:
        """Record that the commit is about to be undone, if a later process could otherwise complete it.

        `has_foreign_token` says whether another run with the same idempotency token has committed in the meantime; a
        later process would mistake that token for a commit of this job. Raise `CommitError` as `check` does.
        """
        if has_foreign_token or self.journal.may_succeed_late:
            self.check()
            self._rewrite(replace(self.journal, rollback_started=True))

    def record_all_committed(self) -> None:
        """Record that all sinks have committed."""
        if not self.journal.all_committed:
            self._rewrite(replace(self.journal, all_committed=True))

    def _rewrite(self, changed: Journal) -> None:
        changed.write(self._access)
        self.journal = changed

    def abandon(self) -> None:
        """Stop renewing the lease; the journal belongs to the process that has taken over the commit."""
        if self._lease is not None:
            self._lease.end()
        COMMITTING.discard(self.journal.file_name)

    def release(self) -> None:
        """Release the journal, so that the next job, even of this process, can recover the commit."""
        try:
            replace(self.journal, owner=None).write(self._access)
        except Exception:
            log.warning("the journal %s could not be released", self.journal.path, exc_info=True)
        self.abandon()

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

    `job_id` and `job_name` identify the job. `on_wait` is called while the commit waits for commits of other jobs.
    `before_commit` is called when all sinks are prepared and nothing is visible yet. Both may raise to cancel.
    """

    def __init__(
        self,
        access: Access,
        job_id: str,
        job_name: str,
        sinks: Sequence[CommittableSink],
        on_wait: Callable[[], None] | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self._access = access
        self._job_id = job_id
        self._job_name = job_name
        self._sinks = list(sinks)
        self._on_wait = on_wait or (lambda: None)
        self._before_commit = before_commit or (lambda: None)
        self._prepared: dict[int, Prepared | None] = {}  # by index of the sink
        self._journal: JournalFile | None = None
        self._is_irreversible = False  # whether rows are visible that cannot be removed again
        self._is_taken_over = False  # by another process
        self._uncommitted: list[Prepared] = []  # after an error: irreversible records not, or maybe not, committed

    def run(self) -> None:
        """Commit all sinks: first reversible records, then sinks without a record, last irreversible records.

        Raise `CommitError` if some sinks have committed irreversibly and others could not, or the outcome is unknown. A
        later process completes the commit. After any exception, the caller calls `fail`.
        """
        for index, sink in enumerate(self._sinks):
            self._prepared[index] = sink.prepare()
            self._access.secrets.update(sink.secrets)
        self._begin()
        try:
            parts = self._parts()
            for part in parts:
                part.make_ready(self._access)
            self._before_commit()
            for part in parts:
                if part.is_reversible:
                    self._check()
                    part.commit(self._access)
            for index, sink in enumerate(self._sinks):
                if self._prepared[index] is None:
                    sink.commit()
            # Records that another run has committed are skipped, so that they do not make this commit irreversible:
            # if the next sink fails, all sinks can still be undone.
            self._commit_irreversible(
                [part for part in parts if not part.is_reversible and not part.is_already_committed(self._access)]
            )
        finally:
            self._access.close()
        self._refresh()

    def finish(self) -> None:
        """Record that all sinks have committed, and remove what only an undo needs.

        Raise an exception if the journal cannot be written and all sinks can still be undone: then the job fails.
        """
        if self._journal is not None:
            try:
                self._check()
                self._journal.record_all_committed()
            except Exception:
                if not self._is_irreversible:
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
        """Undo all sinks, unless some have, or may have, committed irreversibly, or another process has taken over.

        In these cases finish the commit if all sinks have committed; otherwise leave the journal to recovery.
        """
        is_unresolved = self._is_taken_over or bool(self._uncommitted)
        if self._is_irreversible and not is_unresolved:
            error.add_note("all sinks of the job had committed by then; their rows are visible")
            self.finish()
            return
        if is_unresolved or not self._record_rollback(error):
            self._release()
            return
        is_undone = True
        for index, sink in reversed(list(enumerate(self._sinks))):
            part = self._prepared.get(index)
            try:
                if part is None:
                    sink.abort()
                else:
                    part.undo(self._access)
            except Exception as problem:  # noqa: BLE001 - the first error is raised
                is_undone = False
                error.add_note(f"while cleaning up: {problem}")
        self._refresh()
        (self._end if is_undone else self._release)()

    def _record_rollback(self, error: BaseException) -> bool:
        """Record the rollback if a later process could otherwise complete the commit; return whether to roll back."""
        if self._journal is None:
            return True
        try:
            self._journal.record_rollback(has_foreign_token=bool(self._access.committed_staging_tables))
        except Exception as problem:  # noqa: BLE001 - the first error is raised
            self._is_taken_over = isinstance(problem, CommitError)
            if self._is_taken_over or self._journal.journal.may_succeed_late:
                error.add_note(f"nothing was undone: {problem}")
                return False
            error.add_note(f"the journal could not be updated: {problem}")
        return True

    def _parts(self) -> list[Prepared]:
        """Return the commit records, reversible ones first."""
        parts = [part for _, part in sorted(self._prepared.items()) if part is not None]
        return sorted(parts, key=lambda part: not part.is_reversible)

    def _begin(self) -> None:
        parts = self._parts()
        if not needs_journal(parts):
            return
        path = new_journal_path(self._access, parts, self._job_id)
        journal = Journal(path, self._job_id, self._job_name, Owner.current(), tuple(parts))
        self._journal = JournalFile(self._access, journal)
        self._journal.begin(self._on_wait)
        while self._prepare_again():
            self._journal.update(self._parts(), self._on_wait)

    def _prepare_again(self) -> bool:
        """Prepare sinks again, as targets may change until the journal is visible; return whether a record changed."""
        before = dict(self._prepared)
        for index, part in before.items():
            if part is not None and (part.exclusive_paths or part.extended_folders):
                self._prepared[index] = self._sinks[index].prepare()
        return self._prepared != before

    def _check(self) -> None:
        """Raise `CommitError` if another process has taken over the commit and decides its outcome."""
        if self._journal is None:
            return
        try:
            self._journal.check()
        except CommitError:
            self._is_taken_over = True
            raise

    def _commit_irreversible(self, parts: Sequence[Prepared]) -> None:
        if self._journal is not None:
            self._check()
            self._journal.record_request()
        for index in range(len(parts)):
            try:
                self._commit_first(parts[index:])
            except BaseException as error:
                if self._is_irreversible:
                    self._uncommitted = list(parts[index:])
                elif not isinstance(error, Exception):  # interrupted during a commit, such as by Ctrl+C
                    self._uncommitted = list(parts[index:])
                    try:
                        error.add_note(str(self._unknown_outcome(error)))
                    except Exception:  # the interrupt must not be replaced by this error
                        log.warning("no journal of the commit could be written", exc_info=True)
                raise
            self._is_irreversible = True

    def _commit_first(self, remaining: Sequence[Prepared]) -> None:
        """Commit the first remaining record. Retry if the outcome is unknown, or the job cannot be undone any more."""
        part, is_unknown = remaining[0], False
        for attempt in range(_ATTEMPTS):
            self._check()
            try:
                (part.complete if is_unknown else part.commit)(self._access)
                break
            except Exception as error:
                self._access.close()
                if isinstance(error, CommitUnknownError):  # this attempt may still succeed, even if later ones fail
                    is_unknown, self._uncommitted = True, list(remaining)
                if self._is_visible(part.is_committed, remaining, error):
                    break
                if not (self._is_irreversible or is_unknown or self._is_visible(part.has_begun, remaining, error)):
                    raise
                self._is_irreversible |= not is_unknown  # here, some rows are visible or the outcome is unknown
                if attempt == _ATTEMPTS - 1:
                    self._uncommitted = list(remaining)
                    if is_unknown:
                        raise self._unknown_outcome(error) from error
                    raise self._partial_commit(error) from error
                time.sleep(_FIRST_PAUSE * 2**attempt)
        self._uncommitted = []

    def _is_visible(self, check: Callable[[Access], bool], remaining: Sequence[Prepared], error: Exception) -> bool:
        """Return the result of a check after a failed commit; raise `CommitUnknownError` if the check fails, too."""
        try:
            return check(self._access)
        except Exception as problem:  # noqa: BLE001 - the first error is raised
            self._uncommitted = list(remaining)
            error.add_note(f"whether {remaining[0].target} has committed is unknown: {problem}")
            raise self._unknown_outcome(error) from error

    def _unknown_outcome(self, error: BaseException) -> CommitUnknownError:
        cause = error.cause if isinstance(error, CommitUnknownError) else None
        cause = cause or f"{type(error).__name__}: {error}".removesuffix(": ")
        (committed, uncommitted), journal = self._targets(), self._recovery_journal()
        next_step = (
            "check whether the target has its rows"
            if journal is None
            else f"`penstock recover {journal} --apply`, or the next job that writes there, checks and ends the commit"
        )
        return CommitUnknownError(
            f"whether the job's rows were committed to {uncommitted} is unknown"
            + (f"; committed: {committed}" if committed else ""),
            cause=cause,
            hint=f"no files were removed, as the commit may still succeed: {next_step}. If the job runs again without "
            "a token, the target may have its rows twice",
        )

    def _partial_commit(self, error: Exception) -> CommitError:
        (committed, uncommitted), journal = self._targets(), self._recovery_journal()
        return CommitError(
            f"only some of the job's sinks have committed: {committed}; not committed: {uncommitted}",
            cause=f"{type(error).__name__}: {error}",
            hint="no rows were removed; inspect the targets before you run the job again"
            if journal is None
            else f"`penstock recover {journal} --apply`, or the next job at one of these targets, completes it",
        )

    def _targets(self) -> tuple[str, str]:
        """Return the committed targets, and those that are not or maybe not committed, both as text with commas."""
        committed = [part.target for part in self._parts() if part not in self._uncommitted]
        return ", ".join(committed), ", ".join(part.target for part in self._uncommitted)

    def _recovery_journal(self) -> str | None:
        """Return the path of the journal for recovery, which is written now if necessary; None if that fails."""
        if self._journal is not None:
            return self._journal.journal.path
        parts = self._parts()
        path = new_journal_path(self._access, parts, self._job_id)
        journal = Journal(path, self._job_id, self._job_name, None, tuple(parts), commit_requested=True)
        try:
            journal.check()
            journal.write(self._access)
        except Exception:
            log.warning("the journal %s could not be written", path, exc_info=True)
            return None
        try:
            journal.write_pointers(self._access)
        except Exception:  # such as an unreachable database; the error of the job names the journal
            log.warning("the pointers to the journal %s could not be written", path, exc_info=True)
        return path

    def _release(self) -> None:
        """Release the journal to the next job, or abandon it to the process that has taken over the commit."""
        if self._journal is not None:
            (self._journal.abandon if self._is_taken_over else self._journal.release)()

    def _end(self) -> None:
        if self._journal is not None:
            self._journal.end()

    def _refresh(self) -> None:
        for sink in self._sinks:
            try:
                sink.refresh()
            except Exception:
                log.warning("cached relations that read a sink could not be refreshed", exc_info=True)
