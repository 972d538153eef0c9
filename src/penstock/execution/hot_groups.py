"""Merges the partial results of an aggregate's hot groups in chunks, if a sample shows that it is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, NodeRef
from penstock.optimizer.merging import MIN_SPEEDUP, extrapolate_fraction, sample_count, speedup
from penstock.optimizer.skew import LARGEST
from penstock.spark import partial_states
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.reads import CoalescedRead
    from penstock.graph import StreamEdge
    from penstock.spark.exchange import StagedResult
    from penstock.spark.handles import PhysicalPlan


def merge_hot_groups(
    context: JobContext, edge: StreamEdge, read: CoalescedRead, result: StagedResult
) -> PhysicalPlan | None:
    """Return the aggregate over an input whose hot subpartitions were merged in chunks; None if they were not.

    The outcome is added to the decision.
    """
    reason = partial_states.unmergeable_states_reason(result) or _no_speedup_reason(result, read)
    if reason is not None:
        node = NodeRef(edge.target_id, context.graph.node(edge.target_id).name)
        context.decisions.record_fallback(
            DecisionKind.SKEW,
            node,
            "each group is merged in one task",
            reason,
            lambda decision: LARGEST in decision.figures,
        )
        return None
    merged = partial_states.merge(result, read.merged)
    chunks = sum(map(len, read.merged.values()))
    before = sum(int(result.sizes[0, index]) for index in read.merged)
    for decision in context.decisions.of((edge.target_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            context.decisions.settle(
                decision.id, pieces=chunks, **{"bytes before": before, "bytes merged": merged.bytes}
            )
    return partial_states.aggregate_merged(context.bridge.session, result, merged, read.merged, read.ranges)


def _no_speedup_reason(result: StagedResult, read: CoalescedRead) -> str | None:
    """Merge a sample of the largest subpartition; return why merging in chunks is not faster, None if it is."""
    assert result.mapper_bytes is not None
    largest = max(read.merged, key=lambda index: int(result.sizes[0, index]))
    written = result.mapper_bytes([largest])[:, 0].tolist()
    tasks = sum(size > 0 for size in written)
    first = next(task for task, size in enumerate(written) if size)
    few, last = 0, first
    while few < sample_count(tasks):
        few += written[last] > 0
        last += 1
    before, after = sum(written[first:last]), partial_states.merge(result, {largest: [(first, last)]}).bytes
    chunks = len(read.merged[largest])
    fraction = extrapolate_fraction(after / before, few, max(few, tasks // chunks))
    if speedup(chunks, fraction) >= MIN_SPEEDUP:
        return None
    return (
        f"{show_count(few, 'partial result')} of a hot group have too few values in common: "
        f"{show_bytes(before)} became {show_bytes(after)} when they were merged"
    )
