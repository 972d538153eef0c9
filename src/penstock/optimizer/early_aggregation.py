"""Lets an aggregate over ROLLUP, CUBE or GROUPING SETS sum up before its rows are multiplied.

Before::

    inventory ─▶ join items ─▶ a copy of each row for each of 5 sets ─▶ partial sums ──HASH──▶ Aggregate

After::

    inventory ─▶ join items ─▶ partial sums ─▶ a copy of each sum for each of 5 sets ─▶ merged ──HASH──▶ Aggregate

How many groups there can be at most is told by the join sides that the grouped columns come from, once those are
measured; it is done where even so many groups would cost less than the copies they save.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import AggregateOperator, OperatorKind, ScanOperator, StreamNodeUpdateRequest
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.graph import GroupingSets, StreamNode

_WORTH_IT = 0.9
"""The most that the way around may cost, as a part of the plain way."""


def pays(rows: int, groups: int, copies: int) -> bool:
    """Whether a task that reads so many rows of so many groups at most does less if it sums them up twice."""
    return rows + copies * groups <= _WORTH_IT * copies * rows


class EarlyAggregation(StreamGraphOptimizationStrategy):
    """Looks at aggregates over grouping sets whenever something has been measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Decide for aggregates whose groups are bounded by now."""
        del finished
        changed = False
        for node in context.stream_graph:
            operator = node.operator
            if isinstance(operator, AggregateOperator) and not operator.aggregates_first:
                changed |= self._decide(node, operator, context)
        return changed

    def _decide(self, node: StreamNode, aggregate: AggregateOperator, context: StrategyContext) -> bool:
        graph, sets = context.stream_graph, aggregate.grouping_sets
        if sets is None or context.is_frozen(sets.node_id):
            return False
        if [edge.source_id for edge in graph.in_edges(node.id)] != [sets.node_id]:
            return False  # the copies are written for several readers
        groups, read = _most_groups(sets, context), _input(sets.node_id, context)
        if groups is None or read is None:
            return False
        rows, size = read
        tasks = max(1, ceil(size / context.resources.volume_per_task))
        if not pays(rows // tasks, groups, sets.copies):
            return False
        request = StreamNodeUpdateRequest(node.id, operator=replace(aggregate, aggregates_first=True))
        reason = (
            f"{show_count(rows, 'row')} are read of {show_count(groups, 'group')} at most, "
            f"for {sets.copies} grouping sets"
        )
        chosen = "before rows are multiplied"
        return context.change([request], DecisionKind.EARLY_AGGREGATION, node, chosen, reason, groups=groups)


def _most_groups(sets: GroupingSets, context: StrategyContext) -> int | None:
    """Return how many groups there are at most, or None if that is not known."""
    bounds: dict[int, int] = {}
    for inputs in sets.origins:
        known = [
            (result.rows, edge.source_id)
            for one in inputs
            if (join := equi_join(context.stream_graph, one.join_id)) is not None
            and (result := context.result((edge := join.edges[one.side]).source_id)) is not None
            and result.rows is not None
        ]
        if not known:
            return None
        rows, source = min(known)
        bounds[source] = rows
    return prod(bounds.values())


def _input(node_id: int, context: StrategyContext) -> tuple[int, int] | None:
    """Return how many rows, and bytes, a node's vertex reads, or None if that is not known.

    Joins may leave few of them; then neither way takes long.
    """
    graph = context.stream_graph
    node = graph.node(node_id)
    while node.kind in {OperatorKind.CALC, OperatorKind.JOIN}:
        inputs = [edge for edge in graph.in_edges(node.id) if not is_broadcast(edge)]
        if len(inputs) != 1:
            return None
        if not inputs[0].is_forward:
            result = context.result(inputs[0].source_id)
            return None if result is None or result.rows is None else (result.rows, result.total)
        node = graph.node(inputs[0].source_id)
    scan = node.operator
    return (scan.rows, scan.bytes or 0) if isinstance(scan, ScanOperator) and scan.rows is not None else None
