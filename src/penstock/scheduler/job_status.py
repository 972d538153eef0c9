"""What users see of a job: its state, its vertices, its decisions, as values and as text."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.base.masking import mask_sql
from penstock.base.tables import VertexRow, html_of_table, html_of_text, vertices_table
from penstock.decisions.log import DecisionLog
from penstock.decisions.record import JobSummary, displayed_decisions
from penstock.events import ExecutionState, JobEventBus, JobStatusEvent, JobStatusListener, VertexSnapshot
from penstock.graph.labels import column_names, vertex_name
from penstock.spark.run.jobs import TaskCounts, task_counts

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.graph import JobVertex, JobVertexID
    from penstock.scheduler.adaptive_batch import JobGraphs
    from penstock.scheduler.origin import QueryOrigin
    from penstock.spark.bridge.jvm import Bridge


class JobStatus(ABC):
    """The visible part of a `Job`, without the methods that run and cancel it."""

    def __init__(self, name: str, origin: QueryOrigin | None) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = mask_sql(name)
        self.origin = origin
        self.state = ExecutionState.CREATED
        self._event_bus = JobEventBus(self.id)
        self.decisions = DecisionLog(self._event_bus)
        self.started = time.time()
        self.ended: float | None = None
        self.error: BaseException | None = None
        self.graphs: JobGraphs | None = None
        self._columns: dict[str, str] | None = None
        self._bridge: Bridge | None = None

    @property
    def vertices(self) -> list[VertexSnapshot]:
        """The current snapshots of the job's vertices; empty before planning, and if Spark runs the whole query."""
        return [execution.snapshot for execution in self.graphs.execution] if self.graphs else []

    @property
    def events(self) -> list[JobStatusEvent]:
        """The events of the job so far, oldest first."""
        return self._event_bus.events

    @property
    def pending_operators(self) -> int:
        """The number of operators that no vertex contains yet, as vertices are created while the job runs."""
        return self.graphs.manager.pending_operators if self.graphs else 0

    @property
    def status_counts(self) -> dict[str, int]:
        """The number of vertices by state; empty before planning, and if Spark runs the whole query."""
        if self.graphs is None:
            return {}
        counts = Counter(vertex.state for vertex in self.vertices)
        return {state.value: counts[state] for state in ExecutionState}

    def task_counts(self) -> dict[JobVertexID, TaskCounts]:
        """Return the task counts of running vertices. Each call queries the JVM, so call it at most once a second."""
        bridge, graphs = self._bridge, self.graphs
        running = [vertex.vertex for vertex in self.vertices if vertex.state is ExecutionState.RUNNING]
        if bridge is None or graphs is None or not running:
            return {}
        groups = {graphs.spark_job_group(vertex): vertex.id for vertex in running}
        return {groups[group]: counts for group, counts in task_counts(bridge, list(groups)).items()}

    def table(self) -> Table:
        r"""Return a table with a row per vertex: its operators, tasks and output; without vertices, a row per decision.

        >>> print(*job.table().columns[1].cells, sep="\n")
        RDD → partial aggregate by carrier
        aggregate by carrier → return rows
        """
        rows = (_row(snapshot, self.display_name(snapshot.vertex)) for snapshot in self.vertices)
        notes = (decision.text for decision in self.decisions.records)
        return vertices_table(f"{self.name}: {self.state.value.lower()}", rows, notes)

    def display_name(self, vertex: JobVertex) -> str:
        """Return a readable name of a vertex, which contains its tables and keys."""
        if self.graphs is None:
            return vertex.name
        if self._columns is None:
            self._columns = column_names(self.graphs.initial)
        return vertex_name(self.graphs.manager.graph, vertex, self._columns)

    @property
    @abstractmethod
    def summary(self) -> JobSummary:
        """The figures of the job: bytes that broadcast joins did not shuffle, tasks, duration, and missed estimates."""

    def __str__(self) -> str:
        parts = [f"Job {self.name} ({self.id}): {self.state.value.lower()}", str(self.summary)]
        if self.vertices:
            parts.append(str(self.table()))
        if lines := self.decision_lines():
            parts += ["Decisions", *lines]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<Job {self.name} ({self.id}): {self.state.value.lower()}>"  # short, as programs have lists of jobs

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - the interface of IPython
        del cycle
        printer.text(str(self))

    def _repr_html_(self) -> str:
        decisions = html_of_text("\n".join(["Decisions", *self.decision_lines()])) if self.decision_lines() else ""
        return html_of_text(str(self.summary)) + html_of_table(self.table()) + decisions

    def decision_lines(self) -> list[str]:
        """Return a line for each decision that is not in the table of vertices.

        >>> env = penstock.Environment(spark)
        >>> env.count(spark.range(9)), env.last_job.decision_lines()
        (9, ['- Spark runs this query unchanged, as its sources hold 72 B, below the threshold of ...'])
        """
        decisions = displayed_decisions(self.decisions.records, with_parallelism=not self.vertices)
        return [f"- {decision.text}" for decision in decisions]

    def watch(self, listener: JobStatusListener) -> None:
        """Notify a listener of all events of the job; past events are delivered immediately.

        The listener is called on threads of the job, and for past events on the caller's thread; it must be fast.

        >>> class Printer(JobStatusListener):
        ...     def on_events(self, events):
        ...         print(type(events[0]).__name__, events[-1].state)
        >>> job.watch(Printer())
        GraphPlanned FINISHED
        """
        self._event_bus.watch(listener)
        self._event_bus.deliver()


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
