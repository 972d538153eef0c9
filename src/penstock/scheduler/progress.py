"""What running vertices have written so far, where others wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.events import ExecutionState
from penstock.graph import JoinOperator, OperatorKind
from penstock.optimizer.extrapolation import PartialResult
from penstock.scheduler.events import JobVertexProgressEvent
from penstock.spark import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from penstock.decisions import DecisionLog
    from penstock.graph import JobVertex, StreamGraph
    from penstock.scheduler.execution_graph import ExecutionJobVertex
    from penstock.spark.jvm import Bridge

_MAY_EXCHANGE = frozenset({OperatorKind.OPAQUE, OperatorKind.UNION})


def has_one_stage(vertex: JobVertex, graph: StreamGraph, decisions: DecisionLog) -> bool:
    """Whether Spark exchanges no rows within a vertex, so that the stage that runs is the one that writes.

    It does within operators that it runs together with their inputs, and within a join whose side was not broadcast
    after all.
    """
    operators = [graph.node(node_id).operator for node_id in vertex.node_ids]
    in_pieces = any(
        one.kind in _MAY_EXCHANGE or (one.kind is OperatorKind.JOIN and not isinstance(one, JoinOperator))
        for one in operators
    )
    broadcasts = decisions.of(vertex.node_ids, DecisionKind.BROADCAST)
    return not in_pieces and not any("instead" in one.outcome for one in broadcasts)


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
        The vertices that may be asked; see `has_one_stage`.
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
