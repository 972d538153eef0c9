"""Estimates the input size of a node before its vertex runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph.partitioner import BroadcastPartitioner
from penstock.spark.exchange import StagedResult
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.planner.plan import JobPlan


def total(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes, None if any of them is unknown."""
    sizes = list(sizes)
    return None if None in sizes else sum(filter(None, sizes))


@dataclass(frozen=True, slots=True)
class InputEstimate:
    """The estimated size of what flows into a node.

    Parameters
    ----------
    bytes
        The sum of the sizes that are available, 0 if none is.
    is_complete
        Whether every source reports its size.
    """

    bytes: int = 0
    is_complete: bool = True

    def __add__(self, other: InputEstimate) -> InputEstimate:
        return InputEstimate(self.bytes + other.bytes, self.is_complete and other.is_complete)

    def __str__(self) -> str:
        if self.is_complete:
            return f"{show_bytes(self.bytes)} of input"
        return f"at least {show_bytes(self.bytes)} of input" if self.bytes else "input of unknown size"


class InputEstimates:
    """Estimates input sizes from the results of finished vertices, and from the sizes of sources."""

    def __init__(self, plan: JobPlan, owner: GraphOwner, results: Results) -> None:
        self._plan = plan
        self._owner = owner
        self._results = results

    def written(self, node_id: int) -> int | None:
        """Return the bytes that a finished node has written, None if nothing was written or measured."""
        result = self._results.get(node_id)
        return int(result.sizes.sum()) if isinstance(result, StagedResult) and result.stages else None

    def before(self, node_id: int) -> InputEstimate:
        """Return the size of what flows into a node: measured where available, else the sizes of its sources."""
        graph = self._owner.graph
        estimate, todo, seen = InputEstimate(), [node_id], {node_id}
        while todo:
            current = todo.pop()
            written = self.written(current)
            if written is not None:
                estimate += InputEstimate(written)
                continue
            if current in self._plan.sources:
                size = self._plan.sources[current].scan.size_in_bytes
                estimate += InputEstimate(is_complete=False) if size is None else InputEstimate(size)
            for edge in graph.in_edges(current):
                if edge.source_id not in seen and not isinstance(edge.partitioner, BroadcastPartitioner):
                    seen.add(edge.source_id)
                    todo.append(edge.source_id)
        return estimate
