"""Descriptions of how rows get from a step to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind
from penstock.graph import Side
from penstock.graph.labels import edge_label
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
from penstock.optimizer.dynamic_filtering import JOIN, SIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.history.record import JobRecord

_NAMED = {partitioner.name: partitioner for partitioner in (BROADCAST, GLOBAL, REBALANCE, RESCALE)}


def distribution(edge: Mapping[str, Any]) -> str:
    """Describe how the rows of a recorded edge are distributed; logs of older releases have no field "words"."""
    words = edge.get("words")
    if words is None:
        words = edge_label(_partitioner(edge["partitioner"]), {})
    return words or "in the same task"


def key_edges(record: JobRecord) -> list[tuple[str, str]]:
    """Return the steps whose keys filter other steps: distinct pairs of vertices, the provider of the keys first."""
    vertex_of = record.vertex_of()
    sources = {(edge["target"], edge["input"]): edge["source"] for edge in record.edges.values()}
    pairs: dict[tuple[str, str], None] = {}
    for decision in record.decisions:
        figures = decision["figures"]
        if decision["kind"] == DecisionKind.DYNAMIC_FILTER and {JOIN, SIDE} <= figures.keys():
            side = (str(figures[JOIN]), Side(figures[SIDE]).input_number)
            source, target = vertex_of.get(sources.get(side, "")), vertex_of.get(str(decision["nodes"][0]))
            if source and target and source != target:
                pairs[source, target] = None
    return list(pairs)


def _partitioner(text: str) -> Partitioner:
    """Parse the text that older releases wrote for a partitioner."""
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
    """Split keys at commas, but not at commas within parentheses."""
    keys, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            keys.append(text[start:at])
            start = at + 1
    return tuple(filter(None, map(str.strip, (*keys, text[start:]))))
