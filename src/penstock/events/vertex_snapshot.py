"""Snapshots of job vertices, for the terminal, the API, the page and reports."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.graph import JobVertex


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
        """Whether it is a final state."""
        return self in {ExecutionState.FINISHED, ExecutionState.FAILED, ExecutionState.CANCELED}


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    """The state of a vertex at a point in time.

    Parameters
    ----------
    parallelism, reason
        The decided number of tasks, None while undecided, and the reason for it.
    tasks
        The number of tasks that ran, None if unknown or if nothing had to run.
    bytes_in, bytes_out, rows_out
        Measured figures, None if unknown.
    subpartitions
        The bytes of each subpartition it wrote; empty if unknown, and for sinks.
    timestamps
        The time when each state was reached, in seconds since the epoch.
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
    timestamps: Mapping[ExecutionState, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The seconds it has been running, or ran."""
        start = self.timestamps.get(ExecutionState.RUNNING)
        if start is None:
            return 0.0
        ends = [at for state, at in self.timestamps.items() if state.is_terminal]
        return (ends[0] if ends else time.time()) - start
