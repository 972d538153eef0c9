"""A job as its user holds it."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import traceback
import uuid
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.commit import Access, Commit
from penstock.decisions import Choice, DecisionKind, DecisionLog, NameRef
from penstock.errors import JobCancelledError
from penstock.events import ErrorOccurred, ExecutionState, JobAccount, JobStateChanged
from penstock.graph.naming import column_names
from penstock.graph.wording import vertex_name
from penstock.masking import mask_sql
from penstock.scheduler.adaptive_batch import AdaptiveBatchScheduler
from penstock.scheduler.disk_space import full_disk_hint
from penstock.scheduler.ending import Ending
from penstock.scheduler.failure import cause_of, forget_frames
from penstock.spark import jobs
from penstock.spark.filters import BLOOM_SETTINGS
from penstock.spark.garbage import collect_soon
from penstock.spark.session import SessionPool
from penstock.spark.task_counts import task_counts
from penstock.summary import JobSummary
from penstock.tables import VertexRow, html_of_table, html_of_text, vertices_table
from penstock.threads import doing, start_thread, works
from penstock.told import together
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from rich.table import Table

    from penstock.config import Configuration
    from penstock.connectors.base import SinkJob
    from penstock.events import JobStatusEvent, JobStatusListener, VertexSnapshot
    from penstock.graph import JobVertex, JobVertexID
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.outputs import Output
    from penstock.planner.plan import JobPlan
    from penstock.planner.whole_query import WholeQuery
    from penstock.scheduler.adaptive_batch import JobGraphs
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.handles import LocalProperties
    from penstock.spark.jvm import Bridge
    from penstock.spark.task_counts import TaskCounts

log = logging.getLogger("penstock.scheduler")

_PATIENCE = 1.4
"""Seconds after which a job that was cancelled ends without what still hangs."""
_TELLING = 0.3
"""Seconds that those who watch a job get to hear of such an end."""

HANDED_BACK = "run by Spark instead"
"""What is chosen where a query could not be run as a job."""

RECENT: deque[Job] = deque(maxlen=256)
"""The latest jobs of this process, oldest first."""


class Job:
    """A running or ended job; made by `Environment.execute` and `Environment.execute_async`.

    Attributes
    ----------
    id, name
        The job's names.
    origin
        Where its query comes from, if Spark handed it over.
    state
        Where it is.
    decisions
        Every choice made for it, with figures and reason.
    started, ended
        Seconds since the epoch; `ended` is None while it runs.
    """

    def __init__(self, name: str, origin: QueryOrigin | None = None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = mask_sql(name)
        self.origin = origin
        self.state = ExecutionState.CREATED
        self._account = JobAccount(self.id)
        self.decisions = DecisionLog(self._account)
        self.started = time.time()
        RECENT.append(self)
        self.ended: float | None = None
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._scheduler: AdaptiveBatchScheduler | None = None
        self._graphs: JobGraphs | None = None
        self._columns: dict[str, str] | None = None
        self._whole_groups: list[str] = []
        self._bridge: Bridge | None = None
        self._ending = Ending(self.name)
        # Not Thread.join: once interrupted from the keyboard, it holds a running thread for ended.
        self._done = threading.Event()

    @property
    def vertices(self) -> list[VertexSnapshot]:
        """The vertices made so far, as they are now; none where Spark was handed the query whole."""
        return [execution.snapshot for execution in self._graphs.execution] if self._graphs else []

    @property
    def events(self) -> list[JobStatusEvent]:
        """What has happened so far, in order."""
        return self._account.events

    @property
    def pending_operators(self) -> int:
        """How many operators have not become part of a vertex yet."""
        return self._graphs.manager.pending_operators if self._graphs else 0

    @property
    def status_counts(self) -> dict[str, int]:
        """How many vertices are in each state."""
        return self._graphs.execution.status_counts if self._graphs else {}

    @property
    def error(self) -> BaseException | None:
        """What it failed with, if it did."""
        return self._error

    @property
    def graphs(self) -> JobGraphs | None:
        """Its graphs; None where Spark was handed the query whole."""
        return self._graphs

    def task_counts(self) -> dict[JobVertexID, TaskCounts]:
        """Return how far the vertices that run now have come.

        This asks Spark, in one call. Whoever wants it again and again should wait a second in between.
        """
        bridge, graphs = self._bridge, self._graphs
        running = [one.vertex for one in self.vertices if one.state is ExecutionState.RUNNING]
        if bridge is None or graphs is None or not running:
            return {}
        groups = {graphs.group_of(vertex): vertex.id for vertex in running}
        return {groups[group]: counts for group, counts in task_counts(bridge, list(groups)).items()}

    def table(self) -> Table:
        """Return a table with a row per step: what it does, how many tasks it got, why, and what it gave."""
        rows = (
            VertexRow(
                one.vertex.id,
                self.called(one.vertex),
                one.bytes_in,
                one.parallelism,
                one.reason,
                one.seconds,
                one.rows_out,
                one.bytes_out,
            )
            for one in self.vertices
        )
        notes = (decision.text for decision in self.decisions.told)
        return vertices_table(f"{self.name}: {self.state.value.lower()}", rows, notes)

    def called(self, vertex: JobVertex) -> str:
        """Return what people call one of its vertices: by its tables and keys."""
        if self._graphs is None:
            return vertex.name
        if self._columns is None:
            self._columns = column_names(self._graphs.planned)
        return vertex_name(self._graphs.manager.graph, vertex, self._columns)

    @property
    def summary(self) -> JobSummary:
        """What Penstock did for it, in one line: bytes not shuffled, tasks, seconds, and those of its last run."""
        before = [job for job in list(RECENT) if job.name == self.name and job.started < self.started]
        last = [job.ended - job.started for job in before if job.ended and job.state is ExecutionState.FINISHED]
        tasks = sum(one.tasks or 0 for one in self.vertices)
        seconds = (time.time() if self.ended is None else self.ended) - self.started
        return JobSummary.of(self.decisions.told, tasks, seconds, last[-1] if last else None)

    def __str__(self) -> str:
        parts = [f"Job {self.name} ({self.id}): {self.state.value.lower()}", str(self.summary)]
        if self.vertices:
            parts.append(str(self.table()))
        if decided := self.told():
            parts += ["Decisions", *decided]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        decided = html_of_text("\n".join(["Decisions", *self.told()])) if self.told() else ""
        return html_of_text(str(self.summary)) + html_of_table(self.table()) + decided

    def told(self) -> list[str]:
        """Return a line for each decision that the table of vertices does not show."""
        return [f"- {one.text}" for one in together(self.decisions.told, of_tasks=not self.vertices)]

    def watch(self, listener: JobStatusListener) -> None:
        """Tell a listener of all that happens to the job; what has happened already comes at once.

        It is told on the job's own threads, and should not take long.
        """
        self._account.watch(listener)
        self._account.deliver()

    @property
    def _cancelled(self) -> str:
        """Why the job was cancelled, empty if it was not, or too late."""
        return self._ending.cancelled

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop the job: no Spark job of it goes on, and its sinks show nothing. Returns at once; `wait` then raises.

        Within two seconds the job has ended, whatever hangs. Threads that cannot be stopped are left behind, and named
        in the error and among the decisions; they make nothing visible when they wake up.

        A job whose commit has begun cannot be cancelled any more: it ends as if nobody had asked, and a decision tells
        that it came too late. If the commit hangs, the job is CANCELED, and its error says that targets may yet show
        what was written.
        """
        if not self._ending.cancel(reason):
            return
        scheduler = self._scheduler
        if scheduler is not None and self._cancelled:
            scheduler.cancel(reason)
        start_thread(f"penstock-stop-{self.id}", partial(self._stop, reason))

    def _stop(self, reason: str) -> None:
        """See to it that a job that was cancelled ends in time; on a thread of its own, as any call may hang."""
        until = time.monotonic() + _PATIENCE
        if self._bridge is not None:
            for group in () if self._ending.has_committed else self._whole_groups:
                start_thread(f"penstock-stop-{group}", partial(jobs.cancel_group, self._bridge, group, reason))
        if self._done.wait(until - time.monotonic()) or not self._ending.settle():
            return
        try:
            scheduler = self._scheduler
            if scheduler is not None:
                scheduler.leave_behind()
            self._end(ExecutionState.CANCELED, self._ending.error(self._left_behind() or ["its planning"]))
            start_thread(f"penstock-tell-{self.id}", partial(self._account.deliver, wait=True)).join(_TELLING)
        finally:
            self._done.set()

    def wait(self, timeout: float | None = None) -> Job:
        """Wait for the end; return the job itself.

        Parameters
        ----------
        timeout
            Seconds, None for ever.

        Raises
        ------
        JobError, JobCancelledError
            If it did not finish.
        TimeoutError
            If it has not ended in time.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"job {self.name!r} still runs after {timeout} s")
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # not that which an earlier call has made longer
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
        self._graphs = self._scheduler.graphs
        self._begin(bridge, self._scheduler.run, list(sinks.values()))

    def wait_silently(self) -> None:
        """Wait for the end, whatever it is."""
        self._done.wait()

    def start_whole(
        self, bridge: Bridge, outputs: Sequence[Output], sinks: Sequence[SinkJob], whole: WholeQuery
    ) -> None:
        """Hand queries to Spark as they are, on a thread of its own; for `Environment`."""
        group = f"penstock-{self.id}-whole"
        self._whole_groups.append(group)
        properties = jobs.user_properties(bridge)
        self.decisions.record(whole.decision(self.name))

        def run(commit: Callable[[], None]) -> None:
            with jobs.vertex_thread(bridge.session, properties, group, self.name):
                for output, sink in zip(outputs, sinks, strict=True):
                    if self._cancelled:
                        break
                    sink.write(output.df)
            commit()

        self._begin(bridge, run, list(sinks))

    def hand_back(self, reason: str, error: BaseException) -> None:
        """Record that Spark runs the query instead; a job that could not be started ends, as failed."""
        self.decisions.record(Choice(DecisionKind.WHOLE_QUERY, NameRef(self.name), HANDED_BACK, reason))
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

        def make_visible() -> None:
            self._before_commit()
            with doing("making what the sinks wrote visible"):
                commit.run()

        def body() -> None:
            error: BaseException | None = None
            try:
                with doing("running its vertices"):
                    self._ending.check()
                    run(make_visible)
                    commit.finish()
            except BaseException as problem:  # noqa: BLE001 - kept for whoever waits
                error = self._failed(problem, commit)
            self._ran(error)

        self._account.deliver()
        start_thread(f"penstock-{self.id}", partial(contextvars.copy_context().run, body))

    def _before_commit(self) -> None:
        """Do what must be done while all sinks have their rows and none shows them; a job may still be cancelled."""

    def _ran(self, error: BaseException | None) -> None:
        """End the job, unless it was cancelled and did not come to an end in time."""
        if not self._ending.settle():
            if self._ending.has_committed:
                log.warning(
                    "job %s was cancelled while its sinks committed; the commit has ended now: %s", self.id, error
                )
            return
        if self._ending.asked and not self._ending.cancelled:
            why = f"its sinks had already begun to commit ({self._ending.asked})"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), "came too late", why))
        if error is None:
            self._end(ExecutionState.FINISHED, None)
        else:
            cancelled = isinstance(error, JobCancelledError)
            self._end(ExecutionState.CANCELED if cancelled else ExecutionState.FAILED, error)
        self._account.deliver(wait=True)
        self._done.set()

    def _end(self, state: ExecutionState, error: BaseException | None) -> None:
        self._error, self.state, self.ended = error, state, time.time()
        if error is not None:
            self._traceback, trace = error.__traceback__, "".join(traceback.format_exception(error))
            failed = (one.vertex.id for one in self.vertices if one.state is ExecutionState.FAILED)
            self._account.emit(ErrorOccurred(error, trace, next(failed, None), at=self.ended))
        self._account.emit(JobStateChanged(state, self.pending_operators, at=self.ended))
        # With these go the plans and results in the JVM, and sessions of clients that have gone.
        collect_soon()
        self._scheduler = self._bridge = None
        forget_frames(error)

    def _failed(self, error: BaseException, commit: Commit) -> BaseException:
        """Clean up behind a job that did not finish; return its error as users see it."""
        try:
            with doing("removing what the sinks wrote"):
                commit.fail(error)
        except Exception as problem:  # noqa: BLE001 - the first error is the one to show
            error.add_note(f"while cleaning up: {problem}")
        left = self._left_behind()
        if self._cancelled:
            cancelled = self._ending.error(left)
            cancelled.__cause__ = None if isinstance(error, JobCancelledError) else error
            return cancelled
        return cause_of(error, full_disk_hint(self._bridge, error))

    def _left_behind(self) -> list[str]:
        """Return what other threads of the job do, although it ends; a decision tells of it."""
        left = [str(work) for work in works(f"penstock-{self.id}") if work.thread is not threading.current_thread()]
        if left:
            count = show_count(len(left), "thread")
            left_behind = f"{count} left behind"
            self.decisions.record(Choice(DecisionKind.CANCEL, NameRef(self.name), left_behind, "; ".join(left)))
        return left


def clone_settings(bridge: Bridge, config: Configuration) -> dict[str, str]:
    """Return the settings under which vertices are planned, on top of the user's."""
    from penstock.config.options import DATA_VOLUME_PER_TASK

    excluded = bridge.spark.conf.get("spark.sql.adaptive.optimizer.excludedRules", "") or ""
    rules = [rule for rule in excluded.split(",") if rule.strip()]
    # A stage that turns out empty stays a stage: the inputs of a join are cut alike, empty ones among them.
    rules.append("org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation")
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.forceApply": "true",
        "spark.sql.adaptive.optimizer.excludedRules": ",".join(rules),
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{config.integer(DATA_VOLUME_PER_TASK)}b",
        **BLOOM_SETTINGS,
        # The number of a union's tasks is the sum of its inputs', wherever it is decided.
        "spark.sql.unionOutputPartitioning": "false",
    }
