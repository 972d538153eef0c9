"""Removes the exchanges after an operator that runs in a single task, because that task already has all rows.

Before::

    sales ──HASH──▶ aggregate ──RANGE──▶ sort ──▶ sink        sales has finished with 2 MiB

After::

    sales ──HASH──▶ aggregate ─FORWARD─▶ sort ──▶ sink

The chain continues only through aggregates, windows, sorts, projections and filters: other operators may be expensive
or return more rows than they read. The chain also ends before an operator whose parallelism the user set.
"""

from __future__ import annotations

from penstock.base.units import show_bytes
from penstock.config.options import AUTO_PARALLELISM_ENABLED, MIN_PARALLELISM
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import CalcOperator, OperatorKind, StreamEdgeUpdateRequest, StreamGraph, StreamNode
from penstock.graph.partitioner import FORWARD, GlobalPartitioner, HashPartitioner, RangePartitioner
from penstock.optimizer.graphs import relying_edges
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy

_COLLAPSIBLE_KINDS = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.SORT})
_REMOVABLE_EXCHANGES = (HashPartitioner, RangePartitioner, GlobalPartitioner)


class CollapseExchanges(StreamGraphOptimizationStrategy):
    """Removes exchanges after an operator whose measured input a single task can read."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Chain the downstream operators to operators with a small input."""
        if not context.config.flag(AUTO_PARALLELISM_ENABLED) or context.config.integer(MIN_PARALLELISM) > 1:
            return False
        changed = False
        for node_id, result in finished.results.items():
            if result.total > context.resources.volume_per_task:
                continue
            for edge in context.stream_graph.out_edges(node_id):
                if not context.is_frozen(edge.target_id) and isinstance(edge.partitioner, _REMOVABLE_EXCHANGES):
                    changed |= self._chain_downstream(edge.target_id, result, context)
        return changed

    def _chain_downstream(self, first_id: int, result: ResultInfo, context: StrategyContext) -> bool:
        graph, current, changed = context.stream_graph, first_id, False
        while self._fits_single_task(graph.node(current), len(graph.in_edges(current))):
            outgoing = graph.out_edges(current)
            if len(outgoing) != 1:
                break
            (edge,) = outgoing
            target = graph.node(edge.target_id)
            if not edge.is_forward:
                if not isinstance(edge.partitioner, _REMOVABLE_EXCHANGES) or not self._can_chain(target, graph):
                    break
                request = StreamEdgeUpdateRequest(edge.id, FORWARD)  # with several tasks, Spark still exchanges rows
                reason = f"a single task reads all {show_bytes(result.total)} of input to {graph.node(first_id).name}"
                chosen = f"no {edge.partitioner} exchange"
                explanation = Explanation(
                    f"{context.display_name(target)}: no shuffle before it, as a single task already has all rows "
                    f"(the input of {context.display_name(graph.node(first_id))} is {show_bytes(result.total)})"
                )
                figures = {"bytes": result.total}
                if not context.change([request], DecisionKind.EXCHANGE, target, chosen, reason, explanation, **figures):
                    break
                graph, changed = context.stream_graph, True
            current = target.id
        return changed

    def _can_chain(self, node: StreamNode, graph: StreamGraph) -> bool:
        """Whether a node fits a single task, and no join chained to it relies on the hash partitioning of its rows."""
        is_join_input = any(len(graph.in_edges(edge.target_id)) > 1 for edge in relying_edges(graph, node.id))
        return self._fits_single_task(node, len(graph.in_edges(node.id))) and not is_join_input

    def _fits_single_task(self, node: StreamNode, inputs: int) -> bool:
        """Whether a node's kind and settings allow a single task; the callers have checked the size of its input."""
        is_cheap_calc = isinstance(node.operator, CalcOperator) and node.operator.is_cheap
        return inputs == 1 and node.parallelism is None and (node.kind in _COLLAPSIBLE_KINDS or is_cheap_calc)
