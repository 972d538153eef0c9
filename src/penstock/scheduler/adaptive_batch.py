"""Runs a job: vertices as they become ready, independent ones side by side, decisions in between."""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import DYNAMIC_FILTERING_EXACT_KEYS, NATIVE, NATIVE_MEMORY, SOURCES_TIMEOUT, VERIFY
from penstock.errors import GraphError, JobCancelledError, SourceTimeoutError
from penstock.events import ExecutionState, GraphPlanned, VerticesCreated
from penstock.execution.context import JobContext, group_of
from penstock.execution.vertex_runner import VertexRunner
from penstock.graph import AdaptiveGraphManager
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.scheduler.deciders.vertex import VertexDecider
from penstock.scheduler.disk_space import full_disk_hint
from penstock.scheduler.events import (
    JobCancelEvent,
    JobEvent,
    JobVertexFailedEvent,
    JobVertexFinishedEvent,
    JobVertexInitializedEvent,
    JobVertexProgressEvent,
)
from penstock.scheduler.execution_graph import ExecutionGraph, ExecutionJobVertex
from penstock.scheduler.failure import describe_failure
from penstock.scheduler.handler import AdaptiveExecutionHandler
from penstock.scheduler.progress import has_one_stage, progress_of
from penstock.scheduler.resources import broadcast_bounds, resources_of
from penstock.scheduler.silence import check_silence
from penstock.scheduler.vertex_execution import VertexExecution
from penstock.spark import jobs
from penstock.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.config import Configuration
    from penstock.connectors.base import KeyFilter, SinkJob
    from penstock.decisions import DecisionLog
    from penstock.events import JobAccount, VertexSnapshot
    from penstock.graph import JobVertex, StreamGraph
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import SessionPool

log = logging.getLogger("penstock.scheduler")

_SIDE_BY_SIDE = 8
"""How many vertices run at a time; more only queue for the same cores."""
_PATIENCE = 0.8
"""Seconds that a cancelled job waits for its vertices to stop: some work in Spark's driver cannot be interrupted."""
_PATIENCE_OF_FAILED = 10.0
"""The same for a job that failed, which nobody waits to see the end of: sinks should be cleaned when all is quiet."""
_CANCEL_AGAIN = 0.2
"""Seconds between two times that vertices of a job that has ended are cancelled."""
_LOOK = 1.0
"""Seconds between two looks at sources that do not answer, and at steps that others wait for."""


@dataclass(frozen=True, slots=True)
class JobGraphs:
    """What can be seen of a job while it runs and afterwards: none of it holds on to Spark's plans or results.

    Parameters
    ----------
    job_id
        The job.
    planned
        The stream graph as it was planned, before any strategy saw it.
    manager
        The graphs as they are now.
    execution
        The vertices made so far.
    """

    job_id: str
    planned: StreamGraph
    manager: AdaptiveGraphManager
    execution: ExecutionGraph

    def group_of(self, vertex: JobVertex) -> str:
        """Return the Spark job group that a vertex runs in."""
        return group_of(self.job_id, vertex)


class AdaptiveBatchScheduler:
    """Schedules one job; `run` once, on a thread of its own.

    Parameters
    ----------
    bridge, sessions
        The user's session and its clones.
    plan
        The job's plan.
    config
        The options.
    decisions, account
        Take the decisions, and what else happens.
    job_id, job_name
        The job's names for Spark and for people.
    sinks
        The opened sinks, by node.
    strategies
        What may reshape the pending graph, in order.
    """

    def __init__(
        self,
        bridge: Bridge,
        sessions: SessionPool,
        plan: JobPlan,
        config: Configuration,
        decisions: DecisionLog,
        account: JobAccount,
        job_id: str,
        job_name: str,
        sinks: Mapping[int, SinkJob],
        strategies: Sequence[StreamGraphOptimizationStrategy] = (),
    ) -> None:
        self._bridge = bridge
        self._plan = plan
        self._decisions = decisions
        self._job_name = job_name
        self._threads = f"penstock-{job_id}"
        self._timeout = config.seconds(SOURCES_TIMEOUT)
        self._account = account
        account.emit(GraphPlanned(plan.graph))
        resources = resources_of(bridge, config)
        optimizer = StreamGraphOptimizer(strategies, config, resources, decisions)
        self._manager = AdaptiveGraphManager(plan.graph, optimizer.initialize, account)
        self.execution_graph = ExecutionGraph(account)
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
            broadcasts=broadcast_bounds(bridge, config, resources),
            native_memory=config.integer(NATIVE_MEMORY) if config.flag(NATIVE) else None,
        )
        self._runner = VertexRunner(context)
        results, cores = self._runner.results, jobs.cluster_cores(bridge)
        self._decider = VertexDecider(
            plan, config, cores, self._manager, results, self._runner.sinks, decisions, self._vertices
        )
        self._execution = VertexExecution(context, self._decider, self._runner, job_name, account)
        self._handler = AdaptiveExecutionHandler(job_id, self._manager, optimizer, results.info)
        self._handler.register_job_graph_update_listener(self)
        self._events: queue.SimpleQueue[JobEvent] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._answers: dict[int, Future[int]] = {}
        self._running: list[Future[None]] = []
        self._waiting: list[ExecutionJobVertex] = []
        self._committed = False

    def _vertices(self) -> list[VertexSnapshot]:
        """Return the vertices made so far, as they are now."""
        return [execution.snapshot for execution in self.execution_graph]

    def cancel(self, reason: str) -> None:
        """Ask the job to stop; `run` then raises."""
        self._events.put(JobCancelEvent(reason))

    def run(self, commit: Callable[[], None]) -> None:
        """Run all vertices.

        Parameters
        ----------
        commit
            Makes what the sinks have written visible; called once, when only what waits for that is left.

        Raises
        ------
        JobError
            If a vertex fails; it names the vertex, the operator and the user's line.
        JobCancelledError
            If the job was cancelled.
        """
        jobs.activate(self._bridge)
        for choice in self._plan.choices:
            self._decisions.record(choice)
        self._workers = DaemonPool(_SIDE_BY_SIDE, f"{self._threads}-vertex")
        self._askers = jobs.SparkThreads(_SIDE_BY_SIDE, f"{self._threads}-source", self._bridge)
        patience: float | None = None
        try:
            first, pending = list(self._manager.job_graph), self._manager.pending_operators
            self.on_new_job_vertices_added(self.graphs.job_id, first, pending)
            while not self._only_stages_after_commit_are_left():
                self._handle(self._next_event())
            commit()
            self._committed = True
            for execution in self._waiting:
                self._submit(execution)
            while not (self.execution_graph.all_finished and self._manager.pending_operators == 0):
                self._handle(self._next_event())
        except BaseException as error:
            hangs = isinstance(error, JobCancelledError | SourceTimeoutError)
            patience = _PATIENCE if hangs else _PATIENCE_OF_FAILED
            self._stop_all()
            raise
        finally:
            for pool in (self._workers, self._askers):
                pool.shutdown(wait=False, cancel_futures=True)
            self._wait_for_vertices(patience)
            self.leave_behind()
            self._runner.release()

    def _wait_for_vertices(self, patience: float | None) -> None:
        """Wait until no vertex runs, at most so many seconds; None is for ever.

        A vertex may begin another Spark job after it was cancelled, where the user's job group keeps ours from being
        cancelled in advance. So it is cancelled again until it has ended.
        """
        if patience is None:
            wait(self._running)
            return
        until = time.monotonic() + patience
        while wait(self._running, min(_CANCEL_AGAIN, max(0.0, until - time.monotonic()))).not_done:
            if time.monotonic() >= until:
                return
            self._cancel_vertices()

    def _next_event(self) -> JobEvent:
        """Wait for an event; meanwhile look at the sources that do not answer, and at what others wait for.

        Raises
        ------
        SourceTimeoutError
            If one has not answered for too long.
        """
        while True:
            try:
                return self._events.get(timeout=_LOOK)
            except queue.Empty:
                check_silence(self._threads, self._timeout)
                self._look_at_awaited()

    def _look_at_awaited(self) -> None:
        """Tell what vertices have written so far that others wait for."""
        graph = self._manager.graph
        asked = [one for one in self.execution_graph if has_one_stage(one.vertex, graph, self._decisions)]
        for progress in progress_of(self._bridge, asked, self._manager.awaited, self.graphs.group_of):
            self._events.put(progress)

    def on_new_job_vertices_added(self, job_id: str, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        """Attach vertices that were made, and ask their sources; part of `JobGraphUpdateListener`."""
        log.debug("job %s: %d new vertices, %d operators pending", job_id, len(vertices), pending_operators)
        made = [self.execution_graph.attach(vertex) for vertex in vertices]
        self._account.emit(VerticesCreated(tuple(execution.snapshot for execution in made), pending_operators))
        for execution in made:
            self._initialize(execution)
        self._account.deliver()

    def _only_stages_after_commit_are_left(self) -> bool:
        later = sum(not self._manager.is_frozen(n) for n, (_, stage) in self._plan.stages.items() if stage.after_commit)
        return self._manager.pending_operators == later and all(
            execution.state is ExecutionState.FINISHED or execution in self._waiting
            for execution in self.execution_graph
        )

    def _waits_for_commit(self, vertex: JobVertex) -> bool:
        _, stage = self._plan.stages.get(vertex.tail_id, (0, None))
        return stage is not None and stage.after_commit and not self._committed

    def _initialize(self, execution: ExecutionJobVertex) -> None:
        """Fetch the filters of a vertex, if it has any, and ask its sources; nothing waits meanwhile."""
        nodes = map(self._manager.graph.node, execution.vertex.node_ids)
        if any(node.filters for node in nodes):
            self._running.append(self._workers.submit(self._fetch_filters, execution))
        else:
            self._ask_sources(execution, {})

    def _fetch_filters(self, execution: ExecutionJobVertex) -> None:
        """Fetch filters, and let sources know; on a worker's thread."""
        try:
            jobs.activate(self._bridge)
            self._ask_sources(execution, self._execution.fetch_filters(execution.vertex))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job must hear of it
            self._fail(execution, error)

    def _ask_sources(self, execution: ExecutionJobVertex, filters: Mapping[int, KeyFilter]) -> None:
        """Ask the sources of a vertex; it goes on when all have answered."""
        vertex = execution.vertex
        sources = [node_id for node_id in vertex.node_ids if node_id in self._plan.sources]
        left = len(sources)
        lock = threading.Lock()

        def answered(_: Future[int]) -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    self._events.put(JobVertexInitializedEvent(vertex.id))

        if not sources:
            self._events.put(JobVertexInitializedEvent(vertex.id))
        for node_id in sources:
            answer = self._decider.ask(vertex, node_id, self._askers, filters.get(node_id))
            self._answers[node_id] = answer
            answer.add_done_callback(answered)

    def _handle(self, event: JobEvent) -> None:
        match event:
            case JobVertexInitializedEvent(vertex_id):
                execution = self.execution_graph.vertex(vertex_id)
                if self._waits_for_commit(execution.vertex):
                    self._waiting.append(execution)
                else:
                    self._submit(execution)
            case JobVertexFinishedEvent() | JobVertexProgressEvent():
                self._handler.handle_job_event(event)
            case JobVertexFailedEvent(vertex_id, error):
                vertex = self.execution_graph.vertex(vertex_id).vertex
                hint = full_disk_hint(self._bridge, error, self._plan.sinks.values())
                raise describe_failure(self._plan, vertex, error, hint) from error
            case JobCancelEvent(reason):
                raise JobCancelledError(f"job {self._job_name!r} was cancelled", cause=reason)
        self._account.deliver()

    def _submit(self, execution: ExecutionJobVertex) -> None:
        execution.move(ExecutionState.SCHEDULED)
        self._running.append(self._workers.submit(self._execute, execution))

    def _execute(self, execution: ExecutionJobVertex) -> None:
        """Decide and run a vertex; on a worker's thread."""
        if self._stopping.is_set():
            return
        vertex = execution.vertex
        try:
            jobs.activate(self._bridge)
            inferred = {n: self._answers[n].result() for n in vertex.node_ids if n in self._plan.sources}
            self._execution.execute(execution, inferred)
            self._events.put(JobVertexFinishedEvent(vertex.id))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job must hear of it
            self._fail(execution, error)

    def _fail(self, execution: ExecutionJobVertex, error: BaseException) -> None:
        execution.move(ExecutionState.CANCELED if self._stopping.is_set() else ExecutionState.FAILED)
        self._events.put(JobVertexFailedEvent(execution.vertex.id, error))

    def leave_behind(self) -> None:
        """Count vertices that still run, though the job has ended, as cancelled."""
        for execution in self.execution_graph:
            with suppress(GraphError):  # it has ended by itself
                execution.move(ExecutionState.CANCELED)

    def _cancel_vertices(self) -> None:
        for execution in self.execution_graph:
            if not execution.state.is_terminal:
                jobs.cancel_group(self._bridge, self.graphs.group_of(execution.vertex), "the job has ended")

    def _stop_all(self) -> None:
        """Cancel what runs; the workers end with the exceptions this gives them."""
        self._stopping.set()
        self._cancel_vertices()
        for execution in self.execution_graph:
            if execution.state in {ExecutionState.CREATED, ExecutionState.SCHEDULED}:
                with suppress(GraphError):  # it has begun
                    execution.move(ExecutionState.CANCELED)
        self._account.deliver()
