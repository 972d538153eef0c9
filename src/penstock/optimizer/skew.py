"""Skewed subpartitions: their detection, their slices by upstream task, and the decisions about them.

The rules follow the skewed join strategy of Flink and its parallelism decider.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.config.options import SKEWED_FACTOR, SKEWED_JOIN_STRATEGY, SKEWED_THRESHOLD
from penstock.decisions.log import DecisionKind, DecisionLog, Explanation
from penstock.graph import AggregateOperator, StreamEdge, StreamEdgeUpdateRequest, StreamGraph, StreamNode
from penstock.optimizer.graphs import restore_hash_requests

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.optimizer.strategy import ResultInfo, StrategyContext

LARGEST_FIGURE = "largest"
"""The name of the figure with the bytes of the largest subpartition, in a decision to split."""
Range = tuple[int, int]
"""The start and the exclusive end of a range of upstream tasks."""


def settle_split_decisions(log: DecisionLog, node_id: int, **outcome: int | str) -> None:
    """Add an outcome to the decisions to split skewed subpartitions before a node."""
    for decision in log.of((node_id,), DecisionKind.SKEW):
        if LARGEST_FIGURE in decision.figures:
            log.settle(decision.id, **outcome)


def median_size(sizes: Sequence[int]) -> int:
    """Return the median of sizes, at least 1; for an even count, the mean of the middle two, rounded down."""
    return max(int(median(sizes)), 1)


def skew_threshold(sizes: Sequence[int], factor: float, threshold: int) -> int:
    """Return the bytes above which a subpartition is skewed: `factor` times the median, but at least `threshold`."""
    return int(max(median_size(sizes) * factor, threshold))


def split_target(sizes: Sequence[int], threshold: int, volume: int) -> int:
    """Return the target bytes of a slice: the volume per task, or the mean of the unskewed subpartitions if larger."""
    normal = [size for size in sizes if size <= threshold]
    return max(volume, sum(normal) // len(normal)) if normal else volume


def split_along_mappers(bytes_per_mapper: Sequence[int], target: int) -> list[Range]:
    """Return ranges of consecutive upstream tasks with less than `target` bytes each.

    A single upstream task may have `target` bytes or more, and is then a range of its own.
    """
    ranges: list[Range] = []
    start, range_bytes = 0, 0
    for mapper, size in enumerate(bytes_per_mapper):
        if mapper > start and range_bytes + size >= target:
            ranges.append((start, mapper))
            start, range_bytes = mapper, 0
        range_bytes += size
    ranges.append((start, len(bytes_per_mapper)))
    return ranges


def skewed_subpartitions(result: ResultInfo, config: Configuration) -> list[int]:
    """Return the indices of a result's skewed subpartitions."""
    factor = config.get(SKEWED_FACTOR)
    assert isinstance(factor, float)
    limit = skew_threshold(result.subpartitions.tolist(), factor, config.integer(SKEWED_THRESHOLD))
    return [int(i) for i in (result.subpartitions > limit).nonzero()[0]]


def split_obstacle(graph: StreamGraph, dependents: list[StreamEdge], subject: str | None = None) -> str | None:
    """Return why the operators at the end of the edges `dependents` prevent a split; None if they do not.

    Only aggregates with mergeable partial results allow a split. `subject` replaces the operator's name in the reason.
    """
    for edge in dependents:
        node = graph.node(edge.target_id)
        name = subject or f"{node.name} after it"
        if not isinstance(node.operator, AggregateOperator):
            return f"{name} needs all rows of a key in one task"
        if node.operator.not_mergeable is not None:
            return f"{name} cannot be merged from partial results: {node.operator.not_mergeable}"
    return None


def decide_against_split(
    context: StrategyContext, node: StreamNode, reason: str, outcome: str = "its large partitions are not split"
) -> None:
    """Record that the skewed subpartitions before an operator are not split, and why."""
    explanation = Explanation(f"{context.display_name(node)}: {outcome}, as {reason}", SKEWED_JOIN_STRATEGY.key)
    context.decide(DecisionKind.SKEW, node, "not split", reason, explanation)


def largest_size_text(result: ResultInfo) -> str:
    """Return a clause with the bytes of the largest subpartition of a result."""
    largest = int(result.subpartitions.max())
    return f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"


def largest_writer_count(result: ResultInfo) -> int | None:
    """Return the number of tasks that wrote to the largest subpartition of a result, or None if it is unknown."""
    return None if result.mappers is None else int((result.mappers([int(result.subpartitions.argmax())]) > 0).sum())


def decide_split(
    context: StrategyContext,
    edge: StreamEdge,
    node: StreamNode,
    result: ResultInfo,
    outcome: str,
    reason: str,
    dependents: Sequence[StreamEdge] = (),
) -> bool:
    """Let several tasks read the skewed subpartitions of an edge, and record that as a decision about a node.

    Chained `dependents` become hash exchanges. `outcome` says how rows are split. Return whether the graph changed.
    """
    skewed = skewed_subpartitions(result, context.config)
    chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions {outcome}"
    explanation = Explanation(f"{context.display_name(node)}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
    requests = [StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False), *restore_hash_requests(dependents)]
    figures = {LARGEST_FIGURE: int(result.subpartitions.max())}
    return context.change(requests, DecisionKind.SKEW, node, chosen, reason, explanation, **figures)
