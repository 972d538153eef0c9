"""A job as its user holds it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING

from penstock.decisions import DecisionLog
from penstock.errors import JobCancelledError
from penstock.scheduler.adaptive_batch import AdaptiveBatchScheduler
from penstock.scheduler.execution_graph import ExecutionState
from penstock.scheduler.failure import cause_of
from penstock.spark import jobs
from penstock.spark.filters import BLOOM_SETTINGS
from penstock.spark.session import SessionPool
from penstock.tables import VertexRow, html_of_table, vertices_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from penstock.config import Configuration
    from penstock.connectors.base import SinkJob
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.outputs import Output
    from penstock.planner.plan import JobPlan
    from penstock.planner.whole_query import WholeQuery
    from penstock.scheduler.adaptive_batch import JobStatusListener
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.spark.jvm import Bridge


RECENT: deque[Job] = deque(maxlen=256)
"""The latest jobs of this process, oldest first."""


class Job:
    """A running or ended job; made by `Environment.execute` and `Environment.execute_async`.

    Attributes
    ----------
    id, name
        The job's names.
    state
        Where it is.
    decisions
        Every choice made for it, with figures and reason.
    started, ended
        Seconds since the epoch; `ended` is None while it runs.
    """

    def __init__(self, name: str) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = name
        self.state = ExecutionState.CREATED
        self.decisions = DecisionLog()
        self.started = time.time()
        RECENT.append(self)
        self.ended: float | None = None
        self._error: BaseException | None = None
        self._scheduler: AdaptiveBatchScheduler | None = None
        self._whole_groups: list[str] = []
        self._bridge: Bridge | None = None
        self._cancelled = ""
        # Not Thread.join: once interrupted from the keyboard, it holds a running thread for ended.
        self._done = threading.Event()
        self._listeners: list[JobStatusListener] = []

    @property
    def vertices(self) -> list[ExecutionJobVertex]:
        """The vertices made so far; none where Spark was handed the query whole."""
        return list(self._scheduler.execution_graph) if self._scheduler else []

    @property
    def pending_operators(self) -> int:
        """How many operators have not become part of a vertex yet."""
        return self._scheduler.manager.pending_operators if self._scheduler else 0

    @property
    def status_counts(self) -> dict[str, int]:
        """How many vertices are in each state."""
        return self._scheduler.execution_graph.status_counts if self._scheduler else {}

    @property
    def error(self) -> BaseException | None:
        """What it failed with, if it did."""
        return self._error

    @property
    def scheduler(self) -> AdaptiveBatchScheduler | None:
        """What runs its vertices; None where Spark was handed the query whole."""
        return self._scheduler

    def table(self) -> Table:
        """Return a table with a row per vertex: what it does, how many tasks it got, and why."""
        rows = (
            VertexRow(
                execution.vertex.id, execution.vertex.name, execution.bytes_in, execution.parallelism,
                execution.reason, execution.seconds,
            )
            for execution in self.vertices
        )  # fmt: skip
        notes = ((str(decision.chosen), decision.reason) for decision in self.decisions)
        return vertices_table(f"{self.name}: {self.state.value.lower()}", rows, notes)

    def _repr_html_(self) -> str:
        return html_of_table(self.table())

    def watch(self, listener: JobStatusListener) -> None:
        """Tell a listener of every change from now on; before the job starts, of all."""
        self._listeners.append(listener)

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Stop the job: no Spark job of it goes on, and its sinks show nothing. Returns at once; `wait` then raises."""
        if self.state.is_terminal:
            return
        self._cancelled = reason
        if self._scheduler is not None:
            self._scheduler.cancel(reason)
        if self._bridge is not None:
            for group in self._whole_groups:
                jobs.cancel_group(self._bridge, group, reason)

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
            raise self._error
        return self

    def start(
        self,
        bridge: Bridge,
        plan: JobPlan,
        config: Configuration,
        sinks: dict[int, SinkJob],
        strategies: Sequence[StreamGraphOptimizationStrategy] = (),
    ) -> None:
        """Run a planned job on a thread of its own; for `Environment`."""
        sessions = SessionPool(bridge, _clone_settings(bridge, config))
        self._scheduler = AdaptiveBatchScheduler(
            bridge, sessions, plan, config, self.decisions, self.id, self.name, sinks, strategies, self._listeners
        )
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
            with jobs.vertex_thread(bridge, bridge.session, properties, group, self.name):
                for output, sink in zip(outputs, sinks, strict=True):
                    if self._cancelled:
                        break
                    sink.write(output.df)
            commit()

        self._begin(bridge, run, list(sinks))

    def _begin(self, bridge: Bridge, run: Callable[[Callable[[], None]], None], sinks: list[SinkJob]) -> None:
        self._bridge = bridge
        self.state = ExecutionState.RUNNING

        def commit() -> None:
            if self._cancelled:
                raise JobCancelledError(f"job {self.name!r} was cancelled", cause=self._cancelled)
            for sink in sinks:
                sink.commit()

        def body() -> None:
            try:
                run(commit)
                self.state = ExecutionState.FINISHED
            except BaseException as error:  # noqa: BLE001 - kept for whoever waits
                self._fail(error, sinks)
            finally:
                self.ended = time.time()
                self._tell()
                self._done.set()

        self._tell()

        threading.Thread(target=body, name=f"penstock-{self.id}", daemon=True).start()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener.on_job_changed()

    def _fail(self, error: BaseException, sinks: list[SinkJob]) -> None:
        for sink in sinks:
            try:
                sink.abort()
            except Exception as problem:  # noqa: BLE001 - the first error is the one to show
                error.add_note(f"while cleaning up: {problem}")
        if self._cancelled and not isinstance(error, JobCancelledError):
            cancelled = JobCancelledError(f"job {self.name!r} was cancelled", cause=self._cancelled)
            cancelled.__cause__ = error
            error = cancelled
        self._error = cause_of(error)
        self.state = ExecutionState.CANCELED if isinstance(self._error, JobCancelledError) else ExecutionState.FAILED


def _clone_settings(bridge: Bridge, config: Configuration) -> dict[str, str]:
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
