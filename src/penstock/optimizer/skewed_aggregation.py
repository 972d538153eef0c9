"""Splits the hot keys of an aggregate among several tasks, and merges their partial results.

Before::

    clicks ──HASH(user)──▶ Repartition ──FORWARD──▶ Aggregate      a task reads 5 GiB of a user

After::

    clicks ──HASH(user), subpartitions may be split──▶ Repartition ──HASH(user), partial──▶ Aggregate

This applies only to rows that are repartitioned before the aggregate. Without a repartition, Spark aggregates before
the exchange. (For a distinct count, it first exchanges the rows by group and counted value.) A hot group is then small,
unless its partial results contain the values themselves, as for an exact percentile or `collect_set`. Such partial
results are first merged in chunks::

    clicks ─▶ partial ──HASH(user)──▶ Aggregate                          a task merges 1000 partial results
    clicks ─▶ partial ──HASH(user)──▶ chunks ──HASH(user)──▶ Aggregate   31 tasks merge 32 each, and a task merges 31

`AdaptiveSkewedJoin` handles joins, and `AdaptiveSkewedWindow` handles windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import SKEWED_JOIN_STRATEGY
from penstock.graph import AggregateOperator, OperatorKind, StreamEdge, WindowOperator
from penstock.optimizer import skew
from penstock.optimizer.graphs import hash_exchanges_of, relying_edges
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from penstock.optimizer.skew import Range

MIN_SPEEDUP = 1.5
"""The minimum speedup for merging in chunks; a smaller speedup does not pay for the additional exchange."""

_SAMPLE_DIVISOR = 8
"""The sample that measures how many values partial results share has 1 / `_SAMPLE_DIVISOR` of the results."""
_BISECTION_STEPS = 30


def merge_chunk_count(tasks: int, cores: int) -> int:
    """Return the best number of chunks for the partial results of `tasks` tasks, if all hold the same values."""
    return max(1, min(isqrt(tasks), cores))


def split_evenly(sizes: Sequence[int], chunks: int) -> list[Range]:
    """Return at most `chunks` ranges of tasks with about equal bytes; no range is empty.

    >>> split_evenly([10, 10, 0, 10, 10], 2)
    [(0, 2), (2, 5)]
    """
    total, ends = sum(sizes), [0]
    for task, (size, so_far) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        if size and so_far * chunks >= total * len(ends):
            ends.append(task + 1)
    ends[-1] = len(sizes)
    return list(pairwise(ends))


def speedup(chunks: int, remaining: float) -> float:
    """Return the time to merge in a single task divided by the time to merge in chunks.

    The partial results that `n` tasks wrote before an exchange are merged in `p` chunks in parallel. Then a task merges
    the `p` results. If all partial results hold the same values, that task merges `p` of them instead of `n`, and each
    chunk merges `n / p`. If they hold disjoint values, a merged chunk is as large as its input, and nothing is saved.

    `chunks` is the number of chunks, each for a task. `remaining` is a merged chunk's size as a fraction of its input.

    >>> speedup(4, 0.25)
    2.0
    """
    return 1 / (1 / chunks + remaining)


def max_speedup(tasks: int, cores: int) -> float:
    """Return the speedup if all partial results hold the same values."""
    chunks = merge_chunk_count(tasks, cores)
    return speedup(chunks, chunks / tasks)


def sample_count(tasks: int) -> int:
    """Return how many partial results are merged as a sample, to measure how many values they have in common."""
    return max(2, tasks // _SAMPLE_DIVISOR)


def extrapolate_fraction(measured: float, sample: int, total: int) -> float:
    """Return the size of all partial results once merged as a fraction of their input, estimated from a sample.

    Assumes that each partial result holds an equally large random subset of the values of the group.

    `measured` is the size of the merged sample as a fraction of its input. `sample` and `total` are the number of
    partial results in the sample and in total.

    >>> extrapolate_fraction(0.5, 2, 10)  # both held the same values
    0.1
    >>> extrapolate_fraction(1.0, 2, 10)  # they held disjoint values
    1.0
    """
    if measured >= 1:
        return 1.0
    low, high = 0.0, 1.0  # bounds of the fraction of all values that a partial result holds
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _merged_fraction(middle, sample) > measured else (low, middle)
    return _merged_fraction(high, total)


def _merged_fraction(coverage: float, count: int) -> float:
    """Return the size of `count` merged partial results relative to their input; each has `coverage` of all values."""
    return (1 - (1 - coverage) ** count) / (count * coverage)


_NEED_WHOLE_GROUPS = frozenset({OperatorKind.AGGREGATE, OperatorKind.GROUPED_MAP, OperatorKind.WINDOW})
"""Kinds that need a whole group in the same task. `AdaptiveSkewedWindow` handles each `WindowOperator`."""
_MIN_SKEW = 2
"""The minimum bytes of a subpartition to split, as a multiple of the bytes per core: a split costs an exchange."""


class AdaptiveSkewedAggregation(StreamGraphOptimizationStrategy):
    """Splits skewed subpartitions before an aggregate, and merges its partial results."""

    def __init__(self) -> None:
        self._decided: set[str] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Split skewed exchanges before aggregates."""
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":  # the option also controls aggregates and windows
            return False
        changed = False
        for edge, reader, result in hash_exchanges_of(finished, context):
            if reader.kind is OperatorKind.REPARTITION:
                changed |= self._split_hot_keys(edge, result, context)
            elif isinstance(reader.operator, AggregateOperator) and reader.operator.keeps_values:
                changed |= self._merge_in_chunks(edge, result, context)
            elif reader.kind in _NEED_WHOLE_GROUPS and not isinstance(reader.operator, WindowOperator):
                self._record_obstacle(edge, result, context)  # a WINDOW here is a `WindowGroupLimit` of Spark
        return changed

    def _merge_in_chunks(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        """Let several tasks merge chunks of the partial results of hot groups; the aggregate merges the results."""
        if edge.id in self._decided or not skew.skewed_subpartitions(result, context.config):
            return False
        self._decided.add(edge.id)
        node = context.stream_graph.node(edge.target_id)
        tasks = skew.largest_writer_count(result) or 0
        refusal = _chunks_refusal(int(result.subpartitions.max()), result.total, tasks, context)
        if refusal:
            skew.decide_against_split(context, node, refusal, "its hot groups are not merged in chunks")
            return False
        reason = f"{skew.largest_size_text(result)} of partial results from {show_count(tasks, 'task')}"
        return skew.decide_split(context, edge, node, result, "merged in chunks before the aggregate", reason)

    def _record_obstacle(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> None:
        """Record why the rows of a hot key are not split, if the operator needs them in the same task."""
        refusal = skew.split_obstacle(context.stream_graph, [edge], "it")
        if refusal and edge.id not in self._decided and skew.skewed_subpartitions(result, context.config):
            self._decided.add(edge.id)
            node = context.stream_graph.node(edge.target_id)
            skew.decide_against_split(context, node, f"{refusal}; {skew.largest_size_text(result)}")

    def _split_hot_keys(self, edge: StreamEdge, result: ResultInfo, context: StrategyContext) -> bool:
        graph = context.stream_graph
        dependents = relying_edges(graph, edge.target_id)  # edges downstream that rely on this partitioning
        if edge.id in self._decided or not skew.skewed_subpartitions(result, context.config) or not dependents:
            return False
        self._decided.add(edge.id)
        node = graph.node(dependents[0].target_id)
        refusal = skew.split_obstacle(graph, dependents)
        largest, even_share = int(result.subpartitions.max()), result.total // context.resources.cores
        if not refusal and largest < _MIN_SKEW * even_share and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
            refusal = (
                f"its largest partition has {show_bytes(largest)}, less than twice the share of each of "
                f"{show_count(context.resources.cores, 'core')}, so splitting it would save little time"
            )
        if refusal:
            skew.decide_against_split(context, node, refusal)
            return False
        outcome = "split, and partial results merged"
        return skew.decide_split(context, edge, node, result, outcome, skew.largest_size_text(result), dependents)


def _chunks_refusal(largest: int, total: int, tasks: int, context: StrategyContext) -> str | None:
    """Return why merging the partial results of a hot group in chunks does not pay off, or None if it does."""
    cores = context.resources.cores
    if not tasks:
        return "the tasks that wrote its largest partition are unknown"
    if max_speedup(tasks, cores) < MIN_SPEEDUP:
        merged = f"it merges partial results of {show_count(tasks, 'task')} for its largest partition"
        return f"{merged}, too few for chunks on {show_count(cores, 'core')}"
    if largest < MIN_SPEEDUP * total // cores and context.config.get(SKEWED_JOIN_STRATEGY) != "FORCED":
        return (
            f"its largest partition has {show_bytes(largest)}, less than {MIN_SPEEDUP} times the share of each of "
            f"{show_count(cores, 'core')}, so splitting it would save little time"
        )
    return None
