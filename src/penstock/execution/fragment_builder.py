"""Builds the logical plan of a vertex: its operators on top of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.threads import track_work
from penstock.decisions.log import DecisionKind
from penstock.execution.context import CoalescedRead, JobContext, VertexSetup
from penstock.execution.hot_subpartitions import record_unsplit
from penstock.graph import JobVertex, JoinOperator, JoinSequence, JoinType, Side, StreamEdge, StreamGraph
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.planner.plan import WriteKind
from penstock.sizing.packing import SizeList, pack_exactly
from penstock.spark.plans import fragment
from penstock.spark.run import exchange, layouts

if TYPE_CHECKING:
    from penstock.connectors.core.scan import Scan
    from penstock.execution.dynamic_filters import DynamicFilters
    from penstock.execution.leaves import LeafBuilder
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class FragmentBuilder:
    """Builds the logical plan of a vertex.

    `scan_sessions` has the sessions of the sources in `VertexSetup.scan_settings`, by node id.
    """

    context: JobContext
    leaves: LeafBuilder
    filters: DynamicFilters
    setup: VertexSetup
    session: Session
    scan_sessions: Mapping[int, Session]
    graph: StreamGraph

    def build(self, vertex: JobVertex) -> LogicalPlan:
        """Return the plan of the vertex."""
        plans: dict[int, LogicalPlan] = {}
        operators = {node_id: self.graph.node(node_id).operator for node_id in vertex.node_ids}
        sequences = {
            node_id: operator.strategy.sequence
            for node_id, operator in operators.items()
            if isinstance(operator, JoinOperator) and operator.strategy.sequence is not None
        }
        covered_by_sequences = {node_id for sequence in sequences.values() for node_id in sequence.chain[:-1]}
        for node_id in vertex.node_ids:
            if node_id in covered_by_sequences:
                continue  # the last join of its chain builds it
            if node_id in sequences:
                plan = self._join_sequence(sequences[node_id], plans)
            else:
                plan = self._build_node(node_id, plans)
            plans[node_id] = self.filters.apply(self.graph.node(node_id), plan)
        return plans[vertex.tail_id]

    def _build_node(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        source = self.context.plan.sources.get(node_id)
        if source is not None:
            name = source.coordinator.name
            with track_work(f"opening {name} for reading", name):
                return self._open_scan(node_id, source.scan)
        if self.context.plan.nodes[node_id].top is None:  # a sink or repartition: the node has no operator of its own
            (plan,) = self._inputs(node_id, plans).values()
            return plan
        if len(self._sliced_edges(node_id)) > 1:
            return self._split_join(node_id, plans)
        return self.build_operator(node_id, plans)

    def _open_scan(self, node_id: int, scan: Scan) -> LogicalPlan:
        try:
            return scan.leaf(self.scan_sessions.get(node_id))
        finally:  # also if Spark raises an error
            if scan.fallback_reason:
                log = self.context.decisions
                for decision in log:  # no vertex has run, so the only NATIVE decision is to compute the query natively
                    if decision.kind is DecisionKind.NATIVE:
                        log.settle(decision.id, instead="Spark computes it", because=scan.fallback_reason)

    def _inputs(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> dict[LogicalNode, LogicalPlan]:
        """Return the plans of a node's inputs, by the operators of Spark's plan that they replace."""
        inputs: dict[LogicalNode, LogicalPlan] = {}
        for edge in self.graph.in_edges(node_id):
            plan = self.context.plan.edges[edge.id]
            if edge.source_id in plans:
                inputs[plan.child] = plans[edge.source_id]
            else:
                replaced = plan.operator if plan.write is WriteKind.OPERATOR else plan.child
                assert replaced is not None
                inputs[replaced] = self._leaf(edge)
        return inputs

    def _leaf(self, edge: StreamEdge) -> LogicalPlan:
        joins_slices = len(self._sliced_edges(edge.target_id)) > 1
        read = self.setup.read_of(edge.id)
        return self.leaves.leaf(edge, read, has_common_layout=self.setup.has_common_layout, joins_slices=joins_slices)

    def build_operator(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return a node's operators on top of its inputs."""
        top = self.context.plan.nodes[node_id].top
        assert top is not None
        plan = fragment.rebuild(top, self._inputs(node_id, plans))
        return self._with_algorithm(node_id, plan)

    def _sliced_edges(self, node_id: int) -> list[StreamEdge]:
        """Return the edges to a node that are read in slices, see `SlicedRead`; two if it joins split subpartitions."""
        return [edge for edge in self.graph.in_edges(node_id) if self.setup.slices_of(edge.id) is not None]

    def _split_join(self, node_id: int, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return the rows of a join that reads slices of both sides, as a plan that declares no partitioning.

        Each task reads a slice of each side. That is only correct if Spark joins the rows of each task without a
        shuffle. So Spark's physical plan is checked first; if it is not such a join, whole subpartitions are read.
        """
        plan = self.build_operator(node_id, plans)
        try:
            physical = exchange.physical_plan(self.session, plan)
            joins_within_tasks = layouts.joins_its_leaves(physical)
        except Exception as error:
            if not layouts.is_repartition_refused(error):
                raise
            joins_within_tasks = False
        if joins_within_tasks:
            return fragment.rdd_leaf(self.context.bridge.session, plan.output, physical.rows())
        record_unsplit(self.context, node_id, "Spark does not plan it as a sort-merge or shuffled hash join")
        edges = self._sliced_edges(node_id)
        tasks = len(self.setup.slices_of(edges[0].id) or ())
        sizes = [self.leaves.results.staged(edge.source_id).sizes[0] for edge in edges]
        read = CoalescedRead(pack_exactly(SizeList(np.sum(sizes, axis=0)), tasks))
        whole_setup = replace(self.setup, edges={**self.setup.edges, **{edge.id: read for edge in edges}})
        return replace(self, setup=whole_setup).build_operator(node_id, plans)

    def _join_sequence(self, sequence: JoinSequence, plans: Mapping[int, LogicalPlan]) -> LogicalPlan:
        """Return a chain of broadcast joins in the decided order, with the columns of the last join in the graph."""
        (probe,) = (edge for edge in self.graph.in_edges(sequence.chain[0]) if not is_broadcast(edge))
        # An exchange may have been added before the first join since the order was decided.
        plan = plans[probe.source_id] if probe.is_forward else self._leaf(probe)
        for node_id in sequence.joins:
            join = self.context.plan.nodes[node_id].top
            assert join is not None
            (build,) = (edge for edge in self.graph.in_edges(node_id) if is_broadcast(edge))
            leaf = self._leaf(build)
            builds_left = Side.of_input(build.type_number) is Side.LEFT
            plan = join.with_children([leaf, plan] if builds_left else [plan, leaf])
            plan = self._with_algorithm(node_id, plan)
        last = self.context.plan.nodes[sequence.chain[-1]].top
        assert last is not None
        return plan.projected(last.output)

    def _with_algorithm(self, node_id: int, plan: LogicalPlan) -> LogicalPlan:
        """Return the plan; a shuffled join gets a hint for its algorithm, or else Spark would choose an algorithm."""
        join = equi_join(self.graph, node_id)
        if join is None or join.operator.is_hinted or any(map(self.leaves.broadcasts.is_relation, join.edges.values())):
            return plan
        build = join.operator.strategy.build
        if build is not None:
            return fragment.hinted_join(plan, build, "SHUFFLE_HASH")
        if join.type is JoinType.LEFT_SINGLE:  # Spark has no sort-merge join of this type
            return plan
        return fragment.hinted_join(plan, Side.LEFT, "SHUFFLE_MERGE")
