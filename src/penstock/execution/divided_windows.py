"""Windows with hot subpartitions: computes these in chunks, each in a task of its own, and all others as usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.execution.unsplit import record_unsplit
from penstock.optimizer.dividing import MAX_CHUNK_FRACTION
from penstock.optimizer.skew import LARGEST
from penstock.spark import exchange, window_chunks
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.reads import SlicedRead
    from penstock.graph import StreamEdge
    from penstock.sizing.packing import Range
    from penstock.spark.exchange import StagedResult
    from penstock.spark.handles import InternalRows


@dataclass(frozen=True, slots=True)
class DividedRows:
    """The rows of a window that was computed in chunks.

    Parameters
    ----------
    spans
        For each task the range of subpartitions that its rows belong to; a chunk may have rows of any hot subpartition.
    """

    rows: InternalRows
    spans: list[Range]


def divide_hot_keys(
    context: JobContext, edge: StreamEdge, read: SlicedRead, result: StagedResult
) -> DividedRows | None:
    """Compute a window whose hot subpartitions are read in slices; None if each must be read by a single task.

    The outcome is added to the decision.
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
    for decision in context.decisions.of((edge.target_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            context.decisions.settle(decision.id, **{"pieces": chunks, "bytes divided": sum(size_of.values())})
    spans = [(min(size_of), max(size_of) + 1)] * len(slices)
    wholes = [piece.subpartitions for task in read.tasks for piece in task if piece.mappers is None]
    if not wholes:
        return DividedRows(rows, spans)
    others = exchange.read_slices(result, [[(span, None)] for span in wholes])
    return DividedRows(window_chunks.concatenate([others, rows]), [*wholes, *spans])


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
