"""Delays the large side of a join until the potentially small side has been measured.

Before::

    orders ──HASH──┐
                   ├─▶ join          both sides are written at the same time
    users  ──HASH──┘

After::

    orders waits for users. Once users is measured, orders is chained to a broadcast join and never shuffled, or
    it is shuffled without the rows that the keys of users filter out.

A source also waits for the side of another join if the keys of that side can filter the source before an exchange.

orders stops waiting once the first tasks of users have written too many bytes for a broadcast and too many keys for a
filter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import BROADCAST_JOIN_STRATEGY, DYNAMIC_FILTERING_ENABLED, DYNAMIC_FILTERING_MAX_KEYS
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import FilterPath, JoinType, Side, StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import is_small_table, scan
from penstock.optimizer.graphs import EquiJoin, crosses_exchange, equi_join, equi_joins, is_hashed
from penstock.optimizer.strategy import (
    OperatorsFinished,
    OperatorsRunning,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.optimizer.strategy import PartialResult

_MUCH_LARGER = 4
"""A side is measured first only if its sources have at most this many times the bytes of the other side."""


def first_side(
    join_type: JoinType, source_bytes: Mapping[Side, int | None], shrinking: Collection[Side], small: int
) -> Side | None:
    """Return the side of a join to measure first, or None if both should start at the same time.

    `source_bytes` are the bytes of the sources of each side; None (unknown) is treated as 0. `shrinking` are the sides
    that may be much smaller than their sources. A side with fewer than `small` bytes is not worth delaying.
    """
    sizes = {side: source_bytes[side] or 0 for side in Side}
    useful = [
        side
        for side in Side
        if side in shrinking
        and (join_type.can_build(side) or join_type.can_filter(side.other))
        and sizes[side.other] >= small
        and sizes[side] <= sizes[side.other] * _MUCH_LARGER
    ]
    # If both may be small, prefer the side with smaller sources, then a side that can be broadcast.
    return min(useful, key=lambda side: (sizes[side], not join_type.can_build(side)), default=None)


def _shown(size: int | None) -> str:
    return "an unknown number of bytes" if size is None else show_bytes(size)


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides at the start of a job which parts wait for others, and releases them while the job runs."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], tuple[int, Side]] = {}
        """The join and the awaited side, by the waiting node and the awaited node."""

    def initialize(self, context: StrategyContext) -> None:
        """Delay sources that can be filtered, then probe sides."""
        if context.config.flag(DYNAMIC_FILTERING_ENABLED):
            # Filtering a source may make the join sides above it small, so other sources may wait for those sides.
            while self._await_keys(context):
                pass
        if context.config.get(BROADCAST_JOIN_STRATEGY) != "NONE":
            for join in equi_joins(context.stream_graph):
                self._await_build_side(join, context)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing: delayed nodes start once the awaited ones have finished."""
        del finished, context
        return False

    def on_operators_running(self, running: OperatorsRunning, context: StrategyContext) -> None:
        """Release nodes that wait for a side that will be too large to broadcast and to filter by."""
        recorded: set[tuple[int, str]] = set()
        for (node_id, awaited), (join_id, side) in list(self._waits.items()):
            partial, join = running.results.get(awaited), equi_join(context.stream_graph, join_id)
            if partial is None or join is None or not _is_too_large(partial, join, side, context):
                continue
            del self._waits[node_id, awaited]
            name = _waiting_name(node_id, join, side, context)
            # Record a single decision for a source that waits for keys and a chained node that waits for the size.
            if context.release(node_id, awaited) and (join_id, name) not in recorded:
                recorded.add((join_id, name))
                _decide_release(join, side, name, partial, context)

    def _await_keys(self, context: StrategyContext) -> bool:
        """Delay sources until their filter keys are measured; return whether more join sides may shrink."""
        graph = context.stream_graph
        candidates = []
        for join in equi_joins(graph):
            for path in join.operator.filters:
                key_join = equi_join(graph, path.filter_source.join_id)
                assert key_join is not None
                side = key_join.operator.side(path.filter_source.side)
                size = side.source_bytes or 0
                if side.may_shrink and self._is_worth_it(join.id, path, size, context):
                    awaited = key_join.edges[path.filter_source.side]
                    awaited_side = (key_join.id, path.filter_source.side)
                    candidates.append((size, join.id, path.targets[0], awaited, awaited_side))
        changed = False
        for _, _, source_id, awaited, awaited_side in sorted(candidates, key=lambda candidate: candidate[:2]):
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
        """Mark the join sides above a source as potentially small; return whether a mark is new."""
        requests = []
        for join in equi_joins(context.stream_graph):
            changed = join.operator
            for side in Side:
                inputs = changed.side(side)
                if source_id in inputs.sources and not inputs.may_shrink:
                    changed = changed.with_side(side, replace(inputs, may_shrink=True))
            if changed is not join.operator:
                requests.append(StreamNodeUpdateRequest(join.id, operator=changed))
        return bool(requests) and context.modify_stream_node(requests)

    def _await_build_side(self, join: EquiJoin, context: StrategyContext) -> None:
        if not join.is_shuffled:
            return
        sizes = {side: join.operator.side(side).source_bytes for side in Side}
        shrinking = [side for side in Side if join.operator.side(side).may_shrink and is_hashed(join.edges[side])]
        first = first_side(join.type, sizes, shrinking, context.resources.volume_per_task)
        if first is None or not is_hashed(join.edges[first.other]):
            return
        waiting, awaited_id = join.edges[first.other].source_id, join.edges[first].source_id
        if context.defer(waiting, awaited_id):
            self._waits[waiting, awaited_id] = (join.id, first)
            reason = (
                f"it reads {_shown(sizes[first])} from its sources and may be much smaller after filters, joins or "
                f"aggregates; the other side reads {_shown(sizes[first.other])} and waits"
            )
            waiting_name, awaited_name = join.side_names(first.other)
            sentence = (
                f"{join.name(first.other)}: {waiting_name} waits until {awaited_name} is measured, which reads "
                f"{_shown(sizes[first])} and may become small enough to broadcast, or to filter {waiting_name}"
            )
            explanation = Explanation(sentence, BROADCAST_JOIN_STRATEGY.key, tables=join.tables)
            context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, first, reason, explanation)


def _is_too_large(partial: PartialResult, join: EquiJoin, side: Side, context: StrategyContext) -> bool:
    """Whether a side that is being written will neither be broadcast nor filter sources by its keys."""
    config, limit = context.config, max(context.resources.broadcast_threshold, 0)
    may_be_broadcast = join.type.can_build(side) and config.get(BROADCAST_JOIN_STRATEGY) != "NONE"
    max_keys = config.integer(DYNAMIC_FILTERING_MAX_KEYS) if config.flag(DYNAMIC_FILTERING_ENABLED) else 0
    return partial.exceeds_rows(max_keys) and not (may_be_broadcast and not partial.exceeds(limit))


def _waiting_name(node_id: int, join: EquiJoin, side: Side, context: StrategyContext) -> str:
    """Return the name of the waiting part: the opposite join side, or the table of a source outside the join."""
    table = scan(context.stream_graph, node_id).table
    is_opposite_side = not table or node_id in join.operator.side(side.other).sources
    return join.side_names(side)[1] if is_opposite_side else table


def _decide_release(join: EquiJoin, side: Side, waiting: str, partial: PartialResult, context: StrategyContext) -> None:
    assert partial.rows is not None  # _is_too_large needs counted rows
    awaited, _ = join.side_names(side)
    written = f"{show_count(partial.rows, 'row')} ({show_bytes(partial.size)})"
    so_far = f"{partial.done} of its {partial.tasks} tasks have written {written}"
    if partial.estimated_size is not None:
        so_far += f", so its total will be about {show_bytes(partial.estimated_size)}"
    sentence = (
        f"{join.name(side.other)}: {waiting} no longer waits for {awaited}, as {awaited} will be too large to "
        f"broadcast and has too many keys to filter by: {so_far}"
    )
    figures = {"tasks ended": partial.done, "tasks": partial.tasks, "bytes": partial.size, "rows": partial.rows}
    if partial.estimated_size is not None:
        figures["bytes foreseen"] = partial.estimated_size
    explanation = Explanation(sentence, BROADCAST_JOIN_STRATEGY.key, tables=join.tables)
    reason = f"{so_far}; the broadcast limit is {show_bytes(context.resources.broadcast_threshold)}"
    context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, f"not the {side} side", reason, explanation, **figures)
