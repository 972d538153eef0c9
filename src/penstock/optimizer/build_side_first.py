"""Delays the large side of a join until the potentially small side has been measured.

Before::

    orders ──HASH──┐
                   ├─▶ join          both sides are written at the same time
    users  ──HASH──┘

After::

    orders waits for users. Once users is measured, orders is chained to a broadcast join and never shuffled, or
    it is shuffled without the rows that the keys of users filter out.

A source also waits for any join side whose keys can filter its rows before an exchange, or let it skip data.

orders stops waiting once the first tasks of users have written too many bytes to broadcast and too many filter keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import BROADCAST_JOIN_STRATEGY, DYNAMIC_FILTERING_ENABLED, DYNAMIC_FILTERING_MAX_KEYS
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import FilterPath, JoinType, Side, StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import is_faster_unfiltered, scan_operator
from penstock.optimizer.graphs import EquiJoin, crosses_exchange, equi_join, equi_joins, is_hashed
from penstock.optimizer.strategy import (
    OperatorsFinished,
    OperatorsRunning,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)

if TYPE_CHECKING:
    from penstock.optimizer.strategy import PartialResult

_MAX_SIZE_RATIO = 4
"""A side is measured first only if its sources have at most this many times the bytes of the other side's sources."""


def side_to_measure_first(
    join_type: JoinType, source_bytes: Mapping[Side, int | None], shrinking: Collection[Side], min_bytes: int
) -> Side | None:
    """Return the side of a join to measure first, or None if both should start at the same time.

    `source_bytes` are the bytes of the sources of each side; None (unknown) is treated as 0. `shrinking` are the sides
    that may be much smaller than their sources. Only a side whose sources have at least `min_bytes` is delayed.
    """
    sizes = {side: source_bytes[side] or 0 for side in Side}
    candidates = [
        side
        for side in Side
        if side in shrinking
        and (join_type.can_build(side) or join_type.can_filter(side.other))
        and sizes[side.other] >= min_bytes
        and sizes[side] <= sizes[side.other] * _MAX_SIZE_RATIO
    ]
    # If both may be small, prefer the side with smaller sources, then a side that can be broadcast.
    return min(candidates, key=lambda side: (sizes[side], not join_type.can_build(side)), default=None)


def _size_text(size: int | None) -> str:
    return "an unknown number of bytes" if size is None else show_bytes(size)


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides at the start of a job which nodes wait for other nodes, and releases them early if waiting is useless."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], tuple[int, Side]] = {}
        """The join and its awaited side, by the ids of the waiting node and the awaited node."""

    def initialize(self, context: StrategyContext) -> None:
        """Delay sources that dynamic filters may filter, then probe sides."""
        if context.config.flag(DYNAMIC_FILTERING_ENABLED):
            # Filtering a source may make the join sides above it small, so other sources may wait for those sides.
            while self._delay_filtered_sources(context):
                pass
        if context.config.get(BROADCAST_JOIN_STRATEGY) != "NONE":
            for join in equi_joins(context.stream_graph):
                self._delay_probe_side(join, context)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing: delayed nodes start once the awaited ones have finished."""
        del finished, context
        return False

    def on_operators_running(self, running: OperatorsRunning, context: StrategyContext) -> None:
        """Release nodes that wait for a join side that will be too large to broadcast and to filter by."""
        recorded: set[tuple[int, str]] = set()
        for (node_id, awaited_id), (join_id, side) in list(self._waits.items()):
            partial, join = running.results.get(awaited_id), equi_join(context.stream_graph, join_id)
            if partial is None or join is None or not _is_too_large(partial, join, side, context):
                continue
            del self._waits[node_id, awaited_id]
            name = _waiting_name(node_id, join, side, context)
            # If a source waits for the keys, and a node chained to it for the size, record a single decision for both.
            if context.release(node_id, awaited_id) and (join_id, name) not in recorded:
                recorded.add((join_id, name))
                _record_release(join, side, name, partial, context)

    def _delay_filtered_sources(self, context: StrategyContext) -> bool:
        """Delay sources until the side with their filter keys is measured; return whether more sides may shrink."""
        graph = context.stream_graph
        candidates = []
        for join in equi_joins(graph):
            for path in join.operator.filters:
                key_join = equi_join(graph, path.filter_source.join_id)
                assert key_join is not None
                side = key_join.operator.side(path.filter_source.side)
                size = side.source_bytes or 0
                if side.may_shrink and self._is_worth_waiting(join.id, path, size, context):
                    awaited_edge = key_join.edges[path.filter_source.side]
                    awaited_side = (key_join.id, path.filter_source.side)
                    candidates.append((size, join.id, path.targets[0], awaited_edge, awaited_side))
        changed = False
        for _, _, source_id, awaited_edge, awaited_side in sorted(candidates, key=lambda candidate: candidate[:2]):
            if not awaited_edge.is_forward and context.defer(source_id, awaited_edge.source_id):
                self._waits[source_id, awaited_edge.source_id] = awaited_side
                changed |= self._mark_may_shrink(source_id, context)
        return changed

    def _is_worth_waiting(self, join_id: int, path: FilterPath, size: int, context: StrategyContext) -> bool:
        graph, source_id = context.stream_graph, path.targets[0]
        if size > (scan_operator(graph, source_id).bytes or 0) * _MAX_SIZE_RATIO:
            return False
        exchanged = crosses_exchange(graph, source_id, join_id)
        # A selectivity of 0 is the best case: no row passes the filter.
        return path.prunes or (exchanged and not is_faster_unfiltered(source_id, 0.0, join_id, context))

    def _mark_may_shrink(self, source_id: int, context: StrategyContext) -> bool:
        """Set `may_shrink` of the join sides that read a source; return whether any side changed."""
        requests = []
        for join in equi_joins(context.stream_graph):
            operator = join.operator
            for side in Side:
                join_side = operator.side(side)
                if source_id in join_side.sources and not join_side.may_shrink:
                    operator = operator.with_side(side, replace(join_side, may_shrink=True))
            if operator is not join.operator:
                requests.append(StreamNodeUpdateRequest(join.id, operator=operator))
        return bool(requests) and context.modify_stream_node(requests)

    def _delay_probe_side(self, join: EquiJoin, context: StrategyContext) -> None:
        if not join.is_shuffled:
            return
        sizes = {side: join.operator.side(side).source_bytes for side in Side}
        shrinking = [side for side in Side if join.operator.side(side).may_shrink and is_hashed(join.edges[side])]
        awaited_side = side_to_measure_first(join.type, sizes, shrinking, context.resources.volume_per_task)
        if awaited_side is None or not is_hashed(join.edges[awaited_side.other]):
            return
        waiting_id, awaited_id = join.edges[awaited_side.other].source_id, join.edges[awaited_side].source_id
        if context.defer(waiting_id, awaited_id):
            self._waits[waiting_id, awaited_id] = (join.id, awaited_side)
            size, waiting_size = _size_text(sizes[awaited_side]), _size_text(sizes[awaited_side.other])
            reason = (
                f"it reads {size} from its sources and may be much smaller after filters, joins or "
                f"aggregates; the other side reads {waiting_size} and waits"
            )
            waiting_name, awaited_name = join.side_names(awaited_side.other)
            sentence = (
                f"{join.name(awaited_side.other)}: {waiting_name} waits until {awaited_name} is measured, which reads "
                f"{size} and may become small enough to broadcast, or to filter {waiting_name}"
            )
            explanation = Explanation(sentence, BROADCAST_JOIN_STRATEGY.key, tables=join.tables)
            context.decide(DecisionKind.BUILD_SIDE_FIRST, join.node, awaited_side, reason, explanation)


def _is_too_large(partial: PartialResult, join: EquiJoin, side: Side, context: StrategyContext) -> bool:
    """Whether a side that is being written will neither be broadcast nor filter sources by its keys."""
    config, limit = context.config, max(context.resources.broadcast_threshold, 0)
    may_be_broadcast = join.type.can_build(side) and config.get(BROADCAST_JOIN_STRATEGY) != "NONE"
    max_keys = config.integer(DYNAMIC_FILTERING_MAX_KEYS) if config.flag(DYNAMIC_FILTERING_ENABLED) else 0
    return partial.exceeds_rows(max_keys) and not (may_be_broadcast and not partial.exceeds(limit))


def _waiting_name(node_id: int, join: EquiJoin, side: Side, context: StrategyContext) -> str:
    """Return the name of what waits: the opposite join side, or the table of a source that is not below that side."""
    table = scan_operator(context.stream_graph, node_id).table
    is_opposite_side = not table or node_id in join.operator.side(side.other).sources
    return join.side_names(side)[1] if is_opposite_side else table


def _record_release(join: EquiJoin, side: Side, waiting: str, partial: PartialResult, context: StrategyContext) -> None:
    assert partial.rows is not None  # _is_too_large is False without a row count
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
