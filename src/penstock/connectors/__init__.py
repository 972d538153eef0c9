"""Sources and sinks."""

from penstock.connectors.core.base import (
    DataFrameScanProvider,
    DataFrameSinkProvider,
    DynamicFilteringInfo,
    DynamicParallelismInference,
    KeyFilter,
    ParallelismInferenceContext,
    ParallelismProvider,
    ScanContext,
    Sink,
    SinkJob,
    SinkOptions,
    SinkParallelism,
    SinkStage,
    Source,
    SourceProvider,
    StageReport,
    TargetOptions,
)
from penstock.connectors.core.predicates import Predicate
from penstock.connectors.core.split_source import SplitSource
from penstock.connectors.delta.delta import DeltaSink, DeltaSource
from penstock.connectors.files.files import FileSink, FileSource
from penstock.connectors.files.object_store import ObjectStoreSource
from penstock.connectors.files.partition_commit import CommittedPartition, PartitionCommitPolicy
from penstock.connectors.http.sink import HttpSink
from penstock.connectors.iceberg.iceberg import IcebergSink, IcebergSource
from penstock.connectors.jdbc import JdbcSink, JdbcSource
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.tables.tables import TableSink

__all__ = [
    "CommittedPartition",
    "DataFrameScanProvider",
    "DataFrameSinkProvider",
    "DeltaSink",
    "DeltaSource",
    "DynamicFilteringInfo",
    "DynamicParallelismInference",
    "FileSink",
    "FileSource",
    "HttpSink",
    "IcebergSink",
    "IcebergSource",
    "JdbcSink",
    "JdbcSource",
    "KafkaSink",
    "KafkaSource",
    "KeyFilter",
    "ObjectStoreSource",
    "ParallelismInferenceContext",
    "ParallelismProvider",
    "PartitionCommitPolicy",
    "Predicate",
    "ScanContext",
    "Sink",
    "SinkJob",
    "SinkOptions",
    "SinkParallelism",
    "SinkStage",
    "Source",
    "SourceProvider",
    "SplitSource",
    "StageReport",
    "TableSink",
    "TargetOptions",
]
