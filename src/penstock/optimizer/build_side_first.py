"""Delays a join's large side until the side that may be small has been measured.

Before::

    orders ──HASH──┐
                   ├─▶ join          both sides are written at once
    users  ──HASH──┘

After::

    orders waits for users. Once users is measured, orders is chained to a broadcast join and never shuffled, or
    it is shuffled as before, without the rows that users' keys filter out.

A source also waits for a side further away if that side's keys can filter it before an exchange.

Once the first tasks of users have written more than can be broadcast, and more keys than filter, orders waits no
longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY, DYNAMIC_FILTERING_ENABLED, DYNAMIC_FILTERING_MAX_KEYS
from penstock.decisions import DecisionKind, Told
from penstock.graph import JoinType, Side, StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import is_small_table, scan
from penstock.optimizer.graphs import crosses_exchange, equi_join, equi_joins, is_hashed
from penstock.optimizer.strategy import (
    OperatorsFinished,
    OperatorsRunning,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.graph import FilterPath
    from penstock.optimizer.extrapolation import PartialResult
    from penstock.optimizer.graphs import EquiJoin

_MUCH_LARGER = 4
"""A side is measured first only if its sources hold at most this many times the bytes of the other side's."""


def first_side(
    join_type: JoinType, source_bytes: Mapping[Side, int | None], shrinking: Collection[Side], small: int
) -> Side | None:
    """Return the side of a join to measure first, or None if both should start at once.

    Parameters
    ----------
    join_type
        The type of the join.
    source_bytes
        The bytes of the sources below each side; unknown ones count as few.
    shrinking
        The sides that may be much smaller than their sources.
    small
        A side of fewer bytes is not worth delaying.
    """
    held = {side: source_bytes[side] or 0 for side in Side}
    useful = [
        side
        for side in Side
        if side in shrinking
        and (join_type.can_build(side) or join_type.can_filter(side.other))
        and held[side.other] >= small
        and held[side] <= held[side.other] * _MUCH_LARGER
    ]
    # If both may be small: the side with smaller sources, then the one that can be broadcast.
    return min(useful, key=lambda side: (held[side], not join_type.can_build(side)), default=None)


def _shown(size: int | None) -> str:
    return "an unknown number of bytes" if size is None else show_bytes(size)


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides before the job runs which parts of it wait for others, and while it runs how long."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], tuple[int, Side]] = {}
        """The join and the side that is awaited, by the node that waits and the node that it waits for."""

    def initialize(self, context: StrategyContext) -> None:
        """Delay sources that can be filtered, then probe sides."""
        if context.config.flag(DYNAMIC_FILTERING_ENABLED):
            # A source that will be filtered may make the sides above it small, so others may wait for those.
            while self._await_keys(context):
                pass
        if context.config.get(BROADCAST_JOIN_STRATEGY) != "NONE":
            for join in equi_joins(context.stream_graph):
                self._await_build_side(join, context)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing: what was delayed starts by itself."""
        del finished, context
        return False

    def on_operators_running(self, running: OperatorsRunning, context: StrategyContext) -> None:
        """Let nothing wait for a side that will be too large to be broadcast, and to filter by."""
        told: set[tuple[int, str]] = set()
        for (node_id, awaited), (join_id, side) in list(self._waits.items()):
            partial, join = running.results.get(awaited), equi_join(context.stream_graph, join_id)
            if partial is None or join is None or not _is_too_large(partial, join, side, context):
                continue
            del self._waits[node_id, awaited]
            waits = _waiting(node_id, join, side, context)
            if context.release(node_id, awaited) and (join_id, waits) not in told:
                told.add((join_id, waits))  # a source may wait for its keys, and what is chained to it for its bytes
                _decide_release(join, side, waits, partial, context)

    def _await_keys(self, context: StrategyContext) -> bool:
        """Let sources wait for keys, smallest side first; return whether more sides may be small because of that."""
        graph = context.stream_graph
        found = []
        for join in equi_joins(graph):
            for path in join.operator.filters:
                given_by = equi_join(graph, path.filter_source.join_id)
                assert given_by is not None
                side = given_by.operator.side(path.filter_source.side)
                size = side.source_bytes or 0
                if side.may_shrink and self._is_worth_it(join.id, path, size, context):
                    awaited = given_by.edges[path.filter_source.side]
                    found.append((size, join.id, path.targets[0], awaited, (given_by.id, path.filter_source.side)))
        changed = False
        for _, _, source_id, awaited, awaited_side in sorted(found, key=lambda one: one[:2]):
            if not awaited.is_forward and context.defer(source_id, awaited.source_id):
                self._waits[source_id, awaited.source_id] = awaited_side
                changed |= self._note_may_shrink(source_id, context)
        return changed

    def _is_worth_it(self, join_id: int, path: FilterPath, size: int, context: StrategyContext) -> bool:
        graph, source_id = context.stream_graph, path.targets[0]
        if size > (scan(graph, source_id).bytes or 0) * _MUCH_LARGER:
            return False
        exchanged = crosses_exchange(graph, source_id, join_id)
        return path.prunes or (exchanged and not is_small_table(source_id, 0.0, join_id, context))

    def _note_may_shrink(self, source_id: int, context: StrategyContext) -> bool:
        """Mark the join sides above a source as possibly small; return whether any was not marked before."""
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
        waiting, awaited_id = join.edges[first.other].source_id, join.edges[first].source_id
        if context.defer(waiting, awaited_id):
            self._waits[waiting, awaited_id] = (join.id, first)
            reason = (
                f"it reads {_shown(held[first])} from its sources and may be much smaller after filters, joins or "
                f"aggregates; the other side reads {_shown(held[first.other])} and waits"
            )
            waits, awaited = join.sides(first.other)
            sentence = (
                f"{join.name(first.other)}: {waits} waits until {awaited} is measured, "
                f"which reads {_shown(held[first])} and may leave little enough to broadcast, or to filter by"
            )
            told = Told(sentence, BROADCAST_JOIN_STRATEGY.key, tables=join.tables)
            context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, first, reason, told)


def _is_too_large(partial: PartialResult, join: EquiJoin, side: Side, context: StrategyContext) -> bool:
    """Whether a side that is still written will neither be broadcast nor filter others by its keys."""
    config, limit = context.config, max(context.resources.broadcast_threshold, 0)
    may_be_broadcast = join.type.can_build(side) and config.get(BROADCAST_JOIN_STRATEGY) != "NONE"
    most_keys = config.integer(DYNAMIC_FILTERING_MAX_KEYS) if config.flag(DYNAMIC_FILTERING_ENABLED) else 0
    return partial.exceeds_rows(most_keys) and not (may_be_broadcast and not partial.exceeds(limit))


def _waiting(node_id: int, join: EquiJoin, side: Side, context: StrategyContext) -> str:
    """Return what people call what waits for a side: the join's other one, or a source of a join further away."""
    table = scan(context.stream_graph, node_id).table
    is_of_join = not table or node_id in join.operator.side(side.other).sources
    return join.sides(side)[1] if is_of_join else table


def _decide_release(join: EquiJoin, side: Side, waits: str, partial: PartialResult, context: StrategyContext) -> None:
    assert partial.rows is not None  # else it would not be too large
    awaited, _ = join.sides(side)
    written = f"{show_count(partial.rows, 'row')} ({show_bytes(partial.size)})"
    so_far = f"{partial.done} of its {partial.tasks} tasks have written {written}"
    if partial.foreseen_size is not None:
        so_far += f", so all of it will be about {show_bytes(partial.foreseen_size)}"
    sentence = (
        f"{join.name(side.other)}: {waits} waits for {awaited} no longer, which will not be broadcast and has too many "
        f"keys to filter by: {so_far}"
    )
    figures = {"tasks ended": partial.done, "tasks": partial.tasks, "bytes": partial.size, "rows": partial.rows}
    if partial.foreseen_size is not None:
        figures["bytes foreseen"] = partial.foreseen_size
    told = Told(sentence, BROADCAST_JOIN_STRATEGY.key, tables=join.tables)
    reason = f"{so_far}; the limit of a broadcast is {show_bytes(context.resources.broadcast_threshold)}"
    context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, f"not the {side} side", reason, told, **figures)
