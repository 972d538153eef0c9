"""Filters the pending side of a join by the keys of the finished side, as close to its sources as possible.

Before::

    sales ──HASH──┐
                  ├─▶ join             customers has finished with a twentieth of its rows
    customers ────┘

After::

    sales with keys of customers ──HASH──┐
                                         ├─▶ join
    customers ───────────────────────────┘
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.config.options import (
    DYNAMIC_FILTERING_ENABLED,
    DYNAMIC_FILTERING_EXACT_KEYS,
    DYNAMIC_FILTERING_MAX_KEYS,
    DYNAMIC_FILTERING_SELECTIVITY,
)
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import DynamicFilterRef, JoinInput, JoinOperator, ScanOperator, StreamNodeUpdateRequest
from penstock.graph.labels import on_keys, side_name
from penstock.optimizer.graphs import EquiJoin, broadcast_to, crosses_exchange, equi_join, equi_joins, joins_behind
from penstock.optimizer.strategy import OperatorsFinished, ResultInfo, StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from penstock.graph import FilterPath, StreamGraph

JOIN_FIGURE, SIDE_FIGURE, SKIPS_FIGURE = "join", "side", "skips"
"""The names of figures of a filter decision: the join and side of the keys, and whether the source skips data."""


def filter_selectivity(rows: int | None, scanned: int | None, filtered: int | None) -> float | None:
    """Estimate the fraction of rows that pass a filter; None if the row counts are unknown.

    Keys are usually unique in the smaller of two joined tables, so this table has as many keys as rows. The fraction
    of rows that pass is about `rows` divided by the rows of the smaller table.

    `rows` is the number of rows that the keys are collected from, `scanned` the number read from the source table of
    the keys, and `filtered` the number in the source to be filtered; None if unknown.
    """
    if rows == 0:
        return 0.0
    if not rows or not scanned:
        return None
    return min(1.0, rows / min(scanned, filtered or scanned))


def scan_operator(graph: StreamGraph, node_id: int) -> ScanOperator:
    """Return the scan operator of a source, or a `ScanOperator` without figures for any other node."""
    operator = graph.node(node_id).operator
    return operator if isinstance(operator, ScanOperator) else ScanOperator()


def is_faster_unfiltered(source_id: int, selectivity: float, join_id: int, context: StrategyContext) -> bool:
    """Whether a source is a small broadcast table that is faster to read completely than to filter by awaited keys.

    `selectivity` is the fraction of rows that pass the filter, and `join_id` the join that the filter belongs to. False
    if there is an exchange between a join that reads the broadcast and the join `join_id`, because a filter then
    reduces the exchanged rows. Also False if the keys of the source filter another table before its exchange.
    """
    graph = context.stream_graph
    saved = (1 - selectivity) * (scan_operator(graph, source_id).bytes or 0)
    broadcast_joins = broadcast_to(graph, source_id)
    if not broadcast_joins or saved >= context.resources.volume_per_task:
        return False
    if any(crosses_exchange(graph, broadcast_join, join_id) for broadcast_join in broadcast_joins):
        return False
    return not any(
        path.filter_source.join_id in broadcast_joins and crosses_exchange(graph, path.targets[0], join.id)
        for join in equi_joins(graph)
        for path in join.operator.filters
    )


def measured_selectivity(join: EquiJoin, context: StrategyContext) -> float | None:
    """Estimate the fraction of probe rows with a match (1 if unknown); None unless a finished side is broadcast."""
    build = join.broadcast_side
    result = None if build is None else context.result(join.edges[build].source_id)
    if build is None or result is None:
        return None
    paths = [path for path in join.operator.filters if path.side is build.other]
    if not paths:
        return 1.0
    scanned = None if paths[0].keys_from is None else context.rows_scanned(paths[0].keys_from)
    fraction = filter_selectivity(result.rows, scanned, None)
    return 1.0 if fraction is None else fraction


class DynamicFiltering(StreamGraphOptimizationStrategy):
    """Adds dynamic filters to nodes; the keys are collected when the vertex of the node starts."""

    def __init__(self) -> None:
        self._decided: set[DynamicFilterRef] = set()
        self._paths: dict[JoinInput, list[tuple[DynamicFilterRef, FilterPath]]] = {}

    def initialize(self, context: StrategyContext) -> None:
        """Register the filter paths of all joins, by the join input that their keys come from."""
        for join in equi_joins(context.stream_graph):
            for index, path in enumerate(join.operator.filters):
                ref = DynamicFilterRef(join.id, index)
                self._paths.setdefault(path.filter_source, []).append((ref, path))

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Add those filters by the keys of finished join sides that save more than they cost."""
        if not context.config.flag(DYNAMIC_FILTERING_ENABLED):
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            for side, edge in join.edges.items():
                result = finished.results.get(edge.source_id)
                if result is not None:
                    for ref, path in self._paths.get(JoinInput(join.id, side), ()):
                        changed |= self._add(ref, path, result, context)
        return changed

    def _add(self, ref: DynamicFilterRef, path: FilterPath, result: ResultInfo, context: StrategyContext) -> bool:
        if ref in self._decided:
            return False
        self._decided.add(ref)
        graph, config = context.stream_graph, context.config
        rows = result.rows
        if rows is None or rows > config.integer(DYNAMIC_FILTERING_MAX_KEYS):
            return False
        if path.exact and rows > config.integer(DYNAMIC_FILTERING_EXACT_KEYS):  # too many keys to store exactly
            path = replace(path, prunes=False)
        scanned = None if path.keys_from is None else context.rows_scanned(path.keys_from)
        estimate = filter_selectivity(rows, scanned, scan_operator(graph, path.targets[0]).rows)
        selectivity = 1.0 if estimate is None else estimate
        target, prunes = self._choose_target(path, selectivity, context)
        if target is None or not (prunes or _is_worth_it(target, selectivity, ref, path, context)):
            return False
        node, source = graph.node(target), path.filter_source
        request = StreamNodeUpdateRequest(target, filters=(*node.filters, ref))
        chosen = f"by the {source.side} side of {source.join_id} {graph.node(source.join_id).name}"
        keys = f"the keys of its {show_count(rows, 'row')}"
        reason = f"{keys} keep about {selectivity:.1%} of the rows"
        if prunes:
            effect = f", which keep about {selectivity:.1%} of the rows" if selectivity < 1 else ""
            reason = f"the source can skip data that has none of {keys}{effect}"
        figures = {"rows": rows, JOIN_FIGURE: source.join_id, SIDE_FIGURE: source.side, SKIPS_FIGURE: int(prunes)}
        explanation = _explanation(ref, path, rows, estimate, context)
        return context.change([request], DecisionKind.DYNAMIC_FILTER, node, chosen, reason, explanation, **figures)

    def _choose_target(self, path: FilterPath, selectivity: float, context: StrategyContext) -> tuple[int | None, bool]:
        """Return the node to filter at, and whether the source can skip data by the filter.

        Prefer the lowest pending node. But if a chained broadcast join keeps fewer rows than the filter, filter after
        this join: a lookup in its small hash table is cheaper than a lookup in a large filter.
        """
        graph = context.stream_graph
        pending = [
            target for target in path.targets if not context.is_frozen(target) and len(graph.out_edges(target)) == 1
        ]
        if not pending:
            return None, False
        if path.prunes and pending[0] == path.targets[0]:
            return pending[0], True
        best = current = pending[0]
        while (edge := graph.out_edges(current)[0]).is_forward:
            current = edge.target_id
            if len(graph.out_edges(current)) != 1:
                break
            join = equi_join(graph, current) if current in pending else None
            fraction = None if join is None else measured_selectivity(join, context)
            if fraction is not None and fraction < selectivity:
                best = current
        return best, False


def _explanation(
    ref: DynamicFilterRef, path: FilterPath, rows: int, selectivity: float | None, context: StrategyContext
) -> Explanation:
    graph, key_join = context.stream_graph, equi_join(context.stream_graph, path.filter_source.join_id)
    join = graph.node(ref.join_id).operator
    assert isinstance(join, JoinOperator)
    assert key_join is not None
    table = scan_operator(graph, path.targets[0]).table or side_name(join, path.side)
    source = key_join.side_name(path.filter_source.side)
    sentence = f"{table} keeps only rows with a key of {source}{on_keys(join, path.side)}"
    reason = f"{source} has only {show_count(rows, 'row')}"
    option, estimate = DYNAMIC_FILTERING_ENABLED, None
    if path.prunes:
        reason = f"the source can skip data of {table} that has none of these keys"
    elif selectivity is not None:
        option = DYNAMIC_FILTERING_SELECTIVITY
    if selectivity is not None and selectivity < 1:
        reason += f"; the filter keeps about {selectivity:.1%} of {table}"
        estimate = Estimate(f"fraction of the rows of {table} that the filter keeps", Unit.FRACTION, selectivity)
    tables = tuple(dict.fromkeys((table, *key_join.operator.side(path.filter_source.side).tables)))
    return Explanation(f"{sentence}, as {reason}", option.key, estimate, tables=tables)


def _is_worth_it(
    target: int, selectivity: float, ref: DynamicFilterRef, path: FilterPath, context: StrategyContext
) -> bool:
    """Whether a filter at the node `target` saves more than its lookups cost, if the source cannot skip data by it."""
    graph, limit = context.stream_graph, context.config.get(DYNAMIC_FILTERING_SELECTIVITY)
    assert isinstance(limit, float)
    return (
        selectivity <= limit
        and crosses_exchange(graph, target, ref.join_id)
        # Otherwise a join that is chained to the node already looks up the same keys.
        and crosses_exchange(graph, target, path.filter_source.join_id, unless_reached=True)
        and not is_faster_unfiltered(path.targets[0], selectivity, ref.join_id, context)
    )
