"""Sources and sinks."""

from penstock.connectors.base import (
    DataFrameScanProvider,
    DynamicFilteringInfo,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ParallelismProvider,
    ScanContext,
    Sink,
    SinkJob,
    Source,
    SourceProvider,
)
from penstock.connectors.delta import DeltaSink, DeltaSource
from penstock.connectors.files import FileSink, FileSource
from penstock.connectors.iceberg import IcebergSink, IcebergSource
from penstock.connectors.jdbc import JdbcSink, JdbcSource
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.object_store import ObjectStoreSource
from penstock.connectors.predicates import Predicate
from penstock.connectors.split_source import SplitSource

__all__ = [
    "DataFrameScanProvider",
    "DeltaSink",
    "DeltaSource",
    "DynamicFilteringInfo",
    "DynamicParallelismInference",
    "FileSink",
    "FileSource",
    "IcebergSink",
    "IcebergSource",
    "JdbcSink",
    "JdbcSource",
    "KafkaSink",
    "KafkaSource",
    "ObjectStoreSource",
    "ParallelismInferenceContext",
    "ParallelismProvider",
    "Predicate",
    "ScanContext",
    "Sink",
    "SinkJob",
    "Source",
    "SourceProvider",
    "SplitSource",
]
