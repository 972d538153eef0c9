"""Drafts written as text, for tests of passes. Their Spark plans consist of plain nodes without a JVM."""

from __future__ import annotations

from typing import Any, Never

from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.scan import Scan
from penstock.connectors.scan_parallelism import ScanOptions
from penstock.graph.partitioner import FORWARD
from penstock.planner.draft import DraftBuilder
from penstock.planner.plan import EdgePlan, NodePlan, SourcePlan, WriteKind
from penstock.spark.plans import LogicalNode
from penstock.testing import ARROWS, stream_graph


def plan(name: Any, *children: Any, ids: Any = ()) -> Any:
    """Return an operator of Spark's plan without a JVM object."""
    return LogicalNode(None, None, name, children, tuple(ids), (), (), name, is_deterministic=True)


class SizedScan(Scan):
    """A scan that only has a size."""

    def __init__(self, size: Any) -> None:
        self.size = size

    @property
    def size_in_bytes(self) -> Any:
        return self.size

    def divide(self, parallelism: int) -> Any:
        return parallelism

    def leaf(self, session: Any = None) -> Never:
        raise NotImplementedError

    def with_filters(self, plan: Any) -> Any:
        return self


def source(size: Any) -> Any:
    """Return a source with some bytes, and an unknown number of rows."""
    leaf = plan("Range")
    return SourcePlan(leaf, SourceCoordinator("range", None), ScanOptions(), None, leaf, SizedScan(size))


def draft(
    text: str,
    operators: Any = None,
    *,
    sources: Any = None,
    tops: Any = None,
    signatures: Any = None,
    joins: Any = None,
    groups: Any = None,
    parallelism: Any = None,
) -> Any:
    """Return the draft of a graph written as text, see `penstock.testing.stream_graph`.

    Parameters
    ----------
    sources
        The bytes of sources, by node.
    tops
        The operators of Spark's plan, by node.
    signatures
        The layout of written rows, by edge (``"1-2"``); edges with equal signatures share a written result.
    joins
        The facts of equi-joins, by node.
    groups
        The exchange groups, by edge; by default each edge has its own.
    """
    graph = stream_graph(text, operators, parallelism=parallelism)
    builder = DraftBuilder()
    for node in sorted(graph, key=lambda node: node.id):
        builder.nodes[node.id] = node
        builder.node_plans[node.id] = NodePlan((tops or {}).get(node.id))
    for edge in graph.edges:
        is_written = edge.partitioner != FORWARD
        write = WriteKind.SIDE if is_written else None
        builder.edges.append(edge)
        builder.edge_plans[edge.id] = EdgePlan(plan("Range"), write, signature=(signatures or {}).get(edge.id, ""))
        if is_written:
            builder.groups[edge.id] = (groups or {}).get(edge.id) or builder.new_group()
    builder.sources.update({node_id: source(size) for node_id, size in (sources or {}).items()})
    builder.joins.update(joins or {})
    return builder.draft()


def lines(changed: Any) -> Any:
    """Return the edges of a draft as text."""
    arrows = {partitioner: arrow for arrow, partitioner in ARROWS.items()}
    return {f"{edge.source_id} {arrows[edge.partitioner]} {edge.target_id}" for edge in changed.edges}
