"""Stream graph and job graph: plain data, without Spark."""

from penstock.graph.context import StreamEdgeUpdateRequest, StreamGraphContext, StreamNodeUpdateRequest
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex, JobVertexID
from penstock.graph.manager import AdaptiveGraphGenerator, AdaptiveGraphManager
from penstock.graph.stream_graph import UNDECIDED, OperatorKind, StreamEdge, StreamGraph, StreamNode

__all__ = [
    "UNDECIDED",
    "AdaptiveGraphGenerator",
    "AdaptiveGraphManager",
    "JobEdge",
    "JobGraph",
    "JobVertex",
    "JobVertexID",
    "OperatorKind",
    "StreamEdge",
    "StreamEdgeUpdateRequest",
    "StreamGraph",
    "StreamGraphContext",
    "StreamNode",
    "StreamNodeUpdateRequest",
]
