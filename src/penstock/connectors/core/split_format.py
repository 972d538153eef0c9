"""Python data source of Spark that reads a `SplitSource`."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.connectors.core.base import ScanContext
from penstock.connectors.core.timeouts import call_within_timeout, set_timeout, timeout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.core.split_source import SplitSource

_FORMAT = "penstock_splits"
_VOLUME = 16 << 20


def scan(spark: SparkSession, source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> DataFrame:
    """Return a DataFrame that reads the splits of each task; None to list the splits when the query runs."""
    spark.dataSource.register(_SplitFormat)
    return spark.read.format(_FORMAT).option("job", _serialize(source, columns, tasks)).load()


def read_without_spark(source: SplitSource, columns: list[str], tasks: list[list[Any]]) -> Iterator[Any]:
    """Return the batches of all tasks, read with the code that runs in Spark's Python workers."""
    for splits in tasks:
        reader = _deserialize(_serialize(source, columns, [splits]))
        for partition in reader.partitions():
            yield from reader.read(partition)


def _serialize(source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> str:
    """Return a scan as an option value for Spark's Python workers."""
    full = source.schema  # evaluated on the driver: tasks have no session that could parse a schema
    schema = type(full)([full[name] for name in columns])
    reader = _SplitReader(source, schema, tasks, timeout())
    return base64.b64encode(cloudpickle.dumps(reader)).decode()  # type: ignore[no-untyped-call]


def _deserialize(job: str) -> _SplitReader:
    reader: _SplitReader = cloudpickle.loads(base64.b64decode(job))
    return reader


class _SplitFormat(DataSource):
    """The data source that Spark calls in a Python worker."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> StructType:
        return _deserialize(self.options["job"]).schema

    def reader(self, schema: StructType) -> _SplitReader:  # noqa: ARG002
        return _deserialize(self.options["job"])


@dataclass
class _SplitReader(DataSourceReader):
    source: SplitSource
    schema: StructType
    tasks: list[list[Any]] | None
    timeout: float

    def partitions(self) -> Sequence[InputPartition]:
        tasks = self.tasks
        if tasks is None:
            source, context = self.source, ScanContext(1 << 30, _VOLUME)
            with set_timeout(self.timeout):
                request = f"asking {source.name} for its splits"
                splits = call_within_timeout(source.name, request, lambda: list(source.enumerate_splits(context)))
            tasks = [[split] for split in splits]
        return [InputPartition(splits) for splits in tasks or [[]]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with set_timeout(self.timeout):
            for split in partition.value:
                yield from self.source.read_split(split, self.schema.fieldNames())
