"""What people call the sources of a query; a table that it reads several times has a name for each of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

from penstock.graph.wording import table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.planner.draft import Draft


def source_names(draft: Draft) -> dict[int, str]:
    """Return the names of sources, each of them once.

    A table that is read once goes by its own name, ``orders``. Others have the query's alias with it, ``lineitem l1``,
    and a number where that is not enough: ``lineitem (2)``.
    """
    plain = {node_id: table_name(source.coordinator.name) for node_id, source in draft.sources.items()}
    times, aliases = Counter(plain.values()), _aliases(draft)
    repeated = {node_id: _with(name, aliases.get(node_id, "")) for node_id, name in plain.items() if times[name] > 1}
    return _numbered(plain | repeated)


def _with(name: str, alias: str) -> str:
    """Return a name with the alias after it, unless that only repeats the name of the table."""
    return f"{name} {alias}" if alias and name.casefold().rpartition(".")[2] != alias.casefold() else name


def _numbered(names: Mapping[int, str]) -> dict[int, str]:
    times, seen = Counter(names.values()), Counter[str]()
    found = {}
    for node_id, name in names.items():
        seen[name] += 1
        found[node_id] = name if times[name] == 1 else f"{name} ({seen[name]})"
    return found


def _aliases(draft: Draft) -> dict[int, str]:
    """Return what the query calls its sources: an operator near a source knows it by the alias nearest to it."""
    owners = {column: node_id for node_id, source in draft.sources.items() for column in source.leaf.ids}
    filters = chain.from_iterable(reversed(list(source.filtered.walk())) for source in draft.sources.values())
    found: dict[int, str] = {}
    for node in (*filters, *draft.node_of):
        for column, alias in node.aliases.items():
            if column in owners:
                found.setdefault(owners[column], alias)
    return found
