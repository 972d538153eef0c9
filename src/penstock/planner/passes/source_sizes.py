"""Adds unique names and sizes to sources, and the sources of each side to joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator, CalcOperator, JoinOperator, ScanOperator, Side, StreamGraph
from penstock.graph.labels import MAX_NAMED_TABLES, listed, table_name

if TYPE_CHECKING:
    from penstock.planner.draft import Draft
    from penstock.spark.plans.nodes import LogicalNode


def add_source_sizes(draft: Draft) -> None:
    """Add names and bytes to sources, and sources to joins; add row counts only if needed, because they open files."""
    sizes = {node_id: source.scan.size_in_bytes for node_id, source in draft.sources.items()}
    names = source_names(draft)
    source_of = {column: node_id for node_id, source in draft.sources.items() for column in source.leaf.ids}
    with_row_counts = _nodes_with_row_counts(draft)
    graph = StreamGraph(draft.stream_nodes.values(), draft.stream_edges)
    sources_below: dict[int, frozenset[int]] = {}
    grouped: set[int] = set()
    for node in graph:
        edges = graph.in_edges(node.id)
        own_sources = frozenset({node.id} if node.id in sizes else ())
        reads_groups = isinstance(node.operator, CalcOperator) and any(edge.source_id in grouped for edge in edges)
        if isinstance(node.operator, AggregateOperator) or reads_groups:
            grouped.add(node.id)
        sources_below[node.id] = own_sources.union(*(sources_below[edge.source_id] for edge in edges))
        if own_sources:
            rows = draft.sources[node.id].scan.rows if node.id in with_row_counts else None
            scan = ScanOperator(bytes=sizes[node.id], rows=rows, table=names[node.id])
            draft.update_node(node.id, operator=scan)
        elif isinstance(node.operator, JoinOperator):
            join = node.operator
            for edge in edges:
                side, sources = Side.of_input(edge.type_number), sources_below[edge.source_id]
                estimates = [size for source in sources if (size := sizes[source]) is not None]
                largest = nlargest(MAX_NAMED_TABLES, sources, key=lambda source: (sizes[source] or 0, -source))
                join_keys = draft.joins[node.id][1].keys(side) if node.id in draft.joins else ()
                key_sources = [source_of[column] for key in join_keys for column in key.columns if column in source_of]
                join_side = replace(
                    join.side(side),
                    sources=sources,
                    source_bytes=sum(estimates) if estimates else None,
                    is_aggregated=edge.source_id in grouped,
                    tables=tuple(dict.fromkeys(names[source] for source in largest)),
                    key_tables=tuple(dict.fromkeys(names[source] for source in key_sources if source in sources)),
                )
                join = join.with_side(side, join_side)
            draft.update_node(node.id, operator=join)


def _nodes_with_row_counts(draft: Draft) -> set[int]:
    """Return the nodes whose row counts strategies need if they are sources."""
    with_row_counts: set[int] = set()
    for node in draft.stream_nodes.values():
        match node.operator:
            case JoinOperator(filters=paths):
                with_row_counts |= {path.targets[0] for path in paths}
            case AggregateOperator(grouping_sets=sets) if sets is not None:
                with_row_counts |= draft.chained_upstream(sets.node_id)
    return with_row_counts


_PYSPARK_PREFIX = "_pyspark_"
"""The prefix of the views that ``spark.sql("... {df}", df=df)`` creates, whose names mean nothing to users."""


def source_names(draft: Draft) -> dict[int, str]:
    """Return the unique names of sources, by node id.

    A source of a table that is read once has the name of the table, ``orders``. Otherwise the alias in the query is
    appended, ``lineitem l1``, and a number if that is not unique: ``lineitem (2)``. Several aliases are all appended:
    ``date_dim (d2 and d3)``.
    """
    plain = {node_id: table_name(source.coordinator.name) for node_id, source in draft.sources.items()}
    uses, aliases = Counter(plain.values()), _aliases(draft)
    repeated = {
        node_id: _append_aliases(name, aliases.get(node_id, ())) for node_id, name in plain.items() if uses[name] > 1
    }
    names = plain | repeated
    total, seen = Counter(names.values()), Counter[str]()
    for node_id, name in names.items():
        seen[name] += 1
        if total[name] > 1:
            names[node_id] = f"{name} ({seen[name]})"
    return names


def _append_aliases(name: str, aliases: Sequence[str]) -> str:
    """Return a name with its aliases appended, except for a single alias that equals the name of the table."""
    if len(aliases) > 1:
        return f"{name} ({listed(sorted(aliases), 'aliases')})"
    is_alias = any(name.casefold().rpartition(".")[2] != alias.casefold() for alias in aliases)
    return f"{name} {aliases[0]}" if is_alias else name


def _aliases(draft: Draft) -> dict[int, list[str]]:
    """Return the aliases of sources in the query; of nested aliases, the alias nearest to the source."""
    scan_nodes = chain.from_iterable(reversed(list(source.filtered.walk())) for source in draft.sources.values())
    origins = _column_origins(draft)
    nearest: dict[LogicalNode, str] = {}
    for node in (*scan_nodes, *_inputs_first(draft.node_of)):
        for column, alias in node.aliases.items():
            if column in origins and not alias.startswith(_PYSPARK_PREFIX):
                nearest.setdefault(origins[column][1], alias)
    aliases: dict[int, list[str]] = {}
    for node_id, leaf in origins.values():
        names = aliases.setdefault(node_id, [])
        if leaf in nearest and nearest[leaf] not in names:
            names.append(nearest[leaf])
    return aliases


def _column_origins(draft: Draft) -> dict[str, tuple[int, LogicalNode]]:
    """Return the source and the leaf of each column, by column id; several leaves of the plan may share a source."""
    origins = {
        column: (node_id, source.leaf) for node_id, source in draft.sources.items() for column in source.leaf.ids
    }
    source_of = {leaf.ids: node_id for node_id, leaf in origins.values()}
    # If several equal leaves are sources (for several layouts), further leaves may read any of them: skip these leaves.
    separate = {first for leaf, first in draft.first_leaf.items() if leaf.ids in source_of and leaf.ids != first.ids}
    for leaf, first in draft.first_leaf.items():
        if first.ids in source_of and first not in separate:
            origins |= {column: (source_of[first.ids], leaf) for column in leaf.ids if column not in origins}
    return origins


def _inputs_first(nodes: Iterable[LogicalNode]) -> Iterator[LogicalNode]:
    """Return nodes and all nodes below them, inputs before their readers."""
    roots: list[LogicalNode] = []
    seen: set[LogicalNode] = set()
    for node in reversed(list(nodes)):
        if node not in seen:
            roots.append(node)
            seen.update(node.walk())
    return (node for root in reversed(roots) for node in reversed(list(root.walk())))
