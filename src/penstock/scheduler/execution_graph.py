"""The execution state of each vertex: states, times, tasks, bytes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.events import ExecutionState, VertexChanged, VertexSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.events import JobEventBus
    from penstock.graph import JobVertex, JobVertexID

_NEXT = {
    ExecutionState.CREATED: {ExecutionState.SCHEDULED, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.SCHEDULED: {ExecutionState.RUNNING, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.RUNNING: {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED},
}


class ExecutionJobVertex:
    """A vertex in execution; thread-safe."""

    def __init__(self, vertex: JobVertex, account: JobEventBus) -> None:
        self.vertex = vertex
        self.snapshot = VertexSnapshot(vertex, timestamps={ExecutionState.CREATED: time.time()})
        self._account = account
        self._lock = threading.Lock()

    @property
    def state(self) -> ExecutionState:
        """Its execution state."""
        return self.snapshot.state

    def record_decision(self, parallelism: int | None, reason: str, bytes_in: int | None) -> None:
        """Record what was decided before the vertex runs."""
        with self._lock:
            self.snapshot = replace(self.snapshot, parallelism=parallelism, reason=reason, bytes_in=bytes_in)

    def record_metrics(
        self,
        tasks: int | None,
        rows_out: int | None,
        bytes_out: int | None,
        subpartitions: Sequence[int],
        reason: str | None = None,
    ) -> None:
        """Record what was measured after the vertex has run; the tasks that ran replace an undecided parallelism.

        Parameters
        ----------
        tasks, rows_out, bytes_out, subpartitions
            As in `VertexSnapshot`.
        reason
            The reason for the number of tasks, None to retain the earlier reason.
        """
        with self._lock:
            before = self.snapshot
            self.snapshot = replace(
                before,
                tasks=tasks,
                rows_out=rows_out,
                bytes_out=bytes_out,
                subpartitions=subpartitions,
                parallelism=before.parallelism or tasks,
                reason=before.reason if reason is None else reason,
            )

    def move(self, state: ExecutionState) -> None:
        """Change the state.

        Raises
        ------
        GraphError
            If the current state does not allow the change.
        """
        with self._lock:
            before = self.snapshot
            if state not in _NEXT.get(before.state, ()):
                raise GraphError(f"vertex {self.vertex.id} cannot go from {before.state} to {state}")
            at = time.time()
            self.snapshot = replace(before, state=state, timestamps={**before.timestamps, state: at})
            self._account.emit(VertexChanged(self.snapshot, at=at))


class ExecutionGraph:
    """All vertices in execution, in the order of their creation."""

    def __init__(self, account: JobEventBus) -> None:
        self._account = account
        self._vertices: dict[JobVertexID, ExecutionJobVertex] = {}

    def __iter__(self) -> Iterator[ExecutionJobVertex]:
        return iter(tuple(self._vertices.values()))

    def __len__(self) -> int:
        return len(self._vertices)

    def attach(self, vertex: JobVertex) -> ExecutionJobVertex:
        """Add a new vertex."""
        execution = ExecutionJobVertex(vertex, self._account)
        self._vertices[vertex.id] = execution
        return execution

    def vertex(self, vertex_id: JobVertexID) -> ExecutionJobVertex:
        """Return a vertex in execution."""
        return self._vertices[vertex_id]

    @property
    def status_counts(self) -> dict[str, int]:
        """How many vertices are in each state."""
        counts = Counter(execution.state for execution in self)
        return {state.value: counts[state] for state in ExecutionState}

    @property
    def all_finished(self) -> bool:
        """Whether every vertex created so far has finished."""
        return all(execution.state is ExecutionState.FINISHED for execution in self)
