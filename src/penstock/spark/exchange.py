"""The exchange between two vertices: Spark's own shuffle, written once, measured, and read as Penstock decides.

Uses (Spark 4.0 to 4.3): ``QueryExecution.createSparkPlan``, ``InsertAdaptiveSparkPlan``, ``AdaptiveSparkPlanExec
.finalPhysicalPlan``, ``ShuffleQueryStageExec``, ``AQEShuffleReadExec``, ``CoalescedPartitionSpec``.

Two walls keep answers right. Everything *above* the stages of a plan belongs to its result: Spark may have dropped an
exchange that was asked for, so a stage is never taken for the result itself. And a result claims to be hash
partitioned only where all leaves of the fragment that claim so are cut by the same ranges (see `fragment.rdd_leaf`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.spark.jvm import EXECUTION, children, class_name, items, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.jvm import Bridge

_STAGE = "ShuffleQueryStageExec"
_READ = "AQEShuffleReadExec"


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
        How many tasks wrote it, -1 where nothing ran.
    statistics
        Spark's own measured ``Statistics``, or None.
    """

    above: Any
    stages: tuple[Any, ...]
    sizes: np.ndarray = field(repr=False)
    rows: int = -1
    size_in_bytes: int = -1
    tasks: int = -1
    statistics: Any = None

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
class CollectedResult:
    """Rows in the driver's memory, to be broadcast.

    Parameters
    ----------
    data
        An ``InternalRow[]`` in the JVM.
    rows
        How many.
    tasks
        How many tasks gave them.
    """

    data: Any
    rows: int
    tasks: int = -1


def physical_plan(bridge: Bridge, session: Any, logical: Any) -> Any:
    """Return the adaptive physical plan of an *optimised* logical plan, made with the settings of a session.

    The plan is not optimised again: that costs more than planning, and the parts of an optimised plan are optimal.
    The session must be the active one of this thread, see `jobs.vertex_thread`.
    """
    logical.setAnalyzed()
    query = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, logical).queryExecution()
    maker = bridge.companion(EXECUTION + "QueryExecution")
    spark_plan = maker.createSparkPlan(session.sessionState().planner(), logical.clone())
    context = bridge.find(EXECUTION + "adaptive.AdaptiveExecutionContext")(session, query)
    adaptive = bridge.find(EXECUTION + "adaptive.InsertAdaptiveSparkPlan")(context).apply(spark_plan)
    return adaptive if class_name(adaptive) == "AdaptiveSparkPlanExec" else query.executedPlan()


def write(bridge: Bridge, session: Any, logical: Any) -> StagedResult:
    """Run the shuffle stages of a plan, not what is above them."""
    plan = physical_plan(bridge, session, logical)
    above = plan.finalPhysicalPlan() if class_name(plan) == "AdaptiveSparkPlanExec" else plan
    stages = tuple(_stages(above))
    if not stages:
        return StagedResult(above, (), np.zeros((1, 1), dtype=np.int64))
    measured = [_subpartition_bytes(bridge, stage) for stage in stages]
    sizes = measured[0] if len(stages) == 1 else np.array([sum(int(part.sum()) for part in measured)], dtype=np.int64)
    statistics = [stage.getRuntimeStatistics() for stage in stages]
    rows = [_whole(option(s.rowCount())) for s in statistics]
    return StagedResult(
        above,
        stages,
        sizes.reshape(1, -1),
        rows=sum(rows) if min(rows) >= 0 else -1,
        size_in_bytes=sum(_whole(s.sizeInBytes()) for s in statistics),
        tasks=sum(int(stage.shuffle().numMappers()) for stage in stages),
        statistics=statistics[0] if len(stages) == 1 else None,
    )


def collect(bridge: Bridge, session: Any, logical: Any) -> CollectedResult:
    """Run a plan and keep its rows in the driver's memory (``SparkPlan.executeCollect``)."""
    plan = physical_plan(bridge, session, logical)
    rows = plan.executeCollect()
    return CollectedResult(rows, len(rows))


def read(bridge: Bridge, result: StagedResult, ranges: Sequence[tuple[int, int]] | None) -> Any:
    """Return a result as an ``RDD[InternalRow]`` with one task per range of subpartitions.

    With None, or where the result cannot be cut, the tasks are those Spark's plan gives.
    """
    if ranges is None or not result.can_be_cut:
        return result.above.execute()
    merged = bridge.find(EXECUTION + "CoalescedPartitionSpec")
    sizes = result.sizes[0]
    specs = bridge.seq(merged.apply(start, end, int(sizes[start:end].sum())) for start, end in ranges)
    return _respec(bridge, result.above, specs).execute()


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
    return -1 if value is None else int(value if isinstance(value, int) else value.toString())
