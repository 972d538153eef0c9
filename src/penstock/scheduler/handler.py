"""Applies strategies when vertices progress or finish, and grows the job graph (FLIP-469)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.optimizer import OperatorsFinished, OperatorsRunning
from penstock.scheduler.events import JobEvent, JobVertexFinishedEvent, JobVertexProgressEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.graph import AdaptiveGraphManager, JobGraph, JobVertex
    from penstock.optimizer import ResultInfo
    from penstock.optimizer.optimizer import StreamGraphOptimizer


class JobGraphUpdateListener(Protocol):
    """A listener for new job vertices."""

    def on_new_job_vertices_added(self, job_id: str, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        """Handle new vertices of a job; `pending_operators` are not part of any vertex yet."""


class AdaptiveExecutionHandler:
    """Lets strategies change the graph when vertices finish, grows the job graph, and notifies listeners.

    Parameters
    ----------
    result_info
        Returns the result of a finished vertex, None for a sink.
    """

    def __init__(
        self,
        job_id: str,
        manager: AdaptiveGraphManager,
        optimizer: StreamGraphOptimizer,
        result_info: Callable[[JobVertex], ResultInfo | None],
    ) -> None:
        self._job_id = job_id
        self._manager = manager
        self._optimizer = optimizer
        self._result_info = result_info
        self._listeners: list[JobGraphUpdateListener] = []

    @property
    def job_graph(self) -> JobGraph:
        """The vertices created so far."""
        return self._manager.job_graph

    def register_job_graph_update_listener(self, listener: JobGraphUpdateListener) -> None:
        """Notify a listener of all vertices that are created from now on."""
        self._listeners.append(listener)

    def handle_job_event(self, event: JobEvent) -> None:
        """Handle an event; events that do not change the graph are ignored."""
        match event:
            case JobVertexFinishedEvent(vertex_id):
                vertex = self._manager.finish(vertex_id)
                result = self._result_info(vertex)
                results = {} if result is None else {vertex.tail_id: result}
                self._optimizer.on_operators_finished(OperatorsFinished(vertex.node_ids, results))
            case JobVertexProgressEvent(vertex_id, partial):
                vertex = self.job_graph.vertex(vertex_id)
                self._optimizer.on_operators_running(OperatorsRunning(vertex.node_ids, {vertex.tail_id: partial}))
            case _:
                return
        vertices = self._manager.grow()
        if vertices:
            for listener in self._listeners:
                listener.on_new_job_vertices_added(self._job_id, vertices, self._manager.pending_operators)
