"""Computes a window over hot subpartitions in pieces, each in a task of its own, and over all others as ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.execution.unsplit import record_unsplit
from penstock.optimizer.dividing import MOST_OF_IT
from penstock.optimizer.skew import LARGEST
from penstock.spark import exchange, window_pieces
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
    """The rows of a window that was computed in pieces.

    Parameters
    ----------
    rows
        The rows.
    spans
        For each task the subpartitions that its rows were in; pieces may have rows of any hot one.
    """

    rows: InternalRows
    spans: list[Range]


def divide_hot_keys(
    context: JobContext, edge: StreamEdge, read: SlicedRead, result: StagedResult
) -> DividedRows | None:
    """Compute a window of which hot subpartitions are read in slices; None if each needs to be in one task.

    What was done is added to the decision.
    """
    slices = [(one.subpartitions[0], one.mappers) for task in read.tasks for one in task if one.mappers is not None]
    if not slices:
        return None
    size_of = {index: int(result.sizes[0, index]) for index, _ in slices}
    found = _in_pieces(context, result, slices, max(size_of.values()))
    if isinstance(found, str):
        record_unsplit(context, edge.target_id, found)
        return None
    rows, pieces = found
    for decision in context.decisions.of((edge.target_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            context.decisions.settle(decision.id, **{"pieces": pieces, "bytes divided": sum(size_of.values())})
    spans = [(min(size_of), max(size_of) + 1)] * len(slices)
    wholes = [one.subpartitions for task in read.tasks for one in task if one.mappers is None]
    if not wholes:
        return DividedRows(rows, spans)
    others = exchange.read_slices(result, [[(span, None)] for span in wholes])
    return DividedRows(window_pieces.one_after_the_other([others, rows]), [*wholes, *spans])


def _in_pieces(
    context: JobContext, result: StagedResult, slices: list[tuple[int, Range]], largest: int
) -> tuple[InternalRows, int] | str:
    """Return the rows of hot subpartitions, a task for each slice of them, and in how many pieces; or why not."""
    why_not = window_pieces.why_not_divided(result)
    if why_not is not None:
        return why_not
    if len(slices) == 1:
        return "all of its rows fit in one task"
    divided = window_pieces.divide(result, slices, len(slices))
    why_not = _why_not_worth_it(divided.sizes.tolist(), largest)
    if why_not is not None:
        return why_not
    rows = window_pieces.windowed(context.bridge.session, result, divided, len(slices))
    return "Spark exchanges the rows of its pieces to sum them up" if rows is None else (rows, len(divided.sizes))


def _why_not_worth_it(sizes: list[int], largest: int) -> str | None:
    """Return why the pieces are not computed by themselves, if one of them has nearly all rows of a subpartition."""
    if max(sizes) <= MOST_OF_IT * largest:
        return None
    return (
        f"its order divides its rows too unevenly: a piece has {show_bytes(max(sizes))}, "
        f"and the largest partition {show_bytes(largest)}"
    )
