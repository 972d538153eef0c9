"""Orders the broadcast joins of a chain: the join that keeps the fewest rows runs first.

Before::

    sales ─▶ join items (keeps 90 %) ─▶ join stores (keeps 60 %) ─▶ join days (keeps 1 %)

After::

    sales ─▶ join days ─▶ join stores ─▶ join items

Only inner joins with nothing but dropped columns between them change places, and a join runs after those whose columns
its condition needs. A join whose condition may fail keeps its place, because another join may remove the rows for which
it fails. The fraction that a join keeps is known once its small side is measured. A chain that grows by another join is
ordered again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind, Told
from penstock.graph import CalcOperator, JoinSequence, JoinType, StreamNodeUpdateRequest
from penstock.graph.wording import listed
from penstock.optimizer.dynamic_filtering import left_by
from penstock.optimizer.graphs import equi_join, joins_behind
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.graph import StreamGraph
    from penstock.optimizer.graphs import EquiJoin


def best_order(joins: Sequence[int], left: Mapping[int, float], needs: Mapping[int, set[int]]) -> tuple[int, ...]:
    """Return joins by the fraction of rows they keep, each after those it needs; ties keep their order."""
    todo: list[int] = list(joins)
    done: list[int] = []
    while todo:
        ready = [join for join in todo if needs[join] <= set(done)]
        done.append(min(ready, key=lambda join: (left[join], joins.index(join))))
        todo.remove(done[-1])
    return tuple(done)


class JoinOrder(StreamGraphOptimizationStrategy):
    """Orders a chain of joins once all of its small sides have been measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Order chains whose small sides are all measured."""
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and _can_move(join, context.stream_graph):
                changed |= self._order(join, context)
        return changed

    def _order(self, join: EquiJoin, context: StrategyContext) -> bool:
        graph = context.stream_graph
        chain = _chain(join, graph)
        joins = [found for node_id in chain if (found := equi_join(graph, node_id)) is not None]
        left = {one.id: part for one in joins if (part := _left_by(one, context)) is not None}
        if len(joins) < 2 or len(left) < len(joins):
            return False
        needs = {
            one.id: {
                before.id
                for before in joins
                if before is not one and one.operator.condition_columns & _build_columns(before)
            }
            for one in joins
        }
        last = joins[-1]
        order = best_order([one.id for one in joins], left, needs)
        sequence = JoinSequence(tuple(chain[: chain.index(last.id) + 1]), order)
        # The chain may have been ordered before, when it was shorter.
        known = {one.id: decided for one in joins if (decided := one.operator.strategy.sequence) is not None}
        if known == {last.id: sequence} or (not known and order == tuple(one.id for one in joins)):
            return False
        wanted: dict[int, JoinSequence | None] = {**dict.fromkeys(known), last.id: sequence}
        requests = [
            StreamNodeUpdateRequest(
                one.id,
                operator=one.operator.with_strategy(replace(one.operator.strategy, sequence=wanted[one.id])),
            )
            for one in joins
            if one.id in wanted
        ]
        chosen = ", ".join(f"{node_id} (keeps {left[node_id]:.1%})" for node_id in order)
        reason = "the join that keeps the fewest rows runs first"
        told = _told([one for node_id in order for one in joins if one.id == node_id], left)
        return context.change(requests, DecisionKind.JOIN_ORDER, last.node, chosen, reason, told)


def _told(joins: Sequence[EquiJoin], left: Mapping[int, float]) -> Told:
    """Return how people are told of the order of joins."""
    sides = [(join, join.broadcast_side) for join in joins]
    first, *others = (f"{join.called(side)} (keeps {left[join.id]:.1%})" for join, side in sides if side is not None)
    sentence = f"rows are joined with {first} first, then with {listed(others, 'tables')}, as few rows are left then"
    return Told(sentence, tables=tuple(dict.fromkeys(table for join in joins for table in join.tables)))


def _left_by(join: EquiJoin, context: StrategyContext) -> float | None:
    """Return about which fraction of its probe side's rows a broadcast join keeps, or None before it is measured."""
    build = join.broadcast_side
    result = None if build is None else context.result(join.edges[build].source_id)
    return None if build is None or result is None else left_by(join, build, result.rows, context)


def _build_columns(join: EquiJoin) -> frozenset[str]:
    assert join.broadcast_side is not None
    return join.operator.side(join.broadcast_side).columns


def _can_move(join: EquiJoin, graph: StreamGraph) -> bool:
    return (
        join.type is JoinType.INNER
        and join.operator.cannot_fail
        and not join.node.filters
        and join.broadcast_side is not None
        and sum(edge.is_forward for edge in join.edges.values()) == 1
        and len(graph.out_edges(join.id)) == 1
    )


def _chain(join: EquiJoin, graph: StreamGraph) -> list[int]:
    """Return the nodes of the chain a join is in, from the first join to the last node."""
    chain = [join.id]
    while (before := _before(graph, chain[0])) is not None:
        chain.insert(0, before)
    while (after := _after(graph, chain[-1])) is not None:
        chain.append(after)
    while equi_join(graph, chain[0]) is None:
        chain.pop(0)
    return chain


def _before(graph: StreamGraph, node_id: int) -> int | None:
    forward = [edge.source_id for edge in graph.in_edges(node_id) if edge.is_forward]
    return forward[0] if len(forward) == 1 and _belongs(graph, forward[0]) else None


def _after(graph: StreamGraph, node_id: int) -> int | None:
    outgoing = graph.out_edges(node_id)
    if len(outgoing) != 1 or not outgoing[0].is_forward:
        return None
    return outgoing[0].target_id if _belongs(graph, outgoing[0].target_id) else None


def _belongs(graph: StreamGraph, node_id: int) -> bool:
    node, join = graph.node(node_id), equi_join(graph, node_id)
    if join is not None:
        return _can_move(join, graph)
    drops = isinstance(node.operator, CalcOperator) and node.operator.drops_columns
    return drops and not node.filters and len(graph.out_edges(node_id)) == 1
