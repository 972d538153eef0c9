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

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import (
    DYNAMIC_FILTERING_ENABLED,
    DYNAMIC_FILTERING_MAX_KEYS,
    DYNAMIC_FILTERING_SELECTIVITY,
)
from penstock.decisions import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer.graphs import crosses_exchange, joins_behind, sides
from penstock.optimizer.joins import SIDES, other
from penstock.optimizer.strategy import (
    OperatorsFinished,
    ResultInfo,
    StrategyContext,
    StreamGraphOptimizationStrategy,
)
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.graph import StreamNode

FILTERS = "dynamic_filters"
"""The property of a node that names the filters to apply behind it."""


@dataclass(frozen=True, slots=True)
class FilterPath:
    """One way from a join down to where rows of one of its sides could be filtered.

    Parameters
    ----------
    side
        The side that would be filtered, by the keys of the other.
    steps
        The nodes behind which the filter can stand, the lowest first.
    keys_from
        The source that the other side's keys come from, or -1.
    prunes
        Whether the lowest step is a source with a key among its partition columns.
    """

    side: str
    steps: tuple[int, ...]
    keys_from: int = -1
    prunes: bool = False


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


def pays(rows: int, of: int, *, prunes: bool, most: float, max_keys: int) -> str:
    """Return why filtering by the keys of so many rows pays, or an empty text.

    Parameters
    ----------
    rows
        The rows that give the keys.
    of
        The rows that were read from the source of the keys, -1 if that is not known.
    prunes
        Whether files or partitions of the filtered source can be left out by them.
    most
        The largest part of the key rows that is worth it.
    max_keys
        More rows than this are too many for a filter.
    """
    if not 0 <= rows <= max_keys:
        return ""
    if of > 0 and rows <= of * most:
        return f"{show_count(rows, 'row')} of {of} are left ({rows / of:.1%})"
    if rows == 0 or prunes:
        return f"{show_count(rows, 'row')} name the partitions to read"
    return ""


class DynamicFiltering(StreamGraphOptimizationStrategy):
    """Places filters; the keys are fetched when the vertex that uses them starts."""

    def __init__(self) -> None:
        self._scanned: dict[int, int] = {}
        self._seen: set[DynamicFilterRef] = set()

    def initialize(self, context: StrategyContext) -> None:
        """Hold sources back for keys that come from a side with less below it."""
        if not context.config.flag(DYNAMIC_FILTERING_ENABLED):
            return
        graph = context.stream_graph
        for join in graph:
            edges = sides(graph, join)
            if not edges:
                continue
            known = {side: int(join.properties.get(f"{side}_bytes", 0)) for side in SIDES}
            for path in join.properties.get("filters", ()):
                giver = edges[other(path.side)]
                lowest = graph.node(path.steps[0])
                worth = int(lowest.properties.get("bytes", 0)) >= max(
                    known[other(path.side)], context.resources.volume_per_task
                )
                open_side = join.properties.get(f"{other(path.side)}_open")
                useful = path.prunes or crosses_exchange(graph, lowest.id, join.id)
                if worth and open_side and useful and not giver.is_forward:
                    context.hold(lowest.id, giver.source_id)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Place the filters that the finished sides' keys make worth while."""
        for result in finished.results.values():
            self._scanned.update(result.scanned)
        if not context.config.flag(DYNAMIC_FILTERING_ENABLED):
            return False
        changed = False
        for join in joins_behind(context.stream_graph, finished.ids):
            edges = sides(context.stream_graph, join)
            for index, path in enumerate(join.properties.get("filters", ()) if edges else ()):
                given = finished.results.get(edges[other(path.side)].source_id)
                if given is not None:
                    changed |= self._place(join, DynamicFilterRef(join.id, index), path, given, context)
        return changed

    def _place(
        self, join: StreamNode, ref: DynamicFilterRef, path: FilterPath, result: ResultInfo, context: StrategyContext
    ) -> bool:
        if ref in self._seen:
            return False
        self._seen.add(ref)
        graph = context.stream_graph
        step = next((node_id for node_id in path.steps if not context.is_frozen(node_id)), None)
        if step is None or len(graph.out_edges(step)) != 1:
            return False
        prunes = path.prunes and step == path.steps[0]
        if not (prunes or crosses_exchange(graph, step, join.id)):
            return False
        config = context.config
        most = config.get(DYNAMIC_FILTERING_SELECTIVITY)
        assert isinstance(most, float)
        of = self._scanned.get(path.keys_from, -1)
        why = pays(result.rows, of, prunes=prunes, most=most, max_keys=config.integer(DYNAMIC_FILTERING_MAX_KEYS))
        node = graph.node(step)
        if not why:
            return False
        wanted = (*node.properties.get(FILTERS, ()), ref)
        placed = context.modify_stream_node([StreamNodeUpdateRequest(step, properties={FILTERS: wanted})])
        if placed:
            chosen = f"by the {other(path.side)} side of {join.id} {join.name}"
            context.decide(DecisionKind.DYNAMIC_FILTER, f"{node.id} {node.name}", chosen, why, rows=result.rows, of=of)
        return placed
