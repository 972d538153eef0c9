"""Splits skewed subpartitions of a join along the tasks that wrote them; the other side's are read by every slice.

Before::

    clicks ──HASH──┐
                   ├─▶ join            one task reads 5 GiB of clicks of one user, the others 40 MiB
    users  ──HASH──┘

After::

    clicks ──HASH, subpartitions may be cut──┐
                                             ├─▶ join      20 tasks read 250 MiB each, and that user's row
    users  ──HASH────────────────────────────┘

What counts as skewed and which sides may be split is as in Flink's adaptive skewed join, restated. Unlike there, an
aggregate behind the join that relies on its keys lying together does not forbid the split where its functions can
be merged: its partial results are then exchanged once more (`FORCED` does that with every operator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SKEWED_FACTOR, SKEWED_JOIN_STRATEGY, SKEWED_THRESHOLD
from penstock.decisions import DecisionKind
from penstock.graph import OperatorKind, StreamEdgeUpdateRequest
from penstock.optimizer.graphs import hashed_again, is_hashed, joins_behind, relying_edges, sides
from penstock.optimizer.joins import SIDES, may_be_split
from penstock.optimizer.skew import LARGEST, skew_threshold
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.graph import StreamEdge, StreamGraph, StreamNode

MERGEABLE = "mergeable"
"""The property of an aggregate that says whether partial results of one group can be merged, and stay small."""
WHY_NOT = "not_mergeable_because"
"""The property of an aggregate that says why not."""


def skewed_subpartitions(result: ResultInfo, config: Configuration) -> list[int]:
    """Return which subpartitions of a result are skewed."""
    factor = config.get(SKEWED_FACTOR)
    assert isinstance(factor, float)
    limit = skew_threshold(result.subpartitions.tolist(), factor, config.integer(SKEWED_THRESHOLD))
    return [int(i) for i in (result.subpartitions > limit).nonzero()[0]]


def obstacle(graph: StreamGraph, relying: list[StreamEdge], word: str = "") -> str:
    """Return why operators that rely on keys lying together forbid a split, or an empty text.

    Parameters
    ----------
    graph, relying
        The graph, and the edges that lead to them.
    word
        What to call the operator, if not by its name.
    """
    for edge in relying:
        node = graph.node(edge.target_id)
        if node.kind is not OperatorKind.AGGREGATE:
            return f"{word or f'{node.name} behind it'} needs equal keys in one task"
        if not node.properties.get(MERGEABLE):
            return f"{word or f'{node.name} behind it'} cannot be merged: {node.properties.get(WHY_NOT, 'not known')}"
    return ""


class AdaptiveSkewedJoin(StreamGraphOptimizationStrategy):
    """Looks at every pending join of which both sides have been measured."""

    def __init__(self) -> None:
        self._results: dict[int, ResultInfo] = {}
        self._told: set[int] = set()

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Let skewed sides be split."""
        self._results.update(finished.results)
        if context.config.get(SKEWED_JOIN_STRATEGY) == "NONE":
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and join.id not in self._told:
                changed |= self._look_at(join, context)
        return changed

    def _look_at(self, join: StreamNode, context: StrategyContext) -> bool:
        graph = context.stream_graph
        edges = sides(graph, join)
        results = {side: self._results.get(edge.source_id) for side, edge in edges.items()}
        if not edges or not all(map(is_hashed, edges.values())) or None in results.values():
            return False
        self._told.add(join.id)
        skewed = {side: skewed_subpartitions(result, context.config) for side, result in results.items() if result}
        join_type, hints = str(join.properties["join_type"]), join.properties.get("hints", ())
        split = [side for side in SIDES if skewed[side] and may_be_split(join_type, side, hints)]
        for side in SIDES:
            if skewed[side] and side not in split:
                reason = f"a {join_type} join must find all rows of a key of that side in one task"
                if may_be_split(join_type, side):
                    reason = f"the hint {' and '.join(filter(None, hints))} may have Spark read all rows in one task"
                context.decide(DecisionKind.SKEW, join, f"{side} side not split", reason)
        if not split:
            return False
        relying = relying_edges(graph, join.id)
        why_not = "" if context.config.get(SKEWED_JOIN_STRATEGY) == "FORCED" else obstacle(graph, relying)
        if why_not:
            context.decide(DecisionKind.SKEW, join, "not split", why_not)
            return False
        requests = [StreamEdgeUpdateRequest(edges[side].id, intra_input_correlated=False) for side in split]
        if not context.modify_stream_edge([*requests, *hashed_again(relying)]):
            return False
        for side in split:
            sizes = self._results[edges[side].source_id].subpartitions
            largest, median = int(sizes.max()), int(sorted(sizes.tolist())[len(sizes) // 2])
            reason = f"the largest of its subpartitions has {show_bytes(largest)}, the median {show_bytes(median)}"
            chosen = f"{side} side, {len(skewed[side])} of {len(sizes)} subpartitions split"
            context.decide(DecisionKind.SKEW, join, chosen, reason, **{LARGEST: largest}, median=median)
        return True
