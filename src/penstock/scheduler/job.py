"""The handle of a job: its state, its decisions, its cancellation and its end."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.base.threads import running_work, start_thread, track_work
from penstock.base.units import show_count
from penstock.commit import Access, Commit
from penstock.config.options import DATA_VOLUME_PER_TASK
from penstock.decisions.log import Choice, DecisionKind, NameRef
from penstock.decisions.record import JobSummary
from penstock.errors import JobCancelledError
from penstock.events import ErrorOccurred, ExecutionState, JobStateChanged
from penstock.scheduler.adaptive_batch import AdaptiveBatchScheduler
from penstock.scheduler.ending import EndArbiter
from penstock.scheduler.failure import as_user_error, clear_frames, full_disk_hint
from penstock.scheduler.job_status import JobStatus
from penstock.spark.bridge.garbage_collection import collect_soon
from penstock.spark.bridge.session import SessionPool
from penstock.spark.run import jobs
from penstock.spark.run.filters import BLOOM_SETTINGS

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.connectors.core.base import SinkJob
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan, SparkPlan
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.handles import LocalProperties
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.scheduler")

_CANCEL_TIMEOUT = 1.4
"""Seconds after which a cancelled job ends, even if some of its threads still hang."""
_NOTIFY_TIMEOUT = 0.3
"""Seconds that listeners get to handle the end of a cancelled job whose threads hang."""

RUN_BY_SPARK = "run by Spark instead"
"""The choice that is recorded when a query falls back to Spark."""


RECENT: deque[Job] = deque(maxlen=256)
"""The latest jobs of this process, oldest first."""


class Job(JobStatus):
    """A running or ended job; created by `Environment.execute` and `Environment.execute_async`.

    >>> print(job.name, job.state, [vertex.tasks for vertex in job.vertices])
    flights per carrier FINISHED [2, 1]

    Attributes
    ----------
    id, name
        The job's unique id, and its name.
    origin
        The origin of its query; None if unknown.
    state
        Its execution state.
    decisions
        Every decision for the job, with figures and reason.
    started, ended
        Seconds since the epoch; `ended` is None while it runs.
    error
        The error that it failed with, or None.
    graphs
        Its graphs; None before they are planned, or if Spark runs the whole query.
    """

    def __init__(self, name: str, origin: QueryOrigin | None = None) -> None:
        super().__init__(name, origin)
        RECENT.append(self)
        self._traceback: TracebackType | None = None
        self._scheduler: AdaptiveBatchScheduler | None = None
        self._spark_job_groups: list[str] = []
        self._ending = EndArbiter(self.name)
        # Not Thread.join, which after an interrupt from the keyboard considers a running thread finished.
        self._done = threading.Event()

    @property
    def summary(self) -> JobSummary:
        """The figures of the job: bytes that broadcast joins did not shuffle, tasks, duration, and missed estimates.

        >>> print(job.summary)
        3 tasks, ... s
        """
        earlier_jobs = [job for job in list(RECENT) if job.name == self.name and job.started < self.started]
        finished_jobs = [job for job in earlier_jobs if job.state is ExecutionState.FINISHED]
        earlier_seconds = [job.ended - job.started for job in finished_jobs if job.ended]
        tasks = sum(vertex.tasks or 0 for vertex in self.vertices)
        seconds = (time.time() if self.ended is None else self.ended) - self.started
        return JobSummary.of(self.decisions.records, tasks, seconds, earlier_seconds[-1] if earlier_seconds else None)

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Cancel the job: its Spark jobs stop, and its sinks make no rows visible. Returns at once; `wait` then raises.

        The job ends within two seconds, even if some of its threads hang. The error and a decision name the threads
        that could not be stopped; these cannot make anything visible later.

        A job whose commit has begun can no longer be cancelled. It ends as usual, and a decision records that the
        cancellation came too late. If the commit hangs, the job is CANCELED, and its error says that what was written
        may still become visible.

        >>> env.write(spark.range(10**12).where("id < 0"), FileSink(f"{folder}/ids"))
        >>> job = env.execute_async()
        >>> job.cancel("not needed")
        >>> job.wait_silently()
        >>> print(job.state)
        CANCELED
        """
        if not self._ending.cancel(reason):
            return
        scheduler = self._scheduler
        if scheduler is not None and self._ending.effective_cancel_reason:
            scheduler.cancel(reason)
        start_thread(f"penstock-stop-{self.id}", partial(self._stop, reason))

    def _stop(self, reason: str) -> None:
        """End a cancelled job in time; runs on a separate thread, because any call may hang."""
        deadline = time.monotonic() + _CANCEL_TIMEOUT
        if self._bridge is not None:
            for group in () if self._ending.commit_has_begun else self._spark_job_groups:
                start_thread(f"penstock-stop-{group}", partial(jobs.cancel_group, self._bridge, group, reason))
        if self._done.wait(deadline - time.monotonic()) or not self._ending.claim_end():
            return
        try:
            scheduler = self._scheduler
            if scheduler is not None:
                scheduler.mark_vertices_cancelled()
            self._end(ExecutionState.CANCELED, self._ending.cancel_error(self._running_threads() or ["its planning"]))
            start_thread(f"penstock-end-{self.id}", partial(self._event_bus.deliver, wait=True)).join(_NOTIFY_TIMEOUT)
        finally:
            self._done.set()

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end, at most `timeout` seconds unless None; return the job itself.

        Raise `JobError` or `JobCancelledError` if it failed or was cancelled, or `TimeoutError` if it still runs.

        >>> print(job.wait(timeout=60).state)
        FINISHED
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"job {self.name!r} still runs after {timeout} s")
        if self.error is not None:
            raise self.error.with_traceback(self._traceback)  # earlier calls have extended the current traceback
        return self

    def start(
        self,
        bridge: Bridge,
        plan: JobPlan,
        config: Configuration,
        sinks: dict[int, SinkJob],
        strategies: Sequence[StreamGraphOptimizationStrategy] = (),
        properties: LocalProperties | None = None,
    ) -> None:
        """Start a thread that runs a planned job, with the local properties of the user's thread; not for users."""
        sessions = SessionPool(bridge, planning_settings(bridge, config), properties)
        self._scheduler = AdaptiveBatchScheduler(
            bridge, sessions, plan, config, self.decisions, self._event_bus, self.id, self.name, sinks, strategies
        )
        self.graphs = self._scheduler.graphs
        self._begin(bridge, self._scheduler.run, list(sinks.values()))

    def wait_silently(self) -> None:
        """Wait for the end without raising the job's error."""
        self._done.wait()

    def start_whole(self, bridge: Bridge, plan: SparkPlan, sinks: Sequence[SinkJob]) -> None:
        """Start a thread in which Spark runs the queries unchanged; not for users."""
        group = f"penstock-{self.id}-whole"
        self._spark_job_groups.append(group)
        properties = jobs.user_properties(bridge)
        self.decisions.record(plan.decision(self.name))

        def run(commit: Callable[[], None]) -> None:
            with jobs.vertex_thread(bridge.session, properties, group, self.name):
                for output, sink in zip(plan.outputs, sinks, strict=True):
                    if self._ending.effective_cancel_reason:
                        break
                    sink.write(output.df)
            commit()

        self._begin(bridge, run, list(sinks))

    def fall_back_to_spark(self, reason: str, error: BaseException) -> None:
        """Record that the query falls back to Spark; a job that could not start ends as failed."""
        self.decisions.record(Choice(DecisionKind.WHOLE_QUERY, NameRef(self.name), RUN_BY_SPARK, reason))
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End a job that could not start as failed; a job that has ended is unchanged."""
        if self._ending.claim_end():
            self._end(ExecutionState.FAILED, as_user_error(error))
            self._event_bus.deliver(wait=True)
            self._done.set()

    def _begin(self, bridge: Bridge, run: Callable[[Callable[[], None]], None], sinks: list[SinkJob]) -> None:
        self._bridge = bridge
        if not self.state.is_terminal:
            self.state = ExecutionState.RUNNING
            self._event_bus.emit(JobStateChanged(self.state, self.pending_operators))
        ending = self._ending
        commit = Commit(Access(bridge), self.id, self.name, sinks, ending.raise_if_cancelled, ending.begin_commit)

        def commit_sinks() -> None:
            self._before_commit()
            with track_work("making what the sinks wrote visible"):
                commit.run()

        def body() -> None:
            error: BaseException | None = None
            try:
                with track_work("running its vertices"):
                    self._ending.raise_if_cancelled()
                    run(commit_sinks)
                    commit.finish()
            except BaseException as problem:  # noqa: BLE001 - `wait` raises it
                error = self._clean_up(problem, commit)
            self._finish(error)

        self._event_bus.deliver()
        start_thread(f"penstock-{self.id}", partial(contextvars.copy_context().run, body))

    def _before_commit(self) -> None:
        """Do nothing; a hook for subclasses, called when all rows are written and the job can still be cancelled."""

    def _finish(self, error: BaseException | None) -> None:
        """End the job, unless its cancellation has already ended it."""
        if not self._ending.claim_end():
            if self._ending.commit_has_begun:
                text = "job %s was cancelled while its sinks committed; the commit has ended now: %s"
                log.warning(text, self.id, error or "it succeeded")
            return
        if self._ending.cancel_request_reason and not self._ending.effective_cancel_reason:  # the request came too late
            reason = f"its sinks had already begun to commit ({self._ending.cancel_request_reason})"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), "came too late", reason))
        if error is None:
            self._end(ExecutionState.FINISHED, None)
        else:
            cancelled = isinstance(error, JobCancelledError)
            self._end(ExecutionState.CANCELED if cancelled else ExecutionState.FAILED, error)
        self._event_bus.deliver(wait=True)
        self._done.set()

    def _end(self, state: ExecutionState, error: BaseException | None) -> None:
        self.error, self.state, self.ended = error, state, time.time()
        if error is not None:
            self._traceback, trace = error.__traceback__, "".join(traceback.format_exception(error))
            failed = (vertex.vertex.id for vertex in self.vertices if vertex.state is ExecutionState.FAILED)
            self._event_bus.emit(ErrorOccurred(error, trace, next(failed, None), at=self.ended))
        self._event_bus.emit(JobStateChanged(state, self.pending_operators, at=self.ended))
        # Garbage collection also releases plans and results in the JVM, and sessions of disconnected clients.
        collect_soon()
        self._scheduler = self._bridge = None
        clear_frames(error)

    def _clean_up(self, error: BaseException, commit: Commit) -> BaseException:
        """Roll back the sinks of a job that did not finish; return its error as users see it."""
        try:
            with track_work("removing what the sinks wrote"):
                commit.fail(error)
        except Exception as problem:  # noqa: BLE001 - the first error is shown
            error.add_note(f"while cleaning up: {problem}")
        running = self._running_threads()
        if self._ending.effective_cancel_reason:
            cancelled = self._ending.cancel_error(running)
            cancelled.__cause__ = None if isinstance(error, JobCancelledError) else error
            return cancelled
        return as_user_error(error, full_disk_hint(self._bridge, error))

    def _running_threads(self) -> list[str]:
        """Return what other threads of the job do at its end, and record it as a decision."""
        running = [
            str(work) for work in running_work(f"penstock-{self.id}") if work.thread is not threading.current_thread()
        ]
        if running:
            chosen = f"{show_count(len(running), 'thread')} left running"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), chosen, "; ".join(running)))
        return running


def planning_settings(bridge: Bridge, config: Configuration) -> dict[str, str]:
    """Return the Spark settings of the sessions that plan and run vertices; they override the user's settings."""
    excluded = bridge.spark.conf.get("spark.sql.adaptive.optimizer.excludedRules", "") or ""
    rules = [rule for rule in excluded.split(",") if rule.strip()]
    # Spark must not remove an empty stage, because all inputs of a join are divided by the same ranges.
    rules.append("org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation")
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.forceApply": "true",
        "spark.sql.adaptive.optimizer.excludedRules": ",".join(rules),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{config.integer(DATA_VOLUME_PER_TASK)}b",
        **BLOOM_SETTINGS,
        # A union has as many tasks as all of its inputs together, in every plan.
        "spark.sql.unionOutputPartitioning": "false",
    }
