"""The scheduler's events, and the handler that calls strategies and grows the job graph on events (FLIP-469)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.optimizer import OperatorsFinished, OperatorsRunning, ResultInfo

if TYPE_CHECKING:
    from penstock.graph import AdaptiveGraphManager, JobVertex, JobVertexID
    from penstock.optimizer.optimizer import StreamGraphOptimizer
    from penstock.optimizer.strategy import PartialResult


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Base of the events sent to the scheduler by workers and users; listeners get other events (`penstock.events`)."""


@dataclass(frozen=True, slots=True)
class JobVertexInitializedEvent(JobEvent):
    """All sources of a vertex have inferred their parallelism, or failed to."""

    vertex_id: JobVertexID


@dataclass(frozen=True, slots=True)
class JobVertexFinishedEvent(JobEvent):
    """A vertex has finished, and its output is measured."""

    vertex_id: JobVertexID


@dataclass(frozen=True, slots=True)
class JobVertexProgressEvent(JobEvent):
    """Some tasks of a vertex have finished, and their output is measured."""

    vertex_id: JobVertexID
    result: PartialResult


@dataclass(frozen=True, slots=True)
class JobVertexFailedEvent(JobEvent):
    """A vertex has failed."""

    vertex_id: JobVertexID
    error: BaseException


@dataclass(frozen=True, slots=True)
class JobCancelEvent(JobEvent):
    """The user has requested cancellation."""

    reason: str


class JobGraphUpdateListener(Protocol):
    """A listener for new job vertices."""

    def on_new_job_vertices_added(self, job_id: str, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        """Handle new vertices of a job; `pending_operators` is the number of operators that no vertex contains yet."""


@dataclass(eq=False)
class AdaptiveExecutionHandler:
    """Lets strategies change the graph when vertices progress or finish, grows the job graph, notifies listeners."""

    _job_id: str
    _manager: AdaptiveGraphManager
    _optimizer: StreamGraphOptimizer
    _result_info: Callable[[JobVertex], ResultInfo | None]
    _listeners: list[JobGraphUpdateListener] = field(default_factory=list, init=False)

    def register_job_graph_update_listener(self, listener: JobGraphUpdateListener) -> None:
        """Notify a listener of all vertices that are created from now on."""
        self._listeners.append(listener)

    def handle_job_event(self, event: JobEvent) -> None:
        """Handle the progress or completion of a vertex; ignore all other events."""
        match event:
            case JobVertexFinishedEvent(vertex_id):
                vertex = self._manager.finish(vertex_id)
                result = self._result_info(vertex)
                results = {} if result is None else {vertex.tail_id: result}
                self._optimizer.on_operators_finished(OperatorsFinished(vertex.node_ids, results))
            case JobVertexProgressEvent(vertex_id, partial):
                vertex = self._manager.job_graph.vertex(vertex_id)
                self._optimizer.on_operators_running(OperatorsRunning(vertex.node_ids, {vertex.tail_id: partial}))
            case _:
                return
        vertices = self._manager.grow()
        if vertices:
            for listener in self._listeners:
                listener.on_new_job_vertices_added(self._job_id, vertices, self._manager.pending_operators)
