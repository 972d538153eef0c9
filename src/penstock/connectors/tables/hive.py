"""Scans of tables that Spark reads through Hive: Hive's splits can be coalesced, but not divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.core.scan import Scan
from penstock.connectors.core.splits import OPEN_COST, count_splits
from penstock.spark.io.hive import HiveRelation

if TYPE_CHECKING:
    from penstock.connectors.core.base import ParallelismInferenceContext
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan


class HiveScan(Scan):
    """The scan of a table: `leaf` is the table's node in a plan, and `plan` this node with all filters above it."""

    def __init__(self, leaf: LogicalPlan, plan: LogicalPlan) -> None:
        self._leaf = leaf
        self._relation = HiveRelation(leaf, plan)
        self._parallelism = 0

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._relation.name

    @property
    def options(self) -> Mapping[str, str]:
        """The properties of the table (TBLPROPERTIES), with lower-case keys."""
        return self._relation.options

    @property
    def reason(self) -> str:
        """A clause with the number of the table's partitions that are read, and their size."""
        sizes = self._relation.sizes
        return f"{show_count(len(sizes), 'partition')} of the table, {show_bytes(sum(sizes))} in total"

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the table's partitions that are read."""
        return sum(self._relation.sizes)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of tasks at the volume per task, limited by the upper bound and the number of splits."""
        sizes = self._relation.sizes
        by_volume = count_splits(sizes, [True] * len(sizes), context.data_volume_per_task, OPEN_COST)
        return min(by_volume, context.parallelism_inference_upper_bound, self._relation.tasks)

    def divide(self, parallelism: int) -> int:
        """Coalesce Hive's splits to at most `parallelism` tasks; return the number of tasks."""
        self._parallelism = min(parallelism, self._relation.tasks)
        return self._parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Return the relation with the partitions that are read, and its splits coalesced."""
        if self._parallelism < self._relation.tasks:
            return self._relation.leaf.coalesced(self._parallelism)
        return self._relation.leaf

    def with_filters(self, plan: LogicalPlan) -> HiveScan:
        """Return a scan of the table's partitions that remain after additional filters."""
        return HiveScan(self._leaf, plan)
