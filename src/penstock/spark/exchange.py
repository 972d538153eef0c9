"""The exchange between two vertices: Spark's own shuffle, written once, measured, and read as Penstock decides.

Uses (Spark 4.0 to 4.3): ``QueryExecution.createSparkPlan``, ``InsertAdaptiveSparkPlan``, ``AdaptiveSparkPlanExec
.finalPhysicalPlan``, ``ShuffleQueryStageExec``, ``AQEShuffleReadExec``, ``CoalescedPartitionSpec``.

Two walls keep answers right. Everything *above* the stages of a plan belongs to its result: Spark may have dropped an
exchange that was asked for, so a stage is never taken for the result itself. And how a result's rows lie is never
reasoned about: a leaf claims what Spark's own plan of the rows says, the ranges it is read by included (`layout`).
Spark takes two inputs for laid out alike only if they are cut alike, and lays no other input out like one of them
(`shareable`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.graph import Side
from penstock.spark import answers
from penstock.spark.fragment import broadcast_join, placeholder
from penstock.spark.grouping_sets import aggregated_first
from penstock.spark.jvm import EXECUTION, EXPRESSIONS, children, class_name, items, option
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

_STAGE = "ShuffleQueryStageExec"
_READ = "AQEShuffleReadExec"
_PLACE = {Side.LEFT: 0, Side.RIGHT: 1}
_Slice = tuple[tuple[int, int], tuple[int, int] | None]
_NOTHING: _Slice = ((0, 0), None)


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
        Rows and bytes written, -1 where not measured.
    tasks
        How many tasks wrote it, None where nothing ran.
    statistics
        Spark's own measured ``Statistics``, or None.
    mapper_bytes
        Of a single stage: returns the bytes that each task wrote for some subpartitions, shape (tasks, wanted).
    """

    above: Any
    stages: tuple[Any, ...]
    sizes: np.ndarray = field(repr=False)
    rows: int | None = None
    size_in_bytes: int = -1
    tasks: int | None = None
    statistics: Any = None
    mapper_bytes: Callable[[Sequence[int]], np.ndarray] | None = field(default=None, repr=False)

    @property
    def subpartitions(self) -> int:
        """How many subpartitions can be read separately."""
        return int(self.sizes.shape[1])

    @property
    def can_be_cut(self) -> bool:
        """Whether its reading can be cut into ranges of our choosing: nothing but one stage feeds it."""
        return len(self.stages) == 1 and _is_unary(self.above)

    def is_hashed_by(self, keys: Sequence[Any]) -> bool:
        """Whether the one stage is hashed by exactly these keys, as far as they are columns.

        It is not where Spark found the rows together already, by fewer keys or in another order.
        """
        found = items(self.stages[0].shuffle().outputPartitioning().expressions())
        return len(found) == len(keys) and all(
            class_name(key) != "AttributeReference" or bool(key.semanticEquals(there))
            for key, there in zip(keys, found, strict=True)
        )

    @property
    def is_plain_exchange(self) -> bool:
        """Whether the result is nothing but one stage's rows."""
        plan = self.above
        while class_name(plan) in {_READ, "InputAdapter"}:
            plan = plan.child()
        return len(self.stages) == 1 and class_name(plan) == _STAGE


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """A hashed relation that every executor can fetch.

    Parameters
    ----------
    stage
        A ``BroadcastQueryStageExec`` that has run.
    rows, size_in_bytes
        Measured; the bytes are those of the relation in memory.
    tasks
        How many tasks gave its rows.
    plan
        The physical plan of its rows.
    """

    stage: Any
    rows: int | None
    size_in_bytes: int
    tasks: int
    plan: Any

    @property
    def relation(self) -> Any:
        """The relation in the driver, such as a ``HashedRelation``."""
        return self.stage.broadcast().executeBroadcast().value()


def physical_plan(bridge: Bridge, session: Any, logical: Any, *, sums_first: bool = False) -> Any:
    """Return the adaptive physical plan of an *optimised* logical plan, made with the settings of a session.

    The plan is not optimised again: that costs more than planning, and the parts of an optimised plan are optimal.
    The session must be the active one of this thread, see `jobs.vertex_thread`.

    Parameters
    ----------
    sums_first
        Whether an aggregate over grouping sets sums up before rows are multiplied.
    """
    logical.setAnalyzed()
    query = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, logical).queryExecution()
    plan = spark_plan(bridge, session, logical.clone())
    if sums_first:
        plan = aggregated_first(bridge, plan) or plan
    context = bridge.find(EXECUTION + "adaptive.AdaptiveExecutionContext")(session, query)
    adaptive = bridge.find(EXECUTION + "adaptive.InsertAdaptiveSparkPlan")(context).apply(plan)
    return adaptive if class_name(adaptive) == "AdaptiveSparkPlanExec" else query.executedPlan()


def write(bridge: Bridge, session: Any, logical: Any, *, sums_first: bool = False) -> StagedResult:
    """Run the shuffle stages of a plan, not what is above them."""
    plan = physical_plan(bridge, session, logical, sums_first=sums_first)
    above = plan.finalPhysicalPlan() if class_name(plan) == "AdaptiveSparkPlanExec" else plan
    stages = tuple(_stages(above))
    if not stages:
        return StagedResult(above, (), np.zeros((1, 1), dtype=np.int64))
    measured = [_subpartition_bytes(bridge, stage) for stage in stages]
    sizes = measured[0] if len(stages) == 1 else np.array([sum(int(part.sum()) for part in measured)], dtype=np.int64)
    statistics = [stage.getRuntimeStatistics() for stage in stages]
    rows = [_row_count(s) for s in statistics]
    return StagedResult(
        above,
        stages,
        sizes.reshape(1, -1),
        rows=None if None in rows else sum(filter(None, rows)),
        size_in_bytes=sum(_whole(s.sizeInBytes()) for s in statistics),
        tasks=sum(int(stage.shuffle().numMappers()) for stage in stages),
        statistics=statistics[0] if len(stages) == 1 else None,
        mapper_bytes=partial(_mapper_bytes, bridge, stages[0]) if len(stages) == 1 else None,
    )


def count_rows(result: StagedResult) -> int:
    """Return how many rows a result has, by reading them."""
    return int(result.above.execute().count())


def broadcast_mode(bridge: Bridge, session: Any, join: LogicalNode, build: Side, keys: Sequence[Any]) -> Any:
    """Return how Spark wants a side of a join broadcast (``BroadcastMode``).

    Parameters
    ----------
    keys
        The keys of that side, none of a join without equal keys. That one's mode, and that of an anti join, which may
        be about nulls, is read from Spark's own plan of the join over two leaves.
    """
    if keys and class_name(join.handle.joinType()) != "LeftAnti":
        output = join.children[_PLACE[build]].handle.output()
        attributes = bridge.find(EXPRESSIONS + "package$AttributeSeq")(output)
        wanted = bridge.companion(EXECUTION + "joins.HashJoin").rewriteKeyExpr(bridge.seq(keys))
        bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(wanted, attributes)
        return bridge.find(EXECUTION + "joins.HashedRelationBroadcastMode")(bound, False)
    leaves = [placeholder(bridge, child.handle.output()) for child in join.children]
    logical = broadcast_join(bridge, join.handle.withNewChildren(bridge.seq(leaves)), build)
    plan = spark_plan(bridge, session, logical)
    return plan.requiredChildDistribution().apply(_PLACE[build]).mode()


def broadcast(bridge: Bridge, session: Any, logical: Any, mode: Any) -> BroadcastResult:
    """Run a plan, and broadcast its rows as a relation (``BroadcastExchangeExec``, ``BroadcastQueryStageExec``)."""
    plan = physical_plan(bridge, session, logical)
    return _relation(bridge, mode, plan.finalPhysicalPlan() if class_name(plan) == "AdaptiveSparkPlanExec" else plan)


def broadcast_staged(
    bridge: Bridge, result: StagedResult, mode: Any, ranges: Sequence[tuple[int, int]]
) -> BroadcastResult:
    """Broadcast a result that lies ready, read by a task per range of subpartitions.

    Raises
    ------
    Py4JJavaError
        If the relation does not fit Spark's limits or the memory; see `spark_errors.is_out_of_memory`.
    """
    plan = result.above
    if result.can_be_cut:
        plan = _respec(bridge, plan, _merged(bridge, result, ranges))
    return _relation(bridge, mode, plan)


def _relation(bridge: Bridge, mode: Any, rows: Any) -> BroadcastResult:
    exchange = bridge.find(EXECUTION + "exchange.BroadcastExchangeExec")(mode, rows)
    stage = bridge.find(EXECUTION + "adaptive.BroadcastQueryStageExec")(0, exchange, exchange.canonicalized())
    stage.resultOption().set(bridge.some(exchange.executeBroadcast()))
    statistics = exchange.runtimeStatistics()
    return BroadcastResult(
        stage,
        _row_count(statistics),
        _whole(statistics.sizeInBytes()),
        int(rows.execute().getNumPartitions()),
        rows,
    )


def run_to_rdd(bridge: Bridge, session: Any, logical: Any) -> Any:
    """Run the stages of a plan; return its last one, which has not run, as an ``RDD[InternalRow]``."""
    return physical_plan(bridge, session, logical).execute()


def as_cut(bridge: Bridge, result: StagedResult, ranges: Sequence[tuple[int, int]] | None) -> Any:
    """Return the physical plan that reads a result with one task per range of subpartitions.

    With None, or where the result cannot be cut, the tasks are those Spark's plan gives.
    """
    whole = ranges is not None and len(ranges) == result.subpartitions == 1
    if ranges is None or whole or not result.can_be_cut:
        return result.above
    return _respec(bridge, result.above, _merged(bridge, result, ranges))


def layout(bridge: Bridge, plan: Any, output: Any) -> Any:
    """Return how Spark says that a physical plan's rows are hashed, in the columns of a leaf; None if it does not.

    Of merged subpartitions Spark says which ones each task has (``CoalescedHashPartitioning``).
    """
    return bridge.helper("HashedLayout").of(plan, output)


def shareable(bridge: Bridge, layout: Any) -> Any:
    """Return a layout that inputs of one operator can have in common, if they are cut alike.

    Where Spark wants to lay another input out like it, planning fails; see `is_refused` and ``java/CutLayouts.java``.
    """
    return None if layout is None else bridge.helper("CutLayouts", on_executors=True).of(layout)


_REFUSED = "no other input can be laid out like merged subpartitions"


def is_refused(error: BaseException) -> bool:
    """Whether planning failed as Spark wanted to lay an input out like merged subpartitions."""
    return _REFUSED in str(error)


def joins_its_leaves(plan: Any) -> bool:
    """Whether a physical plan is a sort-merge or shuffled hash join right over two leaves, with nothing moved between.

    Only such a join may have inputs with split subpartitions: it joins each task's rows with each other, and no more.
    """
    if class_name(plan) == "AdaptiveSparkPlanExec":
        plan = plan.initialPlan()
    plan = _below(plan, _WITHIN_A_TASK)
    return class_name(plan) in {"SortMergeJoinExec", "ShuffledHashJoinExec"} and all(
        class_name(_below(side, _WITHIN_A_TASK)) == "RDDScanExec" for side in children(plan)
    )


_WITHIN_A_TASK = frozenset({"ProjectExec", "FilterExec", "SortExec", "WholeStageCodegenExec", "InputAdapter"})


def _below(plan: Any, names: frozenset[str]) -> Any:
    """Return the first plan, from the top, that is none of some operators."""
    while class_name(plan) in names:
        plan = plan.child()
    return plan


def read_slices(bridge: Bridge, result: StagedResult, tasks: Sequence[Sequence[_Slice]]) -> Any:
    """Return a one-stage result as an ``RDD[InternalRow]`` with one task for some slices each, one after the other.

    A slice is a range of subpartitions, or one subpartition and the range of mappers to read it from
    (``PartialReducerPartitionSpec``), or several of a single mapper (``PartialMapperPartitionSpec``), or all of some
    mappers (``CoalescedMapperPartitionSpec``). Tasks of several slices take Spark 4.1
    (``SQLPartitioningAwareUnionRDD``).
    """
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

    layers = [
        _respec(bridge, result.above, specs(layer)).execute() for layer in zip_longest(*tasks, fillvalue=_NOTHING)
    ]
    if len(layers) == 1:
        return layers[0]
    context, rows = bridge.spark.sparkContext._jsc.sc(), layers[0].elementClassTag()
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return union(context, bridge.seq(layers), len(tasks), rows)


def scanned_rows(bridge: Bridge, plan: Any, leaves: Mapping[int, LogicalNode]) -> dict[int, int]:
    """Return how many rows a plan that has run has read from some relations, by the relations' numbers.

    Uses ``SparkPlan.collectLeaves`` and the metric ``numOutputRows`` of scans.
    """
    found: dict[int, int] = {}
    for facts in answers.facts(bridge.helper("ScanMetrics").rows(plan)):
        scan = _Scanned.of(facts)
        for number, leaf in leaves.items():
            if scan.columns and leaf.has(scan.columns):
                found[number] = found.get(number, 0) + scan.rows
    return found


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The columns of a scan, by their ids, and the rows that it gave."""

    columns: tuple[str, ...]
    rows: int

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Scanned:
        return cls(tuple(facts["columns"]), int(facts["rows"]))


def _mapper_bytes(bridge: Bridge, stage: Any, subpartitions: Sequence[int]) -> np.ndarray:
    """Return the bytes that each task wrote for some subpartitions of a stage, shape (tasks, wanted).

    Uses ``ShufflePartitionsUtil.createSkewPartitionSpecs`` with a target of a byte, so that every task that wrote
    anything becomes a slice; the tracker of map outputs itself cannot be called from Python.
    """
    mappers = int(stage.shuffle().numMappers())
    sizes = np.zeros((max(mappers, 1), len(subpartitions)), dtype=np.int64)
    if not mappers:  # no task ran, so Spark does not know the shuffle
        return sizes
    wholes = _subpartition_bytes(bridge, stage)
    util = bridge.companion(EXECUTION + "adaptive.ShufflePartitionsUtil")
    for place, index in enumerate(subpartitions):
        slices = option(util.createSkewPartitionSpecs(stage.shuffle().shuffleId(), index, 1, 0.0))
        if slices is None:  # all of it was written by one task
            sizes[0, place] = wholes[index]
            continue
        for one in items(slices):
            sizes[int(one.startMapIndex()), place] = int(one.dataSize())
    return sizes


def plans_run(result: StagedResult | BroadcastResult) -> list[Any]:
    """Return the physical plans that have run for a result, each up to its exchange."""
    if isinstance(result, BroadcastResult):
        return [result.plan]
    return [stage.shuffle().child() for stage in result.stages]


def _merged(bridge: Bridge, result: StagedResult, ranges: Sequence[tuple[int, int]]) -> Any:
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


def _partitions(stage: Any) -> int:
    return int(stage.shuffle().numPartitions())


def _subpartition_bytes(bridge: Bridge, stage: Any) -> np.ndarray:
    statistics = option(stage.mapStats())
    if statistics is None:  # a shuffle without any mapper
        return np.zeros(_partitions(stage), dtype=np.int64)
    text = bridge.find("java.util.Arrays").toString(statistics.bytesByPartitionId())  # one call, not one per number
    return np.array(json.loads(text), dtype=np.int64)


def _whole(value: Any) -> int:
    return int(value if isinstance(value, int) else value.toString())


def _row_count(statistics: Any) -> int | None:
    count = option(statistics.rowCount())
    return None if count is None else _whole(count)
