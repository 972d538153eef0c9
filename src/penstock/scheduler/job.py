"""The handle of a job: its state, its decisions, its end."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import traceback
import uuid
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.masking import mask_sql
from penstock.base.tables import VertexRow, html_of_table, html_of_text, vertices_table
from penstock.base.threads import running_work, start_thread, track_work
from penstock.base.units import show_count
from penstock.commit import Access, Commit
from penstock.config.options import DATA_VOLUME_PER_TASK
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, NameRef
from penstock.decisions.record import JobSummary, displayed_decisions
from penstock.errors import JobCancelledError
from penstock.events import ErrorOccurred, ExecutionState, JobEventBus, JobStateChanged
from penstock.graph.labels import column_names, vertex_name
from penstock.scheduler.adaptive_batch import AdaptiveBatchScheduler, JobGraphs
from penstock.scheduler.ending import Ending
from penstock.scheduler.failure import cause_of, forget_frames, full_disk_hint
from penstock.spark.bridge.garbage import collect_soon
from penstock.spark.bridge.session import SessionPool
from penstock.spark.run import jobs
from penstock.spark.run.filters import BLOOM_SETTINGS
from penstock.spark.run.jobs import TaskCounts, task_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from rich.table import Table

    from penstock.config import Configuration
    from penstock.connectors.core.base import SinkJob
    from penstock.events import JobStatusEvent, JobStatusListener, VertexSnapshot
    from penstock.graph import JobVertex, JobVertexID
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan, SparkPlan
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.handles import LocalProperties
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.scheduler")

_CANCEL_TIMEOUT = 1.4
"""Seconds after which a cancelled job ends, even if some of its threads still hang."""
_NOTIFY_TIMEOUT = 0.3
"""Seconds that listeners get to handle such an end."""

RUN_BY_SPARK = "run by Spark instead"
"""The choice that is recorded when a query falls back to Spark."""

RECENT: deque[Job] = deque(maxlen=256)
"""The latest jobs of this process, oldest first."""


class Job:
    """A running or ended job; created by `Environment.execute` and `Environment.execute_async`.

    Attributes
    ----------
    id, name
        The job's names.
    origin
        The origin of its query, if Spark delegated it.
    state
        Its execution state.
    decisions
        Every decision for the job, with figures and reason.
    started, ended
        Seconds since the epoch; `ended` is None while it runs.
    error
        The error that it failed with, or None.
    graphs
        Its graphs; None if Spark runs the whole query.
    """

    def __init__(self, name: str, origin: QueryOrigin | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = mask_sql(name)
        self.origin = origin
        self.state = ExecutionState.CREATED
        self._account = JobEventBus(self.id)
        self.decisions = DecisionLog(self._account)
        self.started = time.time()
        RECENT.append(self)
        self.ended: float | None = None
        self.error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._scheduler: AdaptiveBatchScheduler | None = None
        self.graphs: JobGraphs | None = None
        self._columns: dict[str, str] | None = None
        self._whole_groups: list[str] = []
        self._bridge: Bridge | None = None
        self._ending = Ending(self.name)
        # Not Thread.join: after an interrupt from the keyboard, it takes a running thread for finished.
        self._done = threading.Event()

    @property
    def vertices(self) -> list[VertexSnapshot]:
        """The current snapshots of its vertices; empty if Spark runs the whole query."""
        return [execution.snapshot for execution in self.graphs.execution] if self.graphs else []

    @property
    def events(self) -> list[JobStatusEvent]:
        """Its events so far, in order."""
        return self._account.events

    @property
    def pending_operators(self) -> int:
        """The number of operators that are not part of a vertex yet."""
        return self.graphs.manager.pending_operators if self.graphs else 0

    @property
    def status_counts(self) -> dict[str, int]:
        """How many vertices are in each state."""
        if self.graphs is None:
            return {}
        counts = Counter(vertex.state for vertex in self.vertices)
        return {state.value: counts[state] for state in ExecutionState}

    def task_counts(self) -> dict[JobVertexID, TaskCounts]:
        """Return the task progress of running vertices. Each call queries Spark once; wait a second between calls."""
        bridge, graphs = self._bridge, self.graphs
        running = [vertex.vertex for vertex in self.vertices if vertex.state is ExecutionState.RUNNING]
        if bridge is None or graphs is None or not running:
            return {}
        groups = {graphs.group_of(vertex): vertex.id for vertex in running}
        return {groups[group]: counts for group, counts in task_counts(bridge, list(groups)).items()}

    def table(self) -> Table:
        """Return a table with a row per step: what it does, its tasks and their reason, and its output."""
        rows = (_row(snapshot, self.display_name(snapshot.vertex)) for snapshot in self.vertices)
        notes = (decision.text for decision in self.decisions.records)
        return vertices_table(f"{self.name}: {self.state.value.lower()}", rows, notes)

    def display_name(self, vertex: JobVertex) -> str:
        """Return a readable name of a vertex, with its tables and keys."""
        if self.graphs is None:
            return vertex.name
        if self._columns is None:
            self._columns = column_names(self.graphs.planned)
        return vertex_name(self.graphs.manager.graph, vertex, self._columns)

    @property
    def summary(self) -> JobSummary:
        """One line: bytes not shuffled, tasks, seconds, and the seconds of its last run."""
        before = [job for job in list(RECENT) if job.name == self.name and job.started < self.started]
        last = [job.ended - job.started for job in before if job.ended and job.state is ExecutionState.FINISHED]
        tasks = sum(vertex.tasks or 0 for vertex in self.vertices)
        seconds = (time.time() if self.ended is None else self.ended) - self.started
        return JobSummary.of(self.decisions.records, tasks, seconds, last[-1] if last else None)

    def __str__(self) -> str:
        parts = [f"Job {self.name} ({self.id}): {self.state.value.lower()}", str(self.summary)]
        if self.vertices:
            parts.append(str(self.table()))
        if lines := self.decision_lines():
            parts += ["Decisions", *lines]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        decisions = html_of_text("\n".join(["Decisions", *self.decision_lines()])) if self.decision_lines() else ""
        return html_of_text(str(self.summary)) + html_of_table(self.table()) + decisions

    def decision_lines(self) -> list[str]:
        """Return a line for each decision that the table of vertices does not show."""
        decisions = displayed_decisions(self.decisions.records, with_parallelism=not self.vertices)
        return [f"- {decision.text}" for decision in decisions]

    def watch(self, listener: JobStatusListener) -> None:
        """Notify a listener of all events of the job; past events are delivered at once.

        It is called on the job's own threads, and should return quickly.
        """
        self._account.watch(listener)
        self._account.deliver()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Cancel the job: its Spark jobs stop, and its sinks show nothing. Returns at once; `wait` then raises.

        The job ends within two seconds, even if some of its threads hang. The error and a decision name the threads
        that could not be stopped; these cannot make anything visible later.

        A job whose commit has begun cannot be cancelled any more. It ends as usual, and a decision records that the
        cancellation came too late. If the commit hangs, the job is CANCELED, and its error says that what was written
        may still become visible.
        """
        if not self._ending.cancel(reason):
            return
        scheduler = self._scheduler
        if scheduler is not None and self._ending.cancelled:
            scheduler.cancel(reason)
        start_thread(f"penstock-stop-{self.id}", partial(self._stop, reason))

    def _stop(self, reason: str) -> None:
        """Ensure that a cancelled job ends in time; runs on a thread of its own, because any call may hang."""
        deadline = time.monotonic() + _CANCEL_TIMEOUT
        if self._bridge is not None:
            for group in () if self._ending.has_committed else self._whole_groups:
                start_thread(f"penstock-stop-{group}", partial(jobs.cancel_group, self._bridge, group, reason))
        if self._done.wait(deadline - time.monotonic()) or not self._ending.settle():
            return
        try:
            scheduler = self._scheduler
            if scheduler is not None:
                scheduler.abandon_vertices()
            self._end(ExecutionState.CANCELED, self._ending.error(self._running_threads() or ["its planning"]))
            start_thread(f"penstock-tell-{self.id}", partial(self._account.deliver, wait=True)).join(_NOTIFY_TIMEOUT)
        finally:
            self._done.set()

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end, at most `timeout` seconds unless None; return the job itself.

        Raise `JobError` or `JobCancelledError` if it failed or was cancelled, or `TimeoutError` if it still runs.
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
        """Run a planned job on a thread of its own, with the properties of the user's thread; for `Environment`."""
        sessions = SessionPool(bridge, clone_settings(bridge, config), properties)
        self._scheduler = AdaptiveBatchScheduler(
            bridge, sessions, plan, config, self.decisions, self._account, self.id, self.name, sinks, strategies
        )
        self.graphs = self._scheduler.graphs
        self._begin(bridge, self._scheduler.run, list(sinks.values()))

    def wait_silently(self) -> None:
        """Wait for the end without raising the job's error."""
        self._done.wait()

    def start_whole(self, bridge: Bridge, plan: SparkPlan, sinks: Sequence[SinkJob]) -> None:
        """Let Spark run the queries unchanged, on a thread of its own; for `Environment`."""
        group = f"penstock-{self.id}-whole"
        self._whole_groups.append(group)
        properties = jobs.user_properties(bridge)
        self.decisions.record(plan.decision(self.name))

        def run(commit: Callable[[], None]) -> None:
            with jobs.vertex_thread(bridge.session, properties, group, self.name):
                for output, sink in zip(plan.outputs, sinks, strict=True):
                    if self._ending.cancelled:
                        break
                    sink.write(output.df)
            commit()

        self._begin(bridge, run, list(sinks))

    def fall_back_to_spark(self, reason: str, error: BaseException) -> None:
        """Record that the query falls back to Spark; a job that could not start ends as failed."""
        self.decisions.record(Choice(DecisionKind.WHOLE_QUERY, NameRef(self.name), RUN_BY_SPARK, reason))
        if self._ending.settle():
            self._end(ExecutionState.FAILED, cause_of(error))
            self._account.deliver(wait=True)
            self._done.set()

    def _begin(self, bridge: Bridge, run: Callable[[Callable[[], None]], None], sinks: list[SinkJob]) -> None:
        self._bridge = bridge
        if not self.state.is_terminal:
            self.state = ExecutionState.RUNNING
            self._account.emit(JobStateChanged(self.state, self.pending_operators))
        commit = Commit(Access(bridge), self.id, self.name, sinks, self._ending.check, self._ending.begin_commit)

        def commit_sinks() -> None:
            self._before_commit()
            with track_work("making what the sinks wrote visible"):
                commit.run()

        def body() -> None:
            error: BaseException | None = None
            try:
                with track_work("running its vertices"):
                    self._ending.check()
                    run(commit_sinks)
                    commit.finish()
            except BaseException as problem:  # noqa: BLE001 - kept for `wait`
                error = self._clean_up(problem, commit)
            self._finish(error)

        self._account.deliver()
        start_thread(f"penstock-{self.id}", partial(contextvars.copy_context().run, body))

    def _before_commit(self) -> None:
        """Run just before the commit, when all sinks have their rows and the job may still be cancelled; a hook."""

    def _finish(self, error: BaseException | None) -> None:
        """End the job, unless its cancellation has timed out and ended it already."""
        if not self._ending.settle():
            if self._ending.has_committed:
                log.warning(
                    "job %s was cancelled while its sinks committed; the commit has ended now: %s", self.id, error
                )
            return
        if self._ending.requested_reason and not self._ending.cancelled:
            reason = f"its sinks had already begun to commit ({self._ending.requested_reason})"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), "came too late", reason))
        if error is None:
            self._end(ExecutionState.FINISHED, None)
        else:
            cancelled = isinstance(error, JobCancelledError)
            self._end(ExecutionState.CANCELED if cancelled else ExecutionState.FAILED, error)
        self._account.deliver(wait=True)
        self._done.set()

    def _end(self, state: ExecutionState, error: BaseException | None) -> None:
        self.error, self.state, self.ended = error, state, time.time()
        if error is not None:
            self._traceback, trace = error.__traceback__, "".join(traceback.format_exception(error))
            failed = (vertex.vertex.id for vertex in self.vertices if vertex.state is ExecutionState.FAILED)
            self._account.emit(ErrorOccurred(error, trace, next(failed, None), at=self.ended))
        self._account.emit(JobStateChanged(state, self.pending_operators, at=self.ended))
        # This also releases plans and results in the JVM, and sessions of disconnected clients.
        collect_soon()
        self._scheduler = self._bridge = None
        forget_frames(error)

    def _clean_up(self, error: BaseException, commit: Commit) -> BaseException:
        """Roll back the sinks of a job that did not finish; return its error as users see it."""
        try:
            with track_work("removing what the sinks wrote"):
                commit.fail(error)
        except Exception as problem:  # noqa: BLE001 - the first error is shown
            error.add_note(f"while cleaning up: {problem}")
        running = self._running_threads()
        if self._ending.cancelled:
            cancelled = self._ending.error(running)
            cancelled.__cause__ = None if isinstance(error, JobCancelledError) else error
            return cancelled
        return cause_of(error, full_disk_hint(self._bridge, error))

    def _running_threads(self) -> list[str]:
        """Return what other threads of the job still do at its end, and record it as a decision."""
        running = [
            str(work) for work in running_work(f"penstock-{self.id}") if work.thread is not threading.current_thread()
        ]
        if running:
            chosen = f"{show_count(len(running), 'thread')} left running"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), chosen, "; ".join(running)))
        return running


def _row(snapshot: VertexSnapshot, name: str) -> VertexRow:
    return VertexRow(
        snapshot.vertex.id,
        name,
        snapshot.bytes_in,
        snapshot.parallelism,
        snapshot.reason,
        snapshot.seconds,
        snapshot.rows_out,
        snapshot.bytes_out,
    )


def clone_settings(bridge: Bridge, config: Configuration) -> dict[str, str]:
    """Return the settings for planning vertices, on top of the user's."""
    excluded = bridge.spark.conf.get("spark.sql.adaptive.optimizer.excludedRules", "") or ""
    rules = [rule for rule in excluded.split(",") if rule.strip()]
    # An empty stage stays a stage, because all inputs of a join are divided by the same ranges.
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
