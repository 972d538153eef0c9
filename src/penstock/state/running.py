"""A running query whose number of key groups can be changed with a pause of a few seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Condition, Event, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.state.streaming_queries import (
    ReplaceableQuery,
    failure_of,
    sink_facts,
    stop_after_batch,
    wait_until_started,
)
from penstock.state.journal import Journal, Phase, rescale_lock
from penstock.state.preflight import plan_rescale
from penstock.state.rescale import OnProgress, Rescale, RescaleReport, undo

if TYPE_CHECKING:
    from penstock.state.query_start import QueryStart
    from penstock.state.rewrite_methods import RewriteMethod

T = TypeVar("T")

_POLL_SECONDS = 0.2
"""Seconds between two checks whether a batch has finished."""
_MIN_WAIT = 0.001
"""Shortest timeout in seconds; PySpark rejects 0."""
_EXTRA_STEPS = 2
"""Additional steps of a live rescale: wait for the end of the batch, and restart the query."""

log = logging.getLogger("penstock.state")


@dataclass(frozen=True, slots=True)
class LiveReport:
    """The report of the rescale of a running query."""

    rescale: RescaleReport
    seconds_to_end: float
    """Seconds of waiting until the running batch had ended; the query still processed rows during this time."""
    seconds_stopped: float
    """Seconds from the end of that batch until the restarted query had opened its sources."""

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
        self._run_changed = Condition()
        self._is_rescaling = False
        self._rescaling_thread: Thread | None = None
        self._rescale_count = 0
        self._failure: StateError | None = None
        self.stop_requested = Event()
        """Set when the query must not be restarted: `stop` was called, or something else has ended the query."""

    def rescale(
        self, max_parallelism: int, *, method: RewriteMethod | None = None, on_progress: OnProgress | None = None
    ) -> LiveReport:
        """Change the number of key groups: wait for the end of the running batch, stop, rescale, and restart.

        For the parameters see `penstock.state.rescale`. Do not call this method in the query's own ``foreachBatch``:
        the call would wait for its own batch. Raise `StateError` if the state cannot be rescaled, or the rescale fails.
        The query then continues unchanged, unless the message says otherwise.
        """
        report_progress = on_progress or (lambda *_: None)
        with self._exclusive_rescale():
            self._check_rescalable(max_parallelism, method)
            failure: BaseException | None = None
            with rescale_lock(self._bridge, HadoopPath(self._bridge, self._location)):
                start = time.monotonic()
                report_progress(0, _EXTRA_STEPS, "waiting for the running batch to end")
                try:
                    ended_by_other = stop_after_batch(self._bridge, self)
                    ended = time.monotonic()
                    self._check_may_restart(ended_by_other=ended_by_other)
                    report = self._rescale_while_stopped(max_parallelism, method, report_progress)
                except BaseException as error:  # noqa: BLE001 - the query is restarted after any error
                    failure = error
            if failure is not None:  # outside the lock, because the start of the query may acquire it, too
                stop_after_batch(self._bridge, self)  # does nothing unless the error prevented the first stop
                if failure_of(self) is None:  # a query that failed itself is not restarted
                    self._restart(f"was not rescaled ({failure})")
                raise failure
            report_progress(1, _EXTRA_STEPS, "starting the query again")
            self._restart(f"was rescaled to {max_parallelism}")
            return LiveReport(report, ended - start, time.monotonic() - ended)

    def wait_for_batch(self, batch: int) -> bool:
        """Wait until a batch has finished; return False if the query ended before that."""
        checkpoint = self._start.checkpoint()
        while (finished := checkpoint.latest_batch("commits")) is None or finished < batch:
            if not super().isActive:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _check_rescalable(self, max_parallelism: int, method: RewriteMethod | None) -> None:
        """Raise `StateError` if the state cannot be rescaled; called while the query still runs."""
        if not super().isActive:
            raise StateError.query_ended(self._location, "it has ended")
        if not sink_facts(self).survives_restart:
            reason = "its sink is a table in memory, which Spark cannot continue after a stop; stop the query yourself"
            raise StateError.cannot_rescale(self._location, [reason])
        plan_rescale(self._bridge, self._start.checkpoint(), max_parallelism, method, is_running=True)

    def _check_may_restart(self, *, ended_by_other: bool) -> None:
        """Raise `StateError` if the query must not be restarted: it failed, ended, or was stopped by another caller."""
        failure = failure_of(self)
        if failure is not None:
            raise StateError.query_ended(self._location, f"its last batch failed: {failure}")
        checkpoint = self._start.checkpoint()
        started, finished = checkpoint.latest_batch("offsets"), checkpoint.latest_batch("commits")
        if started is not None and (finished is None or finished < started):  # interrupted, but not by this rescale
            self.stop_requested.set()
            raise StateError.query_ended(self._location, f"it was stopped in the middle of batch {started}")
        if ended_by_other or self.stop_requested.is_set():
            self.stop_requested.set()
            raise StateError.query_ended(self._location, "it was stopped by another caller, or ended by itself")

    def _rescale_while_stopped(
        self, max_parallelism: int, method: RewriteMethod | None, on_progress: OnProgress
    ) -> RescaleReport:
        plan = plan_rescale(self._bridge, self._start.checkpoint(), max_parallelism, method)
        try:
            return Rescale(
                self._bridge, plan, lambda done, total, step: on_progress(done + 1, total + _EXTRA_STEPS, step)
            ).run()
        except BaseException as error:  # after an undo, the error's hint to finish or undo the rescale is obsolete
            if self._undo_published() and isinstance(error, StateError):
                cause = error.cause or error.message
                raise StateError.rescale_failed(self._location, "publishing the new state", cause) from error
            raise

    def _undo_published(self) -> bool:
        """Undo an incomplete rescale; return whether it was partly published and has been undone."""
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
            self._failure = StateError(
                f"the query on {self._location} {what_happened}, and could not be restarted",
                cause=failure,
                hint="its state is intact: start it with penstock.state.start_query once the cause is fixed",
            )
            raise self._failure

    @contextmanager
    def _exclusive_rescale(self) -> Iterator[None]:
        with self._run_changed:
            if self._is_rescaling:
                raise StateError.already_rescaling(self._location, "it is being rescaled now")
            self._is_rescaling = True
            self._rescaling_thread = current_thread()
        try:
            yield
        finally:
            with self._run_changed:
                self._is_rescaling = False
                self._rescaling_thread = None
                self._rescale_count += 1
                self._run_changed.notify_all()

    def stop(self) -> None:
        """Stop the query; a rescale that is in progress does not restart it."""
        self.stop_requested.set()
        super().stop()
        if self._rescaling_thread is current_thread():  # called by `on_progress`: waiting would never end
            return
        with self._run_changed:
            self._run_changed.wait_for(lambda: not self._is_rescaling)
        super().stop()  # the rescale may have just restarted the query

    @property
    def isActive(self) -> bool:
        """Whether the query runs, or is being rescaled."""
        return self._is_rescaling or super().isActive

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query has ended, across restarts by rescales; see PySpark's ``StreamingQuery``.

        Raise `StateError` if the query was stopped for a rescale and could not be started again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        await_run = super().awaitTermination

        def wait() -> bool | None:
            remaining = None if deadline is None else max(_MIN_WAIT, deadline - time.monotonic())
            return await_run(remaining)  # type: ignore[arg-type] # PySpark accepts fractions of seconds

        return self._wait_across_restarts(wait, deadline)

    def processAllAvailable(self) -> None:
        """Wait until all available data has been processed; see PySpark's ``StreamingQuery``."""
        self._wait_across_restarts(super().processAllAvailable, None)

    def _wait_across_restarts(self, wait: Callable[[], T], deadline: float | None) -> T | bool:
        """Call `wait` for the current run, and after each rescale for the next run; return False after the deadline."""
        while True:
            with self._run_changed:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._run_changed.wait_for(lambda: not self._is_rescaling, remaining):
                    return False
                rescale_count = self._rescale_count
            if self._failure is not None:
                raise self._failure
            try:
                outcome = wait()
            except Exception:
                if not self._may_be_replaced(rescale_count):
                    raise
            else:
                if not self._may_be_replaced(rescale_count):
                    return outcome

    def _may_be_replaced(self, rescale_count: int) -> bool:
        """Whether a rescale is running, or has ended (also with a failure) since `rescale_count` was read."""
        with self._run_changed:
            return self._is_rescaling or self._rescale_count != rescale_count
