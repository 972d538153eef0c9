"""A query that Spark runs unchanged, as a source of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.scan import Scan
from penstock.connectors.scan_parallelism import ScanOptions
from penstock.planner.plan import SourcePlan
from penstock.spark import catalyst
from penstock.spark.logical_plan import LARGE
from penstock.spark.spark_rows import spark_rows

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


WHOLE_QUERY = "Query"
"""The name of a leaf that represents a whole query."""


class SparkQuery(Scan):
    """The rows of a query that Spark plans under the settings of the user, with its own tasks; and the reason."""

    def __init__(self, plan: LogicalPlan, reason: str) -> None:
        self._plan = plan
        self._reason = reason

    @property
    def name(self) -> str:
        """The display name."""
        return "Spark's own query"

    @property
    def reason(self) -> str:
        """Why Spark must run the query."""
        return self._reason

    @property
    def is_cut_by_spark(self) -> bool:
        """Yes: Spark plans the query."""
        return True

    @property
    def size_in_bytes(self) -> int | None:
        """Spark's estimate of the bytes of all leaves, or None if a leaf has none."""
        size = catalyst.leaf_bytes(self._plan)
        return size if size < LARGE else None

    def parallelism_source(self, user_source: object | None) -> None:
        """Return nothing: its tasks are Spark's."""
        del user_source

    def divide(self, parallelism: int) -> int:
        """Change nothing."""
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run all stages of the query but the last; return the last stage as a leaf."""
        del session
        return spark_rows(self._plan)

    def with_filters(self, plan: LogicalPlan) -> SparkQuery:
        """Return itself: nothing filters it further."""
        del plan
        return self


def query_source(leaf: LogicalNode, query: SparkQuery) -> SourcePlan:
    """Return the source of a leaf that represents a whole query."""
    return SourcePlan(leaf, SourceCoordinator(query.name, None), ScanOptions(), None, leaf, query)
