"""Python data source of Spark that reads a `SplitSource`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.connectors.base import ScanContext
from penstock.connectors.timeouts import call_within_timeout, set_timeout, timeout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.split_source import SplitSource

_FORMAT = "penstock_splits"
_VOLUME = 16 << 20


def scan(spark: SparkSession, source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> DataFrame:
    """Return a DataFrame that reads splits.

    Parameters
    ----------
    tasks
        The splits of each task; None to list them when the query runs.
    """
    spark.dataSource.register(_SplitFormat)
    return spark.read.format(_FORMAT).option("job", _serialize(source, columns, tasks)).load()


def read_without_spark(source: SplitSource, columns: list[str], tasks: list[list[Any]]) -> Iterator[Any]:
    """Return the batches of all tasks, read with the code that runs in Spark's Python workers."""
    for splits in tasks:
        worker = _SplitFormat({"job": _serialize(source, columns, [splits])})
        reader = worker.reader(worker.schema())
        for partition in reader.partitions():
            yield from reader.read(partition)


def _serialize(source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> str:
    """Return a scan as an option value for Spark's Python workers."""
    full = source.schema  # evaluated on the driver: tasks have no session that could parse a schema
    schema = type(full)([full[name] for name in columns])
    job = source, schema, tasks, timeout()
    return base64.b64encode(cloudpickle.dumps(job)).decode()  # type: ignore[no-untyped-call]


class _Task(InputPartition):
    """The splits of a task."""

    def __init__(self, splits: list[Any]) -> None:
        super().__init__(None)
        self.splits = splits


class _SplitFormat(DataSource):
    """The data source that Spark calls in a Python worker."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def _job(self) -> tuple[SplitSource, StructType, list[list[Any]] | None, float]:
        job: tuple[SplitSource, StructType, list[list[Any]] | None, float]
        job = cloudpickle.loads(base64.b64decode(self.options["job"]))
        return job

    def schema(self) -> StructType:
        return self._job()[1]

    def reader(self, schema: StructType) -> _SplitReader:  # noqa: ARG002
        source, columns, tasks, seconds = self._job()
        return _SplitReader(source, columns.fieldNames(), tasks, seconds)


class _SplitReader(DataSourceReader):
    def __init__(self, source: SplitSource, columns: list[str], tasks: list[list[Any]] | None, seconds: float) -> None:
        self._source = source
        self._columns = columns
        self._tasks = tasks
        self._seconds = seconds

    def partitions(self) -> Sequence[InputPartition]:
        tasks = self._tasks
        if tasks is None:
            tasks = [[split] for split in self._enumerated()]
        return [_Task(splits) for splits in tasks or [[]]]

    def _enumerated(self) -> Sequence[Any]:
        source, context = self._source, ScanContext(1 << 30, _VOLUME)
        with set_timeout(self._seconds):
            request = f"asking {source.name} for its splits"
            return call_within_timeout(source.name, request, lambda: list(source.enumerate_splits(context)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Task)
        with set_timeout(self._seconds):
            for split in partition.splits:
                yield from self._source.read_split(split, self._columns)
