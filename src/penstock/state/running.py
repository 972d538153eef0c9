"""A running query whose number of key groups can be changed with a pause of seconds."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Condition, Event, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.io.filesystem import Folder
from penstock.spark.state.streaming_queries import (
    ReplaceableQuery,
    end_after_batch,
    failure_of,
    sink_facts,
    wait_until_started,
)
from penstock.state.journal import Journal, Phase, rescale_lock
from penstock.state.preflight import plan_rescale
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, undo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.state.query_start import QueryStart
    from penstock.state.rewrite_methods import RewriteMethod

T = TypeVar("T")

_POLL_INTERVAL = 0.2
"""Seconds between two checks whether a batch is done."""
_SHORTEST_WAIT = 0.001
"""Shortest timeout in seconds, because PySpark rejects 0."""
_STEPS = 2
"""Additional steps of a live rescale: wait for the end of the batch, and restart the query."""

log = logging.getLogger("penstock.state")


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The report of the rescale of a running query."""

    rescale: RescaleReport
    seconds_to_end: float
    """Seconds until the running batch had ended; the query worked until then."""
    seconds_stopped: float
    """Seconds from the end of that batch until the query had opened its sources again."""

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


class RescalableQuery(ReplaceableQuery):
    """A streaming query that `start_query` started. `rescale` changes its number of key groups while it runs.

    A rescale restarts the query, and this object stays its handle: `id` stays the same, `runId` changes, and
    `awaitTermination` continues to wait. (``spark.streams.awaitAnyTermination`` returns, because a run has ended.)
    """

    def __init__(self, start: QueryStart) -> None:
        super().__init__(start.start())
        self._start = start
        self._bridge, self._location = start.bridge, start.location
        self._changed = Condition()
        self._rescaling = False
        self._rescaler: Thread | None = None
        self._runs = 1
        self._failure: StateError | None = None
        self.stop_requested = Event()
        """Set by `stop`."""

    def rescale(
        self, max_parallelism: int, *, method: RewriteMethod | None = None, on_progress: OnProgress | None = None
    ) -> LiveReport:
        """Change the number of key groups: wait for the end of the running batch, stop, rescale, and restart.

        For the parameters see `penstock.state.rescale`. Do not call it in the query's own ``foreachBatch``: it would
        wait for its own batch. Raise `StateError` if the state cannot be rescaled, or the rescale failed. The query
        continues unchanged, unless the message says otherwise.
        """
        report_progress = on_progress or (lambda *_: None)
        with self._exclusive():
            self._check(max_parallelism, method)
            failure: BaseException | None = None
            with rescale_lock(self._bridge, Folder(self._bridge, self._location)):
                start = time.monotonic()
                report_progress(0, _STEPS, "waiting for the running batch to end")
                try:
                    by_others = end_after_batch(self._bridge, self)
                    ended = time.monotonic()
                    self._check_ended(by_others=by_others)
                    report = self._rescale_stopped(max_parallelism, method, report_progress)
                except BaseException as error:  # noqa: BLE001 - the query is restarted after any error
                    failure = error
            if failure is not None:  # the lock is released, because a start of the query takes it
                end_after_batch(self._bridge, self)
                if failure_of(self) is None:
                    self._restart(f"was not rescaled ({failure})")
                raise failure
            report_progress(1, _STEPS, "starting the query again")
            self._restart(f"was rescaled to {max_parallelism}")
            return LiveReport(report, ended - start, time.monotonic() - ended)

    def wait_for_batch(self, batch: int) -> bool:
        """Wait until a batch is done; return False if the query ended before."""
        checkpoint = self._start.checkpoint()
        while (finished := checkpoint.latest("commits")) is None or finished < batch:
            if not super().isActive:
                return False
            time.sleep(_POLL_INTERVAL)
        return True

    def _check(self, max_parallelism: int, method: RewriteMethod | None) -> None:
        """Raise `StateError` while the query still runs if its state cannot be rescaled."""
        if not super().isActive:
            raise StateError.ended(self._location, "it has ended")
        if not sink_facts(self).survives_restart:
            reason = "its sink is a table in memory, which Spark cannot continue after a stop; stop the query yourself"
            raise StateError.obstacles(self._location, [reason])
        plan_rescale(self._bridge, self._start.checkpoint(), max_parallelism, method, running=True)

    def _check_ended(self, *, by_others: bool) -> None:
        """Raise `StateError` if the query failed, or another caller has stopped it, so that it must stay stopped."""
        failure = failure_of(self)
        if failure is not None:
            raise StateError.ended(self._location, f"its last batch failed: {failure}")
        checkpoint = self._start.checkpoint()
        begun, finished = checkpoint.latest("offsets"), checkpoint.latest("commits")
        if begun is not None and (finished is None or finished < begun):  # the rescale itself never interrupts a batch
            self.stop_requested.set()
            raise StateError.ended(self._location, f"it was stopped in the middle of batch {begun}")
        if by_others or self.stop_requested.is_set():
            self.stop_requested.set()
            raise StateError.ended(self._location, "it was stopped by another caller, or ended by itself")

    def _rescale_stopped(
        self, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
    ) -> RescaleReport:
        plan = plan_rescale(self._bridge, self._start.checkpoint(), max_parallelism, method)
        try:
            return Rescale(
                self._bridge, plan, lambda done, total, step: on_progress(done + 1, total + _STEPS, step)
            ).run()
        except BaseException as error:
            if self._undo() and isinstance(error, StateError):
                raise StateError.failed(self._location, "putting it in place", error.cause or error.message) from error
            raise

    def _undo(self) -> bool:
        """Undo a partly published rescale; return whether a rescale was undone."""
        try:
            checkpoint = self._start.checkpoint()
            journal = Journal.load(checkpoint.folder)
            if journal is None:
                return False
            undo(checkpoint, journal)
        except Exception:  # the next start of the query finishes or undoes it
            log.warning("the rescale of %s could not be undone", self._location, exc_info=True)
            return False
        return journal.phase is not Phase.STAGING

    def _restart(self, what_happened: str) -> None:
        if self.stop_requested.is_set():
            return
        try:
            self.replace(self._start.restart())
            failure = wait_until_started(self)
        except Exception as error:  # noqa: BLE001 - sources and sinks raise any class
            failure = root_cause(error)
        if failure is not None:
            self._failure = StateError.not_restarted(self._location, what_happened, failure)
            raise self._failure

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._changed:
            if self._rescaling:
                raise StateError.busy(self._location, "it is being rescaled now")
            self._rescaling = True
            self._rescaler = current_thread()
        try:
            yield
        finally:
            with self._changed:
                self._rescaling = False
                self._rescaler = None
                self._runs += 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Stop the query; a rescale that is in progress does not restart it."""
        self.stop_requested.set()
        super().stop()
        if self._rescaler is current_thread():  # called by `on_progress` of a rescale, which does not restart the query
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._rescaling)
        super().stop()  # the rescale may have just restarted the query

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or is being rescaled."""
        return self._rescaling or super().isActive

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended, across restarts by rescales; see PySpark's ``StreamingQuery``.

        Raise `StateError` if the query was stopped for a rescale and could not be started again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        await_run = super().awaitTermination

        def wait() -> bool | None:
            remaining = None if deadline is None else max(_SHORTEST_WAIT, deadline - time.monotonic())
            return await_run(remaining)  # type: ignore[arg-type] # PySpark accepts fractions of seconds

        return self._wait_across_restarts(wait, deadline)

    def processAllAvailable(self) -> None:
        """Wait until all available data has been processed; see PySpark's ``StreamingQuery``."""
        self._wait_across_restarts(super().processAllAvailable, None)

    def _wait_across_restarts(self, wait: Callable[[], T], deadline: float | None) -> T | bool:
        """Wait for a run; if a rescale ended it, wait for the next run."""
        while True:
            with self._changed:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: not self._rescaling, remaining):
                    return False
                runs = self._runs
            if self._failure is not None:
                raise self._failure
            try:
                outcome = wait()
            except Exception:
                if not self._replaced(runs):
                    raise
            else:
                if not self._replaced(runs):
                    return outcome

    def _replaced(self, runs: int) -> bool:
        with self._changed:
            return self._rescaling or self._runs != runs
