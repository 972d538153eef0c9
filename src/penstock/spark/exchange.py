"""The exchange between two vertices: Spark's own shuffle, run as separate stages whose results are measured.

Uses (Spark 4.0 to 4.3): ``QueryExecution.createSparkPlan``, ``InsertAdaptiveSparkPlan``, ``AdaptiveSparkPlanExec
.finalPhysicalPlan``, ``ShuffleQueryStageExec``, ``AQEShuffleReadExec``, ``CoalescedPartitionSpec``.

Two rules keep results correct. The operators *above* the stages of a plan belong to the result of the plan: Spark may
have removed a requested exchange, so a stage alone is never taken for the result. And the layout of a result's rows is
never derived here; see `penstock.spark.layouts`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception

from penstock.graph import Side
from penstock.spark.fragment import broadcast_join, placeholder
from penstock.spark.grouping_sets import pre_aggregate
from penstock.spark.handles import (
    BroadcastMode,
    HashedRelation,
    InternalRows,
    PhysicalPlan,
    QueryStage,
    Statistics,
)
from penstock.spark.jobs import executors_of, has_repeated_tasks
from penstock.spark.jvm import EXECUTION, EXPRESSIONS, children, class_name, items
from penstock.spark.native_failures import fail_fast
from penstock.spark.planning import spark_plan
from penstock.spark.stage_figures import mapper_bytes, row_count, stage_statistics, subpartition_bytes, to_int

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.spark.expressions import Expression
    from penstock.spark.handles import Session
    from penstock.spark.job_watch import JobWatch
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.native_parts import NativeParts
    from penstock.spark.plans import LogicalNode

_STAGE = "ShuffleQueryStageExec"
_READ = "AQEShuffleReadExec"
_SIDE_INDEX = {Side.LEFT: 0, Side.RIGHT: 1}
_Slice = tuple[tuple[int, int], tuple[int, int] | None]
_NOTHING: _Slice = ((0, 0), None)
_SAMPLED_ROWS = 10_000
"""Rows of a broadcast relation whose sizes are sampled."""


@dataclass(frozen=True, slots=True)
class StagedResult:
    """The written result of a vertex: shuffle stages that have run, and the plan above them that has not.

    Parameters
    ----------
    stages
        The shuffle stages that it reads; empty if Spark needed no exchange (then nothing has run yet).
    sizes
        Bytes per subpartition, shape (1, subpartitions); a single total unless there is a single stage.
    rows, size_in_bytes
        Rows written, and their bytes in memory; None if not measured.
    is_counted_once
        Whether no row is counted twice. If the output of a task was lost, for instance with its executor, Spark also
        counts the rows of the repeated task; it counts bytes only once.
    tasks, input_tasks
        The number of tasks that wrote the result, and the number that read the inputs of the plan, which differs if
        Spark exchanged rows in between. None if nothing ran.
    mapper_bytes
        For a single stage: returns the bytes that each task wrote to some subpartitions, shape (tasks, subpartitions).
    """

    above: PhysicalPlan
    stages: tuple[QueryStage, ...]
    sizes: np.ndarray = field(repr=False)
    rows: int | None = None
    size_in_bytes: int | None = None
    is_counted_once: bool = True
    tasks: int | None = None
    input_tasks: int | None = None
    statistics: Statistics | None = None
    mapper_bytes: Callable[[Sequence[int]], np.ndarray] | None = field(default=None, repr=False)

    @property
    def exact_rows(self) -> int | None:
        """Rows written, None if the count is not certain."""
        return self.rows if self.is_counted_once else None

    @property
    def written_bytes(self) -> int | None:
        """Compressed bytes of the shuffle files; None if nothing was written."""
        return int(self.sizes.sum()) if self.stages else None

    @property
    def subpartitions(self) -> int:
        """The number of subpartitions that can be read separately."""
        return int(self.sizes.shape[1])

    @property
    def has_readable_ranges(self) -> bool:
        """Whether tasks can read arbitrary ranges of subpartitions: the plan has a single stage as its only input."""
        return len(self.stages) == 1 and _is_unary(self.above._handle)

    def is_hashed_by(self, keys: Sequence[Expression]) -> bool:
        """Whether the only stage is hashed by exactly these keys; computed keys are not compared.

        It is not if Spark reused a partitioning by fewer keys or in another order.
        """
        stage = self.stages[0]
        hashed_by = items(stage._bridge.helper("NativeExchange").hashKeys(self.above, stage))
        return len(hashed_by) == len(keys) and all(
            not key.is_attribute or bool(key._handle.semanticEquals(column))
            for key, column in zip(keys, hashed_by, strict=True)
        )

    @property
    def is_plain_exchange(self) -> bool:
        """Whether the result is exactly the rows of a single stage."""
        plan = self.above._handle
        while class_name(plan) in {_READ, "InputAdapter", "NativeRows"}:
            (plan,) = children(plan)
        return len(self.stages) == 1 and class_name(plan) == _STAGE


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """A hashed relation that every executor can fetch.

    Parameters
    ----------
    rows, size_in_bytes
        Measured; the bytes are those of the relation in memory with its allocated pages: 64 MiB for a single row.
    data_bytes
        The estimated bytes of the rows themselves.
    tasks, input_tasks
        The number of tasks that computed its rows, and the number that read the inputs of the plan.
    is_counted_once
        Whether no scan has counted a row twice, see `StagedResult`.
    """

    stage: QueryStage
    rows: int | None
    size_in_bytes: int
    data_bytes: int
    tasks: int
    input_tasks: int
    plan: PhysicalPlan
    is_counted_once: bool = True

    @property
    def exact_rows(self) -> int | None:
        """Rows of the relation, counted in the driver, so repeated tasks do not matter."""
        return self.rows

    @property
    def relation(self) -> HashedRelation:
        """The relation in the driver."""
        relation = self.stage._handle.broadcast().executeBroadcast()
        return HashedRelation(self.stage._bridge, relation.value(), int(relation.id()))


def physical_plan(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: NativeParts | None = None
) -> PhysicalPlan:
    """Return the adaptive physical plan of an *optimised* logical plan, with the settings of a session.

    The plan is not optimised again: that costs more than planning, and parts of an optimised plan are optimal. The
    session must be the active session of this thread, see `jobs.vertex_thread`.

    Parameters
    ----------
    pre_aggregated
        Whether an aggregate over grouping sets aggregates before its rows are multiplied.
    native
        Lets DuckDB compute parts of the plan; None for Spark alone.
    """
    bridge = session._bridge
    logical._handle.setAnalyzed()
    query = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, logical).queryExecution()
    plan = spark_plan(session, logical)
    if pre_aggregated:
        plan = pre_aggregate(bridge, plan) or plan
    if native is not None:
        plan = native.rewrite(session, PhysicalPlan(bridge, plan))._handle
    context = bridge.find(EXECUTION + "adaptive.AdaptiveExecutionContext")(session, query)
    adaptive = bridge.find(EXECUTION + "adaptive.InsertAdaptiveSparkPlan")(context).apply(plan)
    if class_name(adaptive) != "AdaptiveSparkPlanExec":
        # Unlike `query.executedPlan`, this ignores cached data: a query that is being cached would wait for itself.
        executions = bridge.companion(EXECUTION + "QueryExecution")
        adaptive = executions.prepareForExecution(executions.preparations(session, bridge.none, False), plan)
    return PhysicalPlan(bridge, adaptive)


def write(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: NativeParts | None = None
) -> StagedResult:
    """Run the shuffle stages of a plan, but not the operators above them; if DuckDB fails, Spark computes its parts."""
    bridge, executors = session._bridge, executors_of(session._bridge)
    plan = partial(physical_plan, session, logical, pre_aggregated=pre_aggregated, native=native)
    try:
        with nullcontext() if native is None else fail_fast(bridge):
            above = _run_stages(plan())
    except Exception as error:
        if native is None or not native.handle_failure(bridge, error):
            raise
        above = _run_stages(plan())
    if native is not None:
        if native.declines_last_stage(above):
            above = _run_stages(plan())
        native.report_rows(bridge)
    stages = _stages(above._handle)
    if not stages:
        return StagedResult(above, (), np.zeros((1, 1), dtype=np.int64))
    measured = [subpartition_bytes(bridge, stage) for stage in stages]
    sizes = measured[0] if len(stages) == 1 else np.array([sum(int(part.sum()) for part in measured)], dtype=np.int64)
    statistics = [stage_statistics(bridge, above, stage, native) for stage in stages]
    rows = [row_count(s) for s in statistics]
    return StagedResult(
        above,
        tuple(QueryStage(bridge, stage) for stage in stages),
        sizes.reshape(1, -1),
        rows=None if None in rows else sum(filter(None, rows)),
        size_in_bytes=sum(to_int(s.sizeInBytes()) for s in statistics),
        is_counted_once=_is_counted_once(bridge, executors),
        tasks=sum(int(stage.shuffle().numMappers()) for stage in stages),
        input_tasks=sum(
            _input_tasks(PhysicalPlan(bridge, stage.shuffle().child()), int(stage.shuffle().numMappers()))
            for stage in stages
        ),
        statistics=Statistics(bridge, statistics[0]) if len(stages) == 1 else None,
        mapper_bytes=partial(mapper_bytes, bridge, stages[0]) if len(stages) == 1 else None,
    )


def _is_counted_once(bridge: Bridge, executors: set[str]) -> bool:
    """Whether no task was repeated since the time when there were some executors."""
    return executors <= executors_of(bridge) or not has_repeated_tasks(bridge)


def _run_stages(plan: PhysicalPlan) -> PhysicalPlan:
    is_adaptive = class_name(plan._handle) == "AdaptiveSparkPlanExec"
    return PhysicalPlan(plan._bridge, plan._handle.finalPhysicalPlan()) if is_adaptive else plan


def count_rows(result: StagedResult) -> int:
    """Count the rows of a result by reading them."""
    return int(result.above.rows()._handle.count())


def broadcast_mode(session: Session, join: LogicalNode, build: Side, keys: Sequence[Expression]) -> BroadcastMode:
    """Return the broadcast mode that Spark requires for a side of a join.

    Parameters
    ----------
    keys
        The keys of that side, empty for a join without equal keys. The mode of such a join, and that of an anti join,
        which may be null-aware, is read from Spark's own plan of the join over two leaves.
    """
    bridge = session._bridge
    if keys and class_name(join._handle.joinType()) != "LeftAnti":
        attributes = bridge.find(EXPRESSIONS + "package$AttributeSeq")(join.children[_SIDE_INDEX[build]].output)
        rewritten = bridge.companion(EXECUTION + "joins.HashJoin").rewriteKeyExpr(bridge.seq(keys))
        bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(rewritten, attributes)
        return BroadcastMode(bridge, bridge.find(EXECUTION + "joins.HashedRelationBroadcastMode")(bound, False))
    leaves = [placeholder(child.output) for child in join.children]
    plan = spark_plan(session, broadcast_join(join.with_children(leaves), build))
    return BroadcastMode(bridge, plan.requiredChildDistribution().apply(_SIDE_INDEX[build]).mode())


@dataclass(frozen=True, slots=True)
class RowsToBroadcast:
    """A plan whose shuffle stages have run, and the executors that were alive before they ran."""

    plan: PhysicalPlan
    executors: set[str]


def run_all_but_last_stage(session: Session, logical: LogicalPlan) -> RowsToBroadcast:
    """Run all stages of a plan but the last."""
    executors = executors_of(session._bridge)
    return RowsToBroadcast(_run_stages(physical_plan(session, logical)), executors)


def broadcast(rows: RowsToBroadcast, mode: BroadcastMode, watch: JobWatch | None = None) -> BroadcastResult | None:
    """Broadcast rows as a relation (``BroadcastExchangeExec``, ``BroadcastQueryStageExec``), monitored by a watch.

    Returns
    -------
    BroadcastResult or None
        None if the watch has stopped the job.
    """
    try:
        return _relation(mode, rows.plan, rows.executors, watch)
    except Py4JJavaError:
        if watch is None or not watch.has_stopped:
            raise
        return None


def broadcast_staged(result: StagedResult, mode: BroadcastMode, ranges: Sequence[tuple[int, int]]) -> BroadcastResult:
    """Broadcast a materialized result, read by a task per range of subpartitions.

    Raises
    ------
    Py4JJavaError
        If the relation exceeds Spark's limits or the memory; see `spark_errors.is_out_of_memory`.
    """
    rows = _read_specs(result, _merged(result, ranges)) if result.has_readable_ranges else result.above
    return _relation(mode, rows, executors_of(mode._bridge))


def _relation(
    mode: BroadcastMode, rows: PhysicalPlan, executors: set[str], watch: JobWatch | None = None
) -> BroadcastResult:
    bridge = mode._bridge
    exchange = bridge.find(EXECUTION + "exchange.BroadcastExchangeExec")(mode, rows)
    stage = bridge.find(EXECUTION + "adaptive.BroadcastQueryStageExec")(0, exchange, exchange.canonicalized())
    with nullcontext() if watch is None else watch.over(str(exchange.jobTag())):
        try:
            relation = exchange.executeBroadcast()
        except Py4JJavaError as error:
            raise _unwrap_broadcast_error(error) from None
    stage.resultOption().set(bridge.some(relation))
    statistics, tasks = exchange.runtimeStatistics(), rows.rows().tasks
    count, memory = row_count(statistics), to_int(statistics.sizeInBytes())
    return BroadcastResult(
        QueryStage(bridge, stage),
        count,
        memory,
        _data_bytes(bridge, stage, count, memory),
        tasks,
        _input_tasks(rows, tasks),
        rows,
        _is_counted_once(bridge, executors),
    )


def _unwrap_broadcast_error(error: Py4JJavaError) -> Exception:
    """Return the error of the broadcast thread, as Spark's adaptive execution raises it, not that of the wait."""
    cause = error.java_exception.getCause()
    if class_name(error.java_exception) == "ExecutionException" and cause is not None:
        converted: Exception = convert_exception(cause)
        if not isinstance(converted, UnknownException):
            return converted
    raised: Exception = error
    return raised


def _data_bytes(bridge: Bridge, stage: Any, rows: int | None, memory: int) -> int:
    """Return the estimated bytes of the rows of a broadcast relation; its bytes in memory if there is no estimate."""
    if rows is None:
        return memory
    relation = stage.broadcast().executeBroadcast().value()
    data_bytes = int(bridge.helper("RelationAggregation").dataBytes(relation, rows, _SAMPLED_ROWS))
    return memory if data_bytes < 0 else data_bytes


@dataclass(frozen=True, slots=True)
class LastStage:
    """The last stage of a plan, which has not run, and the number of tasks that read the inputs of the plan."""

    rows: InternalRows
    input_tasks: int


def run_to_rows(session: Session, logical: LogicalPlan) -> LastStage:
    """Run all stages of a plan but the last; return the last."""
    plan = physical_plan(session, logical)
    rows = plan.rows()
    return LastStage(rows, _input_tasks(_run_stages(plan), rows.tasks))


def _input_tasks(plan: PhysicalPlan, tasks: int) -> int:
    """Return the number of tasks that read the inputs of a plan whose last stage has a number of tasks."""
    return int(plan._bridge.helper("ScanMetrics").tasks(plan, tasks))


def read_ranges(result: StagedResult, ranges: Sequence[tuple[int, int]] | None) -> PhysicalPlan:
    """Return the physical plan that reads a result with a task per range of subpartitions.

    Spark's own plan decides the tasks if `ranges` is None or the result has no readable ranges.
    """
    is_single = ranges is not None and len(ranges) == result.subpartitions == 1
    if ranges is None or is_single or not result.has_readable_ranges:
        return result.above
    return _read_specs(result, _merged(result, ranges))


def read_slices(result: StagedResult, tasks: Sequence[Sequence[_Slice]]) -> InternalRows:
    """Return the rows of a single-stage result, where each task reads some slices in order.

    A slice is a range of subpartitions, or a subpartition and the range of mappers to read it from
    (``PartialReducerPartitionSpec``), or several subpartitions of a single mapper (``PartialMapperPartitionSpec``), or
    all subpartitions of some mappers (``CoalescedMapperPartitionSpec``). Tasks of several slices require Spark 4.1
    (``SQLPartitioningAwareUnionRDD``).
    """
    bridge = result.above._bridge
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    single_mapper = bridge.find(EXECUTION + "PartialMapperPartitionSpec")
    several_mappers = bridge.find(EXECUTION + "CoalescedMapperPartitionSpec")
    sizes = result.sizes[0]

    def spec(slice_: _Slice) -> Any:
        (start, end), mappers = slice_
        if mappers is None:
            return merged.apply(start, end, int(sizes[start:end].sum()))
        return split(start, *mappers, 0)

    def by_mapper(slice_: _Slice, *, several: bool) -> Any:
        span, mappers = slice_
        first, last = mappers or (0, 0)
        return several_mappers(first, last, len(sizes)) if several else single_mapper(first, *span)

    def specs(layer: Sequence[_Slice]) -> Any:
        """Return the specs of a slice of each task; specs by mapper cannot be mixed (``AQEShuffleReadExec``)."""
        spans = [mappers for (start, end), mappers in layer if mappers is not None and end - start > 1]
        if not spans:
            return bridge.seq(map(spec, layer))
        several = any(last - first > 1 for first, last in spans)
        return bridge.seq([by_mapper(slice_, several=several) for slice_ in layer])

    layers = [_read_specs(result, specs(layer)).rows() for layer in zip_longest(*tasks, fillvalue=_NOTHING)]
    if len(layers) == 1:
        return layers[0]
    context, rows = bridge.spark.sparkContext._jsc.sc(), layers[0]._handle.elementClassTag()
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return InternalRows(bridge, union(context, bridge.seq(layers), len(tasks), rows))


def executed_plans(result: StagedResult | BroadcastResult) -> list[PhysicalPlan]:
    """Return the physical plans that have run for a result, each up to its exchange."""
    if isinstance(result, BroadcastResult):
        return [result.plan]
    return [PhysicalPlan(stage._bridge, stage._handle.shuffle().child()) for stage in result.stages]


def _read_specs(result: StagedResult, specs: Any) -> PhysicalPlan:
    """Return the plan above the stages of a result, which are read by partition specs."""
    bridge = result.above._bridge
    return PhysicalPlan(bridge, _respec(bridge, result.above._handle, specs))


def _merged(result: StagedResult, ranges: Sequence[tuple[int, int]]) -> Any:
    bridge = result.above._bridge
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    sizes = result.sizes[0]
    return bridge.seq(merged.apply(start, end, int(sizes[start:end].sum())) for start, end in ranges)


def _respec(bridge: Bridge, plan: Any, specs: Any) -> Any:
    name = class_name(plan)
    if name in {_STAGE, _READ}:
        stage = plan if name == _STAGE else plan.child()
        return bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, specs)
    inputs = children(plan)
    if not inputs:
        return plan
    return plan.withNewChildren(bridge.seq(_respec(bridge, child, specs) for child in inputs))


def _is_unary(plan: Any) -> bool:
    while class_name(plan) != _STAGE:
        inputs = children(plan)
        if len(inputs) != 1:
            return False
        (plan,) = inputs
    return True


def _stages(plan: Any) -> list[Any]:
    if class_name(plan) == _STAGE:
        return [plan]
    return [stage for child in children(plan) for stage in _stages(child)]
