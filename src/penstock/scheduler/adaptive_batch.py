"""The scheduler of a job: runs ready vertices concurrently, each with a number of tasks for the size of its inputs."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.threads import DaemonPool, running_work
from penstock.config.options import DYNAMIC_FILTERING_EXACT_KEYS, SOURCES_TIMEOUT, VERIFY
from penstock.decisions.log import DecisionKind, DecisionLog
from penstock.engine.registry import native_execution
from penstock.errors import GraphError, JobCancelledError, SourceTimeoutError
from penstock.events import ExecutionState, GraphPlanned, JobEventBus, VertexSnapshot, VerticesCreated
from penstock.execution.context import JobContext, spark_job_group
from penstock.execution.vertex_runner import VertexRunner
from penstock.graph import AdaptiveGraphManager, JobVertex, JoinOperator, OperatorKind, StreamGraph
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.optimizer.strategy import PartialResult
from penstock.scheduler import handler
from penstock.scheduler.deciders.vertex import VertexDecider
from penstock.scheduler.execution_graph import ExecutionGraph, ExecutionJobVertex
from penstock.scheduler.failure import describe_failure, full_disk_hint
from penstock.scheduler.resources import broadcast_bounds, resources_of
from penstock.scheduler.vertex_execution import VertexExecution
from penstock.spark.bridge.jvm import Bridge, waits_for_jvm
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.connectors.core.base import KeyFilter, SinkJob
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan
    from penstock.spark.bridge.session import SessionPool

log = logging.getLogger("penstock.scheduler")

_MAX_VERTICES = 8
"""The maximum number of vertices that run at a time; more vertices would only wait for the same cores."""
_CANCEL_TIMEOUT = 0.8
"""Seconds that a cancelled job waits for its vertices to stop, as some work in Spark's driver cannot be interrupted."""
_FAILURE_TIMEOUT = 10.0
"""Grace period in seconds after a failure, so that sinks are cleaned up once all tasks are idle."""
_CANCEL_INTERVAL = 0.2
"""Seconds between two attempts to cancel the vertices of a job that has ended."""
_POLL_INTERVAL = 1.0
"""Seconds between two checks for sources that do not answer, and for the progress of vertices that others await."""

_EXCHANGING_KINDS = frozenset({OperatorKind.OPAQUE, OperatorKind.UNION})  # Spark may plan exchanges within them


@dataclass(frozen=True, slots=True)
class JobGraphs:
    """The graphs of a job, also after its end; `initial` is the stream graph before any strategy changed it."""

    job_id: str
    initial: StreamGraph
    manager: AdaptiveGraphManager
    execution: ExecutionGraph

    def spark_job_group(self, vertex: JobVertex) -> str:
        """Return the Spark job group that a vertex runs in."""
        return spark_job_group(self.job_id, vertex)


class AdaptiveBatchScheduler:
    """Scheduler of a job, which emits the job's events to `event_bus`. Call `run` once, on a separate thread."""

    def __init__(
        self,
        bridge: Bridge,
        sessions: SessionPool,
        plan: JobPlan,
        config: Configuration,
        decisions: DecisionLog,
        event_bus: JobEventBus,
        job_id: str,
        job_name: str,
        sinks: Mapping[int, SinkJob],
        strategies: Sequence[StreamGraphOptimizationStrategy] = (),
    ) -> None:
        self._bridge = bridge
        self._plan = plan
        self._decisions = decisions
        self._job_name = job_name
        self._thread_prefix = f"penstock-{job_id}"
        self._timeout = config.seconds(SOURCES_TIMEOUT)
        self._event_bus = event_bus
        event_bus.emit(GraphPlanned(plan.graph))
        resources = resources_of(bridge, config)
        optimizer = StreamGraphOptimizer(strategies, config, resources, decisions)
        self._manager = AdaptiveGraphManager(plan.graph, optimizer.initialize, event_bus)
        self.execution_graph = ExecutionGraph(event_bus)
        self.graphs = JobGraphs(job_id, plan.graph, self._manager, self.execution_graph)
        context = JobContext(
            bridge,
            sessions,
            plan,
            self._manager,
            job_id,
            sinks,
            decisions,
            verify=config.flag(VERIFY),
            exact_keys=config.integer(DYNAMIC_FILTERING_EXACT_KEYS),
            broadcast_bounds=broadcast_bounds(bridge, config, resources),
            native=native_execution(config, is_local=jobs.is_local(bridge)),
        )
        self._runner = VertexRunner(context)
        results, cores = self._runner.results, jobs.cluster_cores(bridge)
        self._decider = VertexDecider(
            plan, config, cores, self._manager, results, self._runner.sinks, decisions, self._snapshots
        )
        self._execution = VertexExecution(context, self._decider, self._runner, job_name, event_bus)
        self._handler = handler.AdaptiveExecutionHandler(job_id, self._manager, optimizer, results.result_info)
        self._handler.register_job_graph_update_listener(self)
        self._events: queue.SimpleQueue[handler.JobEvent] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._inferred: dict[int, Future[int]] = {}  # the parallelism of each source, by node
        self._running: list[Future[None]] = []
        self._waiting_for_commit: list[ExecutionJobVertex] = []
        self._committed = False

    def _snapshots(self) -> list[VertexSnapshot]:
        return [execution.snapshot for execution in self.execution_graph]

    def cancel(self, reason: str) -> None:
        """Request cancellation; `run` then raises."""
        self._events.put(handler.JobCancelEvent(reason))

    def run(self, commit: Callable[[], None]) -> None:
        """Run all vertices. Raise `JobError` if a vertex fails, and `JobCancelledError` if the job was cancelled.

        `commit` makes the rows of sinks visible; it is called once, when only sink stages after the commit remain.
        """
        jobs.activate(self._bridge)
        for choice in self._plan.choices:
            self._decisions.record(choice)
        self._workers = DaemonPool(_MAX_VERTICES, f"{self._thread_prefix}-vertex")
        self._source_threads = jobs.SparkThreads(_MAX_VERTICES, f"{self._thread_prefix}-source", self._bridge)
        timeout: float | None = None
        try:
            vertices, pending_operators = list(self._manager.job_graph), self._manager.pending_operators
            self.on_new_job_vertices_added(self.graphs.job_id, vertices, pending_operators)
            while not self._only_post_commit_stages_remain():
                self._handle(self._next_event())
            commit()
            self._committed = True
            for execution in self._waiting_for_commit:
                self._submit(execution)
            while not (self.execution_graph.all_finished and self._manager.pending_operators == 0):
                self._handle(self._next_event())
        except BaseException as error:
            may_hang = isinstance(error, JobCancelledError | SourceTimeoutError)
            timeout = _CANCEL_TIMEOUT if may_hang else _FAILURE_TIMEOUT
            self._stop_all()
            raise
        finally:
            for pool in (self._workers, self._source_threads):
                pool.shutdown(wait=False, cancel_futures=True)
            self._wait_for_vertices(timeout)
            self.mark_vertices_cancelled()
            self._runner.release()

    def _wait_for_vertices(self, timeout: float | None) -> None:
        """Wait until no vertex runs, at most `timeout` seconds; None waits without a limit.

        Vertices are cancelled repeatedly: if the user has set a job group, Spark cancels only running jobs of a vertex,
        so the vertex may start another Spark job after it was cancelled.
        """
        if timeout is None:
            wait(self._running)
            return
        deadline = time.monotonic() + timeout
        while wait(self._running, min(_CANCEL_INTERVAL, max(0.0, deadline - time.monotonic()))).not_done:
            if time.monotonic() >= deadline:
                return
            self._cancel_vertices()

    def _next_event(self) -> handler.JobEvent:
        """Wait for an event; meanwhile check sources for timeouts, and report progress that other vertices wait for."""
        while True:
            try:
                return self._events.get(timeout=_POLL_INTERVAL)
            except queue.Empty:
                check_source_timeouts(self._thread_prefix, self._timeout)
                self._report_progress()

    def _report_progress(self) -> None:
        """Report what running vertices have written so far, if pending vertices wait for them."""
        graph, awaited = self._manager.graph, self._manager.awaited
        for execution in self.execution_graph:
            vertex, is_running = execution.vertex, execution.state is ExecutionState.RUNNING
            if not is_running or awaited.isdisjoint(vertex.node_ids):
                continue
            if is_single_stage(vertex, graph, self._decisions):
                for stage, figures in jobs.running_stages(self._bridge, self.graphs.spark_job_group(vertex))[-1:]:
                    result = PartialResult(stage.completed, stage.tasks, figures.bytes_out, figures.rows_out)
                    self._events.put(handler.JobVertexProgressEvent(vertex.id, result))

    def on_new_job_vertices_added(self, job_id: str, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        """Attach new vertices, and infer the parallelism of their sources; part of `JobGraphUpdateListener`."""
        log.debug("job %s: %d new vertices, %d operators pending", job_id, len(vertices), pending_operators)
        executions = [self.execution_graph.attach(vertex) for vertex in vertices]
        self._event_bus.emit(VerticesCreated(tuple(execution.snapshot for execution in executions), pending_operators))
        for execution in executions:
            self._initialize(execution)
        self._event_bus.deliver()

    def _only_post_commit_stages_remain(self) -> bool:
        pending_stages = sum(
            not self._manager.is_frozen(node_id)
            for node_id, (_, stage) in self._plan.sink_stages.items()
            if stage.after_commit
        )
        return self._manager.pending_operators == pending_stages and all(
            execution.state is ExecutionState.FINISHED or execution in self._waiting_for_commit
            for execution in self.execution_graph
        )

    def _initialize(self, execution: ExecutionJobVertex) -> None:
        """Fetch the dynamic filters of a vertex, then infer the parallelism of its sources; both on other threads."""
        nodes = map(self._manager.graph.node, execution.vertex.node_ids)
        if any(node.filters for node in nodes):
            self._running.append(self._workers.submit(self._fetch_filters, execution))
        else:
            self._infer_sources(execution, {})

    def _fetch_filters(self, execution: ExecutionJobVertex) -> None:
        """Fetch filters and pass them to the sources; runs on a worker thread."""
        try:
            jobs.activate(self._bridge)
            self._infer_sources(execution, self._execution.fetch_filters(execution.vertex))
        except BaseException as error:  # noqa: BLE001 - the job must see every error
            self._report_failure(execution, error)

    def _infer_sources(self, execution: ExecutionJobVertex, filters: Mapping[int, KeyFilter]) -> None:
        """Infer the parallelism of the sources of a vertex; once all have answered, the vertex is initialized."""
        vertex = execution.vertex
        sources = [node_id for node_id in vertex.node_ids if node_id in self._plan.sources]
        unanswered = len(sources)
        lock = threading.Lock()

        def on_answer(_: Future[int]) -> None:
            nonlocal unanswered
            with lock:
                unanswered -= 1
                if unanswered == 0:
                    self._events.put(handler.JobVertexInitializedEvent(vertex.id))

        if not sources:
            self._events.put(handler.JobVertexInitializedEvent(vertex.id))
        for node_id in sources:
            inferred = self._decider.infer_parallelism(vertex, node_id, self._source_threads, filters.get(node_id))
            self._inferred[node_id] = inferred
            inferred.add_done_callback(on_answer)

    def _handle(self, event: handler.JobEvent) -> None:
        match event:
            case handler.JobVertexInitializedEvent(vertex_id):
                execution = self.execution_graph.vertex(vertex_id)
                _, stage = self._plan.sink_stages.get(execution.vertex.tail_id, (0, None))
                if stage is not None and stage.after_commit and not self._committed:
                    self._waiting_for_commit.append(execution)
                else:
                    self._submit(execution)
            case handler.JobVertexFinishedEvent() | handler.JobVertexProgressEvent():
                self._handler.handle_job_event(event)
            case handler.JobVertexFailedEvent(vertex_id, error):
                vertex = self.execution_graph.vertex(vertex_id).vertex
                hint = full_disk_hint(self._bridge, error, self._plan.sinks.values())
                raise describe_failure(self._plan, vertex, error, hint) from error
            case handler.JobCancelEvent(reason):
                raise JobCancelledError(f"job {self._job_name!r} was cancelled", cause=reason)
        self._event_bus.deliver()

    def _submit(self, execution: ExecutionJobVertex) -> None:
        execution.move(ExecutionState.SCHEDULED)
        self._running.append(self._workers.submit(self._execute, execution))

    def _execute(self, execution: ExecutionJobVertex) -> None:
        if self._stopping.is_set():
            return
        vertex = execution.vertex
        try:
            jobs.activate(self._bridge)
            inferred = {
                node_id: self._inferred[node_id].result()
                for node_id in vertex.node_ids
                if node_id in self._plan.sources
            }
            self._execution.execute(execution, inferred)
            self._events.put(handler.JobVertexFinishedEvent(vertex.id))
        except BaseException as error:  # noqa: BLE001 - the job must see every error
            self._report_failure(execution, error)

    def _report_failure(self, execution: ExecutionJobVertex, error: BaseException) -> None:
        execution.move(ExecutionState.CANCELED if self._stopping.is_set() else ExecutionState.FAILED)
        self._events.put(handler.JobVertexFailedEvent(execution.vertex.id, error))

    def mark_vertices_cancelled(self) -> None:
        """Mark all vertices that have not ended as cancelled; called at the end of the job."""
        for execution in self.execution_graph:
            with suppress(GraphError):  # the vertex has ended
                execution.move(ExecutionState.CANCELED)

    def _cancel_vertices(self) -> None:
        for execution in self.execution_graph:
            if not execution.state.is_terminal:
                jobs.cancel_group(self._bridge, self.graphs.spark_job_group(execution.vertex), "the job has ended")

    def _stop_all(self) -> None:
        """Cancel all vertices that have not ended; the worker threads end with the resulting exceptions."""
        self._stopping.set()
        self._cancel_vertices()
        for execution in self.execution_graph:
            if execution.state in {ExecutionState.CREATED, ExecutionState.SCHEDULED}:
                with suppress(GraphError):  # the vertex has just ended
                    execution.move(ExecutionState.CANCELED)
        self._event_bus.deliver()


def is_single_stage(vertex: JobVertex, graph: StreamGraph, decisions: DecisionLog) -> bool:
    """Whether Spark exchanges no rows within a vertex, so that its running stage writes the result.

    Spark may exchange rows within operators that it plans itself, such as unions, and within a join that was shuffled
    instead of broadcast: the outcome of the decision to broadcast then has the entry ``instead``.
    """
    operators = [graph.node(node_id).operator for node_id in vertex.node_ids]
    may_exchange = any(
        operator.kind in _EXCHANGING_KINDS
        or (operator.kind is OperatorKind.JOIN and not isinstance(operator, JoinOperator))
        for operator in operators
    )
    broadcasts = decisions.of(vertex.node_ids, DecisionKind.BROADCAST)
    return not may_exchange and not any("instead" in broadcast.outcome for broadcast in broadcasts)


def check_source_timeouts(thread_prefix: str, timeout: float) -> None:
    """Raise `SourceTimeoutError` if a thread whose name has this prefix has waited `timeout` seconds for a source.

    The time of threads that compute or wait for Spark is not limited.
    """
    for work in running_work(thread_prefix):
        if work.waits_for and work.idle_seconds(waits_for_jvm) >= timeout:
            raise SourceTimeoutError.of(work.waits_for, work.description, timeout)
