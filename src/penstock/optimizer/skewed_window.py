"""Divides the rows of a window's hot keys among several tasks, by the order of the window.

Before::

    orders ──HASH(customer)──▶ Window      one task sorts 5 GiB of one customer, and numbers them

After::

    orders ──HASH(customer), may be split──▶ Window

The rows of hot subpartitions are exchanged once more, by ranges of the customer and the order. 20 tasks number 250 MiB
each, and the tasks that follow add how many rows of the customer the tasks before them had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.decisions import DecisionKind, Told
from penstock.graph import StreamEdgeUpdateRequest, WindowOperator
from penstock.optimizer.dividing import WORTH_IT, times_faster
from penstock.optimizer.graphs import hash_exchanges_of, hashed_again, relying_edges
from penstock.optimizer.skew import LARGEST
from penstock.optimizer.skewed_join import obstacle, skewed_subpartitions
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
    """Lets the skewed subpartitions before a window be divided by its order."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Let skewed exchanges before windows be divided."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if isinstance(reader.operator, WindowOperator):
                changed |= self._look_at(edge, reader.operator, result, context)
        return changed

    def _look_at(
        self, edge: StreamEdge, operator: WindowOperator, result: ResultInfo, context: StrategyContext
    ) -> bool:
        skewed = skewed_subpartitions(result, context.config)
        if edge.id in self._seen or not skewed:
            return False
        self._seen.add(edge.id)
        graph = context.stream_graph
        node, relying = graph.node(edge.target_id), relying_edges(graph, edge.target_id)
        called, largest = context.called(node), int(result.subpartitions.max())
        has = f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"
        why_not = operator.not_divided or obstacle(graph, relying) or _why_not_worth_it(result, skewed, context)
        if why_not:
            reason = f"{why_not}; {has}"
            told = Told(f"{called}: its large partitions are not split, as {reason}", SKEWED_JOIN_STRATEGY.key)
            context.decide(DecisionKind.SKEW, node, "not split", reason, told)
            return False
        chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions divided by the order of the window"
        told = Told(f"{called}: {chosen}, as {has}", SKEWED_JOIN_STRATEGY.key)
        requests = [StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False), *hashed_again(relying)]
        return context.change(requests, DecisionKind.SKEW, node, chosen, has, told, **{LARGEST: largest})


def _why_not_worth_it(result: ResultInfo, skewed: list[int], context: StrategyContext) -> str | None:
    """Return why the rows of hot keys are better left to one task each, or None."""
    if result.mappers is None:
        return "it is not known which tasks wrote its largest partition"
    cores, largest = context.resources.cores, int(result.subpartitions.max())
    tasks = int((result.mappers([int(result.subpartitions.argmax())]) > 0).sum())
    if tasks < 2:
        return "one task wrote its largest partition, and its rows are read along the tasks that wrote them"
    if context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED":
        return None
    hot = int(result.subpartitions[skewed].sum())
    if times_faster(largest, hot, result.total, cores, tasks) >= WORTH_IT:
        return None
    return (
        f"it would exchange and read its rows once more, which is not worth it with {show_count(cores, 'core')} "
        f"and {show_count(tasks, 'task')} that wrote them"
    )
