"""A `SplitSource` as a format of Spark (a Python Data Source)."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.connectors.base import ScanContext
from penstock.connectors.timeouts import answered, timeout, timeout_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.connectors.split_source import SplitSource

_FORMAT = "penstock_splits"
_VOLUME = 16 << 20


def scan(spark: SparkSession, source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> DataFrame:
    """Return the rows of splits.

    Parameters
    ----------
    tasks
        The splits of each task; None to ask the source for them when the query runs.
    """
    spark.dataSource.register(_SplitFormat)
    return spark.read.format(_FORMAT).option("job", _told(source, columns, tasks)).load()


def read_without_spark(source: SplitSource, columns: list[str], tasks: list[list[Any]]) -> Iterator[Any]:
    """Return the batches of all tasks, read by the code that Spark's workers run, from what they are told."""
    for splits in tasks:
        worker = _SplitFormat({"job": _told(source, columns, [splits])})
        reader = worker.reader(worker.schema())
        for partition in reader.partitions():
            yield from reader.read(partition)


def _told(source: SplitSource, columns: list[str], tasks: list[list[Any]] | None) -> str:
    """Return what Spark's workers are told of a scan."""
    whole = source.schema  # told here: there is no session to parse one with in tasks
    schema = type(whole)([whole[name] for name in columns])
    told = source, schema, tasks, timeout()
    return base64.b64encode(cloudpickle.dumps(told)).decode()  # type: ignore[no-untyped-call]


class _Task(InputPartition):
    """The splits of one task."""

    def __init__(self, splits: list[Any]) -> None:
        super().__init__(None)
        self.splits = splits


class _SplitFormat(DataSource):
    """A `SplitSource` as Spark calls it, in a Python worker."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def _job(self) -> tuple[SplitSource, StructType, list[list[Any]] | None, float]:
        found: tuple[SplitSource, StructType, list[list[Any]] | None, float]
        found = cloudpickle.loads(base64.b64decode(self.options["job"]))
        return found

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
        with timeout_of(self._seconds):
            what = f"asking {source.name} for its splits"
            return answered(source.name, what, lambda: list(source.enumerate_splits(context)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Task)
        with timeout_of(self._seconds):
            for split in partition.splits:
                yield from self._source.read_split(split, self._columns)
