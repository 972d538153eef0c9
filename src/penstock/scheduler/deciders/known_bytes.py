"""How many bytes are known to flow into a node before its vertex runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph.partitioner import BroadcastPartitioner
from penstock.spark.exchange import StagedResult

if TYPE_CHECKING:
    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.planner.plan import JobPlan


class KnownBytes:
    """Adds up what finished vertices have written, and what sources hold.

    Parameters
    ----------
    plan, owner
        The job's plan, and who has its graph.
    results
        What finished vertices have written.
    """

    def __init__(self, plan: JobPlan, owner: GraphOwner, results: Results) -> None:
        self._plan = plan
        self._owner = owner
        self._results = results

    def written(self, node_id: int) -> int:
        """Return the bytes that a finished node has written, 0 before it has."""
        result = self._results.get(node_id)
        return int(result.sizes.sum()) if isinstance(result, StagedResult) else 0

    def before(self, node_id: int) -> int:
        """Return the bytes known to flow into a node: measured ones where they are, else what its sources hold."""
        graph = self._owner.graph
        total, todo, seen = 0, [node_id], {node_id}
        while todo:
            current = todo.pop()
            result = self._results.get(current)
            if isinstance(result, StagedResult) and result.stages:
                total += int(result.sizes.sum())
                continue
            if current in self._plan.sources:
                total += self._plan.sources[current].scan.size_in_bytes
            for edge in graph.in_edges(current):
                if edge.source_id not in seen and not isinstance(edge.partitioner, BroadcastPartitioner):
                    seen.add(edge.source_id)
                    todo.append(edge.source_id)
        return total
