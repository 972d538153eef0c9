"""What one task of the format ``penstock_kafka`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.kafka.offsets import OffsetRange
    from penstock.connectors.kafka.source import KafkaSource


class TaskRanges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(None)
        self.ranges = ranges


def read_task(source: KafkaSource, partition: InputPartition) -> Iterator[Any]:
    """Iterate over the rows of a task, range after range, each in order.

    Every range has a connection of its own: one that is given to another range waits for what it asked for before.
    """
    assert isinstance(partition, TaskRanges)
    for one in partition.ranges:
        yield from source.read_split(one, source.schema.fieldNames())
