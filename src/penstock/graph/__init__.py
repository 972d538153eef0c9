"""Stream graph and job graph: plain data, without Spark."""

from penstock.graph.changes import GraphChange, RefusedChange, StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.context import StreamGraphContext
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex, JobVertexID
from penstock.graph.join_types import JoinType, Side
from penstock.graph.manager import AdaptiveGraphManager
from penstock.graph.operators import (
    AggregateOperator,
    CalcOperator,
    DynamicFilterRef,
    FilterPath,
    GroupingSets,
    JoinInput,
    JoinOperator,
    JoinSequence,
    JoinSide,
    JoinStrategy,
    Operator,
    OperatorKind,
    ScanOperator,
    ShuffledJoin,
    SinkOperator,
    WindowOperator,
)
from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

__all__ = [
    "AdaptiveGraphManager",
    "AggregateOperator",
    "CalcOperator",
    "DynamicFilterRef",
    "FilterPath",
    "GraphChange",
    "GroupingSets",
    "JobEdge",
    "JobGraph",
    "JobVertex",
    "JobVertexID",
    "JoinInput",
    "JoinOperator",
    "JoinSequence",
    "JoinSide",
    "JoinStrategy",
    "JoinType",
    "Operator",
    "OperatorKind",
    "RefusedChange",
    "ScanOperator",
    "ShuffledJoin",
    "Side",
    "SinkOperator",
    "StreamEdge",
    "StreamEdgeUpdateRequest",
    "StreamGraph",
    "StreamGraphContext",
    "StreamNode",
    "StreamNodeUpdateRequest",
    "WindowOperator",
]
