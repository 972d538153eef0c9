"""Logical plans as wrappers for the other packages; `plans` has the properties that are read in a single call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark.expressions import Attributes
from penstock.spark.handles import JvmObject
from penstock.spark.jvm import EXPRESSIONS, LOGICAL, PHYSICAL, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.expressions import Expression

LARGE = 1 << 62


@dataclass(frozen=True, eq=False)
class LogicalPlan(JvmObject):
    """A logical plan. Its methods return new plans; the ids of columns do not change."""

    @cached_property
    def kind(self) -> str:
        """The simple class name, such as ``Join``."""
        return class_name(self._handle)

    @property
    def output(self) -> Attributes:
        """The output columns."""
        return Attributes(self._bridge, self._handle.output())

    @property
    def size_in_bytes(self) -> int:
        """Spark's estimate of the output bytes, capped at 2**62."""
        size = self._handle.stats().sizeInBytes()
        return min(int(size.toString()) if not isinstance(size, int) else size, LARGE)

    def with_children(self, children: Sequence[LogicalPlan]) -> LogicalPlan:
        """Return the operator on top of other inputs."""
        return LogicalPlan(self._bridge, self._handle.withNewChildren(self._bridge.seq(children)))

    def projected(self, columns: Attributes) -> LogicalPlan:
        """Keep some columns (``Project``)."""
        return LogicalPlan(self._bridge, self._bridge.find(LOGICAL + "Project")(columns, self._handle))

    def filtered_by(self, conditions: Sequence[Expression]) -> LogicalPlan:
        """Keep the rows that meet all conditions (``Filter``)."""
        if not conditions:
            return self
        bridge = self._bridge
        conjunction = conditions[0]._handle
        for part in conditions[1:]:
            conjunction = bridge.find(EXPRESSIONS + "And")(conjunction, part)
        return LogicalPlan(bridge, bridge.find(LOGICAL + "Filter")(conjunction, self._handle))

    def hashed_by(self, keys: Sequence[Expression], subpartitions: int) -> LogicalPlan:
        """Hash the rows by keys (``RepartitionByExpression``)."""
        bridge = self._bridge
        optional = bridge.some(subpartitions), bridge.none
        return LogicalPlan(
            bridge, bridge.find(LOGICAL + "RepartitionByExpression")(bridge.seq(keys), self._handle, *optional)
        )

    def hashed_in_slots(
        self, keys: Sequence[Expression], spread_by: Sequence[Expression], subpartitions: int, slots: int
    ) -> LogicalPlan:
        """Hash the rows by keys into subpartitions of several slots each.

        The slot of a row depends only on its values, so that a repeated task writes it to the same slot.
        Uses ``DirectShufflePartitionID`` and ``HashPartitioning.partitionIdExpression`` (since Spark 4.1).
        """
        bridge = self._bridge
        hashing = bridge.find(PHYSICAL + "HashPartitioning")
        subpartition = hashing(bridge.seq(keys), subpartitions).partitionIdExpression()
        slot = hashing(bridge.seq(spread_by), slots).partitionIdExpression()
        first = bridge.find(EXPRESSIONS + "Multiply")(
            subpartition, bridge.companion(EXPRESSIONS + "Literal").fromSQL(str(slots))
        )
        slot_index = bridge.find(EXPRESSIONS + "DirectShufflePartitionID")(
            bridge.find(EXPRESSIONS + "Add")(first, slot)
        )
        optional = bridge.some(subpartitions * slots), bridge.none
        return LogicalPlan(
            bridge, bridge.find(LOGICAL + "RepartitionByExpression")(bridge.seq([slot_index]), self._handle, *optional)
        )

    def rebalanced(self, subpartitions: int) -> LogicalPlan:
        """Distribute the rows round-robin (``Repartition``)."""
        return self._repartitioned(subpartitions, shuffles=True)

    def coalesced(self, partitions: int) -> LogicalPlan:
        """Merge partitions without a shuffle (``Repartition``)."""
        return self._repartitioned(partitions, shuffles=False)

    def _repartitioned(self, partitions: int, *, shuffles: bool) -> LogicalPlan:
        bridge = self._bridge
        return LogicalPlan(bridge, bridge.find(LOGICAL + "Repartition")(partitions, shuffles, self._handle))
