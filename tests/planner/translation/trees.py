"""Spark plans as trees of plain nodes, and their translation as lines of text: ``a #> Join``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from penstock.planner.draft import Draft
from penstock.planner.translation import joins, keyed
from penstock.planner.translation.translator import Translator
from penstock.spark.plans import catalyst
from penstock.spark.plans.joins import JoinFacts, JoinKey
from penstock.spark.plans.nodes import LogicalNode
from penstock.testing import ARROWS
from tests.execution.plans import Key
from tests.planner.drafts import plan, source

if TYPE_CHECKING:
    import pytest


def tree(name: str, *children: LogicalNode, ids: str = "", **facts: Any) -> LogicalNode:
    """Return an operator. Its columns are letters, which are also their keys. Names of leaves are letters, too."""
    node = plan(name, *children, ids=ids or (children[0].ids if children else "k"))
    return replace(node, keys=node.ids, **facts)


def keys(texts: str, **facts: Any) -> tuple[JoinKey, ...]:
    """Return plain columns as keys of a join."""
    defaults = {"is_column": True, "is_deterministic": True, "cannot_fail": True, "type": "bigint"} | facts
    return tuple(JoinKey(Key(column), column, (column,), **defaults) for column in texts)


def equal(left: str, right: str, join_type: JoinType = JoinType.INNER, **facts: Any) -> JoinFacts:
    """Return an equi-join of some columns."""
    fields: dict[str, Any] = {"left_hint": None, "right_hint": None, "is_hashable": True, "cannot_fail": True} | facts
    return JoinFacts(join_type, keys(left), keys(right), **fields)


class Translated:
    """The translation of plans.

    Parameters
    ----------
    plans
        The plans.
    classes
        The class of each repeated part.
    facts
        The facts of joins.
    sizes
        Spark's estimate of the bytes of operators; large by default.
    grouping
        The grouping keys of operators.
    limits
        The row limits of limit operators.
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

        def keys_in_output(node: LogicalNode, keys: Sequence[Key]) -> list[Key]:
            return list(keys) if set(keys) <= set(node.keys) else []

        monkeypatch.setattr(joins, "join_facts", lambda node: (facts or {}).get(node))
        monkeypatch.setattr(LogicalNode, "size_in_bytes", property(size_in_bytes))
        monkeypatch.setattr(LogicalNode, "keys_in_output", keys_in_output)
        monkeypatch.setattr(
            catalyst, "grouping_keys", lambda node: [Key(key) for key in (grouping or {}).get(node, "")]
        )
        monkeypatch.setattr(keyed, "indivisible_reason", lambda _: None)
        monkeypatch.setattr(catalyst, "row_limit", lambda node: (limits or {}).get(node))
        parts: Any = SimpleNamespace(class_of=lambda node: (classes or {}).get(node))
        self.created_sources: list[tuple[str, str, int | None]] = []
        sources: Any = SimpleNamespace(create=self._source)
        bridge: Any = None
        self.draft = Draft()
        self.translator = Translator(
            bridge, Configuration.load({}), self.draft, parts, sources, 100, "the.option", lambda node: None
        )
        self.nodes = [self.translator.translate(root) for root in plans]

    def _source(self, leaf: LogicalNode, filtered: LogicalNode, hint: Any, limit: int | None) -> Any:
        self.created_sources.append((leaf.name, filtered.name, limit))
        sized = source(7)
        return replace(sized, coordinator=SimpleNamespace(name=leaf.name, source=None))

    @property
    def lines(self) -> list[str]:
        """The edges as text, ordered by target node."""
        nodes = self.draft.stream_nodes
        edges = sorted(self.draft.stream_edges, key=lambda edge: (edge.target_id, edge.type_number))
        return [f"{self.name(edge.source_id)} {arrow(edge.partitioner)} {nodes[edge.target_id].name}" for edge in edges]

    def name(self, node_id: int) -> str:
        """Return the name of a node."""
        return self.draft.stream_nodes[node_id].name.removeprefix("Source: ")


def arrow(partitioner: Partitioner) -> str:
    """Return a partitioner as text, with its keys."""
    match partitioner:
        case HashPartitioner(keys):
            return f"#{''.join(keys)}>"
        case ForwardForConsecutiveHashPartitioner(HashPartitioner(keys)):
            return f"~{''.join(keys)}>"
        case RangePartitioner(keys):
            return f"|{''.join(keys)}>"
    return {plain: text for text, plain in ARROWS.items()}[partitioner]


LEFT, RIGHT = Side
