"""Barrier stages: whether a session can run them, plans with them, and whether Spark runs all tasks of a stage."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.errors import NoBarrierError, RebalanceError
from penstock.spark.bridge.handles import PlanLifetimeMap
from penstock.spark.bridge.jvm import Bridge, class_name, class_names, items, walk
from penstock.spark.bridge.settings import is_true, read_settings
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.expressions import Attributes, alias
from penstock.spark.run.jobs import active_session, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.plans.logical_plan import LogicalPlan

_NARROW = class_names(
    "ProjectExec FilterExec FileSourceScanExec RangeExec LocalTableScanExec RDDScanExec BatchScanExec "
    "ColumnarToRowExec ExternalRDDScanExec GenerateExec MapInArrowExec MapInPandasExec ExpandExec"
)
BOUNDARY = "__penstock_partition"
"""The name prefix of the key that puts the rows of a barrier stage behind a shuffle."""
_STARTUP_SECONDS = 10.0
_FIRST_REQUESTS: dict[str, float] = {}
"""The monotonic time of the first request for slots, by application id."""
_CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_ATTACHED: PlanLifetimeMap[object] = PlanLifetimeMap()
_ENCRYPTED = (
    "spark.network.crypto.enabled",
    "spark.io.encryption.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
"""Settings with which Spark encrypts rows on the network or on disk; ``spark.ssl.enabled`` does not apply to RPC."""


def task_slots(bridge: Bridge, requested: int = 1) -> int:
    """Return how many tasks of a stage can run at the same time (``SparkContext.maxNumConcurrentTasks``).

    If there are fewer than `requested`, wait a few seconds for executors to start, once per application. Raises
    `NoBarrierError` if the session's settings do not allow barrier stages.
    """
    settings = read_settings(bridge.session, "spark.")
    for key in _ENCRYPTED:
        if is_true(settings.get(key)):
            raise NoBarrierError(f"{key} is on, and a barrier stage would send rows unencrypted")
    if is_true(settings.get("spark.dynamicAllocation.enabled")):
        raise NoBarrierError("spark.dynamicAllocation.enabled is on, and Spark runs no barrier stage with it")
    _check_lost_blocks(bridge)
    context = bridge.spark.sparkContext._jsc.sc()
    profiles = context.resourceProfileManager()
    deadline = 0.0
    if not is_local(bridge):
        deadline = _FIRST_REQUESTS.setdefault(bridge.application, time.monotonic()) + _STARTUP_SECONDS
    while True:
        slots = int(context.maxNumConcurrentTasks(profiles.defaultResourceProfile()))
        if slots >= requested or time.monotonic() > deadline:
            return slots
        time.sleep(0.2)


def _check_lost_blocks(bridge: Bridge) -> None:
    """Raise if Spark would not detect that a repeated exchange sends rows to other consumers than before.

    If an executor is lost afterwards, consumers that have finished already have read the earlier distribution.
    """
    for key in () if is_local(bridge) else _CHECKSUMS:
        if not _is_on(bridge.spark, key):
            unknown = f"{key} is off or unknown to Spark {bridge.spark.version}"
            raise NoBarrierError(f"{unknown}: after an executor is lost, rows could come twice")


def _is_on(spark: SparkSession, key: str) -> bool:
    try:
        return is_true(spark.conf.get(key))  # without a default argument, which would override Spark's default
    except PySparkException:
        return False


def narrow_partitions(df: DataFrame) -> int | None:
    """Return the number of tasks of a DataFrame, None if only running a part of it would tell."""
    if df.isStreaming:
        return None
    bridge = Bridge(df.sparkSession)
    with active_session(bridge.session):
        plan: Any = df._jdf.queryExecution().sparkPlan()
        is_narrow = all(class_name(node) in _NARROW for node in walk(plan))
        return int(plan.execute().getNumPartitions()) if is_narrow else None


def attach_to_function(df: DataFrame, attachment: object) -> None:
    """Retain an object while a plan has the function of the ``DataFrame.mapInArrow`` that was just called."""
    bridge = Bridge(df.sparkSession)
    plan = analyzed_plan(bridge, df)
    _ATTACHED.keep(bridge, function_id(plan), plan._handle.productElement(0).resultId(), attachment)


def attached_to_function(number: int) -> object | None:
    """Return the object attached to a function by the function's id, None if there is none."""
    return _ATTACHED.get(number)


def has_attachments() -> bool:
    """Whether an object is attached to a function of any plan that is still referenced."""
    return len(_ATTACHED) > 0


def function_id(plan: LogicalPlan) -> int:
    """Return the result id of a plan's function (``MapInArrow``); 0 if it has no function."""
    function = plan._handle.productElement(0)
    return int(function.resultId().id()) if class_name(function) == "PythonUDF" else 0


def is_boundary(plan: LogicalPlan) -> bool:
    """Whether a ``RepartitionByExpression`` exists only to put a barrier stage's rows behind a shuffle."""
    keys = plan._handle.partitionExpressions()
    return keys.size() == 1 and str(keys.apply(0).toString()).startswith(f"{BOUNDARY}#")


def with_output(plan: LogicalPlan, output: Attributes) -> LogicalPlan:
    """Return a plan whose columns have the ids of other columns of the same names and types."""
    bridge = plan._bridge
    pairs = zip(items(plan._handle.output()), items(output._handle), strict=True)
    named = [alias(bridge, old, new.name(), new.exprId()) for old, new in pairs]
    return plan.projected(Attributes(bridge, bridge.seq(named)))


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """The current attempt of a barrier stage, and whether it runs all tasks, without results of an earlier attempt."""

    number: int
    is_whole: bool


def running_attempt(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
    """Return the attempt of a stage that a running task belongs to; None if Spark has abandoned the attempt.

    When a task of a barrier stage fails, Spark discards the results of the other tasks and repeats all of them a moment
    later. The result of a task that ends within that moment still counts, and then only the others are repeated.

    `task_attempt` is the task id in the application, and `index` its partition. Raises `RebalanceError` if no Spark
    context is active, or it has no such stage; `Py4JError` if this Spark release lacks the methods.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise RebalanceError("no Spark context runs")
    scheduler: Any = context._jsc.sc().dagScheduler()
    stage_option: Any = scheduler.stageIdToStage().get(stage)
    if stage_option.isEmpty():
        raise RebalanceError(f"Spark knows no stage {stage}")
    number = int(stage_option.get().latestInfo().attemptNumber())
    tasks: Any = scheduler.taskScheduler().taskSetManagerForAttempt(stage, number)
    if tasks.isEmpty() or tasks.get().isZombie():
        return None
    partitions = int(stage_option.get().numPartitions())
    is_whole = partitions == int(tasks.get().numTasks()) == int(stage_option.get().findMissingPartitions().size())
    if is_whole and all(info.taskId() != task_attempt for info in items(tasks.get().taskAttempts()[index])):
        return None
    return StageAttempt(number, is_whole)
