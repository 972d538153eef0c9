"""Aggregates for ROLLUP, CUBE or GROUPING SETS before Spark copies the rows for each set.

Before::

    inventory ─▶ join items ─▶ a copy of each row for each of 5 sets ─▶ partial sums ──HASH──▶ Aggregate

After::

    inventory ─▶ join items ─▶ partial sums ─▶ a copy of each sum for each of 5 sets ─▶ merge ──HASH──▶ Aggregate

The product of the row counts of the join sides that the grouping columns come from is an upper bound of the number of
groups. The order changes if, with that many groups, aggregating first is cheaper than aggregating the copies.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import AggregateOperator, OperatorKind, ScanOperator, StreamNodeUpdateRequest
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from penstock.graph import GroupingSets, StreamNode

_MAX_RELATIVE_COST = 0.9
"""The maximum cost of aggregating before the copies, relative to the cost of aggregating only the copies."""


def is_cheaper_before_copies(rows: int, groups: int, copies: int) -> bool:
    """Whether hashing `rows` and then `copies` times `groups` is clearly cheaper than hashing `copies` times `rows`."""
    return rows + copies * groups <= _MAX_RELATIVE_COST * copies * rows


class EarlyAggregation(StreamGraphOptimizationStrategy):
    """Decides for each aggregate over grouping sets whether to aggregate before rows are copied."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Decide for the aggregates whose number of groups now has an upper bound."""
        del finished
        return sum(self._decide(node, context) for node in context.stream_graph) > 0

    def _decide(self, node: StreamNode, context: StrategyContext) -> bool:
        graph, aggregate = context.stream_graph, node.operator
        if not isinstance(aggregate, AggregateOperator) or aggregate.aggregates_first:
            return False
        sets = aggregate.grouping_sets
        if sets is None or context.is_frozen(sets.node_id):
            return False
        if [edge.source_id for edge in graph.in_edges(node.id)] != [sets.node_id]:
            return False  # other operators also read the copies
        groups, vertex_input = _max_groups(sets, context), _vertex_input(sets.node_id, context)
        if groups is None or vertex_input is None:
            return False
        rows, size = vertex_input
        tasks = max(1, ceil(size / context.resources.volume_per_task))
        if not is_cheaper_before_copies(rows // tasks, groups, sets.copies):
            return False
        request = StreamNodeUpdateRequest(node.id, operator=replace(aggregate, aggregates_first=True))
        reason = (
            f"{show_count(rows, 'row')} fall into at most {show_count(groups, 'group')}, "
            f"and {sets.copies} grouping sets would copy every row {sets.copies} times"
        )
        chosen = "before rows are copied for each grouping set"
        explanation = Explanation(f"{context.display_name(node)}: aggregated {chosen}, as {reason}")
        return context.change(
            [request], DecisionKind.EARLY_AGGREGATION, node, chosen, reason, explanation, groups=groups
        )


def _max_groups(sets: GroupingSets, context: StrategyContext) -> int | None:
    """Return an upper bound of the number of groups, or None if it is unknown."""
    bounds: dict[int, int] = {}
    for inputs in sets.origins:
        measured = [
            (result.rows, edge.source_id)
            for join_input in inputs
            if (join := equi_join(context.stream_graph, join_input.join_id)) is not None
            and (result := context.result((edge := join.edges[join_input.side]).source_id)) is not None
            and result.rows is not None
        ]
        if not measured:
            return None
        rows, source = min(measured)
        bounds[source] = rows  # a join side counts once, even if several grouping columns come from it
    return prod(bounds.values())


def _vertex_input(node_id: int, context: StrategyContext) -> tuple[int, int] | None:
    """Return the rows and bytes (0 if unknown) that a node's vertex reads except broadcasts; None if rows are unknown.

    This ignores that joins may drop most of the rows, because both orders are then fast.
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
