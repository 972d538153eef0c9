"""Turns finished results into leaves of a vertex's plan, with the layout of their rows."""

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
"""Rows, the layout that the plan claims for them, and the layout that can be verified."""


class Leaves:
    """The leaves of a job."""

    def __init__(
        self, context: JobContext, results: ResultStore, broadcasts: Broadcasts, batches: PythonBatches
    ) -> None:
        self._context = context
        self._batches = batches
        self.results = results
        self.broadcasts = broadcasts

    def leaf(self, edge: StreamEdge, read: EdgeRead, *, shared: bool, joins_slices: bool) -> LogicalPlan:
        """Return the input of an edge as a leaf of a logical plan.

        Parameters
        ----------
        shared
            Whether operators with several inputs may rely on the common partitioning of inputs with the same ranges.
        joins_slices
            Whether the operator joins slices of several inputs.
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
            rows, layout, spark_layout = self._sliced(edge, read, result, output, joins_slices=joins_slices)
        else:
            physical = self._hot_merged(edge, read, result) or self._read_whole(edge, read, result)
            rows, layout, spark_layout = self._whole(physical, output, shared=shared)
        if self._context.verify and spark_layout is not None:
            rows = verification.check_layout(rows, spark_layout, output, f"the input {edge.id}")
            if self._context.native_memory is not None and physical is not None:
                # DuckDB reads the exchange itself, so the tasks that check these rows may never run.
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
        """Read the checked rows once, and check that the exchange below them is read completely.

        Raises
        ------
        VerificationError
            If rows are missing or duplicated.
        """
        count = verification.count_rows(rows)
        is_merged = isinstance(read, CoalescedRead) and bool(read.merged)
        if result.has_readable_ranges and not is_merged:
            count = count if result.is_plain_exchange else verification.count_exchanged_rows(physical)
            check_rows(f"the input {edge.id}", result.exact_rows, count)

    def _pulled(self, plan: EdgePlan, read: PulledRead, result: StagedResult) -> LogicalPlan:
        """Return the rows of a result as tasks pull them in chunks, or the output of the function that does."""
        bridge = self._context.bridge
        chunks = exchange.read_ranges(result, [(i, i + 1) for i in range(result.subpartitions)]).rows()
        if plan.consumer is None:
            return pulled.pulled_leaf(bridge.session, plan.attributes, chunks, read.tasks)
        return plan.consumer.over(bridge, chunks, read.tasks)

    def _hot_merged(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> PhysicalPlan | None:
        """Return an aggregate over pre-merged hot subpartitions; None if they are not merged in chunks."""
        if not isinstance(read, CoalescedRead) or not read.merged:
            return None
        return merge_hot_groups(self._context, edge, read, result)

    def _is_window(self, edge: StreamEdge) -> bool:
        """Whether an edge leads to a window, whose rows must be divided by their order instead of read in slices."""
        return isinstance(self._context.graph.node(edge.target_id).operator, WindowOperator)

    def _divided(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> DividedRows | None:
        """Return the rows of a window whose hot subpartitions are computed in chunks; None if they are not."""
        if not isinstance(read, SlicedRead) or not self._is_window(edge):
            return None
        return divide_hot_keys(self._context, edge, read, result)

    def _read_whole(self, edge: StreamEdge, read: EdgeRead, result: StagedResult) -> PhysicalPlan:
        """Return the plan that reads a result by whole subpartitions."""
        ranges = read.ranges if isinstance(read, CoalescedRead) and not is_broadcast(edge) else None
        if isinstance(read, SlicedRead):
            ranges = pack_exactly(SizeRow(result.sizes[0]), len(read.tasks))
        return exchange.read_ranges(result, ranges)

    def _whole(self, physical: PhysicalPlan, output: Attributes, *, shared: bool) -> _Rows:
        """Return the rows of whole subpartitions, the claimed layout, and the verifiable layout."""
        spark_layout = layouts.layout(physical, output)
        return physical.rows(), layouts.shareable(spark_layout) if shared else spark_layout, spark_layout

    def _sliced(
        self, edge: StreamEdge, read: SlicedRead, result: StagedResult, output: Attributes, *, joins_slices: bool
    ) -> _Rows:
        """Return the rows of slices, the layout that a join of them relies on, and the verifiable layout."""
        plan = self._context.plan.edges[edge.id]
        slices = [[(piece.subpartitions, piece.mappers) for piece in task] for task in read.tasks]
        rows = exchange.read_slices(result, slices)
        joint = fragment.joint_layout(plan.keys, len(read.tasks)) if joins_slices else None
        spark_layout: Partitioning | None = None
        if self._context.verify and all(len(task) == 1 for task in read.tasks):
            written_layout = layouts.layout(result.above, output)
            spark_layout = verification.span_layout(written_layout, [task[0].subpartitions for task in read.tasks])
        return rows, layouts.shareable(joint), spark_layout
