"""Makes finished results leaves of a vertex's plan, and says of each how its rows lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.execution.divided_windows import divide_hot_keys
from penstock.execution.hot_groups import merge_hot_groups
from penstock.execution.reads import CoalescedRead, PulledRead, SlicedRead
from penstock.graph import WindowOperator
from penstock.optimizer.graphs import is_broadcast
from penstock.planner.plan import WriteKind
from penstock.sizing.coverage import check_rows
from penstock.sizing.packing import SizeRow, pack_exactly
from penstock.spark import exchange, fragment, layouts, pulled, verification
from penstock.spark.exchange import BroadcastResult

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.divided_windows import DividedRows
    from penstock.execution.python_batches import PythonBatches
    from penstock.execution.reads import EdgeRead
    from penstock.execution.results import ResultStore
    from penstock.graph import StreamEdge
    from penstock.planner.plan import EdgePlan
    from penstock.spark.exchange import StagedResult
    from penstock.spark.expressions import Attributes
    from penstock.spark.handles import InternalRows, Partitioning, PhysicalPlan
    from penstock.spark.logical_plan import LogicalPlan

_Rows = tuple["InternalRows", "Partitioning | None", "Partitioning | None"]
"""Rows, the layout that they claim, and the one that can be checked."""


class Leaves:
    """The leaves of one job.

    Parameters
    ----------
    context
        The job.
    results, broadcasts
        What its vertices have written, and the relations made of it.
    batches
        Receives the rows that are read.
    """

    def __init__(
        self, context: JobContext, results: ResultStore, broadcasts: Broadcasts, batches: PythonBatches
    ) -> None:
        self._context = context
        self._batches = batches
        self.results = results
        self.broadcasts = broadcasts

    def leaf(self, edge: StreamEdge, read: EdgeRead, *, shared: bool, meets: bool) -> LogicalPlan:
        """Return what an edge reads as a leaf of a logical plan.

        Parameters
        ----------
        edge, read
            The edge, and how it is read.
        shared
            Whether inputs that are cut alike are read as they lie by operators of several inputs.
        meets
            Whether slices of several inputs meet in the operator.
        """
        plan = self._context.plan.edges[edge.id]
        result = self.results.finished(edge.source_id)
        if isinstance(result, BroadcastResult):
            return fragment.broadcast_leaf(plan.attributes, result.stage)
        if is_broadcast(edge) and plan.write is WriteKind.SIDE:
            relation = self.broadcasts.relation(edge, result)
            if relation is not None:
                return fragment.broadcast_leaf(plan.attributes, relation.stage)
        is_operator = plan.write is WriteKind.OPERATOR and plan.operator is not None
        output = plan.operator.output if is_operator and plan.operator is not None else plan.attributes
        if isinstance(read, PulledRead):
            return self._pulled(plan, read, result)
        divided = self._divided(edge, read, result)
        physical = None
        if divided is not None:
            rows, layout = divided.rows, None
            spark_layout = verification.span_layout(layouts.layout(result.above, output), divided.spans)
        elif isinstance(read, SlicedRead) and not self._is_window(edge):
            rows, layout, spark_layout = self._sliced(edge, read, result, output, meets=meets)
        else:
            physical = self._hot_merged(edge, read, result) or self._cut(edge, read, result)
            rows, layout, spark_layout = self._whole(physical, output, shared=shared)
        if self._context.verify and spark_layout is not None:
            rows = verification.checked(rows, spark_layout, output, f"the input {edge.id}")
            if self._context.native_memory is not None and physical is not None:
                # DuckDB reads the exchange itself, so the tasks of these rows may never run.
                self._check_exchange(edge, read, result, physical, rows)
        self._batches.add_leaf(edge, rows)
        leaf = fragment.rdd_leaf(
            self._context.bridge.session,
            output,
            rows,
            layout=layout,
            ordering=result.above.ordering if is_operator else None,
            statistics=result.statistics if result.is_plain_exchange else None,
            plan=None if self._context.native_memory is None else physical,
        )
        return leaf if plan.consumer is None else plan.consumer.node.with_children([leaf])

    @staticmethod
    def _check_exchange(
        edge: StreamEdge, read: EdgeRead, result: StagedResult, physical: PhysicalPlan, rows: InternalRows
    ) -> None:
        """Read checked rows once, and check that what is read of the exchange below them is all that was written.

        Raises
        ------
        VerificationError
            If rows are missing, or too many.
        """
        count = verification.count(rows)
        is_merged = isinstance(read, CoalescedRead) and bool(read.merged)
        if result.can_be_cut and not is_merged:
            count = count if result.is_plain_exchange else verification.count_exchanged(physical)
            check_rows(f"the input {edge.id}", result.exact_rows, count)

    def _pulled(self, plan: EdgePlan, read: PulledRead, result: StagedResult) -> LogicalPlan:
        """Return the rows of a result as tasks take them, piece by piece, or what a function makes of them."""
        bridge = self._context.bridge
        pieces = exchange.as_cut(result, [(i, i + 1) for i in range(result.subpartitions)]).rows()
        if plan.consumer is None:
            return pulled.pulled_leaf(bridge.session, plan.attributes, pieces, read.tasks)
        return plan.consumer.over(bridge, pieces, read.tasks)

    def _hot_merged(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> PhysicalPlan | None:
        """Return the plan of an aggregate that reads hot subpartitions as they were merged; None where they are not."""
        if not isinstance(read, CoalescedRead) or not read.merged:
            return None
        return merge_hot_groups(self._context, edge, read, result)

    def _is_window(self, edge: StreamEdge) -> bool:
        """Whether an edge leads to a window: its rows must not be read in slices, but divided by their order."""
        return isinstance(self._context.graph.node(edge.target_id).operator, WindowOperator)

    def _divided(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> DividedRows | None:
        """Return the rows of a window whose hot subpartitions were computed in pieces; None where they are not."""
        if not isinstance(read, SlicedRead) or not self._is_window(edge):
            return None
        return divide_hot_keys(self._context, edge, read, result)

    def _cut(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> PhysicalPlan:
        """Return the plan that reads a result by whole subpartitions."""
        ranges = read.ranges if isinstance(read, CoalescedRead) and not is_broadcast(edge) else None
        if isinstance(read, SlicedRead):
            ranges = pack_exactly(SizeRow(result.sizes[0]), len(read.tasks))
        return exchange.as_cut(result, ranges)

    def _whole(self, physical: PhysicalPlan, output: Attributes, *, shared: bool) -> _Rows:
        """Return the rows of whole subpartitions, the layout they claim, and the one that can be checked."""
        spark_layout = layouts.layout(physical, output)
        return physical.rows(), layouts.shareable(spark_layout) if shared else spark_layout, spark_layout

    def _sliced(
        self, edge: StreamEdge, read: SlicedRead, result: StagedResult, output: Attributes, *, meets: bool
    ) -> _Rows:
        """Return the rows of slices, the layout they claim towards a join of them, and the one that can be checked."""
        plan = self._context.plan.edges[edge.id]
        pieces = [[(one.subpartitions, one.mappers) for one in task] for task in read.tasks]
        rows = exchange.read_slices(result, pieces)
        joint = fragment.joint_layout(plan.keys, len(read.tasks)) if meets else None
        spark_layout: Partitioning | None = None
        if self._context.verify and all(len(task) == 1 for task in read.tasks):
            lies = layouts.layout(result.above, output)
            spark_layout = verification.span_layout(lies, [task[0].subpartitions for task in read.tasks])
        return rows, layouts.shareable(joint), spark_layout
