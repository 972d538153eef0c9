"""Reads hot (very large) subpartitions of a window or an aggregate in chunks, a task per chunk, and others whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.decisions.log import DecisionKind, NodeRef
from penstock.optimizer.skew import LARGEST_FIGURE, settle_split_decisions
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
    """Compute a window in chunks of its sort order, where `read` divides hot subpartitions into slices.

    Return the rows, and for each task the range of subpartitions that its rows may come from: for a chunk, the range
    from the first to the last hot subpartition. Return None if nothing is divided: tasks then read whole subpartitions.
    """
    slices = [(part.subpartitions[0], part.mappers) for task in read.tasks for part in task if part.mappers is not None]
    if not slices:
        return None
    size_of = {index: int(result.sizes[0, index]) for index, _ in slices}
    divided = _divide(context, result, slices, max(size_of.values()))
    if isinstance(divided, str):
        record_unsplit(context, edge.target_id, divided)
        return None
    rows, chunks = divided
    figures = {"pieces": chunks, "bytes divided": sum(size_of.values())}
    settle_split_decisions(context.decisions, edge.target_id, **figures)
    chunk_ranges = [(min(size_of), max(size_of) + 1)] * len(slices)
    whole_ranges = [part.subpartitions for task in read.tasks for part in task if part.mappers is None]
    if not whole_ranges:
        return rows, chunk_ranges
    whole_rows = exchange.read_slices(result, [[(span, None)] for span in whole_ranges])
    return window_chunks.concatenate([whole_rows, rows]), [*whole_ranges, *chunk_ranges]


def _divide(
    context: JobContext, result: StagedResult, slices: list[tuple[int, Range]], largest_bytes: int
) -> tuple[InternalRows, int] | str:
    """Compute the window over the hot subpartitions in chunks, in as many tasks as there are slices.

    Return its rows and the number of chunks, or why rows are not divided. The largest subpartition has `largest_bytes`.
    """
    problem = window_chunks.indivisible_plan_reason(result)
    if problem is not None:
        return problem
    if len(slices) == 1:
        return "all of its rows fit in one task"
    divided = window_chunks.divide(result, slices, len(slices))
    largest_chunk = max(divided.sizes.tolist())
    if largest_chunk > MAX_CHUNK_FRACTION * largest_bytes:
        return (
            f"its order divides its rows too unevenly: a chunk has {show_bytes(largest_chunk)}, "
            f"and the largest partition {show_bytes(largest_bytes)}"
        )
    rows = window_chunks.run_window(context.bridge.session, result, divided, len(slices))
    return "Spark would shuffle the rows of its chunks to combine them" if rows is None else (rows, len(divided.sizes))


def record_unsplit(context: JobContext, node_id: int, because: str) -> None:
    """Record that a node's tasks read whole partitions, in the decisions about its hot partitions and its tasks."""
    log = context.decisions
    _record_fallback(context, node_id, "its partitions are not split", because)
    settle_split_decisions(log, node_id, split=0)
    for decision in log.of((node_id,), DecisionKind.VERTEX_PARALLELISM):
        log.settle(decision.id, instead="its tasks read whole partitions", because=because)


def _record_fallback(context: JobContext, node_id: int, instead: str, because: str) -> None:
    log, node = context.decisions, NodeRef(node_id, context.graph.node(node_id).name)
    log.record_fallback(DecisionKind.SKEW, node, instead, because, lambda decision: LARGEST_FIGURE in decision.figures)


def merge_hot_groups(
    context: JobContext, edge: StreamEdge, read: CoalescedRead, result: StagedResult
) -> PhysicalPlan | None:
    """Merge hot groups in chunks; return the plan of the final aggregate, None if chunks are impossible or slower."""
    reason = partial_states.unmergeable_states_reason(result) or _no_speedup_reason(result, read)
    if reason is not None:
        _record_fallback(context, edge.target_id, "each group is merged in one task", reason)
        return None
    merged = partial_states.merge_states(result, read.merge_ranges)
    chunks = sum(map(len, read.merge_ranges.values()))
    before = sum(int(result.sizes[0, index]) for index in read.merge_ranges)
    figures = {"bytes before": before, "bytes merged": merged.bytes}
    settle_split_decisions(context.decisions, edge.target_id, pieces=chunks, **figures)
    return partial_states.aggregate_merged(context.bridge.session, result, merged, read.merge_ranges, read.ranges)


def _no_speedup_reason(result: StagedResult, read: CoalescedRead) -> str | None:
    """Merge sampled partial results of the largest subpartition; return why chunks are not faster, None if they are."""
    largest = max(read.merge_ranges, key=lambda index: int(result.sizes[0, index]))
    writer_bytes = result.mapper_bytes([largest])[:, 0].tolist()
    tasks = sum(size > 0 for size in writer_bytes)
    start = next(task for task, size in enumerate(writer_bytes) if size)
    sample_size, end = 0, start
    while sample_size < sample_count(tasks):
        sample_size += writer_bytes[end] > 0  # counts only tasks that wrote to the subpartition
        end += 1
    before, after = sum(writer_bytes[start:end]), partial_states.merge_states(result, {largest: [(start, end)]}).bytes
    chunks = len(read.merge_ranges[largest])
    chunk_fraction = extrapolate_fraction(after / before, sample_size, max(sample_size, tasks // chunks))
    if speedup(chunks, chunk_fraction) >= MIN_SPEEDUP:
        return None
    # These partial results contain the values of a group; a merged result contains each distinct value once.
    return (
        f"{show_count(sample_size, 'partial result')} of a hot group have too few values in common: "
        f"{show_bytes(before)} became {show_bytes(after)} when they were merged"
    )
