"""What finished vertices have written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.optimizer import ResultInfo
from penstock.spark import exchange, stage_figures
from penstock.spark.exchange import BroadcastResult, StagedResult

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.graph import JobVertex, StreamEdge

log = logging.getLogger("penstock.scheduler")

Result = StagedResult | BroadcastResult


class Results(Protocol):
    """What finished vertices have written, by the node that ends the vertex."""

    def get(self, node_id: int) -> Result | None:
        """Return it, or None before the vertex has finished."""

    def staged(self, node_id: int) -> StagedResult:
        """Return the stages that were written; the vertex must have finished."""


class NothingWritten:
    """The results of a job that does not run, and the files of its sinks."""

    def get(self, node_id: int) -> None:
        """Return None."""
        del node_id

    def staged(self, node_id: int) -> StagedResult:
        """Fail: nobody asks where nothing has finished."""
        raise LookupError(f"no vertex that ends with node {node_id} has run")

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return 1: as many bytes on disk as were exchanged."""
        del edge
        return 1.0

    def write_first(self, vertex: JobVertex, edge: StreamEdge) -> None:
        """Write nothing: no number of tasks is measured."""
        del vertex, edge


class ResultStore:
    """The results of one job, by the node that ends the vertex which wrote them.

    Parameters
    ----------
    context
        The job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._results: dict[int, Result] = {}

    def add(self, node_id: int, result: Result) -> None:
        """Register what the vertex that ends with a node has written."""
        self._results[node_id] = result

    def get(self, node_id: int) -> Result | None:
        """Return what the vertex that ends with a node has written, or None before it has finished."""
        return self._results.get(node_id)

    def finished(self, node_id: int) -> Result:
        """Return what the vertex that ends with a node has written; it must have finished."""
        return self._results[node_id]

    def staged(self, node_id: int) -> StagedResult:
        """Return the stages that the vertex that ends with a node has written; it must have finished."""
        result = self._results[node_id]
        assert isinstance(result, StagedResult)
        return result

    def info(self, vertex: JobVertex) -> ResultInfo | None:
        """Return what a finished vertex has written, for strategies; None of a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return None
        scanned = self._scanned(vertex, result)
        if isinstance(result, BroadcastResult):
            return ResultInfo(np.array([result.data_bytes]), result.rows, result.size_in_bytes, scanned=scanned)
        mappers = result.mapper_bytes if len(result.stages) == 1 else None
        return ResultInfo(result.sizes[0], result.rows, result.size_in_bytes, mappers, scanned)

    def subpartitions(self, vertex: JobVertex) -> list[int]:
        """Return the bytes of each subpartition that a finished vertex has written; none of a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return []
        return [result.data_bytes] if isinstance(result, BroadcastResult) else result.sizes[0].tolist()

    def release(self) -> None:
        """Forget all results, so that Spark can clean their shuffle files."""
        self._results.clear()

    def scanned(self, vertex: JobVertex) -> dict[int, int]:
        """Return the rows that were read from the sources of a finished vertex, as far as their scans have counted."""
        result = self._results.get(vertex.tail_id)
        return {} if result is None else self._scanned(vertex, result)

    def kept(self, vertex: JobVertex) -> dict[int, int]:
        """Return the rows of the sources of a finished vertex that the filters right above them have kept."""
        sources, result = self._context.plan.sources, self._results.get(vertex.tail_id)
        leaves = {n: sources[n].leaf for n in vertex.node_ids if n in sources}
        found: dict[int, int] = {}
        if result is None or not result.is_counted_once or not leaves:
            return found
        for plan in exchange.plans_run(result):
            found |= stage_figures.filtered_rows(plan, leaves)
        return found

    def _scanned(self, vertex: JobVertex, result: Result) -> dict[int, int]:
        """Return the rows that were read from the sources of a vertex, as far as their scans have counted them.

        Where a task may have run again, its scans have counted twice.
        """
        sources = self._context.plan.sources
        leaves = {n: sources[n].leaf for n in vertex.node_ids if n in sources}
        found: dict[int, int] = {}
        try:
            for plan in exchange.plans_run(result) if leaves and result.is_counted_once else ():
                found |= stage_figures.scanned_rows(plan, leaves)
        except Exception:
            log.info("the scans of %s do not tell their rows", vertex.name, exc_info=True)
        return found
