"""Turns what happens to a job into changes of its graphs (FLIP-469)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.scheduler.events import JobEvent, JobVertexFinishedEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph import AdaptiveGraphManager, JobGraph, JobVertex


class JobGraphUpdateListener(Protocol):
    """Wants to know of new job vertices."""

    def on_new_job_vertices_added(self, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        """Take vertices that were made, and how many operators are still pending."""


class AdaptiveExecutionHandler:
    """Grows the job graph when vertices finish, and tells its listeners."""

    def __init__(self, manager: AdaptiveGraphManager) -> None:
        self._manager = manager
        self._listeners: list[JobGraphUpdateListener] = []

    @property
    def job_graph(self) -> JobGraph:
        """The vertices made so far."""
        return self._manager.job_graph

    def register_job_graph_update_listener(self, listener: JobGraphUpdateListener) -> None:
        """Tell a listener of all vertices that are made from now on."""
        self._listeners.append(listener)

    def handle_job_event(self, event: JobEvent) -> None:
        """Take an event; those that do not change the graph are ignored."""
        if not isinstance(event, JobVertexFinishedEvent):
            return
        vertices = self._manager.on_job_vertex_finished(event.vertex_id)
        if vertices:
            for listener in self._listeners:
                listener.on_new_job_vertices_added(vertices, self._manager.pending_operators)
