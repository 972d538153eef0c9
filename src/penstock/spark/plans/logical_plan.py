"""Logical plans as wrappers for the other packages; `plans` has the properties that are read in a single call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import JvmObject
from penstock.spark.bridge.jvm import EXPRESSIONS, LOGICAL, PHYSICAL, class_name
from penstock.spark.plans.expressions import Attributes, Expression

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        return self._with("Project", columns, self._handle)

    def filtered_by(self, conditions: Sequence[Expression]) -> LogicalPlan:
        """Keep the rows that meet all conditions (``Filter``)."""
        if not conditions:
            return self
        conjunction = reduce(self._bridge.find(EXPRESSIONS + "And"), conditions)
        return self._with("Filter", conjunction, self._handle)

    def hashed_by(self, keys: Sequence[Expression], subpartitions: int) -> LogicalPlan:
        """Hash the rows by keys (``RepartitionByExpression``)."""
        optional = self._bridge.some(subpartitions), self._bridge.none
        return self._with("RepartitionByExpression", self._bridge.seq(keys), self._handle, *optional)

    def hashed_in_slots(
        self, keys: Sequence[Expression], spread_by: Sequence[Expression], subpartitions: int, slots: int
    ) -> LogicalPlan:
        """Hash the rows by keys into subpartitions of several slots each (since Spark 4.1).

        The slot of a row depends only on its values, so that a repeated task writes it to the same slot.
        """
        bridge = self._bridge
        hashing = bridge.find(PHYSICAL + "HashPartitioning")
        subpartition = hashing(bridge.seq(keys), subpartitions).partitionIdExpression()
        slot = hashing(bridge.seq(spread_by), slots).partitionIdExpression()
        literal = bridge.companion(EXPRESSIONS + "Literal").fromSQL(str(slots))
        first = bridge.find(EXPRESSIONS + "Multiply")(subpartition, literal)
        index = bridge.find(EXPRESSIONS + "DirectShufflePartitionID")(bridge.find(EXPRESSIONS + "Add")(first, slot))
        return self.hashed_by([Expression(bridge, index)], subpartitions * slots)

    def rebalanced(self, subpartitions: int) -> LogicalPlan:
        """Distribute the rows round-robin (``Repartition``)."""
        return self._with("Repartition", subpartitions, True, self._handle)

    def coalesced(self, partitions: int) -> LogicalPlan:
        """Merge partitions without a shuffle (``Repartition``)."""
        return self._with("Repartition", partitions, False, self._handle)

    def _with(self, operator: str, *arguments: Any) -> LogicalPlan:
        return LogicalPlan(self._bridge, self._bridge.find(LOGICAL + operator)(*arguments))
