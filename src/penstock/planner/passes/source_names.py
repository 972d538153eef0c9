"""What people call the sources of a query; a table that it reads several times has a name for each of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from penstock.graph.wording import listed, table_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.planner.draft import Draft
    from penstock.spark.plans import LogicalNode

_GIVEN_BY_PYSPARK = "_pyspark_"
"""How the views begin that ``spark.sql("... {df}", df=df)`` makes: such a name tells nobody anything."""


def source_names(draft: Draft) -> dict[int, str]:
    """Return the names of sources, each of them once.

    A table that is read once goes by its own name, ``orders``. Others have the query's alias with it, ``lineitem l1``,
    and a number where that is not enough: ``lineitem (2)``. One whose rows the query has under several aliases has all
    of them: ``date_dim (d2 and d3)``.
    """
    plain = {node_id: table_name(source.coordinator.name) for node_id, source in draft.sources.items()}
    times, aliases = Counter(plain.values()), _aliases(draft)
    repeated = {node_id: _with(name, aliases.get(node_id, ())) for node_id, name in plain.items() if times[name] > 1}
    return _numbered(plain | repeated)


def _with(name: str, aliases: Sequence[str]) -> str:
    """Return a name with the aliases after it, unless there is one that only repeats the name of the table."""
    if len(aliases) > 1:
        return f"{name} ({listed(sorted(aliases), 'aliases')})"
    is_other = any(name.casefold().rpartition(".")[2] != alias.casefold() for alias in aliases)
    return f"{name} {aliases[0]}" if is_other else name


def _numbered(names: Mapping[int, str]) -> dict[int, str]:
    times, seen = Counter(names.values()), Counter[str]()
    found = {}
    for node_id, name in names.items():
        seen[name] += 1
        found[node_id] = name if times[name] == 1 else f"{name} ({seen[name]})"
    return found


def _aliases(draft: Draft) -> dict[int, list[str]]:
    """Return what the query calls its sources: an operator near a source knows it by the alias nearest to it."""
    filters = chain.from_iterable(reversed(list(source.filtered.walk())) for source in draft.sources.values())
    places = _places(draft)
    nearest: dict[LogicalNode, str] = {}
    for node in (*filters, *_inputs_first(draft.node_of)):
        for column, alias in node.aliases.items():
            if column in places and not alias.startswith(_GIVEN_BY_PYSPARK):
                nearest.setdefault(places[column][1], alias)
    found: dict[int, list[str]] = {}
    for node_id, leaf in places.values():
        known = found.setdefault(node_id, [])
        if leaf in nearest and nearest[leaf] not in known:
            known.append(nearest[leaf])
    return found


def _places(draft: Draft) -> dict[str, tuple[int, LogicalNode]]:
    """Return the source and the leaf of the plan that each column comes from; several leaves may be one source."""
    found = {column: (node_id, source.leaf) for node_id, source in draft.sources.items() for column in source.leaf.ids}
    own = {leaf.ids: node_id for node_id, leaf in found.values()}
    # Where equal leaves are several sources after all, as their rows are written in several ways, each has its own.
    several = {first for leaf, first in draft.same_leaf.items() if leaf.ids in own and leaf.ids != first.ids}
    for leaf, first in draft.same_leaf.items():
        if first.ids in own and first not in several:
            found |= {column: (own[first.ids], leaf) for column in leaf.ids if column not in found}
    return found


def _inputs_first(nodes: Iterable[LogicalNode]) -> Iterator[LogicalNode]:
    """Return nodes and all that is below them, inputs before what reads them."""
    roots: list[LogicalNode] = []
    seen: set[LogicalNode] = set()
    for node in reversed(list(nodes)):
        if node not in seen:
            roots.append(node)
            seen.update(node.walk())
    return (part for root in reversed(roots) for part in reversed(list(root.walk())))
