"""How the sinks of a job commit together: prepare, write the journal, commit, finish."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from penstock.commit.journal import COMMITTING, LEASE, Journal, journal_path
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared, needs_journal
from penstock.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.commit.prepared import Access

log = logging.getLogger("penstock.commit")

_TRIES = 3
_PAUSE = 0.5
"""Seconds before what cannot be undone is tried again; twice as long each time."""


class Committing(Protocol):
    """What the protocol asks of the sinks of a job."""

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """What journals do not keep."""

    def prepare(self) -> Prepared | None:
        """Make everything durable."""

    def commit(self) -> None:
        """Make everything visible, where `prepare` gave nothing."""

    def abort(self) -> None:
        """Remove what was written."""

    def refresh(self) -> None:
        """Let cached readers see what is there now."""


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
    """

    def __init__(self, access: Access, job: str, name: str, sinks: Sequence[Committing]) -> None:
        self._access = access
        self._job = job
        self._name = name
        self._sinks = list(sinks)
        self._prepared: dict[int, Prepared | None] = {}
        self._journal: Journal | None = None
        self._irreversible = False
        self._waiting: list[Prepared] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Commit all sinks: first those that can be undone.

        Raises
        ------
        CommitError
            If some have committed for good and others could not; a later process completes them.
        """
        for place, sink in enumerate(self._sinks):
            self._prepared[place] = sink.prepare()
            self._access.secrets.update(sink.secrets)
        self._begin_journal()
        try:
            parts = self._parts()
            later = [part for part in parts if not part.is_reversible]
            for part in parts:
                part.ready(self._access)
            for part in parts:
                if part.is_reversible:
                    part.commit(self._access)
            for place, sink in enumerate(self._sinks):
                if self._prepared[place] is None:
                    sink.commit()
            self._commit_for_good(later)
        finally:
            self._access.close()
        self._refresh()

    def finish(self) -> None:
        """Remove what was only needed to undo; from here on nothing can be."""
        if self._journal is not None and not self._journal.decided:
            self._decide(self._journal)
        for part in self._parts():
            try:
                part.finish(self._access)
            except Exception:  # everything is visible: what is left over harms nobody, and the journal removes it later
                log.warning("what was replaced in %s could not be removed", part.target, exc_info=True)
                self._release()
                return
        self._end_journal()

    def _decide(self, journal: Journal) -> None:
        try:
            decided = Journal(journal.path, journal.job, journal.name, journal.owner, journal.parts, decided=True)
            decided.write(self._access)
        except Exception:
            if not self._irreversible:
                raise  # nothing is lost yet: all is undone, as the error tells
            log.warning("the journal %s could not be written again", journal.path, exc_info=True)
            decided = journal
        self._journal = decided

    def fail(self, error: BaseException) -> None:
        """Undo everything, unless a sink has committed for good: then leave the rest to the journal."""
        if self._waiting:
            self._release()
            return
        if self._irreversible:
            error.add_note("all sinks of the job had committed by then; their rows are visible")
            self.finish()
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
            self._end_journal()
        else:
            self._release()

    def _parts(self) -> list[Prepared]:
        """Return what was prepared, what can be undone first."""
        found = [part for _, part in sorted(self._prepared.items()) if part is not None]
        return sorted(found, key=lambda part: not part.is_reversible)

    def _begin_journal(self) -> None:
        if len(self._parts()) > 1:
            for place, part in self._prepared.items():
                self._prepared[place] = None if part is None else part.beside_others(f"{self._job}-{place}")
        parts = self._parts()
        if not needs_journal(parts):
            return
        path = journal_path(self._access, parts, self._job)
        journal = Journal(path, self._job, self._name, Owner.me(), tuple(parts))
        COMMITTING.add(path)
        self._journal = journal
        journal.point(self._access)
        journal.write(self._access)
        threading.Thread(target=self._renew, args=(journal,), name=f"penstock-lease-{self._job}", daemon=True).start()

    def _renew(self, journal: Journal) -> None:
        """Keep the journal young while the job commits, for those who look from another machine."""
        while not self._ended.wait(LEASE / 3):
            try:
                journal.touch(self._access)
            except Exception:
                log.debug("the lease of %s could not be renewed", journal.path, exc_info=True)

    def _commit_for_good(self, parts: Sequence[Prepared]) -> None:
        for number, part in enumerate(parts):
            for attempt in range(_TRIES):
                try:
                    part.commit(self._access)
                    break
                except Exception as error:
                    self._access.close()
                    if self._is_committed(part, parts[number:], error):
                        break
                    if not self._irreversible:
                        raise
                    if attempt == _TRIES - 1:
                        self._waiting = list(parts[number:])
                        raise self._incomplete(error) from error
                    time.sleep(_PAUSE * 2**attempt)
            self._irreversible = True

    def _is_committed(self, part: Prepared, rest: Sequence[Prepared], error: Exception) -> bool:
        """Whether a commit that failed has happened all the same; if that cannot be told, nothing may be undone."""
        try:
            return part.is_committed(self._access)
        except Exception as problem:
            self._waiting = list(rest)
            error.add_note(f"whether {part.target} has committed cannot be told: {problem}")
            if self._journal is None:
                raise error from problem
            raise self._incomplete(error) from error

    def _incomplete(self, error: Exception) -> CommitError:
        done = [part.target for part in self._parts() if part not in self._waiting]
        waiting = [part.target for part in self._waiting]
        return CommitError.incomplete(done, waiting, error, None if self._journal is None else self._journal.path)

    def _release(self) -> None:
        """Leave the journal to whoever comes next."""
        self._ended.set()
        if self._journal is None:
            return
        COMMITTING.discard(self._journal.path)
        try:
            self._journal.released().write(self._access)
        except Exception:
            log.warning("the journal %s could not be released", self._journal.path, exc_info=True)

    def _end_journal(self) -> None:
        self._ended.set()
        if self._journal is None:
            return
        try:
            self._journal.remove(self._access)
        except Exception:
            log.warning("the journal %s could not be removed", self._journal.path, exc_info=True)
        COMMITTING.discard(self._journal.path)

    def _refresh(self) -> None:
        for sink in self._sinks:
            try:
                sink.refresh()
            except Exception:
                log.warning("cached readers of a sink could not be refreshed", exc_info=True)
