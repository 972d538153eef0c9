"""The results of finished vertices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.optimizer import ResultInfo
from penstock.spark.run import exchange, shuffle_statistics
from penstock.spark.run.exchange import BroadcastResult, StagedResult

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.graph import JobVertex, StreamEdge
    from penstock.spark.bridge.handles import PhysicalPlan
    from penstock.spark.plans.nodes import LogicalNode

log = logging.getLogger("penstock.scheduler")

Result = StagedResult | BroadcastResult


class Results(Protocol):
    """The results of finished vertices, by the last node of each vertex."""

    def get(self, node_id: int) -> Result | None:
        """Return the result, or None before the vertex has finished."""

    def staged(self, node_id: int) -> StagedResult:
        """Return the result, a `StagedResult` (of shuffle stages, no broadcast); the vertex must have finished."""


class NoResults:
    """Stand-in for the results and trial writes of a job that is only explained: there are none."""

    def get(self, node_id: int) -> None:
        """Return None."""

    def staged(self, node_id: int) -> StagedResult:
        """Raise: no vertex has finished."""
        raise LookupError(f"no vertex that ends with node {node_id} has run")

    def file_ratio(self, edge: StreamEdge) -> float:  # noqa: ARG002
        """Return 1: assume that files have as many bytes as the exchange."""
        return 1.0

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> None:
        """Return None: without a trial write, no number of tasks is recommended."""


class ResultStore:
    """The results of a job, by the last node of the vertex that wrote them."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._results: dict[int, Result] = {}

    def add(self, node_id: int, result: Result) -> None:
        """Register the result of the vertex that ends with a node."""
        self._results[node_id] = result

    def get(self, node_id: int) -> Result | None:
        """Return the result of the vertex that ends with a node, or None before it has finished."""
        return self._results.get(node_id)

    def finished(self, node_id: int) -> Result:
        """Return the result of the vertex that ends with a node; it must have finished."""
        return self._results[node_id]

    def staged(self, node_id: int) -> StagedResult:
        """Return the result of the vertex that ends with a node; it must have finished, and not be a broadcast."""
        result = self._results[node_id]
        assert isinstance(result, StagedResult)
        return result

    def result_info(self, vertex: JobVertex) -> ResultInfo | None:
        """Return the measured figures of a finished vertex's result, for strategies; None for a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return None
        scanned = self.scanned_rows(vertex)
        if isinstance(result, BroadcastResult):
            return ResultInfo(np.array([result.data_bytes]), result.rows, result.size_in_bytes, scanned=scanned)
        bytes_by_writer = result.mapper_bytes if len(result.stages) == 1 else None  # else only the total is measured
        return ResultInfo(result.sizes[0], result.rows, result.size_in_bytes, bytes_by_writer, scanned)

    def subpartition_bytes(self, vertex: JobVertex) -> list[int]:
        """Return the bytes of each subpartition of a vertex, or a total (broadcast, several stages); [] for a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return []
        return [result.data_bytes] if isinstance(result, BroadcastResult) else result.sizes[0].tolist()

    def release(self) -> None:
        """Release all results, so that Spark can clean up their shuffle files."""
        self._results.clear()

    def scanned_rows(self, vertex: JobVertex) -> dict[int, int]:
        """Return the number of rows read from each source of a finished vertex, by node id, if its scan counts rows."""
        rows: dict[int, int] = {}
        try:
            self._count_rows(vertex, rows, shuffle_statistics.scanned_rows)
        except Exception:
            log.info("the scans of %s do not report their rows", vertex.name, exc_info=True)
        return rows

    def retained_rows(self, vertex: JobVertex) -> dict[int, int]:
        """Return how many rows of each source of a finished vertex passed the filters directly above it, by node id."""
        rows: dict[int, int] = {}
        self._count_rows(vertex, rows, shuffle_statistics.filtered_rows)
        return rows

    def _count_rows(
        self,
        vertex: JobVertex,
        rows: dict[int, int],
        count: Callable[[PhysicalPlan, Mapping[int, LogicalNode]], dict[int, int]],
    ) -> None:
        """Add the counts of sources to `rows`, unless a task may have been rerun: its scans then counted rows twice."""
        sources, result = self._context.plan.sources, self._results.get(vertex.tail_id)
        leaves = {node_id: sources[node_id].leaf for node_id in vertex.node_ids if node_id in sources}
        if result is not None and leaves and result.is_counted_once:
            for plan in exchange.executed_plans(result):
                rows |= count(plan, leaves)
