"""Splits the rows of the hot keys of a window among several tasks, by the order of the window.

Before::

    orders ──HASH(customer)──▶ Window      a task sorts and numbers 5 GiB of a customer

After::

    orders ──HASH(customer), may be split──▶ Window

The rows of hot subpartitions are exchanged once more, by ranges of the customer and the order. 20 tasks number 250 MiB
each, and each adds the number of rows of the customer in the preceding tasks.
"""

from __future__ import annotations

from penstock.base.units import show_count
from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.graph import StreamEdge, WindowOperator
from penstock.optimizer import skew
from penstock.optimizer.graphs import hash_exchanges_of, relying_edges
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy

MIN_SPEEDUP = 1.5
"""The minimum estimated speedup of a split; the margin covers errors of the estimate."""

_SPLIT_COST = 2
"""The cost of computing split rows relative to the cost of computing them in a single task.

Measured: 1.8 times the CPU seconds, see docs/explanation/skewed-aggregates.md; the stages also wait for each other.
"""

MAX_CHUNK_FRACTION = 2 / 3
"""The maximum size of a chunk relative to the largest subpartition; a larger chunk makes the split useless."""


def speedup(largest: int, hot: int, total: int, cores: int, tasks: int) -> float:
    """Return the estimated speedup: the time of a window without a split divided by its time with a split.

    Without a split, a single task reads, sorts and computes the largest subpartition, at one unit of time per byte.
    With a split, the rows of all hot subpartitions are sampled, written by ranges of the order, and aggregated per
    range, before they are read, sorted and computed.

    `largest` are the bytes of the largest subpartition. `hot` are the bytes of all subpartitions that are split.
    `cores` is the number of tasks that run at the same time. `tasks` is the number of tasks that wrote the largest
    subpartition, which bounds the number of chunks.

    >>> speedup(largest=800, hot=800, total=1000, cores=16, tasks=100)
    7.111111111111111
    >>> speedup(largest=800, hot=800, total=1000, cores=2, tasks=100)
    0.8888888888888888
    """
    unsplit = max(largest, total / cores)
    split = _SPLIT_COST * hot / min(cores, tasks) + (total - hot) / cores
    return unsplit / split


class AdaptiveSkewedWindow(StreamGraphOptimizationStrategy):
    """Splits the skewed subpartitions before a window by its order."""

    def __init__(self) -> None:
        self._decided: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Split skewed exchanges before windows."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":  # the option also applies to windows
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if isinstance(reader.operator, WindowOperator):
                changed |= self._split(edge, reader.operator, result, context)
        return changed

    def _split(self, edge: StreamEdge, operator: WindowOperator, result: ResultInfo, context: StrategyContext) -> bool:
        skewed = skew.skewed_subpartitions(result, context.config)
        if edge.id in self._decided or not skewed:
            return False
        self._decided.add(edge.id)
        graph, reason = context.stream_graph, skew.largest_size_text(result)
        node, dependents = graph.node(edge.target_id), relying_edges(graph, edge.target_id)
        refusal = operator.not_divided or skew.split_obstacle(graph, dependents)
        refusal = refusal or _cost_refusal(result, skewed, context)
        if refusal:
            skew.decide_against_split(context, node, f"{refusal}; {reason}")
            return False
        return skew.decide_split(context, edge, node, result, "divided by the order of the window", reason, dependents)


def _cost_refusal(result: ResultInfo, skewed: list[int], context: StrategyContext) -> str | None:
    """Return why splitting the rows of hot keys does not pay off, or None if it does."""
    cores, largest, tasks = context.resources.cores, int(result.subpartitions.max()), skew.largest_writer_count(result)
    if tasks is None:
        return "the tasks that wrote its largest partition are unknown"
    if tasks < 2:
        return "a single task wrote its largest partition, so a single task would have to read it for a split"
    if context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED":
        return None
    hot = int(result.subpartitions[skewed].sum())
    if speedup(largest, hot, result.total, cores, tasks) >= MIN_SPEEDUP:
        return None
    return (
        f"a split would exchange and read its rows once more, which is not worth it with {show_count(cores, 'core')} "
        f"and {show_count(tasks, 'task')} that wrote them"
    )
