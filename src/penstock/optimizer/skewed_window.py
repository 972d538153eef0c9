"""Splits the rows of the hot keys of a window among several tasks, by the order of the window.

Before::

    orders ──HASH(customer)──▶ Window      a task sorts and numbers 5 GiB of a customer

After::

    orders ──HASH(customer), may be split──▶ Window

The rows of hot subpartitions are exchanged once more, by ranges of the customer and the order. 20 tasks number 250 MiB
each, and each adds the number of rows of the customer in the preceding tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.decisions import DecisionKind, Explanation
from penstock.graph import StreamEdgeUpdateRequest, WindowOperator
from penstock.optimizer.dividing import MIN_SPEEDUP, speedup
from penstock.optimizer.graphs import hash_exchanges_of, relying_edges, restore_hash_requests
from penstock.optimizer.skew import LARGEST
from penstock.optimizer.skewed_join import skewed_subpartitions, split_obstacle
from penstock.optimizer.strategy import (
    OperatorsFinished,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.graph import StreamEdge
    from penstock.optimizer.strategy import ResultInfo


class AdaptiveSkewedWindow(StreamGraphOptimizationStrategy):
    """Splits the skewed subpartitions before a window by its order."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Split skewed exchanges before windows."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if isinstance(reader.operator, WindowOperator):
                changed |= self._split(edge, reader.operator, result, context)
        return changed

    def _split(self, edge: StreamEdge, operator: WindowOperator, result: ResultInfo, context: StrategyContext) -> bool:
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed:
            return False
        self._seen.add(edge.id)
        graph = context.stream_graph
        node, relying = graph.node(edge.target_id), relying_edges(graph, edge.target_id)
        name, largest = context.display_name(node), int(result.subpartitions.max())
        skew = f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
        refusal = operator.not_divided or split_obstacle(graph, relying) or _cost_refusal(result, skewed, context)
        if refusal:
            reason = f"{refusal}; {skew}"
            sentence = f"{name}: its large partitions are not split, as {reason}"
            context.decide(
                DecisionKind.SKEW, node, "not split", reason, Explanation(sentence, SKEWED_JOIN_STRATEGY.key)
            )
            return False
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions divided by the order of the window"
        explanation = Explanation(f"{name}: {chosen}, as {skew}", SKEWED_JOIN_STRATEGY.key)
        requests = [StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False), *restore_hash_requests(relying)]
        return context.change(requests, DecisionKind.SKEW, node, chosen, skew, explanation, **{LARGEST: largest})


def _cost_refusal(result: ResultInfo, skewed: list[int], context: StrategyContext) -> str | None:
    """Return why splitting the rows of hot keys does not pay off, or None if it does."""
    if result.mappers is None:
        return "the tasks that wrote its largest partition are unknown"
    cores, largest = context.resources.cores, int(result.subpartitions.max())
    tasks = int((result.mappers([int(result.subpartitions.argmax())]) > 0).sum())
    if tasks < 2:
        return "a single task wrote its largest partition, and rows are split by the tasks that wrote them"
    if context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED":
        return None
    hot = int(result.subpartitions[skewed].sum())
    if speedup(largest, hot, result.total, cores, tasks) >= MIN_SPEEDUP:
        return None
    return (
        f"a split would exchange and read its rows once more, which is not worth it with {show_count(cores, 'core')} "
        f"and {show_count(tasks, 'task')} that wrote them"
    )
