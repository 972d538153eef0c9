"""Applies the sink options of the user to rows that Spark's own writer consumes, unless the query overrides them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import SINK_PARALLELISM, SINK_TARGET_FILE_SIZE
from penstock.graph import OperatorKind
from penstock.planner.spark_query import WHOLE_QUERY
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph import StreamNode
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class UserParallelism:
    """The parallelism and file size of a sink, None if the query determines them, and the recorded decision.

    `keeps_exchange` says whether the partitioning of the exchange before the sink must be preserved.
    """

    parallelism: int | None = None
    file_size: int | None = None
    keeps_exchange: bool = False
    chosen: str = ""
    reason: str = ""


def choose_user_parallelism(
    chain: Sequence[StreamNode],
    tops: Sequence[LogicalNode | None],
    parallelism: int | None,
    file_size: int | None,
    *,
    ordered: bool,
    accepts_parallelism: bool,
) -> UserParallelism:
    """Resolve the requested tasks, or else the file size, of a sink against the nodes of its vertex.

    Parameters
    ----------
    chain, tops
        The nodes that would share the vertex of the sink, and their topmost operators in Spark's plan.
    ordered
        Whether the rows have an order, which another exchange would destroy.
    accepts_parallelism
        Whether the vertex can have the requested number of tasks without another exchange.
    """
    if parallelism is None and file_size is None:
        return UserParallelism()
    option = SINK_TARGET_FILE_SIZE.key if parallelism is None else SINK_PARALLELISM.key
    if any(node.parallelism is not None for node in chain) or any(map(_has_own_tasks, tops)):
        reason = f"the query sets its own number of tasks, which overrides {option}"
        return UserParallelism(chosen="as the query says", reason=reason)
    repartitioned = any(node.kind is OperatorKind.REPARTITION for node in chain)
    if (ordered or repartitioned) and not accepts_parallelism:
        lost = "order of the rows" if ordered else "partitioning that the query or its target requests"
        reason = f"{option} would destroy the {lost}"
        return UserParallelism(keeps_exchange=repartitioned, chosen="the tasks before the writer", reason=reason)
    if parallelism is not None:
        reason = f"{option} requests {show_count(parallelism, 'task')} for Spark's writer"
        return UserParallelism(parallelism, None, keeps_exchange=repartitioned, chosen=str(parallelism), reason=reason)
    assert file_size is not None
    reason = f"{option} requests files of {show_bytes(file_size)}, whose size is estimated from the shuffled bytes"
    return UserParallelism(None, file_size, chosen="by the size of files", reason=reason)


def _has_own_tasks(top: LogicalNode | None) -> bool:
    """Whether an operator has the tasks of a coalesce, or of a query that Spark runs unchanged."""
    if top is None:
        return False
    return top.name == WHOLE_QUERY or (top.repartition is not None and not top.repartition.shuffles)
