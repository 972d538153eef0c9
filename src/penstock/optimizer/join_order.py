"""Orders chained broadcast joins, which run in the same vertex: the join in which the fewest rows match runs first.

Before::

    sales ─▶ join items (keeps 90 %) ─▶ join stores (keeps 60 %) ─▶ join days (keeps 1 %)

After::

    sales ─▶ join days ─▶ join stores ─▶ join items

Only inner joins are reordered, and only if the operators between them just drop columns. A join runs after the joins
whose columns its condition needs. A join whose condition may fail is not moved, because another join may remove the
rows for which it fails. The fraction of rows that a join keeps can be estimated once its small side is measured. A
chain that grows by another join is ordered again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph import CalcOperator, JoinSequence, JoinType, StreamGraph, StreamNodeUpdateRequest
from penstock.graph.labels import listed
from penstock.optimizer.dynamic_filtering import measured_selectivity
from penstock.optimizer.graphs import EquiJoin, equi_join, joins_behind
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy


def best_order(joins: Sequence[int], fractions: Mapping[int, float], needed: Mapping[int, set[int]]) -> tuple[int, ...]:
    """Return joins in ascending order of `fractions`, each after the joins that it needs; the sort is stable."""
    remaining, ordered = list(joins), list[int]()
    while remaining:
        ready = [join for join in remaining if needed[join] <= set(ordered)]
        ordered.append(min(ready, key=lambda join: (fractions[join], joins.index(join))))
        remaining.remove(ordered[-1])
    return tuple(ordered)


class JoinOrder(StreamGraphOptimizationStrategy):
    """Orders each chain of joins once all of its broadcast sides are measured."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Order chains whose broadcast sides are all measured."""
        joins = joins_behind(context.stream_graph, finished.ids)
        return sum(self._order(join, context) for join in joins if not context.is_frozen(join.id)) > 0

    def _order(self, join: EquiJoin, context: StrategyContext) -> bool:
        graph = context.stream_graph
        if not _can_move(join, graph):
            return False
        chain = _chain(join, graph)
        joins = {node_id: member for node_id in chain if (member := equi_join(graph, node_id)) is not None}
        fractions = {
            node_id: fraction
            for node_id, member in joins.items()
            if (fraction := measured_selectivity(member, context)) is not None
        }
        if len(joins) < 2 or len(fractions) < len(joins):
            return False
        needed = {
            node_id: {
                other_id
                for other_id, other in joins.items()
                if other_id != node_id and member.operator.condition_columns & _build_columns(other)
            }
            for node_id, member in joins.items()
        }
        *_, last = joins.values()
        order = best_order(list(joins), fractions, needed)
        sequence = JoinSequence(tuple(chain[: chain.index(last.id) + 1]), order)
        # The chain may have been ordered before, when it was shorter.
        previous_sequences = {
            node_id: member.operator.strategy.sequence
            for node_id, member in joins.items()
            if member.operator.strategy.sequence is not None
        }
        if previous_sequences == {last.id: sequence} or (not previous_sequences and order == tuple(joins)):
            return False
        # Only the last join of the chain has the sequence; joins that were last before are reset.
        sequences: dict[int, JoinSequence | None] = {**dict.fromkeys(previous_sequences), last.id: sequence}
        requests = [
            StreamNodeUpdateRequest(
                node_id,
                operator=member.operator.with_strategy(replace(member.operator.strategy, sequence=sequences[node_id])),
            )
            for node_id, member in joins.items()
            if node_id in sequences
        ]
        chosen = ", ".join(f"{node_id} (keeps {fractions[node_id]:.1%})" for node_id in order)
        reason = "the join that keeps the fewest rows runs first"
        explanation = _explanation([joins[node_id] for node_id in order], fractions)
        return context.change(requests, DecisionKind.JOIN_ORDER, last.node, chosen, reason, explanation)


def _explanation(joins: Sequence[EquiJoin], fractions: Mapping[int, float]) -> Explanation:
    sides = [(join, join.broadcast_side) for join in joins]
    names = [f"{join.side_name(side)} (keeps {fractions[join.id]:.1%})" for join, side in sides if side is not None]
    sentence = (
        f"rows are joined with {names[0]} first, then with {listed(names[1:], 'tables')}, "
        "as the join that keeps the fewest rows runs first"
    )
    return Explanation(sentence, tables=tuple(dict.fromkeys(table for join in joins for table in join.tables)))


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
    """Return the nodes of the chain that contains a join, from its first join to its last node."""
    chain = [join.id]
    while (before := _previous_in_chain(graph, chain[0])) is not None:
        chain.insert(0, before)
    while (after := _next_in_chain(graph, chain[-1])) is not None:
        chain.append(after)
    while equi_join(graph, chain[0]) is None:
        chain.pop(0)
    return chain


def _previous_in_chain(graph: StreamGraph, node_id: int) -> int | None:
    forward = [edge.source_id for edge in graph.in_edges(node_id) if edge.is_forward]
    return forward[0] if len(forward) == 1 and _can_be_in_chain(graph, forward[0]) else None


def _next_in_chain(graph: StreamGraph, node_id: int) -> int | None:
    outgoing = graph.out_edges(node_id)
    if len(outgoing) != 1 or not outgoing[0].is_forward:
        return None
    return outgoing[0].target_id if _can_be_in_chain(graph, outgoing[0].target_id) else None


def _can_be_in_chain(graph: StreamGraph, node_id: int) -> bool:
    node, join = graph.node(node_id), equi_join(graph, node_id)
    if join is not None:
        return _can_move(join, graph)
    drops_columns = isinstance(node.operator, CalcOperator) and node.operator.drops_columns
    return drops_columns and not node.filters and len(graph.out_edges(node_id)) == 1
