"""Rows that Spark's own writer takes: what the options ask of its tasks, as far as the query does not say it itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import SINK_PARALLELISM, SINK_TARGET_FILE_SIZE
from penstock.graph import OperatorKind
from penstock.planner.spark_query import WHOLE_QUERY
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph import StreamNode
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class WriteWish:
    """What is to be done for a sink.

    Parameters
    ----------
    parallelism, file_size
        What the options ask for, None where the query has the say.
    keeps_exchange
        Whether the rows have to stay as the exchange before them has laid them out.
    chosen, reason
        What is recorded of it; empty if nothing is asked for.
    """

    parallelism: int | None = None
    file_size: int | None = None
    keeps_exchange: bool = False
    chosen: str = ""
    reason: str = ""


def write_wish(
    chain: Sequence[StreamNode],
    tops: Sequence[LogicalNode | None],
    parallelism: int | None,
    file_size: int | None,
    *,
    ordered: bool,
    can_be_given: bool,
) -> WriteWish:
    """Return what is to be done for a sink that options ask something of.

    Parameters
    ----------
    chain, tops
        The nodes that would share the sink's vertex, and their last operators in Spark's terms.
    parallelism, file_size
        What the options ask for. The number of tasks goes before the size of files.
    ordered
        Whether the rows have an order, which another exchange would undo.
    can_be_given
        Whether the vertex can have the wanted number of tasks without another exchange.
    """
    if parallelism is None and file_size is None:
        return WriteWish()
    asked = SINK_TARGET_FILE_SIZE.key if parallelism is None else SINK_PARALLELISM.key
    if any(node.parallelism is not None for node in chain) or any(map(_has_own_tasks, tops)):
        why = f"the query says itself how many tasks give its rows, which goes before {asked}"
        return WriteWish(chosen="as the query says", reason=why)
    dealt = any(node.kind is OperatorKind.REPARTITION for node in chain)
    if (ordered or dealt) and not can_be_given:
        undone = "order of the rows" if ordered else "exchange that the query or its target asks for"
        why = f"what {asked} asks for would undo the {undone}"
        return WriteWish(keeps_exchange=dealt, chosen="the tasks before the writer", reason=why)
    if parallelism is not None:
        why = f"{asked} asks for so many tasks of Spark's writer"
        return WriteWish(parallelism, None, keeps_exchange=dealt, chosen=str(parallelism), reason=why)
    assert file_size is not None
    why = f"{asked} asks for files of {show_bytes(file_size)}; what is shuffled stands for what they take"
    return WriteWish(None, file_size, chosen="by the size of files", reason=why)


def _has_own_tasks(top: LogicalNode | None) -> bool:
    """Whether an operator's tasks are those of a coalesce, or of a query that Spark has to run as it is."""
    if top is None:
        return False
    return top.name == WHOLE_QUERY or (top.repartition is not None and not top.repartition.shuffles)
