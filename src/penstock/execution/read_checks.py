"""Checks that a vertex reads every row of its inputs and sources exactly once (``execution.verify``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import CountableSplits
from penstock.execution.reads import CoalescedRead, SlicedRead
from penstock.optimizer.graphs import is_broadcast
from penstock.sizing.coverage import check_ranges, check_slices, check_splits
from penstock.spark.exchange import StagedResult

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.reads import VertexSetup
    from penstock.execution.results import ResultStore
    from penstock.graph import JobVertex


def check_reads(context: JobContext, results: ResultStore, vertex: JobVertex, setup: VertexSetup) -> None:
    """Check the decided reads of a vertex.

    Raises
    ------
    VerificationError
        If rows would be missing or duplicated.
    """
    for source in (context.plan.sources[n] for n in vertex.node_ids if n in context.plan.sources):
        if isinstance(source.scan, CountableSplits):
            check_splits(source.coordinator.name, source.scan.rows_not_read_once())
    sliced: dict[int, dict[str, SlicedRead]] = {}
    for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
        result = results.finished(edge.source_id)
        if is_broadcast(edge) or not isinstance(result, StagedResult):  # always read whole
            continue
        match setup.read_of(edge.id):
            case CoalescedRead(ranges, merged):
                check_ranges(f"the input {edge.id} of {vertex.name}", ranges, result.subpartitions)
                for index, chunks in merged.items():
                    check_ranges(f"subpartition {index} of the input {edge.id}", chunks, result.tasks or 0)
            case SlicedRead() as read:
                sliced.setdefault(context.plan.groups[edge.id], {})[edge.id] = read
    for reads in sliced.values():
        staged = {edge_id: results.staged(context.graph.edge(edge_id).source_id) for edge_id in reads}
        check_slices(
            vertex.name,
            {edge_id: read.tasks for edge_id, read in reads.items()},
            {edge_id: result.sizes[0].tolist() for edge_id, result in staged.items()},
            {edge_id: result.tasks or 0 for edge_id, result in staged.items()},
        )
