"""A query that Spark runs as it is, as a source of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.scan_parallelism import ScanOptions
from penstock.planner.plan import SourcePlan
from penstock.spark import catalyst
from penstock.spark.whole import spark_rows

if TYPE_CHECKING:
    from penstock.connectors.base import ParallelismInferenceContext
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


class SparkQuery:
    """What a query gives when Spark plans it under the user's own settings; its tasks are left as they are.

    Parameters
    ----------
    bridge
        The session.
    plan
        The optimised plan in the JVM.
    reason
        Why Spark has to run it.
    """

    uses_predicates = False

    def __init__(self, bridge: Bridge, plan: Any, reason: str) -> None:
        self._bridge = bridge
        self._plan = plan
        self.reason = reason

    @property
    def size_in_bytes(self) -> int:
        """What the leaves hold, by Spark's estimates."""
        return catalyst.leaf_bytes(self._plan)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Give no answer."""
        del context
        return 0

    def cut(self, parallelism: int) -> int:
        """Change nothing."""
        return parallelism

    def leaf(self) -> Any:
        """Run the query but for its last stage; return that as a leaf."""
        return spark_rows(self._bridge, self._plan)

    def close(self) -> None:
        """Nothing is held open."""


def spark_query(bridge: Bridge, leaf: LogicalNode, reason: str) -> SourcePlan:
    """Return the source of a leaf that stands for a whole query."""
    query = SparkQuery(bridge, leaf.handle, reason)
    return SourcePlan(leaf, SourceCoordinator("Spark's own query", None), ScanOptions(), None, None, 0, leaf, query)
