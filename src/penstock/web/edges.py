"""How rows get from one step to the next, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind
from penstock.graph import Side
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    REBALANCE,
    RESCALE,
    AdaptiveRebalancePartitioner,
    HashPartitioner,
    Partitioner,
    RangePartitioner,
)
from penstock.graph.wording import edge_words
from penstock.optimizer.dynamic_filtering import JOIN, SIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.history.record import JobRecord

_NAMED = {one.name: one for one in (BROADCAST, GLOBAL, REBALANCE, RESCALE)}


def distribution(edge: Mapping[str, Any]) -> str:
    """Return how the rows of an edge of a record are distributed; logs of older releases have no words for it."""
    words = edge.get("words")
    if words is None:
        words = edge_words(_partitioner(edge["partitioner"]), {})
    return words or "in the same task"


def key_edges(record: JobRecord) -> list[tuple[str, str]]:
    """Return which steps give the keys that others keep only rows of, as pairs of vertices, without repetitions."""
    of = record.vertex_of()
    given = {(edge["target"], edge["input"]): edge["source"] for edge in record.edges.values()}
    found: dict[tuple[str, str], None] = {}
    for decision in record.decisions:
        figures = decision["figures"]
        if decision["kind"] == DecisionKind.DYNAMIC_FILTER and {JOIN, SIDE} <= figures.keys():
            side = (str(figures[JOIN]), Side(figures[SIDE]).input_number)
            source, target = of.get(given.get(side, "")), of.get(str(decision["nodes"][0]))
            if source and target and source != target:
                found[source, target] = None
    return list(found)


def _partitioner(text: str) -> Partitioner:
    """Return the partitioner that an older release has written as text."""
    name, _, rest = text.partition("(")
    keys = _keys(rest.removesuffix(")"))
    if name.startswith(FORWARD.name):
        return FORWARD
    if name == HashPartitioner.name and keys:
        return HashPartitioner(keys)
    if name == RangePartitioner.name:
        return RangePartitioner(keys)
    return AdaptiveRebalancePartitioner(0) if rest else _NAMED.get(name, RESCALE)


def _keys(text: str) -> tuple[str, ...]:
    """Return keys that commas separate; those in brackets belong to a key."""
    found, depth, begun = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append(text[begun:at])
            begun = at + 1
    return tuple(filter(None, map(str.strip, (*found, text[begun:]))))
