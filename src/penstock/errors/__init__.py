"""Errors that Penstock raises, with cause and hint."""

from penstock.errors.base import (
    ArgumentError,
    ConfigError,
    GraphError,
    JobCancelledError,
    JobError,
    OptimizerError,
    PenstockError,
    SessionError,
    first_line,
)
from penstock.errors.connectors import (
    CommitError,
    CommitUnknownError,
    SinkError,
    SourceError,
    SourceTimeoutError,
    UntrustedJournalError,
)
from penstock.errors.exchanges import LostConnectionError, NoBarrierError, RebalanceError
from penstock.errors.records import HistoryError, RowsDifferError, VerificationError, WebError
from penstock.errors.streaming import StateError, StreamError

__all__ = [
    "ArgumentError",
    "CommitError",
    "CommitUnknownError",
    "ConfigError",
    "GraphError",
    "HistoryError",
    "JobCancelledError",
    "JobError",
    "LostConnectionError",
    "NoBarrierError",
    "OptimizerError",
    "PenstockError",
    "RebalanceError",
    "RowsDifferError",
    "SessionError",
    "SinkError",
    "SourceError",
    "SourceTimeoutError",
    "StateError",
    "StreamError",
    "UntrustedJournalError",
    "VerificationError",
    "WebError",
    "first_line",
]
