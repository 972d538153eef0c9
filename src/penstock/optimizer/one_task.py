"""Drops the exchanges behind what one task reads: rows that are all in one task lie right for any operator.

Before::

    sales ──HASH──▶ aggregate ──RANGE──▶ sort ──▶ sink        sales has finished with 2 MiB

After::

    sales ──HASH──▶ aggregate ─FORWARD─▶ sort ──▶ sink

Only operators that give no more rows than they get are passed, and none that the user gave a parallelism. Should more
than one task read the rows after all, Spark exchanges them inside the vertex: the answer does not depend on this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import AUTO_PARALLELISM_ENABLED, MIN_PARALLELISM
from penstock.decisions import DecisionKind
from penstock.graph import CalcOperator, OperatorKind, StreamEdgeUpdateRequest
from penstock.graph.partitioner import FORWARD, GlobalPartitioner, HashPartitioner, RangePartitioner
from penstock.optimizer.graphs import relying_edges
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.graph import StreamGraph, StreamNode

_PASSED = frozenset({OperatorKind.AGGREGATE, OperatorKind.WINDOW, OperatorKind.SORT})
_DROPPED = (HashPartitioner, RangePartitioner, GlobalPartitioner)


class OneTask(StreamGraphOptimizationStrategy):
    """Looks at operators whose only input has just been measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Chain what follows such operators to them."""
        if not context.config.flag(AUTO_PARALLELISM_ENABLED) or context.config.integer(MIN_PARALLELISM) > 1:
            return False
        changed = False
        for node_id, result in finished.results.items():
            if result.total > context.resources.volume_per_task:
                continue
            for edge in context.stream_graph.out_edges(node_id):
                if not context.is_frozen(edge.target_id) and isinstance(edge.partitioner, _DROPPED):
                    changed |= self._chain(edge.target_id, result, context)
        return changed

    def _chain(self, head: int, result: ResultInfo, context: StrategyContext) -> bool:
        graph, current, changed = context.stream_graph, head, False
        while self._may_pass(graph.node(current), len(graph.in_edges(current))):
            outgoing = graph.out_edges(current)
            if len(outgoing) != 1:
                break
            (edge,) = outgoing
            target = graph.node(edge.target_id)
            if not edge.is_forward:
                if not isinstance(edge.partitioner, _DROPPED) or not self._may_lose(target, graph):
                    break
                request = StreamEdgeUpdateRequest(edge.id, FORWARD)
                reason = f"one task reads the {show_bytes(result.total)} before {graph.node(head).name}"
                chosen = f"no {edge.partitioner}"
                if not context.change([request], DecisionKind.EXCHANGE, target, chosen, reason, bytes=result.total):
                    break
                graph, changed = context.stream_graph, True
            current = target.id
        return changed

    def _may_lose(self, node: StreamNode, graph: StreamGraph) -> bool:
        """Whether a node does without the exchange before it: no join behind it meets rows as that left them."""
        meets = any(len(graph.in_edges(edge.target_id)) > 1 for edge in relying_edges(graph, node.id))
        return self._may_pass(node, len(graph.in_edges(node.id))) and not meets

    def _may_pass(self, node: StreamNode, inputs: int) -> bool:
        narrow = isinstance(node.operator, CalcOperator) and node.operator.is_cheap
        return inputs == 1 and node.parallelism is None and (node.kind in _PASSED or narrow)
