"""Spark's Python data source that reads a `SplitSource`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.connectors.core.base import ScanContext
from penstock.connectors.core.timeouts import call_within_timeout, set_timeout, timeout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.core.split_source import SplitSource

_FORMAT = "penstock_splits"
_OPTION = "reader"  # its value is a serialized `_SplitReader`
_DEFAULT_VOLUME, _UNLIMITED_TASKS = 16 << 20, 1 << 30  # bytes per task, tasks; if plain Spark runs the query


def scan(spark: SparkSession, source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> DataFrame:
    """Return a DataFrame of the rows; `tasks` are the splits of each task, None to list them when the query runs."""
    spark.dataSource.register(_SplitFormat)
    return spark.read.format(_FORMAT).option(_OPTION, _serialize(source, columns, tasks)).load()


def read_without_spark(source: SplitSource, columns: list[str], tasks: list[list[Any]]) -> Iterator[Any]:
    """Yield the batches of all tasks, read in this process by the code that runs in Spark's Python workers."""
    for splits in tasks:
        reader = _deserialize(_serialize(source, columns, [splits]))
        for partition in reader.partitions():
            yield from reader.read(partition)


def _serialize(source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> str:
    """Return the value of the option `_OPTION`, which Spark's Python workers decode to a reader."""
    full_schema = source.schema  # evaluated on the driver: tasks have no session that could parse a schema
    schema = type(full_schema)([full_schema[name] for name in columns])
    reader = _SplitReader(source, schema, tasks, timeout())
    return base64.b64encode(cloudpickle.dumps(reader)).decode()  # type: ignore[no-untyped-call]


def _deserialize(serialized: str) -> _SplitReader:
    reader: _SplitReader = cloudpickle.loads(base64.b64decode(serialized))
    return reader


class _SplitFormat(DataSource):
    """The data source that Spark calls in a Python worker."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> StructType:
        return _deserialize(self.options[_OPTION]).schema

    def reader(self, schema: StructType) -> _SplitReader:  # noqa: ARG002
        return _deserialize(self.options[_OPTION])


@dataclass
class _SplitReader(DataSourceReader):
    """Reads the splits of each task; if `tasks` is None, lists the splits first, and reads each in a separate task."""

    source: SplitSource
    schema: StructType
    tasks: list[list[Any]] | None
    timeout: float

    def partitions(self) -> Sequence[InputPartition]:
        tasks = self.tasks
        if tasks is None:
            source, context = self.source, ScanContext(_UNLIMITED_TASKS, _DEFAULT_VOLUME)
            with set_timeout(self.timeout):
                request = f"asking {source.name} for its splits"
                splits = call_within_timeout(source.name, request, lambda: list(source.enumerate_splits(context)))
            tasks = [[split] for split in splits]
        # Spark would replace an empty list by a partition whose value is None.
        return [InputPartition(splits) for splits in tasks or [[]]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with set_timeout(self.timeout):
            for split in partition.value:
                yield from self.source.read_split(split, self.schema.fieldNames())
