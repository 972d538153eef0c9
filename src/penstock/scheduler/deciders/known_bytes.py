"""How many bytes are known to flow into a node before its vertex runs."""

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
    """Return the sum of sizes, None if one of them is not known."""
    known = list(sizes)
    return None if None in known else sum(filter(None, known))


@dataclass(frozen=True, slots=True)
class Known:
    """The bytes that flow into a node, as far as they are known.

    Parameters
    ----------
    bytes
        What is known, 0 if nothing is.
    is_all
        Whether that is all: no source keeps its size to itself.
    """

    bytes: int = 0
    is_all: bool = True

    def __add__(self, other: Known) -> Known:
        return Known(self.bytes + other.bytes, self.is_all and other.is_all)

    def __str__(self) -> str:
        if self.is_all:
            return f"{show_bytes(self.bytes)} of input"
        return f"at least {show_bytes(self.bytes)} of input" if self.bytes else "input of unknown size"


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

    def written(self, node_id: int) -> int | None:
        """Return the bytes that a finished node has written, None if it has written nothing that was measured."""
        result = self._results.get(node_id)
        return int(result.sizes.sum()) if isinstance(result, StagedResult) and result.stages else None

    def before(self, node_id: int) -> Known:
        """Return the bytes known to flow into a node: measured ones where they are, else what its sources hold."""
        graph = self._owner.graph
        found, todo, seen = Known(), [node_id], {node_id}
        while todo:
            current = todo.pop()
            written = self.written(current)
            if written is not None:
                found += Known(written)
                continue
            if current in self._plan.sources:
                size = self._plan.sources[current].scan.size_in_bytes
                found += Known(is_all=False) if size is None else Known(size)
            for edge in graph.in_edges(current):
                if edge.source_id not in seen and not isinstance(edge.partitioner, BroadcastPartitioner):
                    seen.add(edge.source_id)
                    todo.append(edge.source_id)
        return found
