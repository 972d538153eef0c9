"""Puts the broadcast joins of a chain in the order of what they leave: the most reducing one first.

Before::

    sales ─▶ join items (leaves 90 %) ─▶ join stores (leaves 60 %) ─▶ join days (leaves 1 %)

After::

    sales ─▶ join days ─▶ join stores ─▶ join items

Only inner joins with nothing but dropped columns between them change places, and a join comes after those whose
columns its condition needs. A join whose condition may fail keeps its place, as another join may remove the rows for
which it fails. What a join leaves is known once its small side is measured; a chain that grows by another join is put
in order anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.decisions import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer.dynamic_filtering import FILTERS, left_by
from penstock.optimizer.graphs import is_broadcast, joins_behind, sides
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.graph import StreamGraph, StreamNode

SEQUENCE = "join_sequence"
"""The property of the last join of a chain that tells the order in which its joins run."""


@dataclass(frozen=True, slots=True)
class JoinSequence:
    """A chain of joins in another order.

    Parameters
    ----------
    chain
        Its nodes as the graph has them, from the first join to the last.
    joins
        Its joins in the order in which they run.
    """

    chain: tuple[int, ...]
    joins: tuple[int, ...]


def best_order(joins: Sequence[int], left: Mapping[int, float], needs: Mapping[int, set[int]]) -> tuple[int, ...]:
    """Return joins in the order of what they leave, each after those it needs; of equals the earlier first."""
    todo: list[int] = list(joins)
    done: list[int] = []
    while todo:
        ready = [join for join in todo if needs[join] <= set(done)]
        done.append(min(ready, key=lambda join: (left[join], joins.index(join))))
        todo.remove(done[-1])
    return tuple(done)


class JoinOrder(StreamGraphOptimizationStrategy):
    """Looks at a chain of joins when the last of its small sides has been measured."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._scanned: dict[int, int] = {}

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Order chains whose small sides are all measured."""
        for node_id, result in finished.results.items():
            self._rows[node_id] = result.rows
            self._scanned.update(result.scanned)
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            if not context.is_frozen(join.id) and self._can_move(join, context.stream_graph):
                changed |= self._order(join, context)
        return changed

    def _can_move(self, node: StreamNode, graph: StreamGraph) -> bool:
        edges = sides(graph, node)
        return bool(
            node.properties.get("join_type") == "Inner"
            and node.properties.get("cannot_fail")
            and FILTERS not in node.properties
            and sum(is_broadcast(edge) for edge in edges.values()) == 1
            and sum(edge.is_forward for edge in edges.values()) == 1
            and len(graph.out_edges(node.id)) == 1
        )

    def _order(self, join: StreamNode, context: StrategyContext) -> bool:
        graph = context.stream_graph
        chain = self._chain(join, graph)
        joins = [node_id for node_id in chain if "join_type" in graph.node(node_id).properties]
        build = {node_id: next(side for side, e in sides(graph, graph.node(node_id)).items() if is_broadcast(e))
                 for node_id in joins}  # fmt: skip
        sources = {node_id: sides(graph, graph.node(node_id))[build[node_id]].source_id for node_id in joins}
        if len(joins) < 2 or not sources.keys() <= {n for n, source in sources.items() if source in self._rows}:
            return False
        facts = {node_id: graph.node(node_id).properties for node_id in joins}
        needs = {
            one: {
                before
                for before in joins
                if before != one and facts[one]["condition_ids"] & facts[before][f"{build[before]}_output"]
            }
            for one in joins
        }
        left = {
            node_id: left_by(graph.node(node_id), build[node_id], self._rows[sources[node_id]], self._scanned)
            for node_id in joins
        }
        sequence = JoinSequence(tuple(chain[: chain.index(joins[-1]) + 1]), best_order(joins, left, needs))
        # A chain may have been put in order before, when it was shorter.
        known = {node_id: one for node_id in joins if (one := graph.node(node_id).properties.get(SEQUENCE)) is not None}
        last = graph.node(joins[-1])
        if known == {last.id: sequence} or (not known and sequence.joins == tuple(joins)):
            return False
        wanted = dict.fromkeys(known) | {last.id: sequence}
        requests = [StreamNodeUpdateRequest(node_id, properties={SEQUENCE: one}) for node_id, one in wanted.items()]
        if not context.modify_stream_node(requests):
            return False
        chosen = ", ".join(f"{node_id} ({left[node_id]:.1%} left)" for node_id in sequence.joins)
        context.decide(DecisionKind.JOIN_ORDER, last, chosen, "the most reducing join first")
        return True

    def _chain(self, join: StreamNode, graph: StreamGraph) -> list[int]:
        """Return the nodes of the chain a join is in, from the first to the last."""
        chain = [join.id]
        while (before := self._before(graph, chain[0])) is not None:
            chain.insert(0, before)
        while (after := self._after(graph, chain[-1])) is not None:
            chain.append(after)
        while "join_type" not in graph.node(chain[0]).properties:
            chain.pop(0)
        return chain

    def _before(self, graph: StreamGraph, node_id: int) -> int | None:
        forward = [edge.source_id for edge in graph.in_edges(node_id) if edge.is_forward]
        return forward[0] if len(forward) == 1 and self._belongs(graph.node(forward[0]), graph) else None

    def _after(self, graph: StreamGraph, node_id: int) -> int | None:
        outgoing = graph.out_edges(node_id)
        if len(outgoing) != 1 or not outgoing[0].is_forward:
            return None
        return outgoing[0].target_id if self._belongs(graph.node(outgoing[0].target_id), graph) else None

    def _belongs(self, node: StreamNode, graph: StreamGraph) -> bool:
        drops = bool(node.properties.get("drops_columns")) and FILTERS not in node.properties
        return (drops and len(graph.out_edges(node.id)) == 1) or self._can_move(node, graph)
