"""Sources and sinks."""

from penstock.connectors.base import (
    DynamicFilteringInfo,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ParallelismProvider,
    Sink,
    SinkJob,
    Source,
)
from penstock.connectors.files import FileSink, FileSource
from penstock.connectors.jdbc import JdbcSink, JdbcSource

__all__ = [
    "DynamicFilteringInfo",
    "DynamicParallelismInference",
    "FileSink",
    "FileSource",
    "JdbcSink",
    "JdbcSource",
    "ParallelismInferenceContext",
    "ParallelismProvider",
    "Sink",
    "SinkJob",
    "Source",
]
