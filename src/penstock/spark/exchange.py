"""The exchange between two vertices: Spark's own shuffle, written once, measured, and read as Penstock decides.

Uses (Spark 4.0 to 4.3): ``QueryExecution.createSparkPlan``, ``InsertAdaptiveSparkPlan``, ``AdaptiveSparkPlanExec
.finalPhysicalPlan``, ``ShuffleQueryStageExec``, ``AQEShuffleReadExec``, ``CoalescedPartitionSpec``.

Two walls keep answers right. Everything *above* the stages of a plan belongs to its result: Spark may have dropped an
exchange that was asked for, so a stage is never taken for the result itself. And how a result's rows lie is never
reasoned about; see `penstock.spark.layouts`.
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
from penstock.spark.grouping_sets import aggregated_first
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
from penstock.spark.native_failures import failing_at_once
from penstock.spark.planning import spark_plan
from penstock.spark.stage_figures import mapper_bytes, row_count, stage_statistics, subpartition_bytes, whole

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
_PLACE = {Side.LEFT: 0, Side.RIGHT: 1}
_Slice = tuple[tuple[int, int], tuple[int, int] | None]
_NOTHING: _Slice = ((0, 0), None)
_LOOKED_AT = 10_000
"""Rows of a broadcast relation whose sizes are looked at."""


@dataclass(frozen=True, slots=True)
class StagedResult:
    """What a vertex has written: shuffle stages that ran, and the plan above them that has not.

    Parameters
    ----------
    above
        The physical plan on top of the stages.
    stages
        The shuffle stages it reads, none where Spark needed no exchange (then nothing has run yet).
    sizes
        Bytes per subpartition, shape (1, subpartitions); all bytes in one where there is not exactly one stage.
    rows, size_in_bytes
        Rows written, and their bytes in memory; None where not measured.
    is_counted_once
        Whether no row is counted twice. Where what a task had written was lost meanwhile, with an executor for
        instance, Spark counts the rows of the task that ran again as well; it counts bytes once.
    tasks, input_tasks
        How many tasks wrote it, and how many read the inputs of the plan: others, if Spark exchanged rows in between.
        None where nothing ran.
    statistics
        Spark's own measured ``Statistics``, or None.
    mapper_bytes
        Of a single stage: returns the bytes that each task wrote for some subpartitions, shape (tasks, wanted).
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
        """Rows written, None where that is not certain."""
        return self.rows if self.is_counted_once else None

    @property
    def written_bytes(self) -> int | None:
        """Bytes written to shuffle files, compressed; None where nothing was written."""
        return int(self.sizes.sum()) if self.stages else None

    @property
    def subpartitions(self) -> int:
        """How many subpartitions can be read separately."""
        return int(self.sizes.shape[1])

    @property
    def can_be_cut(self) -> bool:
        """Whether its reading can be cut into ranges of our choosing: nothing but one stage feeds it."""
        return len(self.stages) == 1 and _is_unary(self.above._handle)

    def is_hashed_by(self, keys: Sequence[Expression]) -> bool:
        """Whether the one stage is hashed by exactly these keys, as far as they are columns.

        It is not where Spark found the rows together already, by fewer keys or in another order.
        """
        stage = self.stages[0]
        found = items(stage._bridge.helper("NativeExchange").hashed(self.above, stage))
        return len(found) == len(keys) and all(
            not key.is_attribute or bool(key._handle.semanticEquals(there))
            for key, there in zip(keys, found, strict=True)
        )

    @property
    def is_plain_exchange(self) -> bool:
        """Whether the result is nothing but one stage's rows."""
        plan = self.above._handle
        while class_name(plan) in {_READ, "InputAdapter", "NativeRows"}:
            (plan,) = children(plan)
        return len(self.stages) == 1 and class_name(plan) == _STAGE


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """A hashed relation that every executor can fetch.

    Parameters
    ----------
    stage
        A ``BroadcastQueryStageExec`` that has run.
    rows, size_in_bytes
        Measured; the bytes are those of the relation in memory, with the pages that it was given: 64 MiB for one row.
    data_bytes
        About how many bytes its rows take by themselves.
    tasks, input_tasks
        How many tasks gave its rows, and how many read the inputs of the plan.
    plan
        The physical plan of its rows.
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
        """Rows of the relation: the driver has counted those it has, whatever tasks ran again."""
        return self.rows

    @property
    def relation(self) -> HashedRelation:
        """The relation in the driver."""
        made = self.stage._handle.broadcast().executeBroadcast()
        return HashedRelation(self.stage._bridge, made.value(), int(made.id()))


def physical_plan(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: NativeParts | None = None
) -> PhysicalPlan:
    """Return the adaptive physical plan of an *optimised* logical plan, made with the settings of a session.

    The plan is not optimised again: that costs more than planning, and the parts of an optimised plan are optimal.
    The session must be the active one of this thread, see `jobs.vertex_thread`.

    Parameters
    ----------
    pre_aggregated
        Whether an aggregate over grouping sets sums up before rows are multiplied.
    native
        Lets DuckDB compute parts, if given.
    """
    bridge = session._bridge
    logical._handle.setAnalyzed()
    query = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, logical).queryExecution()
    plan = spark_plan(session, logical)
    if pre_aggregated:
        plan = aggregated_first(bridge, plan) or plan
    if native is not None:
        plan = native.rewritten(session, PhysicalPlan(bridge, plan))._handle
    context = bridge.find(EXECUTION + "adaptive.AdaptiveExecutionContext")(session, query)
    adaptive = bridge.find(EXECUTION + "adaptive.InsertAdaptiveSparkPlan")(context).apply(plan)
    if class_name(adaptive) != "AdaptiveSparkPlanExec":
        # Cached data is not looked for, as `query.executedPlan` would: a query that is being cached waits for itself.
        maker = bridge.companion(EXECUTION + "QueryExecution")
        adaptive = maker.prepareForExecution(maker.preparations(session, bridge.none, False), plan)
    return PhysicalPlan(bridge, adaptive)


def write(
    session: Session, logical: LogicalPlan, *, pre_aggregated: bool = False, native: NativeParts | None = None
) -> StagedResult:
    """Run the shuffle stages of a plan, not what is above them.

    Parameters
    ----------
    session, logical, pre_aggregated, native
        See `physical_plan`. Where DuckDB fails, Spark computes the leaves.
    """
    bridge, executors = session._bridge, executors_of(session._bridge)
    plan = partial(physical_plan, session, logical, pre_aggregated=pre_aggregated, native=native)
    try:
        with nullcontext() if native is None else failing_at_once(bridge):
            above = _with_stages_run(plan())
    except Exception as error:
        if native is None or not native.gives_up(bridge, error):
            raise
        above = _with_stages_run(plan())
    if native is not None:
        if native.refuses(above):
            above = _with_stages_run(plan())
        native.tell(bridge)
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
        size_in_bytes=sum(whole(s.sizeInBytes()) for s in statistics),
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
    """Whether no task has counted again what another had, since there were some executors."""
    return executors <= executors_of(bridge) or not has_repeated_tasks(bridge)


def _with_stages_run(plan: PhysicalPlan) -> PhysicalPlan:
    is_adaptive = class_name(plan._handle) == "AdaptiveSparkPlanExec"
    return PhysicalPlan(plan._bridge, plan._handle.finalPhysicalPlan()) if is_adaptive else plan


def count_rows(result: StagedResult) -> int:
    """Return how many rows a result has, by reading them."""
    return int(result.above.rows()._handle.count())


def broadcast_mode(session: Session, join: LogicalNode, build: Side, keys: Sequence[Expression]) -> BroadcastMode:
    """Return how Spark wants a side of a join broadcast.

    Parameters
    ----------
    keys
        The keys of that side, none of a join without equal keys. That one's mode, and that of an anti join, which may
        be about nulls, is read from Spark's own plan of the join over two leaves.
    """
    bridge = session._bridge
    if keys and class_name(join._handle.joinType()) != "LeftAnti":
        attributes = bridge.find(EXPRESSIONS + "package$AttributeSeq")(join.children[_PLACE[build]].output)
        wanted = bridge.companion(EXECUTION + "joins.HashJoin").rewriteKeyExpr(bridge.seq(keys))
        bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(wanted, attributes)
        return BroadcastMode(bridge, bridge.find(EXECUTION + "joins.HashedRelationBroadcastMode")(bound, False))
    leaves = [placeholder(child.output) for child in join.children]
    plan = spark_plan(session, broadcast_join(join.with_children(leaves), build))
    return BroadcastMode(bridge, plan.requiredChildDistribution().apply(_PLACE[build]).mode())


@dataclass(frozen=True, slots=True)
class RowsToBroadcast:
    """A plan whose shuffle stages have run, and the executors that lived before they did."""

    plan: PhysicalPlan
    executors: set[str]


def last_stage(session: Session, logical: LogicalPlan) -> RowsToBroadcast:
    """Run a plan but for its last stage."""
    executors = executors_of(session._bridge)
    return RowsToBroadcast(_with_stages_run(physical_plan(session, logical)), executors)


def broadcast(rows: RowsToBroadcast, mode: BroadcastMode, watch: JobWatch | None = None) -> BroadcastResult | None:
    """Broadcast rows as a relation (``BroadcastExchangeExec``, ``BroadcastQueryStageExec``).

    Parameters
    ----------
    watch
        Looks at the Spark job that gives the rows.

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
    """Broadcast a result that lies ready, read by a task per range of subpartitions.

    Raises
    ------
    Py4JJavaError
        If the relation does not fit Spark's limits or the memory; see `spark_errors.is_out_of_memory`.
    """
    rows = _cut(result, _merged(result, ranges)) if result.can_be_cut else result.above
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
            raise _as_in_adaptive_queries(error) from None
    stage.resultOption().set(bridge.some(relation))
    statistics, tasks = exchange.runtimeStatistics(), rows.rows().tasks
    count, memory = row_count(statistics), whole(statistics.sizeInBytes())
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


def _as_in_adaptive_queries(error: Py4JJavaError) -> Exception:
    """Return the error of a broadcast as Spark's adaptive execution raises it: that of its thread, not of the wait."""
    cause = error.java_exception.getCause()
    if class_name(error.java_exception) == "ExecutionException" and cause is not None:
        converted: Exception = convert_exception(cause)
        if not isinstance(converted, UnknownException):
            return converted
    raised: Exception = error
    return raised


def _data_bytes(bridge: Bridge, stage: Any, rows: int | None, memory: int) -> int:
    """Return about how many bytes the rows of a broadcast relation take; those in memory if that cannot be told."""
    if rows is None:
        return memory
    relation = stage.broadcast().executeBroadcast().value()
    found = int(bridge.helper("RelationAggregation").dataBytes(relation, rows, _LOOKED_AT))
    return memory if found < 0 else found


@dataclass(frozen=True, slots=True)
class LastStage:
    """The last stage of a plan, which has not run; all others have.

    Parameters
    ----------
    rows
        What its tasks will make.
    input_tasks
        How many tasks read the inputs of the plan, or will.
    """

    rows: InternalRows
    input_tasks: int


def run_to_rows(session: Session, logical: LogicalPlan) -> LastStage:
    """Run the stages of a plan; return its last one, which has not run."""
    plan = physical_plan(session, logical)
    rows = plan.rows()
    return LastStage(rows, _input_tasks(_with_stages_run(plan), rows.tasks))


def _input_tasks(plan: PhysicalPlan, tasks: int) -> int:
    """Return how many tasks have read the inputs of a plan whose last stage has some number of tasks."""
    return int(plan._bridge.helper("ScanMetrics").tasks(plan, tasks))


def as_cut(result: StagedResult, ranges: Sequence[tuple[int, int]] | None) -> PhysicalPlan:
    """Return the physical plan that reads a result with one task per range of subpartitions.

    With None, or where the result cannot be cut, the tasks are those Spark's plan gives.
    """
    whole = ranges is not None and len(ranges) == result.subpartitions == 1
    if ranges is None or whole or not result.can_be_cut:
        return result.above
    return _cut(result, _merged(result, ranges))


def read_slices(result: StagedResult, tasks: Sequence[Sequence[_Slice]]) -> InternalRows:
    """Return the rows of a one-stage result with one task for some slices each, one after the other.

    A slice is a range of subpartitions, or one subpartition and the range of mappers to read it from
    (``PartialReducerPartitionSpec``), or several of a single mapper (``PartialMapperPartitionSpec``), or all of some
    mappers (``CoalescedMapperPartitionSpec``). Tasks of several slices take Spark 4.1
    (``SQLPartitioningAwareUnionRDD``).
    """
    bridge = result.above._bridge
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    of_one = bridge.find(EXECUTION + "PartialMapperPartitionSpec")
    of_some = bridge.find(EXECUTION + "CoalescedMapperPartitionSpec")
    sizes = result.sizes[0]

    def spec(place: _Slice) -> Any:
        (start, end), mappers = place
        if mappers is None:
            return merged.apply(start, end, int(sizes[start:end].sum()))
        return split(start, *mappers, 0)

    def by_mapper(place: _Slice, *, several: bool) -> Any:
        span, mappers = place
        first, last = mappers or (0, 0)
        return of_some(first, last, len(sizes)) if several else of_one(first, *span)

    def specs(layer: Sequence[_Slice]) -> Any:
        """Return the specs of a slice of each task; those by mappers stand alone (``AQEShuffleReadExec``)."""
        spans = [mappers for (start, end), mappers in layer if mappers is not None and end - start > 1]
        if not spans:
            return bridge.seq(map(spec, layer))
        several = any(last - first > 1 for first, last in spans)
        return bridge.seq([by_mapper(place, several=several) for place in layer])

    layers = [_cut(result, specs(layer)).rows() for layer in zip_longest(*tasks, fillvalue=_NOTHING)]
    if len(layers) == 1:
        return layers[0]
    context, rows = bridge.spark.sparkContext._jsc.sc(), layers[0]._handle.elementClassTag()
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return InternalRows(bridge, union(context, bridge.seq(layers), len(tasks), rows))


def plans_run(result: StagedResult | BroadcastResult) -> list[PhysicalPlan]:
    """Return the physical plans that have run for a result, each up to its exchange."""
    if isinstance(result, BroadcastResult):
        return [result.plan]
    return [PhysicalPlan(stage._bridge, stage._handle.shuffle().child()) for stage in result.stages]


def _cut(result: StagedResult, specs: Any) -> PhysicalPlan:
    """Return the plan above the stages of a result, these read by some partition specs."""
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
