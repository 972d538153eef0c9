"""What the repartitions of a logical plan want."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.expressions import Expression
from penstock.spark.jvm import items, option

if TYPE_CHECKING:
    from penstock.spark.plans import LogicalNode


def shuffles(node: LogicalNode) -> bool:
    """Whether a ``Repartition`` moves rows, other than ``coalesce``."""
    return bool(node._handle.shuffle())


def partitions_of(node: LogicalNode) -> int:
    """Return how many partitions a ``Repartition`` or a ``RepartitionByExpression`` gives."""
    return int(node._handle.numPartitions())


def wanted_partitions(node: LogicalNode) -> int | None:
    """Return how many partitions a user asked a ``RepartitionByExpression`` for, None where that is left to Spark."""
    number = option(node._handle.optNumPartitions())
    return None if number is None else int(number)


def partition_keys(node: LogicalNode) -> list[Expression]:
    """Return the expressions by which rows are moved; those of a range are of the kind ``SortOrder``."""
    return [Expression(node._bridge, key) for key in items(node._handle.partitionExpressions())]
