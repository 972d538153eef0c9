"""Tables of the Hive metastore in formats that only Hive reads: their tasks can be merged, not cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.scan import Scan
from penstock.connectors.splits import OPEN_COST, count_splits
from penstock.spark.hive import HiveRelation
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import ParallelismInferenceContext
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


class HiveScan(Scan):
    """A scan whose tasks are merged to the decided number.

    Parameters
    ----------
    leaf, plan
        The table, and what is read of it.
    """

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
        """The options of the table."""
        return self._relation.options

    @property
    def reason(self) -> str:
        """What the metastore says."""
        sizes = self._relation.sizes
        return f"{show_count(len(sizes), 'partition')} of {show_bytes(sum(sizes))} by the metastore's statistics"

    @property
    def size_in_bytes(self) -> int:
        """The bytes of what is read."""
        return sum(self._relation.sizes)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits of the volume per task, at most the bound and what Hive's input format gives."""
        sizes = self._relation.sizes
        wanted = count_splits(sizes, [True] * len(sizes), context.data_volume_per_task, OPEN_COST)
        return min(wanted, context.parallelism_inference_upper_bound, self._relation.tasks)

    def cut(self, parallelism: int) -> int:
        """Merge tasks to at most so many."""
        self._parallelism = min(parallelism, self._relation.tasks)
        return self._parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the relation, its partitions pruned and its tasks merged."""
        del session
        if self._parallelism < self._relation.tasks:
            return self._relation.leaf.coalesced(self._parallelism)
        return self._relation.leaf

    def with_filters(self, plan: LogicalPlan) -> HiveScan:
        """Return a scan of the partitions that are left by more filters."""
        return HiveScan(self._leaf, plan)
