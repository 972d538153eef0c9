"""A query that Spark runs as it is, as a source of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.scan import Scan
from penstock.connectors.scan_parallelism import ScanOptions
from penstock.planner.plan import SourcePlan
from penstock.spark import catalyst
from penstock.spark.logical_plan import LARGE
from penstock.spark.whole import spark_rows

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


WHOLE_QUERY = "Query"
"""The name of a leaf that stands for a whole query."""


class SparkQuery(Scan):
    """What a query gives when Spark plans it under the user's own settings; its tasks are left as they are.

    Parameters
    ----------
    plan
        The optimised plan.
    reason
        Why Spark has to run it.
    """

    def __init__(self, plan: LogicalPlan, reason: str) -> None:
        self._plan = plan
        self._reason = reason

    @property
    def name(self) -> str:
        """What people call it."""
        return "Spark's own query"

    @property
    def reason(self) -> str:
        """Why Spark has to run it."""
        return self._reason

    @property
    def is_cut_by_spark(self) -> bool:
        """Yes: Spark plans the query."""
        return True

    @property
    def size_in_bytes(self) -> int | None:
        """What the leaves hold, by Spark's estimates; None if there is none of some leaf."""
        size = catalyst.leaf_bytes(self._plan)
        return size if size < LARGE else None

    def asked(self, given: object | None) -> None:
        """Return nothing: its tasks are Spark's."""
        del given

    def cut(self, parallelism: int) -> int:
        """Change nothing."""
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run the query but for its last stage; return that as a leaf."""
        del session
        return spark_rows(self._plan)

    def with_filters(self, plan: LogicalPlan) -> SparkQuery:
        """Return itself: nothing filters it further."""
        del plan
        return self


def query_source(leaf: LogicalNode, query: SparkQuery) -> SourcePlan:
    """Return the source of a leaf that stands for a whole query."""
    return SourcePlan(leaf, SourceCoordinator(query.name, None), ScanOptions(), None, leaf, query)
