"""Reads hot subpartitions of a window or an aggregate in chunks, each in its own task, and all others as usual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.decisions.log import DecisionKind, NodeRef
from penstock.optimizer.skew import LARGEST, settle_split
from penstock.optimizer.skewed_aggregation import MIN_SPEEDUP, extrapolate_fraction, sample_count, speedup
from penstock.optimizer.skewed_window import MAX_CHUNK_FRACTION
from penstock.spark.plans import partial_states, window_chunks
from penstock.spark.run import exchange

if TYPE_CHECKING:
    from penstock.execution.context import CoalescedRead, JobContext, SlicedRead
    from penstock.graph import StreamEdge
    from penstock.sizing.packing import Range
    from penstock.spark.bridge.handles import InternalRows, PhysicalPlan
    from penstock.spark.run.exchange import StagedResult


def divide_hot_keys(
    context: JobContext, edge: StreamEdge, read: SlicedRead, result: StagedResult
) -> tuple[InternalRows, list[Range]] | None:
    """Compute a window whose hot subpartitions are read in slices; None if each must be read by a single task.

    Also return for each task the range of subpartitions of its rows; a chunk may have rows of any hot subpartition.
    """
    slices = [
        (piece.subpartitions[0], piece.mappers) for task in read.tasks for piece in task if piece.mappers is not None
    ]
    if not slices:
        return None
    size_of = {index: int(result.sizes[0, index]) for index, _ in slices}
    divided = _divide(context, result, slices, max(size_of.values()))
    if isinstance(divided, str):
        record_unsplit(context, edge.target_id, divided)
        return None
    rows, chunks = divided
    settle_split(context.decisions, edge.target_id, **{"pieces": chunks, "bytes divided": sum(size_of.values())})
    spans = [(min(size_of), max(size_of) + 1)] * len(slices)
    wholes = [piece.subpartitions for task in read.tasks for piece in task if piece.mappers is None]
    if not wholes:
        return rows, spans
    others = exchange.read_slices(result, [[(span, None)] for span in wholes])
    return window_chunks.concatenate([others, rows]), [*wholes, *spans]


def _divide(
    context: JobContext, result: StagedResult, slices: list[tuple[int, Range]], largest: int
) -> tuple[InternalRows, int] | str:
    """Return the rows of hot subpartitions, with a task per slice, and the number of chunks; or why not."""
    problem = window_chunks.undividable_plan_reason(result)
    if problem is not None:
        return problem
    if len(slices) == 1:
        return "all of its rows fit in one task"
    divided = window_chunks.divide(result, slices, len(slices))
    largest_chunk = max(divided.sizes.tolist())
    if largest_chunk > MAX_CHUNK_FRACTION * largest:
        return (
            f"its order divides its rows too unevenly: a chunk has {show_bytes(largest_chunk)}, "
            f"and the largest partition {show_bytes(largest)}"
        )
    rows = window_chunks.windowed(context.bridge.session, result, divided, len(slices))
    return "Spark would shuffle the rows of its chunks to combine them" if rows is None else (rows, len(divided.sizes))


def record_unsplit(context: JobContext, node_id: int, because: str) -> None:
    """Record for the decisions about a node's hot partitions and its tasks that whole partitions are read."""
    log = context.decisions
    _record_fallback(context, node_id, "its partitions are not split", because)
    settle_split(log, node_id, split=0)
    for decision in log.of((node_id,), DecisionKind.VERTEX_PARALLELISM):
        log.settle(decision.id, instead="its tasks read whole partitions", because=because)


def _record_fallback(context: JobContext, node_id: int, instead: str, because: str) -> None:
    node = NodeRef(node_id, context.graph.node(node_id).name)
    context.decisions.record_fallback(DecisionKind.SKEW, node, instead, because, lambda own: LARGEST in own.figures)


def merge_hot_groups(
    context: JobContext, edge: StreamEdge, read: CoalescedRead, result: StagedResult
) -> PhysicalPlan | None:
    """Return the aggregate over an input whose hot subpartitions were merged in chunks; None if they were not."""
    reason = partial_states.unmergeable_states_reason(result) or _no_speedup_reason(result, read)
    if reason is not None:
        _record_fallback(context, edge.target_id, "each group is merged in one task", reason)
        return None
    merged = partial_states.merge(result, read.merged)
    chunks = sum(map(len, read.merged.values()))
    before = sum(int(result.sizes[0, index]) for index in read.merged)
    figures = {"bytes before": before, "bytes merged": merged.bytes}
    settle_split(context.decisions, edge.target_id, pieces=chunks, **figures)
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
