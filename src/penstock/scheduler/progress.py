"""Reports what running vertices have written so far, if pending vertices wait for it."""

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


def is_single_stage(vertex: JobVertex, graph: StreamGraph, decisions: DecisionLog) -> bool:
    """Whether Spark exchanges no rows within a vertex, so that its running stage writes the result.

    Spark exchanges rows within operators that it runs together with their inputs, and within a join whose side was
    not broadcast after all.
    """
    operators = [graph.node(node_id).operator for node_id in vertex.node_ids]
    may_exchange = any(
        operator.kind in _MAY_EXCHANGE
        or (operator.kind is OperatorKind.JOIN and not isinstance(operator, JoinOperator))
        for operator in operators
    )
    broadcasts = decisions.of(vertex.node_ids, DecisionKind.BROADCAST)
    return not may_exchange and not any("instead" in broadcast.outcome for broadcast in broadcasts)


def running_progress(
    bridge: Bridge,
    executions: Iterable[ExecutionJobVertex],
    awaited: Collection[int],
    group_of: Callable[[JobVertex], str],
) -> list[JobVertexProgressEvent]:
    """Return the output so far of awaited vertices that run and of which some tasks have ended.

    Parameters
    ----------
    awaited
        The nodes that pending vertices wait for; other vertices are skipped.
    """
    events = []
    for execution in executions:
        vertex = execution.vertex
        if execution.state is not ExecutionState.RUNNING or set(awaited).isdisjoint(vertex.node_ids):
            continue
        for stage, figures in jobs.running_stages(bridge, group_of(vertex))[-1:]:
            result = PartialResult(stage.completed, stage.tasks, figures.bytes_out, figures.rows_out)
            events.append(JobVertexProgressEvent(vertex.id, result))
    return events
