"""Builds the logical plan of a vertex: its operators on top of what it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.decisions import DecisionKind
from penstock.execution.reads import CoalescedRead
from penstock.execution.unsplit import record_unsplit
from penstock.graph import JoinOperator, JoinType, Side
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.planner.plan import WriteKind
from penstock.sizing.packing import SizeRow, pack_exactly
from penstock.spark import exchange, fragment, layouts
from penstock.threads import doing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.scan import Scan
    from penstock.execution.context import JobContext
    from penstock.execution.leaves import Leaves
    from penstock.execution.reads import VertexSetup
    from penstock.execution.runtime_filters import KeyFilters
    from penstock.graph import JobVertex, JoinSequence, StreamEdge, StreamGraph, StreamNode
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class FragmentBuilder:
    """Builds the plan of one vertex.

    Parameters
    ----------
    context
        The job.
    leaves
        Makes leaves of finished results.
    filters
        The dynamic filters.
    setup
        What was decided for the vertex.
    session
        The session in which it is planned.
    scan_sessions
        The sessions in which sources are read, for those that want one of their own.
    graph
        The stream graph.
    """

    context: JobContext
    leaves: Leaves
    filters: KeyFilters
    setup: VertexSetup
    session: Session
    scan_sessions: Mapping[int, Session]
    graph: StreamGraph

    def build(self, vertex: JobVertex) -> LogicalPlan:
        """Return the plan of the vertex."""
        plans: dict[int, LogicalPlan] = {}
        sequences = {n: one for n in vertex.node_ids if (one := _sequence(self.graph.node(n))) is not None}
        moved = {n for one in sequences.values() for n in one.chain[:-1]}
        for node_id in vertex.node_ids:
            if node_id in moved:
                continue
            if node_id in sequences:
                plans[node_id] = self._in_sequence(sequences[node_id], plans)
            else:
                plans[node_id] = self._filtered(node_id, self._node(node_id, plans))
        return plans[vertex.tail_id]

    def _node(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        source = self.context.plan.sources.get(node_id)
        if source is not None:
            name = source.coordinator.name
            with doing(f"opening {name} for reading", name):
                return self._read(node_id, source.scan)
        if self.context.plan.nodes[node_id].top is None:
            (plan,) = self._inputs(node_id, plans).values()
            return plan
        if len(self._sliced(node_id)) > 1:
            return self._split_join(node_id, plans)
        return self.operator(node_id, plans)

    def _read(self, node_id: int, scan: Scan) -> LogicalPlan:
        try:
            return scan.leaf(self.scan_sessions.get(node_id))
        finally:  # Spark may fail, too
            if scan.came_otherwise:
                log = self.context.decisions
                for decision in log:
                    if decision.kind is DecisionKind.NATIVE:  # that of the whole query: no vertex has run yet
                        log.settle(decision.id, instead="Spark computes it", because=scan.came_otherwise)

    def _inputs(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> dict[LogicalNode, LogicalPlan]:
        """Return the inputs of a node, by their places in its plan: results that lie ready, and plans of the vertex."""
        found: dict[LogicalNode, LogicalPlan] = {}
        for edge in self.graph.in_edges(node_id):
            plan = self.context.plan.edges[edge.id]
            if edge.source_id in plans:
                found[plan.child] = plans[edge.source_id]
            else:
                place = plan.operator if plan.write is WriteKind.OPERATOR else plan.child
                assert place is not None
                found[place] = self._leaf(edge)
        return found

    def _leaf(self, edge: StreamEdge) -> LogicalPlan:
        meets = len(self._sliced(edge.target_id)) > 1
        return self.leaves.leaf(edge, self.setup.read_of(edge.id), shared=self.setup.shared, meets=meets)

    def operator(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return a node's operators on top of its inputs."""
        top = self.context.plan.nodes[node_id].top
        assert top is not None
        plan = fragment.rebuild(top, self._inputs(node_id, plans))
        return self._with_algorithm(node_id, plan)

    def _sliced(self, node_id: int) -> list[StreamEdge]:
        """Return the edges to a node whose subpartitions are split, or meet such."""
        return [edge for edge in self.graph.in_edges(node_id) if self.setup.slices_of(edge.id) is not None]

    def _split_join(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return the rows of a join with both sides split, of which nothing is claimed.

        Every slice of one side is read by a task for each slice of the other. That is right if Spark joins what lies
        in each task, and for nothing else; so its plan is asked first, and whole subpartitions are read if it is
        another one.
        """
        plan = self.operator(node_id, plans)
        try:
            physical = exchange.physical_plan(self.session, plan)
            is_right = layouts.joins_its_leaves(physical)
        except Exception as error:
            if not layouts.is_refused(error):
                raise
            is_right = False
        if is_right:
            return fragment.rdd_leaf(self.context.bridge.session, plan.output, physical.rows())
        record_unsplit(self.context, node_id, "Spark does not plan it as a sort-merge or shuffled hash join")
        whole = replace(self.setup, edges={**self.setup.edges, **self._whole(self._sliced(node_id))})
        return replace(self, setup=whole).operator(node_id, plans)

    def _whole(self, edges: Sequence[StreamEdge]) -> dict[str, CoalescedRead]:
        """Return reads of whole subpartitions by as many tasks, for edges that are cut alike."""
        tasks = len(self.setup.slices_of(edges[0].id) or ())
        sizes = [self.leaves.results.staged(edge.source_id).sizes[0] for edge in edges]
        read = CoalescedRead(pack_exactly(SizeRow(np.sum(sizes, axis=0)), tasks))
        return {edge.id: read for edge in edges}

    def _in_sequence(self, sequence: JoinSequence, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return a chain of broadcast joins in the order that was decided, with the columns of its last join."""
        (probe,) = (edge for edge in self.graph.in_edges(sequence.chain[0]) if not is_broadcast(edge))
        # Rows that lay right for the first join when its place was decided may be exchanged before it since.
        plan = plans[probe.source_id] if probe.is_forward else self._leaf(probe)
        for node_id in sequence.joins:
            join = self.context.plan.nodes[node_id].top
            assert join is not None
            (build,) = (edge for edge in self.graph.in_edges(node_id) if is_broadcast(edge))
            leaf = self._leaf(build)
            is_left = Side.of_input(build.type_number) is Side.LEFT
            plan = join.with_children([leaf, plan] if is_left else [plan, leaf])
            plan = self._with_algorithm(node_id, plan)
        last = self.context.plan.nodes[sequence.chain[-1]].top
        assert last is not None
        return self._filtered(sequence.chain[-1], plan.projected(last.output))

    def _with_algorithm(self, node_id: int, plan: LogicalPlan) -> LogicalPlan:
        """Return a join that Spark runs as was decided: left alone, it would choose by statistics once more."""
        join = equi_join(self.graph, node_id)
        if join is None or join.operator.is_hinted or any(map(self.leaves.broadcasts.is_relation, join.edges.values())):
            return plan
        build = join.operator.strategy.build
        if build is not None:
            return fragment.hash_join(plan, build)
        if join.type is JoinType.LEFT_SINGLE:  # Spark cannot merge these
            return plan
        return fragment.merge_join(plan)

    def _filtered(self, node_id: int, plan: LogicalPlan) -> LogicalPlan:
        """Return a node's plan less the rows that finished join sides rule out."""
        return self.filters.apply(self.graph.node(node_id), plan)


def _sequence(node: StreamNode) -> JoinSequence | None:
    """Return the order that was decided for a chain of joins that ends with a node."""
    return node.operator.strategy.sequence if isinstance(node.operator, JoinOperator) else None
