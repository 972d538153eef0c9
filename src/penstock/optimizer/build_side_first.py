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

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY, DYNAMIC_FILTERING_ENABLED
from penstock.decisions import DecisionKind
from penstock.graph import JoinType, Side, StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import is_small_table, scan
from penstock.optimizer.graphs import crosses_exchange, equi_join, equi_joins, is_hashed
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.graph import FilterPath
    from penstock.optimizer.graphs import EquiJoin

_MUCH_LARGER = 4
"""How many times more than what waits holds may lie below a side that is awaited although it is the larger."""


def first_side(
    join_type: JoinType, source_bytes: Mapping[Side, int], shrinking: Collection[Side], small: int
) -> Side | None:
    """Return the side of a join to measure first, or None where both had better start at once.

    Parameters
    ----------
    join_type
        Its type.
    source_bytes
        The bytes that the sources below each side hold.
    shrinking
        The sides that may give much less than their sources hold.
    small
        Holding back a side of fewer bytes is not worth it.
    """
    useful = [
        side
        for side in Side
        if side in shrinking
        and (join_type.can_build(side) or join_type.can_filter(side.other))
        and source_bytes[side.other] >= small
        and source_bytes[side] <= source_bytes[side.other] * _MUCH_LARGER
    ]
    # Of two sides that may be small, the one with less below it; that one can be broadcast at least.
    return min(useful, key=lambda side: (source_bytes[side], not join_type.can_build(side)), default=None)


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides before the job runs what waits for what."""

    def initialize(self, context: StrategyContext) -> None:
        """Hold sources back that can be filtered, then probe sides."""
        if context.config.flag(DYNAMIC_FILTERING_ENABLED):
            # A source that will be filtered makes the sides above it worth waiting for in turn.
            while self._await_keys(context):
                pass
        if context.config.get(BROADCAST_JOIN_STRATEGY) != "NONE":
            for join in equi_joins(context.stream_graph):
                self._await_build_side(join, context)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing; what was held back starts by itself."""
        del finished, context
        return False

    def _await_keys(self, context: StrategyContext) -> bool:
        """Let sources wait for keys, the least first; return whether sides became worth waiting for by that."""
        graph = context.stream_graph
        found = []
        for join in equi_joins(graph):
            for path in join.operator.filters:
                given_by = equi_join(graph, path.filter_source.join_id)
                assert given_by is not None
                side = given_by.operator.side(path.filter_source.side)
                if side.may_shrink and self._is_worth_it(join.id, path, side.source_bytes, context):
                    awaited = given_by.edges[path.filter_source.side]
                    found.append((side.source_bytes, join.id, path.targets[0], awaited))
        changed = False
        for _, _, source_id, awaited in sorted(found, key=lambda one: one[:2]):
            if not awaited.is_forward and context.hold(source_id, awaited.source_id):
                changed |= self._note_may_shrink(source_id, context)
        return changed

    def _is_worth_it(self, join_id: int, path: FilterPath, size: int, context: StrategyContext) -> bool:
        graph, source_id = context.stream_graph, path.targets[0]
        if size > (scan(graph, source_id).bytes or 0) * _MUCH_LARGER:
            return False
        exchanged = crosses_exchange(graph, source_id, join_id)
        return path.prunes or (exchanged and not is_small_table(source_id, 0.0, join_id, context))

    def _note_may_shrink(self, source_id: int, context: StrategyContext) -> bool:
        """Note that the sides above a source may give less than it holds; return whether that was news."""
        requests = []
        for join in equi_joins(context.stream_graph):
            changed = join.operator
            for side in Side:
                known = changed.side(side)
                if source_id in known.sources and not known.may_shrink:
                    changed = changed.with_side(side, replace(known, may_shrink=True))
            if changed is not join.operator:
                requests.append(StreamNodeUpdateRequest(join.id, operator=changed))
        return bool(requests) and context.modify_stream_node(requests)

    def _await_build_side(self, join: EquiJoin, context: StrategyContext) -> None:
        if not join.is_shuffled:
            return
        held = {side: join.operator.side(side).source_bytes for side in Side}
        shrinking = [side for side in Side if join.operator.side(side).may_shrink and is_hashed(join.edges[side])]
        first = first_side(join.type, held, shrinking, context.resources.volume_per_task)
        if first is None or not is_hashed(join.edges[first.other]):
            return
        if context.hold(join.edges[first.other].source_id, join.edges[first].source_id):
            reason = (
                f"the sources below it hold {show_bytes(held[first])} before filters, joins or aggregates, "
                f"those of the other side {show_bytes(held[first.other])}"
            )
            context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, first, reason)
