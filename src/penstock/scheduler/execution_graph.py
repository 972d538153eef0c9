"""The execution graph: the state, times, tasks and bytes of each vertex."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import GraphError
from penstock.events import ExecutionState, JobEventBus, VertexChanged, VertexSnapshot

if TYPE_CHECKING:
    from penstock.graph import JobVertex, JobVertexID

_NEXT_STATES = {
    ExecutionState.CREATED: {ExecutionState.SCHEDULED, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.SCHEDULED: {ExecutionState.RUNNING, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.RUNNING: {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED},
}


class ExecutionJobVertex:
    """A vertex in execution; thread-safe."""

    def __init__(self, vertex: JobVertex, event_bus: JobEventBus) -> None:
        self.vertex = vertex
        self.snapshot = VertexSnapshot(vertex, timestamps={ExecutionState.CREATED: time.time()})
        self._event_bus = event_bus
        self._lock = threading.Lock()

    @property
    def state(self) -> ExecutionState:
        """The execution state of the vertex."""
        return self.snapshot.state

    def record(self, **figures: Any) -> None:
        """Set fields of the snapshot that were decided before the vertex ran, or measured afterwards."""
        with self._lock:
            self.snapshot = replace(self.snapshot, **figures)

    def move(self, state: ExecutionState) -> None:
        """Change the state; raise `GraphError` if the current state does not allow the change."""
        with self._lock:
            before = self.snapshot
            if state not in _NEXT_STATES.get(before.state, ()):
                raise GraphError(f"vertex {self.vertex.id} cannot change from {before.state} to {state}")
            at = time.time()
            self.snapshot = replace(before, state=state, timestamps={**before.timestamps, state: at})
            self._event_bus.emit(VertexChanged(self.snapshot, at=at))


class ExecutionGraph:
    """All vertices in execution, in the order of their creation."""

    def __init__(self, event_bus: JobEventBus) -> None:
        self._event_bus = event_bus
        self._vertices: dict[JobVertexID, ExecutionJobVertex] = {}

    def __iter__(self) -> Iterator[ExecutionJobVertex]:
        return iter(tuple(self._vertices.values()))

    def attach(self, vertex: JobVertex) -> ExecutionJobVertex:
        """Add a new vertex."""
        execution = ExecutionJobVertex(vertex, self._event_bus)
        self._vertices[vertex.id] = execution
        return execution

    def vertex(self, vertex_id: JobVertexID) -> ExecutionJobVertex:
        """Return a vertex in execution."""
        return self._vertices[vertex_id]

    @property
    def all_finished(self) -> bool:
        """Whether every vertex created so far has finished."""
        return all(execution.state is ExecutionState.FINISHED for execution in self)
