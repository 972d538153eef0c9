"""What running vertices have written so far, where others wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.events import ExecutionState
from penstock.optimizer.extrapolation import PartialResult
from penstock.scheduler.events import JobVertexProgressEvent
from penstock.spark import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from penstock.graph import JobVertex
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.spark.jvm import Bridge


def progress_of(
    bridge: Bridge,
    executions: Iterable[ExecutionJobVertex],
    awaited: Collection[int],
    group_of: Callable[[JobVertex], str],
) -> list[JobVertexProgressEvent]:
    """Return what vertices have written, of those that run, and of which some tasks have ended.

    Parameters
    ----------
    executions
        The vertices made so far.
    awaited
        The nodes that others wait for; nobody asks for the other vertices.
    group_of
        Returns the Spark job group that a vertex runs in.
    """
    found = []
    for execution in executions:
        vertex = execution.vertex
        if execution.state is not ExecutionState.RUNNING or set(awaited).isdisjoint(vertex.node_ids):
            continue
        for stage, figures in jobs.running_stages(bridge, group_of(vertex))[-1:]:
            result = PartialResult(stage.completed, stage.tasks, figures.bytes_out, figures.rows_out)
            found.append(JobVertexProgressEvent(vertex.id, result))
    return found
