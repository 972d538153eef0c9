"""Typed events of a job, and the bus that delivers them. This package does not use Spark."""

from penstock.events.event_bus import JobEventBus, JobStatusListener
from penstock.events.job_events import (
    ChangeRefused,
    DecisionRecorded,
    DecisionSettled,
    ErrorOccurred,
    ExecutionState,
    GraphChanged,
    GraphPlanned,
    JobStateChanged,
    JobStatusEvent,
    OutputCompared,
    VertexChanged,
    VertexSnapshot,
    VerticesCreated,
)

__all__ = [
    "ChangeRefused",
    "DecisionRecorded",
    "DecisionSettled",
    "ErrorOccurred",
    "ExecutionState",
    "GraphChanged",
    "GraphPlanned",
    "JobEventBus",
    "JobStateChanged",
    "JobStatusEvent",
    "JobStatusListener",
    "OutputCompared",
    "VertexChanged",
    "VertexSnapshot",
    "VerticesCreated",
]
