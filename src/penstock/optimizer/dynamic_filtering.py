"""Filters a join's pending side by the keys of the side that has finished, as close to its sources as possible.

Before::

    sales ──HASH──┐
                  ├─▶ join             customers has finished: a twentieth of all customers
    customers ────┘

After::

    sales, keys of customers ──HASH──┐
                                     ├─▶ join
    customers ───────────────────────┘
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import (
    DYNAMIC_FILTERING_ENABLED,
    DYNAMIC_FILTERING_EXACT_KEYS,
    DYNAMIC_FILTERING_MAX_KEYS,
    DYNAMIC_FILTERING_SELECTIVITY,
)
from penstock.decisions import DecisionKind, Told
from penstock.estimates import Estimate, Unit
from penstock.graph import DynamicFilterRef, JoinInput, JoinOperator, ScanOperator, StreamNodeUpdateRequest
from penstock.graph.wording import called, keys_of
from penstock.optimizer.graphs import broadcast_to, crosses_exchange, equi_join, equi_joins, joins_behind
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.graph import FilterPath, Side, StreamGraph
    from penstock.optimizer.graphs import EquiJoin

JOIN, SIDE, SKIPS = "join", "side", "skips"
"""The figures of a decision that name the join side the keys come from."""


def part_left(rows: int | None, of: int | None, filtered: int | None) -> float | None:
    """Return about which fraction of the filtered rows a filter keeps, or None if that is not known.

    Of two tables that are joined, the smaller one usually has each key once. So the filter keeps about the fraction
    of the smaller table's rows that its keys come from.

    Parameters
    ----------
    rows
        The rows that the keys come from, or None.
    of
        The rows that were read from the source table of the keys, or None.
    filtered
        The rows of the source that would be filtered, or None.
    """
    if rows == 0:
        return 0.0
    if not rows or not of:
        return None
    return min(1.0, rows / min(of, filtered or of))


def scan(graph: StreamGraph, node_id: int) -> ScanOperator:
    """Return the scan operator of a source; an empty one for any other node."""
    operator = graph.node(node_id).operator
    return operator if isinstance(operator, ScanOperator) else ScanOperator()


def is_small_table(source_id: int, left: float, join_id: int, context: StrategyContext) -> bool:
    """Whether a source is a small broadcast table, faster to read whole than to wait for keys that filter it.

    Filtering it is worth more if an exchange lies between the joins, because rows without a partner in it are then not
    exchanged, and if its own keys filter another table before that is exchanged.

    Parameters
    ----------
    source_id, left
        The source, and the fraction of it that the filter would keep.
    join_id
        The join that the keys come from.
    """
    graph = context.stream_graph
    saved = (1 - left) * (scan(graph, source_id).bytes or 0)
    lookups = broadcast_to(graph, source_id)
    if not lookups or saved >= context.resources.volume_per_task:
        return False
    if any(crosses_exchange(graph, one, join_id) for one in lookups):
        return False
    return not any(
        path.filter_source.join_id in lookups and crosses_exchange(graph, path.targets[0], join.id)
        for join in equi_joins(graph)
        for path in join.operator.filters
    )


def left_by(join: EquiJoin, build: Side, rows: int | None, context: StrategyContext) -> float:
    """Return about which fraction of its probe side's rows a join keeps.

    Parameters
    ----------
    join, build
        The join, and its side that is broadcast.
    rows
        The rows of that side, or None.
    """
    paths = [path for path in join.operator.filters if path.side is build.other]
    if not paths:
        return 1.0
    source = paths[0].keys_from
    left = part_left(rows, None if source is None else context.rows_scanned(source), None)
    return 1.0 if left is None else left


class DynamicFiltering(StreamGraphOptimizationStrategy):
    """Places filters; their keys are collected when the vertex that uses them starts."""

    def __init__(self) -> None:
        self._seen: set[DynamicFilterRef] = set()
        self._given_by: dict[JoinInput, list[tuple[DynamicFilterRef, FilterPath]]] = {}

    def initialize(self, context: StrategyContext) -> None:
        """Collect the filter paths that start at each join side."""
        for join in equi_joins(context.stream_graph):
            for index, path in enumerate(join.operator.filters):
                ref = DynamicFilterRef(join.id, index)
                self._given_by.setdefault(path.filter_source, []).append((ref, path))

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Place the filters from finished join sides that are worth their cost."""
        if not context.config.flag(DYNAMIC_FILTERING_ENABLED):
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            for side, edge in join.edges.items():
                given = finished.results.get(edge.source_id)
                if given is not None:
                    for ref, path in self._given_by.get(JoinInput(join.id, side), ()):
                        changed |= self._place(ref, path, given, context)
        return changed

    def _place(self, ref: DynamicFilterRef, path: FilterPath, result: ResultInfo, context: StrategyContext) -> bool:
        if ref in self._seen:
            return False
        self._seen.add(ref)
        graph, config = context.stream_graph, context.config
        rows = result.rows
        if rows is None or rows > config.integer(DYNAMIC_FILTERING_MAX_KEYS):
            return False
        if path.exact and rows > config.integer(DYNAMIC_FILTERING_EXACT_KEYS):
            path = replace(path, prunes=False)
        scanned = None if path.keys_from is None else context.rows_scanned(path.keys_from)
        kept = part_left(rows, scanned, scan(graph, path.targets[0]).rows)
        left = 1.0 if kept is None else kept
        target, prunes = self._target(path, left, context)
        if target is None or not (prunes or _is_worth_it(target, left, ref, path, context)):
            return False
        node, given_by = graph.node(target), path.filter_source
        request = StreamNodeUpdateRequest(target, filters=(*node.filters, ref))
        chosen = f"by the {given_by.side} side of {given_by.join_id} {graph.node(given_by.join_id).name}"
        keys = f"the keys of its {show_count(rows, 'row')}"
        reason = f"{keys} keep about {left:.1%} of the rows"
        if prunes:
            estimate = f", which keep about {left:.1%} of the rows" if left < 1 else ""
            reason = f"the source can skip data that has none of {keys}{estimate}"
        figures = {"rows": rows, JOIN: given_by.join_id, SIDE: given_by.side, SKIPS: int(prunes)}
        told = _told(ref, path, rows, kept, context)
        return context.change([request], DecisionKind.DYNAMIC_FILTER, node, chosen, reason, told, **figures)

    def _target(self, path: FilterPath, left: float, context: StrategyContext) -> tuple[int | None, bool]:
        """Return the node to filter at, and whether the source can skip files there.

        That is the lowest possible node, but above broadcast joins that keep even fewer rows: a lookup in their small
        tables is cheaper than a lookup in a large filter.
        """
        graph = context.stream_graph
        pending = [one for one in path.targets if not context.is_frozen(one) and len(graph.out_edges(one)) == 1]
        if not pending:
            return None, False
        if path.prunes and pending[0] == path.targets[0]:
            return pending[0], True
        best = current = pending[0]
        while (edge := graph.out_edges(current)[0]).is_forward:
            current = edge.target_id
            if len(graph.out_edges(current)) != 1:
                break
            if current in pending and self._left_by(current, context) < left:
                best = current
        return best, False

    def _left_by(self, node_id: int, context: StrategyContext) -> float:
        """Return about which fraction of its probe side's rows a broadcast join keeps."""
        join = equi_join(context.stream_graph, node_id)
        build = None if join is None else join.broadcast_side
        if join is None or build is None:
            return 1.0
        result = context.result(join.edges[build].source_id)
        return 1.0 if result is None else left_by(join, build, result.rows, context)


def _told(ref: DynamicFilterRef, path: FilterPath, rows: int, kept: float | None, context: StrategyContext) -> Told:
    """Return how people are told of a filter: which rows it keeps, and whose keys it has."""
    graph, given_by = context.stream_graph, equi_join(context.stream_graph, path.filter_source.join_id)
    join = graph.node(ref.join_id).operator
    assert isinstance(join, JoinOperator)
    assert given_by is not None
    table = scan(graph, path.targets[0]).table or called(join, path.side)
    source = given_by.called(path.filter_source.side)
    sentence = f"{table} keeps only rows with a key of {source}{keys_of(join, path.side)}"
    why = f"{source} gives only {show_count(rows, 'row')}"
    option, estimate = DYNAMIC_FILTERING_ENABLED, None
    if path.prunes:
        why = f"data of {table} that has none of these keys can be skipped"
    elif kept is not None:
        option = DYNAMIC_FILTERING_SELECTIVITY
    if kept is not None and kept < 1:
        why += f"; that keeps about {kept:.1%} of {table}"
        estimate = Estimate(f"part of the rows of {table} kept", Unit.FRACTION, kept)
    tables = tuple(dict.fromkeys((table, *given_by.operator.side(path.filter_source.side).tables)))
    return Told(f"{sentence}, as {why}", option.key, estimate, tables=tables)


def _is_worth_it(target: int, left: float, ref: DynamicFilterRef, path: FilterPath, context: StrategyContext) -> bool:
    """Whether a filter above a node is worth its lookups, if the source itself cannot skip the rows."""
    graph, most = context.stream_graph, context.config.get(DYNAMIC_FILTERING_SELECTIVITY)
    assert isinstance(most, float)
    return (
        left <= most
        and crosses_exchange(graph, target, ref.join_id)
        # Otherwise a join that is chained to it looks up the very same keys.
        and crosses_exchange(graph, target, path.filter_source.join_id, unless_reached=True)
        and not is_small_table(path.targets[0], left, ref.join_id, context)
    )
