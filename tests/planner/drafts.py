"""Drafts written as text, for tests of passes. Their Spark plans consist of plain nodes without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Never

from penstock.connectors.core.coordinator import SourceCoordinator
from penstock.connectors.core.scan import Scan
from penstock.connectors.core.scan_parallelism import ScanOptions
from penstock.graph.partitioner import FORWARD
from penstock.planner.draft import Draft
from penstock.planner.plan import EdgePlan, JobPlan, NodePlan, SourcePlan, WriteKind
from penstock.planner.planner import plan_job
from penstock.spark.plans.nodes import LogicalNode
from penstock.testing import ARROWS, stream_graph

if TYPE_CHECKING:
    from penstock import Environment
    from penstock.planner.outputs import Output


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
    draft = Draft()
    for node in sorted(graph, key=lambda node: node.id):
        draft.stream_nodes[node.id] = node
        draft.nodes[node.id] = NodePlan((tops or {}).get(node.id))
    for edge in graph.edges:
        is_written = edge.partitioner != FORWARD
        write = WriteKind.SIDE if is_written else None
        draft.stream_edges.append(edge)
        draft.edges[edge.id] = EdgePlan(plan("Range"), write, signature=(signatures or {}).get(edge.id, ""))
        if is_written:
            draft.groups[edge.id] = (groups or {}).get(edge.id) or draft.new_group()
    draft.sources.update({node_id: source(size) for node_id, size in (sources or {}).items()})
    draft.joins.update(joins or {})
    return draft


def steps_of(env: Environment, outputs: Sequence[Output]) -> JobPlan:
    """Return the plan of a job that Spark does not run unchanged."""
    steps = plan_job(env._bridge, env.config, outputs, "x")
    assert isinstance(steps, JobPlan)
    return steps


def refined(planner_pass: Any, before: Any) -> Any:
    """Return a draft after a pass."""
    planner_pass(before)
    return before


def lines(changed: Any) -> Any:
    """Return the edges of a draft as text."""
    arrows = {partitioner: arrow for arrow, partitioner in ARROWS.items()}
    return {f"{edge.source_id} {arrows[edge.partitioner]} {edge.target_id}" for edge in changed.stream_edges}
