"""Turns finished results into leaves of a vertex's plan, with the partitioning (*layout*) of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.execution.context import CoalescedRead, EdgeRead, JobContext, PulledRead, SlicedRead
from penstock.execution.hot_subpartitions import divide_hot_keys, merge_hot_groups
from penstock.graph import StreamEdge, WindowOperator
from penstock.optimizer.graphs import is_broadcast
from penstock.planner.plan import EdgePlan, WriteKind
from penstock.sizing.coverage import check_rows
from penstock.sizing.packing import SizeList, pack_exactly
from penstock.spark.plans import fragment
from penstock.spark.run import exchange, layouts, pulled_rows, verification
from penstock.spark.run.exchange import BroadcastResult, StagedResult

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.python_batches import PythonBatches
    from penstock.execution.results import ResultStore
    from penstock.spark.bridge.handles import InternalRows, Partitioning, PhysicalPlan
    from penstock.spark.plans.expressions import Attributes
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(eq=False, slots=True)
class LeafBuilder:
    """Builds the leaves of the plans of vertices from finished results."""

    _context: JobContext
    results: ResultStore
    broadcasts: Broadcasts
    _batches: PythonBatches

    def leaf(self, edge: StreamEdge, read: EdgeRead, *, has_common_layout: bool, joins_slices: bool) -> LogicalPlan:
        """Return the input of an edge as a leaf of a logical plan.

        `has_common_layout` says whether an operator with several inputs may treat inputs that are read by the same
        ranges as co-partitioned. `joins_slices` says whether the operator joins slices of several inputs.
        """
        edge_plan = self._context.plan.edges[edge.id]
        result = self.results.finished(edge.source_id)
        if isinstance(result, BroadcastResult):
            return fragment.broadcast_leaf(edge_plan.attributes, result.stage)
        if is_broadcast(edge) and edge_plan.write is WriteKind.SIDE:
            relation = self.broadcasts.relation(edge, result)
            if relation is not None:
                return fragment.broadcast_leaf(edge_plan.attributes, relation.stage)
        operator = edge_plan.operator if edge_plan.write is WriteKind.OPERATOR else None
        output = edge_plan.attributes if operator is None else operator.output
        if isinstance(read, PulledRead):
            return self._pulled_leaf(edge_plan, read, result)
        divided = merged = physical = None
        is_window = isinstance(self._context.graph.node(edge.target_id).operator, WindowOperator)
        if isinstance(read, SlicedRead) and is_window:  # the window may be computed in chunks of its order
            divided = divide_hot_keys(self._context, edge, read, result)
        elif isinstance(read, CoalescedRead) and read.merge_ranges:
            merged = merge_hot_groups(self._context, edge, read, result)
        if divided is not None:
            (rows, task_ranges), layout = divided, None  # no layout: rows of a key may be in several chunks
            spark_layout = verification.range_layout(layouts.layout(result.plan, output), task_ranges)
        elif isinstance(read, SlicedRead) and not is_window:
            rows, layout, spark_layout = self._sliced_rows(edge, read, result, output, joins_slices=joins_slices)
        else:
            physical = merged or _whole_subpartitions_plan(edge, read, result)
            spark_layout, rows = layouts.layout(physical, output), physical.rows()
            layout = layouts.as_shareable(spark_layout) if has_common_layout else spark_layout
        if self._context.verify and spark_layout is not None:
            rows = verification.check_layout(rows, spark_layout, output, f"the input {edge.id}")
            self._check_exchange(edge, read, result, physical, rows)
        self._batches.add_leaf(edge, rows)
        leaf = fragment.rdd_leaf(
            self._context.bridge.session,
            output,
            rows,
            layout=layout,
            ordering=None if operator is None else result.plan.ordering,
            statistics=result.statistics if result.is_plain_exchange else None,
            plan=physical if self._context.has_native_steps else None,
        )
        # The function of an adaptive exchange is not an operator of the vertex, so it is added above the leaf.
        return leaf if edge_plan.consumer is None else edge_plan.consumer.node.with_children([leaf])

    def _check_exchange(
        self, edge: StreamEdge, read: EdgeRead, result: StagedResult, physical: PhysicalPlan | None, rows: InternalRows
    ) -> None:
        """Run the checks of the rows now if a native engine may read the exchange; check that it is read completely.

        The engine reads the exchange itself, so Spark's tasks, which would run the checks of `rows`, may never run.
        """
        if not self._context.has_native_steps or physical is None:
            return
        count = verification.count_rows(rows)
        is_merged = isinstance(read, CoalescedRead) and bool(read.merge_ranges)
        if result.has_readable_ranges and not is_merged:
            count = count if result.is_plain_exchange else verification.count_exchanged_rows(physical)
            check_rows(f"the input {edge.id}", result.exact_rows, count)

    def _pulled_leaf(self, edge_plan: EdgePlan, read: PulledRead, result: StagedResult) -> LogicalPlan:
        bridge = self._context.bridge
        chunks = exchange.read_ranges(result, [(i, i + 1) for i in range(result.subpartitions)]).rows()
        if edge_plan.consumer is None:
            return pulled_rows.pulled_leaf(bridge.session, edge_plan.attributes, chunks, read.tasks)
        return edge_plan.consumer.plan_over(bridge, chunks, read.tasks)

    def _sliced_rows(
        self, edge: StreamEdge, read: SlicedRead, result: StagedResult, output: Attributes, *, joins_slices: bool
    ) -> tuple[InternalRows, Partitioning | None, Partitioning | None]:
        """Return the rows of slices, the layout for a join of slices, and the layout to verify; both may be None."""
        edge_plan = self._context.plan.edges[edge.id]
        slices = [[(part.subpartitions, part.mappers) for part in task] for task in read.tasks]
        rows = exchange.read_slices(result, slices)
        joint_layout = fragment.split_join_layout(edge_plan.keys, len(read.tasks)) if joins_slices else None
        spark_layout: Partitioning | None = None
        if self._context.verify and all(len(task) == 1 for task in read.tasks):
            written_layout = layouts.layout(result.plan, output)
            spark_layout = verification.range_layout(written_layout, [task[0].subpartitions for task in read.tasks])
        return rows, layouts.as_shareable(joint_layout), spark_layout


def _whole_subpartitions_plan(edge: StreamEdge, read: EdgeRead, result: StagedResult) -> PhysicalPlan:
    """Return a plan that reads whole subpartitions of a result."""
    ranges = read.ranges if isinstance(read, CoalescedRead) and not is_broadcast(edge) else None
    if isinstance(read, SlicedRead):  # for a window that could not be divided
        ranges = pack_exactly(SizeList(result.sizes[0]), len(read.tasks))
    return exchange.read_ranges(result, ranges)
