"""Holds back what is large until that is measured which may turn out small.

Before::

    orders ──HASH──┐
                   ├─▶ join          both sides are written at once
    users  ──HASH──┘

After::

    orders waits for users; once users is measured, orders is either chained to a broadcast join and never
    written, or written as before, less what users' keys rule out.

A source waits for a side further away as well, if that side's keys can filter it before an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY, DYNAMIC_FILTERING_ENABLED
from penstock.decisions import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import is_small_table
from penstock.optimizer.graphs import crosses_exchange, is_hashed, is_shuffled, sides
from penstock.optimizer.joins import SIDES, may_be_filtered, may_build, other
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import StreamNode
    from penstock.optimizer.dynamic_filtering import FilterPath

_MUCH_LARGER = 4
"""How many times more than what waits holds may lie below a side that is awaited although it is the larger."""


def first_side(join_type: str, known: Mapping[str, int], is_open: Mapping[str, bool], small: int) -> str:
    """Return the side of a join to measure first, or an empty text where both had better start at once.

    Parameters
    ----------
    join_type
        Spark's name of it.
    known
        The bytes that the sources below each side hold.
    is_open
        Whether a side may give much less than its sources hold.
    small
        Holding back a side of fewer bytes is not worth it.
    """
    useful = [
        side
        for side in SIDES
        if is_open[side]
        and (may_build(join_type, side) or may_be_filtered(join_type, other(side)))
        and known[other(side)] >= small
        and known[side] <= known[other(side)] * _MUCH_LARGER
    ]
    # Of two sides that may be small, the one with less below it; that one can be broadcast at least.
    useful.sort(key=lambda side: (known[side], not may_build(join_type, side)))
    return useful[0] if useful else ""


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides before the job runs what waits for what."""

    def initialize(self, context: StrategyContext) -> None:
        """Hold sources back that can be filtered, then probe sides."""
        if context.config.flag(DYNAMIC_FILTERING_ENABLED):
            # A source that will be filtered makes the sides above it worth waiting for in turn.
            while self._await_keys(context):
                pass
        if context.config.get(BROADCAST_JOIN_STRATEGY) != "NONE":
            for join in context.stream_graph:
                self._await_build_side(join, context)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing; what was held back starts by itself."""
        del finished, context
        return False

    def _await_keys(self, context: StrategyContext) -> bool:
        """Let sources wait for keys, the least first; return whether sides became worth waiting for by that."""
        graph = context.stream_graph
        found = []
        for join in graph:
            for path in join.properties.get("filters", ()):
                giver = graph.node(path.giver[0])
                size = int(giver.properties.get(f"{path.giver[1]}_bytes", 0))
                if giver.properties.get(f"{path.giver[1]}_open") and self._is_worth_it(join, path, size, context):
                    found.append((size, join.id, path))
        changed = False
        for _, _, path in sorted(found, key=lambda one: one[:2]):
            awaited = sides(graph, graph.node(path.giver[0]))[path.giver[1]]
            if not awaited.is_forward and context.hold(path.steps[0], awaited.source_id):
                changed |= self._open(path.steps[0], context)
        return changed

    def _is_worth_it(self, join: StreamNode, path: FilterPath, size: int, context: StrategyContext) -> bool:
        graph = context.stream_graph
        lowest = graph.node(path.steps[0])
        if size > int(lowest.properties.get("bytes", 0)) * _MUCH_LARGER:
            return False
        exchanged = crosses_exchange(graph, lowest.id, join.id)
        return path.prunes or (exchanged and not is_small_table(lowest.id, 0.0, join.id, context))

    def _open(self, source_id: int, context: StrategyContext) -> bool:
        """Note that the sides above a source may give less than it holds; return whether that was news."""
        requests = [
            StreamNodeUpdateRequest(join.id, properties={f"{side}_open": True})
            for join in context.stream_graph
            for side in SIDES
            if source_id in join.properties.get(f"{side}_sources", ()) and not join.properties.get(f"{side}_open")
        ]
        return bool(requests) and context.modify_stream_node(requests)

    def _await_build_side(self, join: StreamNode, context: StrategyContext) -> None:
        edges = sides(context.stream_graph, join)
        if not is_shuffled(edges):
            return
        facts = join.properties
        known = {side: int(facts.get(f"{side}_bytes", 0)) for side in SIDES}
        is_open = {side: bool(facts.get(f"{side}_open")) and is_hashed(edges[side]) for side in SIDES}
        first = first_side(str(facts["join_type"]), known, is_open, context.resources.volume_per_task)
        if not first or not is_hashed(edges[other(first)]):
            return
        if context.hold(edges[other(first)].source_id, edges[first].source_id):
            reason = (
                f"the sources below it hold {show_bytes(known[first])} before filters, joins or aggregates, "
                f"those of the other side {show_bytes(known[other(first)])}"
            )
            context.decide(DecisionKind.BUILD_SIDE_FIRST, join, first, reason)
