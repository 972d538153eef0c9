"""Skewed subpartitions: how they are split into slices by upstream task, and what strategies record about them.

The rules follow the skewed join strategy of Flink and its parallelism decider.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.config.options import SKEWED_FACTOR, SKEWED_JOIN_STRATEGY, SKEWED_THRESHOLD
from penstock.decisions.log import DecisionKind, DecisionLog, Explanation
from penstock.graph import AggregateOperator, StreamEdge, StreamEdgeUpdateRequest, StreamGraph, StreamNode
from penstock.optimizer.graphs import restore_hash_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.optimizer.strategy import ResultInfo, StrategyContext

LARGEST = "largest"
"""The name of the figure in a split decision with the bytes of the largest subpartition."""
Range = tuple[int, int]
"""The start and the exclusive end of a range of upstream tasks."""


def settle_split(log: DecisionLog, node_id: int, **outcome: int | str) -> None:
    """Add the outcome to the decisions about hot subpartitions before a node."""
    for decision in log.of((node_id,), DecisionKind.SKEW):
        if LARGEST in decision.figures:
            log.settle(decision.id, **outcome)


def median_size(sizes: Sequence[int]) -> int:
    """Return the median of sizes, at least 1; for an even count, the mean of the middle two, rounded down."""
    return max(int(median(sizes)), 1)


def skew_threshold(sizes: Sequence[int], factor: float, threshold: int) -> int:
    """Return the bytes above which a subpartition is skewed."""
    return int(max(median_size(sizes) * factor, threshold))


def split_target(sizes: Sequence[int], threshold: int, volume: int) -> int:
    """Return the target bytes of a slice: the volume per task, or the mean of the unskewed subpartitions if larger."""
    normal = [size for size in sizes if size <= threshold]
    return max(volume, sum(normal) // len(normal)) if normal else volume


def split_along_mappers(bytes_per_mapper: Sequence[int], target: int) -> list[Range]:
    """Return ranges of consecutive mappers with less than `target` bytes each.

    A mapper is never divided, so a range of a single mapper may have more.
    """
    ranges: list[Range] = []
    start, filled = 0, 0
    for mapper, size in enumerate(bytes_per_mapper):
        if mapper > start and filled + size >= target:
            ranges.append((start, mapper))
            start, filled = mapper, 0
        filled += size
    ranges.append((start, len(bytes_per_mapper)))
    return ranges


def skewed_subpartitions(result: ResultInfo, config: Configuration) -> list[int]:
    """Return the indices of a result's skewed subpartitions."""
    factor = config.get(SKEWED_FACTOR)
    assert isinstance(factor, float)
    limit = skew_threshold(result.subpartitions.tolist(), factor, config.integer(SKEWED_THRESHOLD))
    return [int(i) for i in (result.subpartitions > limit).nonzero()[0]]


def split_obstacle(graph: StreamGraph, relying: list[StreamEdge], subject: str | None = None) -> str | None:
    """Return why operators after `relying` edges, which need all rows of a key in the same task, prevent a split.

    `subject` replaces the name of the operator in the reason. None means that a split is possible.
    """
    for edge in relying:
        node = graph.node(edge.target_id)
        name = subject or f"{node.name} after it"
        if not isinstance(node.operator, AggregateOperator):
            return f"{name} needs all rows of a key in one task"
        if node.operator.not_mergeable is not None:
            return f"{name} cannot be merged from partial results: {node.operator.not_mergeable}"
    return None


def decide_unsplit(
    context: StrategyContext, node: StreamNode, reason: str, outcome: str = "its large partitions are not split"
) -> None:
    """Record that the skewed subpartitions before an operator are not split, and why."""
    explanation = Explanation(f"{context.display_name(node)}: {outcome}, as {reason}", SKEWED_JOIN_STRATEGY.key)
    context.decide(DecisionKind.SKEW, node, "not split", reason, explanation)


def largest_share(result: ResultInfo) -> str:
    """Return the bytes of the largest subpartition of a result, as a clause."""
    largest = int(result.subpartitions.max())
    return f"the largest of {len(result.subpartitions)} partitions has {show_bytes(largest)}"


def largest_writers(result: ResultInfo) -> int | None:
    """Return the number of tasks that wrote to the largest subpartition of a result, or None if it is unknown."""
    return None if result.mappers is None else int((result.mappers([int(result.subpartitions.argmax())]) > 0).sum())


def decide_split(
    context: StrategyContext,
    edge: StreamEdge,
    node: StreamNode,
    result: ResultInfo,
    how: str,
    reason: str,
    relying: Sequence[StreamEdge] = (),
) -> bool:
    """Let several tasks read the skewed subpartitions of an edge, and record it as a decision about a node.

    `relying` edges become hash exchanges. `how` says what happens to the subpartitions. Return whether it is possible.
    """
    skewed = skewed_subpartitions(result, context.config)
    chosen = f"{len(skewed)} of {len(result.subpartitions)} partitions {how}"
    explanation = Explanation(f"{context.display_name(node)}: {chosen}, as {reason}", SKEWED_JOIN_STRATEGY.key)
    requests = [StreamEdgeUpdateRequest(edge.id, intra_input_correlated=False), *restore_hash_requests(relying)]
    figures = {LARGEST: int(result.subpartitions.max())}
    return context.change(requests, DecisionKind.SKEW, node, chosen, reason, explanation, **figures)
