"""Spark data source ``penstock_kafka``, for Structured Streaming and for batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from penstock.connectors.kafka.offsets import assign_ranges
from penstock.connectors.kafka.reader_options import FORMAT, bounds_of, source_of
from penstock.connectors.kafka.stream_reader import KafkaStreamReader
from penstock.connectors.kafka.task_ranges import TaskRanges, read_task
from penstock.connectors.micro_batches import decide_tasks
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from penstock.connectors.kafka.source import KafkaSource
    from penstock.connectors.micro_batches import BatchBounds


class KafkaFormat(DataSource):
    """The data source, with the option names of Spark's own Kafka source.

    The options are ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets`` (earliest or latest), and any
    ``kafka.`` property of librdkafka. The number of tasks follows the backlog, and hot partitions are split.
    ``scan.parallelism`` sets the number of tasks, and ``scan.infer-parallelism.max`` limits it. In a stream,
    ``scan.batch-interval`` sizes batches by the measured pace, and ``maxOffsetsPerTrigger`` limits them (both from
    Spark 4.2 on). Register the data source with ``spark.dataSource.register(KafkaFormat)``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source."""
        return source_of(self.options).schema

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of a batch query."""
        return _BatchReader(source_of(self.options), bounds_of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of a streaming query."""
        bounds = bounds_of(self.options)
        limits = {"maxOffsetsPerTrigger": bounds.most_records, "scan.batch-interval": bounds.interval}
        ignored = [key for key, value in limits.items() if value is not None]
        if ignored and not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
            raise SourceError(
                f"{FORMAT}: {ignored[0]} would be ignored",
                cause="before Spark 4.2 a batch of a Python data source reads everything there is",
                hint="leave the option out, or use Spark 4.2",
            )
        return KafkaStreamReader(source_of(self.options), bounds)


class _BatchReader(DataSourceReader):
    def __init__(self, source: KafkaSource, bounds: BatchBounds) -> None:
        self._source = source
        self._bounds = bounds

    def partitions(self) -> Sequence[InputPartition]:
        ranges = self._source.ranges()
        tasks, _ = decide_tasks(sum(r.backlog for r in ranges), len(ranges), self._bounds)
        return [TaskRanges(task_ranges) for task_ranges in assign_ranges(ranges, tasks)] or [TaskRanges([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_task(self._source, partition)
