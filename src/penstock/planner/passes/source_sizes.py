"""Adds names and sizes to sources, and the sources of each side to joins."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, CalcOperator, JoinOperator, ScanOperator, Side, StreamGraph
from penstock.graph.labels import NAMED_TABLES
from penstock.planner.passes.source_names import source_names

if TYPE_CHECKING:
    from penstock.graph import Operator
    from penstock.planner.draft import Draft


def add_source_sizes(draft: Draft) -> Draft:
    """Add the bytes of all sources, and row counts only if a strategy needs them, because counting opens files."""
    sizes = {node_id: source.scan.size_in_bytes for node_id, source in draft.sources.items()}
    names = source_names(draft)
    owners = {column: node_id for node_id, source in draft.sources.items() for column in source.leaf.ids}
    counted = _counted(draft)
    graph = StreamGraph(draft.nodes.values(), draft.edges)
    below: dict[int, frozenset[int]] = {}
    grouped: set[int] = set()
    changed: dict[int, Operator] = {}
    for node in graph:
        edges = graph.in_edges(node.id)
        own = frozenset({node.id} if node.id in sizes else ())
        reads_groups = isinstance(node.operator, CalcOperator) and any(edge.source_id in grouped for edge in edges)
        if isinstance(node.operator, AggregateOperator) or reads_groups:
            grouped.add(node.id)
        below[node.id] = own.union(*(below[edge.source_id] for edge in edges))
        if own:
            rows = draft.sources[node.id].scan.rows if node.id in counted else None
            changed[node.id] = ScanOperator(bytes=sizes[node.id], rows=rows, table=names[node.id])
        elif isinstance(node.operator, JoinOperator):
            join = node.operator
            for edge in edges:
                side, sources = Side.of_input(edge.type_number), below[edge.source_id]
                estimates = [size for source in sources if (size := sizes[source]) is not None]
                largest = nlargest(NAMED_TABLES, sources, key=lambda source: (sizes[source] or 0, -source))
                keys = [owners[column] for column in _key_columns(draft, node.id, side) if column in owners]
                join_side = replace(
                    join.side(side),
                    sources=sources,
                    source_bytes=sum(estimates) if estimates else None,
                    is_aggregated=edge.source_id in grouped,
                    tables=tuple(dict.fromkeys(names[source] for source in largest)),
                    key_tables=tuple(dict.fromkeys(names[source] for source in keys if source in sources)),
                )
                join = join.with_side(side, join_side)
            changed[node.id] = join
    return draft.with_operators(changed)


def _key_columns(draft: Draft, node_id: int, side: Side) -> list[str]:
    if node_id not in draft.joins:
        return []
    _, facts = draft.joins[node_id]
    return [column for key in facts.keys(side) for column in key.columns]


def _counted(draft: Draft) -> set[int]:
    """Return the nodes whose row counts strategies need if they are sources."""
    counted: set[int] = set()
    for node in draft.nodes.values():
        match node.operator:
            case JoinOperator(filters=paths):
                counted |= {path.targets[0] for path in paths}
            case AggregateOperator(grouping_sets=sets) if sets is not None:
                counted |= draft.chained(sets.node_id)
    return counted
