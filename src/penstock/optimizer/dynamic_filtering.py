"""Filters a join's pending side by the keys of the side that has finished, as close to its sources as can be.

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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.options import (
    DYNAMIC_FILTERING_ENABLED,
    DYNAMIC_FILTERING_EXACT_KEYS,
    DYNAMIC_FILTERING_MAX_KEYS,
    DYNAMIC_FILTERING_SELECTIVITY,
)
from penstock.decisions import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer.graphs import broadcast_to, crosses_exchange, is_broadcast, joins_behind, sides
from penstock.optimizer.joins import other
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import StreamNode

FILTERS = "dynamic_filters"
"""The property of a node that names the filters to apply behind it."""
JOIN, SIDE = "join", "side"
"""The figures of a decision that tell whose rows give the keys."""


@dataclass(frozen=True, slots=True)
class FilterPath:
    """One way from a join down to where rows of one of its sides could be filtered.

    Parameters
    ----------
    side
        The side that would be filtered, by the keys of the other.
    steps
        The nodes behind which the filter can stand, the lowest first.
    giver
        The join and its side whose rows give the keys: the other side itself, or where that is chained, what is
        exchanged before it and holds all its keys.
    keys_from
        The source that the giver's keys come from, or -1.
    prunes
        Whether the lowest step is a source that leaves out data by the keys: partitions, or rows of a database.
    exact
        Whether it does so only by exact keys.
    """

    side: str
    steps: tuple[int, ...]
    giver: tuple[int, str]
    keys_from: int = -1
    prunes: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class DynamicFilterRef:
    """A filter to apply behind a node.

    Parameters
    ----------
    join_id
        The join whose finished side gives the keys.
    path
        The index of the path among the join's.
    """

    join_id: int
    path: int


def part_left(rows: int, of: int, filtered: int) -> float:
    """Return about which part of the filtered rows is left by the keys of so many rows; 1.0 if nothing is known.

    Of two tables that are joined, the one with fewer rows usually has each key once. So about as large a part of the
    filtered rows is left as there are key rows for each row of the smaller table.

    Parameters
    ----------
    rows
        The rows that give the keys.
    of
        The rows that were read from the source of the keys, -1 if not known.
    filtered
        The rows of the source that would be filtered, -1 if not known.
    """
    if rows == 0:
        return 0.0
    smaller = min((known for known in (of, filtered) if known > 0), default=0)
    return min(1.0, rows / smaller) if of > 0 and rows > 0 else 1.0


def is_small_table(source_id: int, left: float, join_id: int, context: StrategyContext) -> bool:
    """Whether a source is broadcast, and read whole sooner than the keys are fetched that leave a part of it.

    A smaller table is worth more where an exchange lies between the joins, as rows that find nothing in it are not
    exchanged; and where its own keys filter what is exchanged before it is looked up in.

    Parameters
    ----------
    source_id, left
        The source, and which part of it would be left.
    join_id
        The join that gives the keys.
    """
    graph = context.stream_graph
    saved = (1 - left) * int(graph.node(source_id).properties.get("bytes", 0))
    lookups = broadcast_to(graph, source_id)
    if not lookups or saved >= context.resources.volume_per_task:
        return False
    if any(crosses_exchange(graph, one, join_id) for one in lookups):
        return False
    ways = ((join.id, path) for join in graph for path in join.properties.get("filters", ()))
    return not any(path.giver[0] in lookups and crosses_exchange(graph, path.steps[0], one) for one, path in ways)


def left_by(join: StreamNode, build: str, rows: int, scanned: Mapping[int, int]) -> float:
    """Return about which part of its probe side's rows a join leaves.

    Parameters
    ----------
    join, build
        The join, and its side that is broadcast.
    rows
        The rows of that side.
    scanned
        How many rows were read from each source.
    """
    paths = [path for path in join.properties.get("filters", ()) if path.side == other(build)]
    return part_left(rows, scanned.get(paths[0].keys_from, -1), -1) if paths else 1.0


class DynamicFiltering(StreamGraphOptimizationStrategy):
    """Places filters; the keys are fetched when the vertex that uses them starts."""

    def __init__(self) -> None:
        self._scanned: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._seen: set[DynamicFilterRef] = set()
        self._given_by: dict[tuple[int, str], list[tuple[DynamicFilterRef, FilterPath]]] = {}

    def initialize(self, context: StrategyContext) -> None:
        """Note which sides give keys for which ways."""
        for join in context.stream_graph:
            for index, path in enumerate(join.properties.get("filters", ())):
                self._given_by.setdefault(path.giver, []).append((DynamicFilterRef(join.id, index), path))

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Place the filters that the finished sides' keys make worth while."""
        for node_id, result in finished.results.items():
            self._scanned.update(result.scanned)
            self._rows[node_id] = result.rows
        if not context.config.flag(DYNAMIC_FILTERING_ENABLED):
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            for side, edge in sides(context.stream_graph, join).items():
                given = finished.results.get(edge.source_id)
                if given is not None:
                    for ref, path in self._given_by.get((join.id, side), ()):
                        changed |= self._place(ref, path, given, context)
        return changed

    def _place(self, ref: DynamicFilterRef, path: FilterPath, result: ResultInfo, context: StrategyContext) -> bool:
        if ref in self._seen:
            return False
        self._seen.add(ref)
        graph, config = context.stream_graph, context.config
        left = part_left(result.rows, *self._rows_known(path, context))
        if path.exact and result.rows > config.integer(DYNAMIC_FILTERING_EXACT_KEYS):
            path = replace(path, prunes=False)
        step, prunes = self._step(path, left, context)
        if step is None or not (prunes or crosses_exchange(graph, step, ref.join_id)):
            return False
        if not prunes and not crosses_exchange(graph, step, path.giver[0], unless_reached=True):
            return False  # a join chained to it looks up the very same keys
        most = config.get(DYNAMIC_FILTERING_SELECTIVITY)
        assert isinstance(most, float)
        if not prunes and is_small_table(path.steps[0], left, ref.join_id, context):
            return False
        too_many = not 0 <= result.rows <= config.integer(DYNAMIC_FILTERING_MAX_KEYS)
        if too_many or not (prunes or left <= most):
            return False
        node = graph.node(step)
        wanted = (*node.properties.get(FILTERS, ()), ref)
        placed = context.modify_stream_node([StreamNodeUpdateRequest(step, properties={FILTERS: wanted})])
        if placed:
            chosen = f"by the {path.giver[1]} side of {path.giver[0]} {graph.node(path.giver[0]).name}"
            reason = f"{show_count(result.rows, 'row')} give keys, which leaves about {left:.1%}"
            facts = {"rows": result.rows, JOIN: path.giver[0], SIDE: path.giver[1]}
            context.decide(DecisionKind.DYNAMIC_FILTER, node, chosen, reason, **facts)
        return placed

    def _rows_known(self, path: FilterPath, context: StrategyContext) -> tuple[int, int]:
        filtered = int(context.stream_graph.node(path.steps[0]).properties.get("rows", -1))
        return self._scanned.get(path.keys_from, -1), filtered

    def _step(self, path: FilterPath, left: float, context: StrategyContext) -> tuple[int | None, bool]:
        """Return where to filter, and whether the source can leave out files there.

        That is as low as can be, but behind broadcast joins that leave even less: looking a row up in their small
        tables is cheaper than in a large filter.
        """
        graph = context.stream_graph
        pending = [step for step in path.steps if not context.is_frozen(step) and len(graph.out_edges(step)) == 1]
        if not pending:
            return None, False
        if path.prunes and pending[0] == path.steps[0]:
            return pending[0], True
        best = current = pending[0]
        while (edge := graph.out_edges(current)[0]).is_forward:
            current = edge.target_id
            if len(graph.out_edges(current)) != 1:
                break
            if current in pending and self._left_by(graph.node(current), context) < left:
                best = current
        return best, False

    def _left_by(self, node: StreamNode, context: StrategyContext) -> float:
        """Return about which part of its probe side's rows a broadcast join leaves."""
        edges = sides(context.stream_graph, node)
        for side, edge in edges.items():
            given = self._rows.get(edge.source_id)
            if is_broadcast(edge) and given is not None:
                return left_by(node, side, given, self._scanned)
        return 1.0
