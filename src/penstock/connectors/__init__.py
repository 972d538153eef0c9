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

__all__ = [
    "DynamicFilteringInfo",
    "DynamicParallelismInference",
    "FileSink",
    "FileSource",
    "ParallelismInferenceContext",
    "ParallelismProvider",
    "Sink",
    "SinkJob",
    "Source",
]
