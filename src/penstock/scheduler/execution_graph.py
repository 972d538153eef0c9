"""What became of each vertex: states, times, tasks, bytes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.graph import JobVertex, JobVertexID


class ExecutionState(StrEnum):
    """The states of a vertex and of a job."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing comes after it."""
        return self in {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED}


_NEXT = {
    ExecutionState.CREATED: {ExecutionState.SCHEDULED, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.SCHEDULED: {ExecutionState.RUNNING, ExecutionState.FAILED, ExecutionState.CANCELED},
    ExecutionState.RUNNING: {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED},
}


@dataclass
class ExecutionJobVertex:
    """A vertex in execution.

    Parameters
    ----------
    vertex
        The job vertex.
    state
        Where it is.
    parallelism
        The decided number of tasks, or None before.
    reason
        Why that many.
    tasks
        How many ran, None while unknown or where nothing had to run.
    bytes_in, bytes_out, rows_out
        Measured figures, None while unknown.
    subpartitions
        Bytes of each subpartition it wrote; empty while unknown, and of sinks.
    timestamps
        When each state was reached, seconds since the epoch.
    """

    vertex: JobVertex
    state: ExecutionState = ExecutionState.CREATED
    parallelism: int | None = None
    reason: str = ""
    tasks: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    rows_out: int | None = None
    subpartitions: Sequence[int] = ()
    timestamps: dict[ExecutionState, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timestamps[self.state] = time.time()

    def move(self, state: ExecutionState) -> None:
        """Go on to another state.

        Raises
        ------
        GraphError
            If that cannot follow the present one.
        """
        if state not in _NEXT.get(self.state, ()):
            raise GraphError(f"vertex {self.vertex.id} cannot go from {self.state} to {state}")
        self.state = state
        self.timestamps[state] = time.time()

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        start = self.timestamps.get(ExecutionState.RUNNING)
        if start is None:
            return 0.0
        ends = [at for state, at in self.timestamps.items() if state.is_terminal]
        return (ends[0] if ends else time.time()) - start


class ExecutionGraph:
    """All vertices in execution, in the order they were made."""

    def __init__(self) -> None:
        self._vertices: dict[JobVertexID, ExecutionJobVertex] = {}

    def __iter__(self) -> Iterator[ExecutionJobVertex]:
        return iter(tuple(self._vertices.values()))

    def __len__(self) -> int:
        return len(self._vertices)

    def attach(self, vertex: JobVertex) -> ExecutionJobVertex:
        """Add a vertex that was made."""
        execution = ExecutionJobVertex(vertex)
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
        """Whether every vertex made so far has finished."""
        return all(execution.state is ExecutionState.FINISHED for execution in self)
