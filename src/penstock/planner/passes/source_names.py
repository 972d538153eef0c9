"""Unique display names of the sources of a query, also if it reads a table several times."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from penstock.graph.labels import listed, table_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.planner.draft import Draft
    from penstock.spark.plans import LogicalNode

_PYSPARK_PREFIX = "_pyspark_"
"""The prefix of the views that ``spark.sql("... {df}", df=df)`` creates, whose names mean nothing to users."""


def source_names(draft: Draft) -> dict[int, str]:
    """Return the unique names of sources, by node id.

    A table that is read once has its own name, ``orders``. Otherwise the alias in the query is appended, ``lineitem
    l1``, and a number if that is not unique: ``lineitem (2)``. A source with several aliases has all of them:
    ``date_dim (d2 and d3)``.
    """
    plain = {node_id: table_name(source.coordinator.name) for node_id, source in draft.sources.items()}
    times, aliases = Counter(plain.values()), _aliases(draft)
    repeated = {
        node_id: _append_aliases(name, aliases.get(node_id, ())) for node_id, name in plain.items() if times[name] > 1
    }
    return _numbered(plain | repeated)


def _append_aliases(name: str, aliases: Sequence[str]) -> str:
    """Return a name with its aliases appended, unless the only alias repeats the name of the table."""
    if len(aliases) > 1:
        return f"{name} ({listed(sorted(aliases), 'aliases')})"
    is_other = any(name.casefold().rpartition(".")[2] != alias.casefold() for alias in aliases)
    return f"{name} {aliases[0]}" if is_other else name


def _numbered(names: Mapping[int, str]) -> dict[int, str]:
    times, seen = Counter(names.values()), Counter[str]()
    numbered = {}
    for node_id, name in names.items():
        seen[name] += 1
        numbered[node_id] = name if times[name] == 1 else f"{name} ({seen[name]})"
    return numbered


def _aliases(draft: Draft) -> dict[int, list[str]]:
    """Return the aliases of sources in the query; of nested aliases, the one nearest to the source."""
    filters = chain.from_iterable(reversed(list(source.filtered.walk())) for source in draft.sources.values())
    origins = _column_origins(draft)
    nearest: dict[LogicalNode, str] = {}
    for node in (*filters, *_inputs_first(draft.node_of)):
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
    """Return the source and the leaf of the plan of each column; several leaves may share a source."""
    origins = {
        column: (node_id, source.leaf) for node_id, source in draft.sources.items() for column in source.leaf.ids
    }
    own = {leaf.ids: node_id for node_id, leaf in origins.values()}
    # Equal leaves are separate sources if their rows are written in several layouts; each then has its own columns.
    several = {first for leaf, first in draft.same_leaf.items() if leaf.ids in own and leaf.ids != first.ids}
    for leaf, first in draft.same_leaf.items():
        if first.ids in own and first not in several:
            origins |= {column: (own[first.ids], leaf) for column in leaf.ids if column not in origins}
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
