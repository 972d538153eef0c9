"""What happens to a job, as typed events, and the one way to hear of it. Pure: no Spark in here."""

from penstock.events.account import JobAccount, JobStatusListener
from penstock.events.job_events import (
    ChangeRefused,
    DecisionMade,
    DecisionSettled,
    ErrorOccurred,
    GraphChanged,
    GraphPlanned,
    JobStateChanged,
    JobStatusEvent,
    VertexChanged,
    VerticesCreated,
)
from penstock.events.vertex_snapshot import ExecutionState, VertexSnapshot

__all__ = [
    "ChangeRefused",
    "DecisionMade",
    "DecisionSettled",
    "ErrorOccurred",
    "ExecutionState",
    "GraphChanged",
    "GraphPlanned",
    "JobAccount",
    "JobStateChanged",
    "JobStatusEvent",
    "JobStatusListener",
    "VertexChanged",
    "VertexSnapshot",
    "VerticesCreated",
]
