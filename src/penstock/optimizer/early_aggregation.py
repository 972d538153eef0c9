"""Lets an aggregate over ROLLUP, CUBE or GROUPING SETS sum up before its rows are multiplied.

Before::

    inventory ─▶ join items ─▶ a copy of each row for each of 5 sets ─▶ partial sums ──HASH──▶ Aggregate

After::

    inventory ─▶ join items ─▶ partial sums ─▶ a copy of each sum for each of 5 sets ─▶ merged ──HASH──▶ Aggregate

How many groups there can be at most is told by the join sides that the grouped columns come from, once those are
measured; it is done where even so many groups would cost less than the copies they save.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import OperatorKind, StreamNodeUpdateRequest
from penstock.optimizer.graphs import is_broadcast, sides
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.graph import StreamGraph, StreamNode

GROUPING_SETS = "grouping_sets"
"""The property of an aggregate that tells the grouping sets it can be made before."""
SUMS_FIRST = "sums_first"
"""The property of an aggregate that sums up before its rows are multiplied."""

_WORTH_IT = 0.9
"""The most that the way around may cost, as a part of the plain way."""


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """What multiplies the rows before an aggregate.

    Parameters
    ----------
    node_id
        The node whose last operator does.
    copies
        How many rows it makes of one.
    origins
        For each grouped column, the joins and their sides that it comes through, from the last join to the first.
    """

    node_id: int
    copies: int
    origins: tuple[tuple[tuple[int, str], ...], ...]


def pays(rows: int, groups: int, copies: int) -> bool:
    """Whether a task that reads so many rows of so many groups at most does less if it sums them up twice."""
    return rows + copies * groups <= _WORTH_IT * copies * rows


class EarlyAggregation(StreamGraphOptimizationStrategy):
    """Looks at aggregates over grouping sets whenever something has been measured."""

    def __init__(self) -> None:
        self._results: dict[int, ResultInfo] = {}

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Decide for aggregates whose groups are bounded by now."""
        self._results.update(finished.results)
        changed = False
        for node in context.stream_graph:
            sets = node.properties.get(GROUPING_SETS)
            if sets is not None and SUMS_FIRST not in node.properties and not context.is_frozen(sets.node_id):
                changed |= self._decide(node, sets, context)
        return changed

    def _decide(self, node: StreamNode, sets: GroupingSets, context: StrategyContext) -> bool:
        graph = context.stream_graph
        if [edge.source_id for edge in graph.in_edges(node.id)] != [sets.node_id]:
            return False  # the copies are written for several readers
        groups = self._groups(sets, graph)
        rows, size = self._input(sets.node_id, graph)
        tasks = max(1, ceil(size / context.resources.volume_per_task))
        if groups < 0 or rows < 0 or not pays(rows // tasks, groups, sets.copies):
            return False
        if not context.modify_stream_node([StreamNodeUpdateRequest(node.id, properties={SUMS_FIRST: True})]):
            return False
        reason = (
            f"{show_count(rows, 'row')} are read of {show_count(groups, 'group')} at most, "
            f"for {sets.copies} grouping sets"
        )
        chosen = "before rows are multiplied"
        context.decide(DecisionKind.EARLY_AGGREGATION, node, chosen, reason, groups=groups)
        return True

    def _groups(self, sets: GroupingSets, graph: StreamGraph) -> int:
        """Return how many groups there are at most, -1 if that is not known."""
        bounds: dict[int, int] = {}
        for joins in sets.origins:
            known = [
                (result.rows, edge.source_id)
                for join, side in joins
                if (edge := sides(graph, graph.node(join)).get(side)) is not None
                and (result := self._results.get(edge.source_id)) is not None
                and result.rows >= 0
            ]
            if not known:
                return -1
            rows, source = min(known)
            bounds[source] = rows
        return prod(bounds.values())

    def _input(self, node_id: int, graph: StreamGraph) -> tuple[int, int]:
        """Return how many rows, and bytes, a node's vertex reads; (-1, 0) if that is not known.

        Joins may leave few of them; then neither way takes long.
        """
        node = graph.node(node_id)
        while node.kind in {OperatorKind.CALC, OperatorKind.JOIN}:
            inputs = [edge for edge in graph.in_edges(node.id) if not is_broadcast(edge)]
            if len(inputs) != 1:
                return -1, 0
            if not inputs[0].is_forward:
                result = self._results.get(inputs[0].source_id)
                return (result.rows, result.total) if result is not None and result.rows >= 0 else (-1, 0)
            node = graph.node(inputs[0].source_id)
        rows = int(node.properties.get("rows", -1))
        return (rows, int(node.properties.get("bytes", 0))) if rows >= 0 else (-1, 0)
