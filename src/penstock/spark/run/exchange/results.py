"""The results of vertices, which are shuffle stages or broadcast relations, and how tasks read the stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.handles import HashedRelation, InternalRows, PhysicalPlan, QueryStage, Statistics
from penstock.spark.bridge.jvm import EXECUTION, Bridge, children, class_name, items, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    from penstock.spark.plans.expressions import Expression

STAGE = "ShuffleQueryStageExec"
READ = "AQEShuffleReadExec"
Range = tuple[int, int]
NOTHING: Range = (0, 0)
"""A range without subpartitions, for tasks that read nothing."""
_Slice = tuple[Range, Range | None]


@dataclass(frozen=True, slots=True)
class StagedResult:
    """The written result of a vertex: shuffle stages that have run, and the plan above them that has not."""

    above: PhysicalPlan
    stages: tuple[QueryStage, ...]
    """The shuffle stages that it reads; empty if Spark needed no exchange (then nothing has run yet)."""
    sizes: np.ndarray = field(repr=False)
    """Bytes per subpartition, shape (1, subpartitions); a single total unless there is a single stage."""
    rows: int | None = None
    size_in_bytes: int | None = None
    """Rows written, and their bytes in memory; None if not measured."""
    is_counted_once: bool = True
    """Whether no row is counted twice: Spark counts the rows of a repeated task again, but not its bytes."""
    tasks: int | None = None
    """The number of tasks that wrote the result; None if nothing ran."""
    input_tasks: int | None = None
    """The number that read the inputs of the plan; it differs if Spark exchanged rows in between."""
    statistics: Statistics | None = None
    mapper_bytes: Callable[[Sequence[int]], np.ndarray] | None = field(default=None, repr=False)
    """Returns the bytes that each task of a single stage wrote to subpartitions, shape (tasks, subpartitions)."""

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
        above_stages = (node for node in walk(self.above._handle) if class_name(node) != STAGE)
        return len(self.stages) == 1 and all(node.children().size() == 1 for node in above_stages)

    def is_hashed_by(self, keys: Sequence[Expression]) -> bool:
        """Whether the only stage is hashed by exactly these keys; computed keys are not compared.

        It is not if Spark reused a partitioning by fewer keys or in another order.
        """
        stage = self.stages[0]
        hashed_by = items(stage._bridge.helper("ColumnarExchange").hashKeys(self.above, stage))
        return len(hashed_by) == len(keys) and all(
            not key.is_attribute or bool(key._handle.semanticEquals(column))
            for key, column in zip(keys, hashed_by, strict=True)
        )

    @property
    def is_plain_exchange(self) -> bool:
        """Whether the result is exactly the rows of a single stage."""
        plan = self.above._handle
        while class_name(plan) in {READ, "InputAdapter", "ColumnsToRows"}:
            (plan,) = children(plan)
        return len(self.stages) == 1 and class_name(plan) == STAGE


@dataclass(frozen=True, slots=True)
class BroadcastResult:
    """A hashed relation that every executor can fetch."""

    stage: QueryStage
    rows: int | None
    size_in_bytes: int
    """Measured; the bytes are those of the relation in memory with its allocated pages: 64 MiB for a single row."""
    data_bytes: int
    """The estimated bytes of the rows themselves."""
    tasks: int
    input_tasks: int
    """The number of tasks that computed its rows, and the number that read the inputs of the plan."""
    plan: PhysicalPlan
    is_counted_once: bool = True
    """Whether no scan has counted a row twice, see `StagedResult`."""

    @property
    def exact_rows(self) -> int | None:
        """Rows of the relation, counted in the driver, so repeated tasks do not matter."""
        return self.rows

    @property
    def relation(self) -> HashedRelation:
        """The relation in the driver."""
        relation = self.stage._handle.broadcast().executeBroadcast()
        return HashedRelation(self.stage._bridge, relation.value(), int(relation.id()))


def read_ranges(result: StagedResult, ranges: Sequence[Range] | None) -> PhysicalPlan:
    """Return the physical plan that reads a result with a task per range of subpartitions.

    Spark's own plan decides the tasks if `ranges` is None or the result has no readable ranges.
    """
    is_single = ranges is not None and len(ranges) == result.subpartitions == 1
    if ranges is None or is_single or not result.has_readable_ranges:
        return result.above
    return read_merged(result, ranges)


def read_merged(result: StagedResult, ranges: Sequence[Range]) -> PhysicalPlan:
    """Return the plan that reads a result with readable ranges, with a task per range of subpartitions."""
    merged, sizes = result.above._bridge.find(EXECUTION + "CoalescedPartitionSpec"), result.sizes[0]
    return _read_specs(result, (merged.apply(start, end, int(sizes[start:end].sum())) for start, end in ranges))


def read_slices(result: StagedResult, tasks: Sequence[Sequence[_Slice]]) -> InternalRows:
    """Return the rows of a single-stage result, where each task reads some slices in order.

    A slice is a range of subpartitions, or a subpartition and the range of mappers to read it from, or several
    subpartitions of a single mapper, or all subpartitions of some mappers. Tasks of several slices require Spark 4.1.
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

    def specs(layer: Sequence[_Slice]) -> Iterable[Any]:
        """Return the specs of a slice of each task; specs by mapper cannot be mixed (``AQEShuffleReadExec``)."""
        spans = [mappers for (start, end), mappers in layer if mappers is not None and end - start > 1]
        if not spans:
            return map(spec, layer)
        if any(last - first > 1 for first, last in spans):
            return [several_mappers(*(mappers or (0, 0)), len(sizes)) for _, mappers in layer]
        return [single_mapper(mappers[0] if mappers else 0, *span) for span, mappers in layer]

    layers = [_read_specs(result, specs(layer)).rows() for layer in zip_longest(*tasks, fillvalue=(NOTHING, None))]
    return layers[0] if len(layers) == 1 else union_by_task(layers, len(tasks))


def count_rows(result: StagedResult) -> int:
    """Count the rows of a result by reading them."""
    return int(result.above.rows()._handle.count())


def executed_plans(result: StagedResult | BroadcastResult) -> list[PhysicalPlan]:
    """Return the physical plans that have run for a result, each up to its exchange."""
    if isinstance(result, BroadcastResult):
        return [result.plan]
    return [PhysicalPlan(stage._bridge, stage._handle.shuffle().child()) for stage in result.stages]


def _read_specs(result: StagedResult, specs: Iterable[Any]) -> PhysicalPlan:
    """Return the plan above the stages of a result, which are read by partition specs."""
    bridge = result.above._bridge
    scala_specs = bridge.seq(specs)
    return PhysicalPlan(bridge, above(bridge, result.above._handle, lambda stage: _read(bridge, stage, scala_specs)))


def above(bridge: Bridge, plan: Any, replacement: Callable[[Any], Any]) -> Any:
    """Return the operators above the stages of a plan on top of what replaces each stage."""
    name = class_name(plan)
    if name in {STAGE, READ}:
        return replacement(plan if name == STAGE else plan.child())
    inputs = children(plan)
    if not inputs:
        return plan
    return plan.withNewChildren(bridge.seq(above(bridge, child, replacement) for child in inputs))


def read_stage(bridge: Bridge, stage: Any, ranges: Iterable[Range]) -> Any:
    """Return the operator that reads a stage with a task per range of subpartitions."""
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    return _read(bridge, stage, bridge.seq(merged.apply(start, end, 0) for start, end in ranges))


def read_split(bridge: Bridge, stage: Any, slices: Iterable[tuple[int, Range]]) -> Any:
    """Return the operator that reads a stage with a task per subpartition and range of the tasks that wrote it."""
    split = bridge.find(EXECUTION + "PartialReducerPartitionSpec")
    return _read(bridge, stage, bridge.seq(split(index, first, last, 0) for index, (first, last) in slices))


def _read(bridge: Bridge, stage: Any, specs: Any) -> Any:
    return bridge.find(EXECUTION + "adaptive.AQEShuffleReadExec")(stage, specs)


def union_by_task(layers: Sequence[InternalRows], tasks: int) -> InternalRows:
    """Return an RDD with a number of tasks, where each task reads the rows of that task of all layers, in order."""
    bridge = layers[0]._bridge
    context, kind = bridge.spark.sparkContext._jsc.sc(), layers[0]._handle.elementClassTag()
    union = bridge.find("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD")
    return InternalRows(bridge, union(context, bridge.seq(layers), tasks, kind))


def materialize(bridge: Bridge, shuffle: Any) -> Any:
    """Run an exchange (``ShuffleExchangeExec``); return its stage."""
    stage = bridge.find(EXECUTION + "adaptive.ShuffleQueryStageExec")(0, shuffle, shuffle.canonicalized())
    forever = bridge.companion("scala.concurrent.duration.Duration").Inf()
    written = bridge.companion("org.apache.spark.util.ThreadUtils").awaitResult(stage.materialize(), forever)
    stage.resultOption().set(bridge.some(written))
    return stage
