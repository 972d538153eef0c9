"""The results of vertices (shuffle stages, or broadcast relations), and the plans by which tasks read stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import HashedRelation, InternalRows, PhysicalPlan, QueryStage, Statistics
from penstock.spark.bridge.jvm import EXECUTION, Bridge, children, class_name, items
from penstock.spark.run import shuffle_statistics

if TYPE_CHECKING:
    import numpy as np

    from penstock.spark.plans.expressions import Expression

STAGE = "ShuffleQueryStageExec"
READ = "AQEShuffleReadExec"
Range = tuple[int, int]  # the start, and the exclusive end
EMPTY: Range = (0, 0)
"""A range without subpartitions, for tasks that read nothing."""
_Slice = tuple[Range, Range | None]
"""A range of subpartitions, and the range of mappers (upstream tasks) to read them from; None for all mappers."""


@dataclass(frozen=True, slots=True)
class StagedResult:
    """The written result of a vertex: shuffle stages that have run, below operators that have not run."""

    plan: PhysicalPlan
    stages: tuple[QueryStage, ...]
    """The stages of `plan`; empty if Spark needed no exchange, so that nothing has run yet."""
    sizes: np.ndarray = field(repr=False)
    """Bytes per subpartition, shape (1, subpartitions); with several stages only the total, shape (1, 1)."""
    rows: int | None = None
    size_in_bytes: int | None = None
    """Rows written, and their bytes in memory; None if not measured."""
    is_counted_once: bool = True
    """Whether no row is counted repeatedly: Spark counts the rows of a rerun task again, but not its bytes."""
    tasks: int | None = None
    """The number of tasks that wrote the result; None if nothing ran."""
    input_tasks: int | None = None
    """The number of tasks that read the inputs of the plan; differs from `tasks` if Spark exchanged rows in between."""
    statistics: Statistics | None = None  # of the only stage

    def mapper_bytes(self, subpartitions: Sequence[int]) -> np.ndarray:
        """Return the bytes that each task of the only stage wrote to subpartitions, shape (tasks, subpartitions)."""
        (stage,) = self.stages
        return shuffle_statistics.mapper_bytes(stage._bridge, stage._handle, subpartitions)

    @property
    def exact_rows(self) -> int | None:
        """The number of rows written; None if rows may be counted repeatedly, or were not counted."""
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
        """Whether tasks can read any ranges of subpartitions: the only input of the plan is a single stage."""
        return len(self.stages) == 1 and self.plan._handle.collectLeaves().size() == 1  # a stage is a leaf

    def is_hashed_by(self, keys: Sequence[Expression]) -> bool:
        """Whether the only stage is hashed by exactly these keys; a computed key is assumed to match.

        False if Spark reused an existing partitioning by fewer keys or by the keys in another order.
        """
        stage = self.stages[0]
        hashed_by = items(stage._bridge.helper("ColumnarExchange").hashKeys(self.plan, stage))
        return len(hashed_by) == len(keys) and all(
            not key.is_attribute or bool(key._handle.semanticEquals(column))
            for key, column in zip(keys, hashed_by, strict=True)
        )

    @property
    def is_plain_exchange(self) -> bool:
        """Whether the result is exactly the rows of a single stage."""
        plan = self.plan._handle
        while class_name(plan) in {READ, "InputAdapter", "ColumnsToRows"}:
            (plan,) = children(plan)
        return len(self.stages) == 1 and class_name(plan) == STAGE


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """A broadcast relation: a hash table, or an array of rows for a join without equality conditions."""

    stage: QueryStage
    rows: int | None
    size_in_bytes: int
    """Measured rows, and bytes in memory with all allocated pages: 64 MiB even for a single row."""
    data_bytes: int
    """The estimated bytes of the rows themselves; `size_in_bytes` if they cannot be estimated."""
    tasks: int
    input_tasks: int
    """The numbers of tasks that computed its rows, and that read the inputs of the plan."""
    plan: PhysicalPlan
    is_counted_once: bool = True
    """Whether the metrics of `plan` count no row repeatedly, see `StagedResult`."""

    @property
    def exact_rows(self) -> int | None:
        """The number of rows of the relation, None if not measured; the driver counts them, so reruns do not matter."""
        return self.rows

    @property
    def relation(self) -> HashedRelation:
        """The relation in the driver."""
        relation = self.stage._handle.broadcast().executeBroadcast()
        return HashedRelation(self.stage._bridge, relation.value(), int(relation.id()))


def read_ranges(result: StagedResult, ranges: Sequence[Range] | None) -> PhysicalPlan:
    """Return the physical plan that reads a result with a task per range of subpartitions.

    Spark's own plan is used if `ranges` is None, no ranges are readable, or there is a single subpartition and range.
    """
    has_single_task = ranges is not None and len(ranges) == result.subpartitions == 1
    if ranges is None or has_single_task or not result.has_readable_ranges:
        return result.plan
    return read_merged(result, ranges)


def read_merged(result: StagedResult, ranges: Sequence[Range]) -> PhysicalPlan:
    """Return the plan that reads a result with readable ranges, with a task per range of subpartitions."""
    range_spec, sizes = result.plan._bridge.find(EXECUTION + "CoalescedPartitionSpec"), result.sizes[0]
    return _read_specs(result, (range_spec.apply(start, end, int(sizes[start:end].sum())) for start, end in ranges))


def read_slices(result: StagedResult, tasks: Sequence[Sequence[_Slice]]) -> InternalRows:
    """Return the rows of a single-stage result, where each task reads some slices in order.

    A slice is one of these: a range of subpartitions from all mappers, a single subpartition from a range of mappers, a
    range of subpartitions from a single mapper, or all subpartitions from a range of mappers. Tasks with several slices
    require Spark 4.1.
    """
    bridge = result.plan._bridge
    range_spec = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    subpartition_spec = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    mapper_spec = bridge.find(EXECUTION + "PartialMapperPartitionSpec")
    mapper_range_spec = bridge.find(EXECUTION + "CoalescedMapperPartitionSpec")
    sizes = result.sizes[0]

    def spec(slice_: _Slice) -> Any:
        (start, end), mappers = slice_
        if mappers is None:
            return range_spec.apply(start, end, int(sizes[start:end].sum()))
        return subpartition_spec(start, *mappers, 0)

    def specs(layer: Sequence[_Slice]) -> Iterable[Any]:
        """Return the partition specs of a layer (a slice of each task); Spark cannot mix mapper specs with others."""
        mapper_ranges = [mappers for (start, end), mappers in layer if mappers is not None and end - start > 1]
        if not mapper_ranges:
            return map(spec, layer)
        if any(last - first > 1 for first, last in mapper_ranges):
            return [mapper_range_spec(*(mappers or (0, 0)), len(sizes)) for _, mappers in layer]
        return [mapper_spec(mappers[0] if mappers else 0, *span) for span, mappers in layer]

    layers = [_read_specs(result, specs(layer)).rows() for layer in zip_longest(*tasks, fillvalue=(EMPTY, None))]
    return layers[0] if len(layers) == 1 else union_by_task(layers, len(tasks))


def executed_plans(result: StagedResult | BroadcastResult) -> list[PhysicalPlan]:
    """Return the physical plans that have run for a result, each up to its exchange."""
    if isinstance(result, BroadcastResult):
        return [result.plan]
    return [PhysicalPlan(stage._bridge, stage._handle.shuffle().child()) for stage in result.stages]


def _read_specs(result: StagedResult, specs: Iterable[Any]) -> PhysicalPlan:
    """Return the plan of a result in which the partition specs determine what each task reads from the stages."""
    bridge, plan = result.plan._bridge, result.plan._handle
    spec_seq = bridge.seq(specs)
    return PhysicalPlan(bridge, replace_stages(bridge, plan, lambda stage: _read(bridge, stage, spec_seq)))


def replace_stages(bridge: Bridge, plan: Any, replacement: Callable[[Any], Any]) -> Any:
    """Replace each shuffle stage of a plan, and the ``AQEShuffleReadExec`` above it, by `replacement` of the stage."""
    name = class_name(plan)
    if name in {STAGE, READ}:
        return replacement(plan if name == STAGE else plan.child())
    inputs = children(plan)
    if not inputs:
        return plan
    return plan.withNewChildren(bridge.seq(replace_stages(bridge, child, replacement) for child in inputs))


def read_stage(bridge: Bridge, stage: Any, ranges: Iterable[Range]) -> Any:
    """Return the operator that reads a stage with a task per range of subpartitions."""
    range_spec = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    return _read(bridge, stage, bridge.seq(range_spec.apply(start, end, 0) for start, end in ranges))


def slice_stage(bridge: Bridge, stage: Any, slices: Iterable[tuple[int, Range]]) -> Any:
    """Return the operator that reads a stage with a task per slice: a subpartition, and a range of mappers."""
    slice_spec = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    return _read(bridge, stage, bridge.seq(slice_spec(index, first, last, 0) for index, (first, last) in slices))


def _read(bridge: Bridge, stage: Any, specs: Any) -> Any:
    return bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, specs)


def union_by_task(layers: Sequence[InternalRows], tasks: int) -> InternalRows:
    """Return an RDD where each task returns the rows of the same task of each layer, in order."""
    bridge = layers[0]._bridge
    context, class_tag = bridge.spark.sparkContext._jsc.sc(), layers[0]._handle.elementClassTag()
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return InternalRows(bridge, union(context, bridge.seq(layers), tasks, class_tag))


def materialize(bridge: Bridge, shuffle: Any) -> Any:
    """Run an exchange (``ShuffleExchangeExec``); return its stage."""
    stage = bridge.find(EXECUTION + "adaptive.ShuffleQueryStageExec")(0, shuffle, shuffle.canonicalized())
    no_timeout = bridge.companion("scala.concurrent.duration.Duration").Inf()
    outcome = bridge.companion("org.apache.spark.util.ThreadUtils").awaitResult(stage.materialize(), no_timeout)
    stage.resultOption().set(bridge.some(outcome))
    return stage
