"""Wrappers of Spark's logical plans; the module `nodes` reads many properties of a plan in a single JVM call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from penstock.spark.bridge.handles import JvmObject
from penstock.spark.bridge.jvm import EXPRESSIONS, LOGICAL, PHYSICAL, class_name
from penstock.spark.plans.expressions import Attributes, Expression

MAX_ESTIMATE_BYTES = 1 << 62
"""Upper limit of size estimates; an estimate of this size means that the size is unknown."""


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
        """Spark's estimate of the output bytes, at most `MAX_ESTIMATE_BYTES`."""
        size = self._handle.stats().sizeInBytes()
        return min(int(size.toString()) if not isinstance(size, int) else size, MAX_ESTIMATE_BYTES)

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
        """Hash-partition the rows by keys (``RepartitionByExpression``)."""
        count, advisory_size = self._bridge.some(subpartitions), self._bridge.none
        return self._with("RepartitionByExpression", self._bridge.seq(keys), self._handle, count, advisory_size)

    def hashed_in_slots(
        self, keys: Sequence[Expression], spread_by: Sequence[Expression], subpartitions: int, slots: int
    ) -> LogicalPlan:
        """Hash the rows by keys into subpartitions; each consists of `slots` partitions of Spark (since Spark 4.1).

        The slot of a row depends only on its values of `spread_by`, so that a retried task writes it to the same slot.
        """
        bridge = self._bridge
        hashing = bridge.find(PHYSICAL + "HashPartitioning")
        subpartition = hashing(bridge.seq(keys), subpartitions).partitionIdExpression()
        slot = hashing(bridge.seq(spread_by), slots).partitionIdExpression()
        literal = bridge.companion(EXPRESSIONS + "Literal").fromSQL(str(slots))
        first_slot = bridge.find(EXPRESSIONS + "Multiply")(subpartition, literal)
        number = bridge.find(EXPRESSIONS + "Add")(first_slot, slot)
        index = bridge.find(EXPRESSIONS + "DirectShufflePartitionID")(number)
        return self.hashed_by([Expression(bridge, index)], subpartitions * slots)

    def rebalanced(self, subpartitions: int) -> LogicalPlan:
        """Distribute the rows round-robin (``Repartition``)."""
        return self._with("Repartition", subpartitions, True, self._handle)

    def coalesced(self, partitions: int) -> LogicalPlan:
        """Merge partitions without a shuffle (``Repartition``)."""
        return self._with("Repartition", partitions, False, self._handle)

    def _with(self, operator: str, *arguments: Any) -> LogicalPlan:
        return LogicalPlan(self._bridge, self._bridge.find(LOGICAL + operator)(*arguments))


LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail", "GlobalLimitAndOffset"})


def split_limits(plan: LogicalPlan) -> tuple[tuple[LogicalPlan, ...], LogicalPlan]:
    """Return the limits that a plan ends with, the topmost first, and the plan below them.

    Spark applies these limits while it collects the rows: it reads partition by partition until it has enough rows
    (``CollectLimitExec.executeTake``), and does not compute the remaining partitions. It does so only if the query
    *ends* with a limit: once a plan runs as an RDD, all partitions are computed. Limits above a sort are not split off:
    for them, Spark runs all tasks and retains the first rows of each.
    """
    limits, below = [], plan
    while below.kind in LIMITS:
        limits.append(below)
        below = _input(below)
    possible_sort = _input(below) if below.kind == "Project" else below
    return ((), plan) if possible_sort.kind == "Sort" else (tuple(limits), below)


def _input(plan: LogicalPlan) -> LogicalPlan:
    return LogicalPlan(plan._bridge, plan._handle.children().head())


def with_limits(limits: Sequence[LogicalPlan], plan: LogicalPlan) -> LogicalPlan:
    """Return a plan with limits on top; the topmost limit is the first."""
    for limit in reversed(limits):
        plan = limit.with_children([plan])
    return plan
