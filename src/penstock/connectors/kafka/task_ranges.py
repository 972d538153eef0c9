"""Input partitions of the data source ``penstock_kafka``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.kafka.offsets import OffsetRange
    from penstock.connectors.kafka.source import KafkaSource


class TaskRanges(InputPartition):
    """The ranges that a task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


def read_task(source: KafkaSource, partition: InputPartition) -> Iterator[Any]:
    """Yield the rows of a task, range after range, each in order.

    Each range has its own connection: a reassigned consumer first waits for outstanding responses of the old range.
    """
    assert isinstance(partition, TaskRanges)
    for offset_range in partition.ranges:
        yield from source.read_split(offset_range, source.schema.fieldNames())
