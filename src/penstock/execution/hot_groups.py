"""Merges the partial results of an aggregate's hot groups in pieces, if a few of them show that this pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, NodeRef
from penstock.optimizer.merging import WORTH_IT, kept_of_more, times_faster, tried
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
    """Return the aggregate over an input of which hot subpartitions were merged in pieces; None if that is not done.

    What was done is added to the decision.
    """
    why_not = partial_states.why_not_merged(result) or _why_not_worth_it(result, read)
    if why_not is not None:
        node = NodeRef(edge.target_id, context.graph.node(edge.target_id).name)
        instead = "each group is merged in one task"
        context.decisions.came_otherwise(DecisionKind.SKEW, node, instead, why_not, lambda one: LARGEST in one.figures)
        return None
    merged = partial_states.merge(result, read.merged)
    pieces = sum(map(len, read.merged.values()))
    before = sum(int(result.sizes[0, index]) for index in read.merged)
    for decision in context.decisions.of((edge.target_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            context.decisions.settle(
                decision.id, pieces=pieces, **{"bytes before": before, "bytes merged": merged.bytes}
            )
    return partial_states.aggregated(context.bridge.session, result, merged, read.merged, read.ranges)


def _why_not_worth_it(result: StagedResult, read: CoalescedRead) -> str | None:
    """Return why nothing is won, as far as a few partial results of the largest subpartition tell; None if it is."""
    assert result.mapper_bytes is not None
    largest = max(read.merged, key=lambda index: int(result.sizes[0, index]))
    written = result.mapper_bytes([largest])[:, 0].tolist()
    tasks = sum(size > 0 for size in written)
    first = next(task for task, size in enumerate(written) if size)
    few, last = 0, first
    while few < tried(tasks):
        few += written[last] > 0
        last += 1
    before, after = sum(written[first:last]), partial_states.merge(result, {largest: [(first, last)]}).bytes
    pieces = len(read.merged[largest])
    kept = kept_of_more(after / before, few, max(few, tasks // pieces))
    if times_faster(pieces, kept) >= WORTH_IT:
        return None
    return (
        f"{show_count(few, 'partial result')} of a hot group have too few values in common: "
        f"{show_bytes(before)} became {show_bytes(after)} when they were merged"
    )
