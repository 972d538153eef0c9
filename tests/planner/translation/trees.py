"""Spark's plans as trees of plain nodes, and what becomes of them as lines: ``a #> Join``."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.config import Configuration
from penstock.graph import JoinType, Side
from penstock.graph.partitioner import (
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
    Partitioner,
    RangePartitioner,
)
from penstock.planner.draft import Draft, DraftBuilder
from penstock.planner.translation import joins, keyed
from penstock.planner.translation.translator import Translator
from penstock.spark import catalyst
from penstock.spark.joins import JoinFacts, JoinKey
from penstock.spark.plans import LogicalNode
from penstock.testing import ARROWS
from tests.execution.plans import Key
from tests.planner.drafts import plan, source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest


def tree(name: str, *children: LogicalNode, ids: str = "", **facts: Any) -> LogicalNode:
    """Return an operator; its columns are letters, and are known by the same keys. Names of leaves are letters, too."""
    found = plan(name, *children, ids=ids or (children[0].ids if children else "k"))
    return replace(found, keys=found.ids, **facts)


def keys(texts: str, **facts: Any) -> tuple[JoinKey, ...]:
    """Return plain columns as keys of a join."""
    known = {"is_column": True, "is_deterministic": True, "cannot_fail": True, "type": "bigint"} | facts
    return tuple(JoinKey(Key(one), one, (one,), **known) for one in texts)


def equal(left: str, right: str, join_type: JoinType = JoinType.INNER, **facts: Any) -> JoinFacts:
    """Return an equi-join of some columns."""
    known: dict[str, Any] = {"left_hint": None, "right_hint": None, "is_hashable": True, "cannot_fail": True} | facts
    return JoinFacts(join_type, keys(left), keys(right), **known)


class Translated:
    """What became of plans.

    Parameters
    ----------
    plans
        The plans.
    classes
        The class of parts that occur more than once.
    facts
        What is known of joins.
    sizes
        Spark's estimate of the bytes of operators; much, where nothing is given.
    grouping
        The keys of operators that want rows together.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *plans: LogicalNode,
        classes: Mapping[LogicalNode, int] | None = None,
        facts: Mapping[LogicalNode, JoinFacts] | None = None,
        sizes: Mapping[LogicalNode, int] | None = None,
        grouping: Mapping[LogicalNode, str] | None = None,
        limits: Mapping[LogicalNode, int] | None = None,
    ) -> None:
        def size_in_bytes(node: LogicalNode) -> int:
            return (sizes or {}).get(node, 1 << 40)

        def keys_in_output(node: LogicalNode, wanted: Sequence[Key]) -> list[Key]:
            return list(wanted) if set(wanted) <= set(node.keys) else []

        monkeypatch.setattr(joins, "join_facts", lambda node: (facts or {}).get(node))
        monkeypatch.setattr(LogicalNode, "size_in_bytes", property(size_in_bytes))
        monkeypatch.setattr(LogicalNode, "keys_in_output", keys_in_output)
        monkeypatch.setattr(
            catalyst, "grouping_keys", lambda node: [Key(one) for one in (grouping or {}).get(node, "")]
        )
        monkeypatch.setattr(keyed, "why_together", lambda _: None)
        monkeypatch.setattr(catalyst, "row_limit", lambda node: (limits or {}).get(node))
        parts: Any = SimpleNamespace(class_of=lambda node: (classes or {}).get(node))
        self.asked: list[tuple[str, str, int | None]] = []
        sources: Any = SimpleNamespace(make=self._source)
        bridge: Any = None
        self.builder = DraftBuilder()
        self.translator = Translator(
            bridge, Configuration.load({}), self.builder, parts, sources, 100, "the.option", lambda node: None
        )
        self.nodes = [self.translator.translate(one) for one in plans]

    def _source(self, leaf: LogicalNode, filtered: LogicalNode, hint: Any, limit: int | None) -> Any:
        self.asked.append((leaf.name, filtered.name, limit))
        found = source(7)
        return replace(found, coordinator=SimpleNamespace(name=leaf.name, source=None))

    @property
    def draft(self) -> Draft:
        """The draft."""
        return self.builder.draft()

    @property
    def lines(self) -> list[str]:
        """The edges as text, in the order of the nodes they lead to."""
        nodes = self.builder.nodes
        edges = sorted(self.builder.edges, key=lambda edge: (edge.target_id, edge.type_number))
        return [f"{self.name(edge.source_id)} {arrow(edge.partitioner)} {nodes[edge.target_id].name}" for edge in edges]

    def name(self, node_id: int) -> str:
        """Return a node's name."""
        return self.builder.nodes[node_id].name.removeprefix("Source: ")


def arrow(partitioner: Partitioner) -> str:
    """Return a partitioner as text, with its keys."""
    match partitioner:
        case HashPartitioner(keys):
            return f"#{''.join(keys)}>"
        case ForwardForConsecutiveHashPartitioner(HashPartitioner(keys)):
            return f"~{''.join(keys)}>"
        case RangePartitioner(keys):
            return f"|{''.join(keys)}>"
    return {found: text for text, found in ARROWS.items()}[partitioner]


LEFT, RIGHT = Side
