"""Barrier stages: whether a session can run them, their plans, and the current attempt of such a stage."""

from __future__ import annotations

import time
from contextlib import suppress
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
    from pyspark.sql import DataFrame

    from penstock.spark.plans.logical_plan import LogicalPlan

_NARROW_OPERATORS = class_names(
    "ProjectExec FilterExec FileSourceScanExec RangeExec LocalTableScanExec RDDScanExec BatchScanExec "
    "ColumnarToRowExec ExternalRDDScanExec GenerateExec MapInArrowExec MapInPandasExec ExpandExec"
)
BARRIER_COLUMN = "__penstock_partition"
"""The column of the shuffles before a barrier stage (all rows in its first tasks) and after it (to separate it)."""
_STARTUP_SECONDS = 10.0
"""Time for executors to start, from the first call of `task_slots` in an application."""
_FIRST_REQUESTS: dict[str, float] = {}
"""The monotonic time of the first call of `task_slots`, by application id."""
_RERUN_SETTINGS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""If these are on, Spark compares the rows of a rerun task with those of its first run, and may rerun the readers."""
_ATTACHED: PlanLifetimeMap[object] = PlanLifetimeMap()  # by `function_id`, see `attach_to_function`
_ENCRYPTION_SETTINGS = (
    "spark.network.crypto.enabled",
    "spark.io.encryption.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
"""Settings with which Spark encrypts rows on the network or on disk; ``spark.ssl.enabled`` does not apply to RPC."""


def task_slots(bridge: Bridge, requested: int = 1) -> int:
    """Return how many tasks of a stage can run at the same time (``SparkContext.maxNumConcurrentTasks``).

    If there are fewer than `requested`, wait for executors to start, until `_STARTUP_SECONDS` after the application's
    first call. Raises `NoBarrierError` if the session's settings do not allow barrier stages.
    """
    settings = read_settings(bridge.session, "spark.")
    for key in _ENCRYPTION_SETTINGS:
        if is_true(settings.get(key)):
            raise NoBarrierError(f"{key} is on, and a barrier stage would send rows unencrypted")
    if is_true(settings.get("spark.dynamicAllocation.enabled")):
        raise NoBarrierError("spark.dynamicAllocation.enabled is on, and Spark runs no barrier stage with it")
    _require_rerun_detection(bridge)
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


def _require_rerun_detection(bridge: Bridge) -> None:
    """Raise `NoBarrierError` if Spark would not detect that a rerun exchange sends rows to different consumers.

    After the loss of an executor, Spark runs the exchange again, and a row may go to a different consumer. Consumers
    that have finished before have read the first distribution, so rows would be duplicated or lost.
    """
    for key in () if is_local(bridge) else _RERUN_SETTINGS:
        is_on = False
        with suppress(PySparkException):  # a default argument would override Spark's own default
            is_on = is_true(bridge.spark.conf.get(key))
        if not is_on:
            problem = f"{key} is off or unknown to Spark {bridge.spark.version}"
            raise NoBarrierError(f"{problem}: after an executor is lost, rows could be duplicated")


def narrow_task_count(df: DataFrame) -> int | None:
    """Return the number of tasks of a DataFrame; None for a stream, or if Spark may have to run a stage first."""
    if df.isStreaming:
        return None
    bridge = Bridge(df.sparkSession)
    with active_session(bridge.session):
        plan: Any = df._jdf.queryExecution().sparkPlan()
        is_narrow = all(class_name(node) in _NARROW_OPERATORS for node in walk(plan))
        return int(plan.execute().getNumPartitions()) if is_narrow else None


def attach_to_function(df: DataFrame, attachment: object) -> None:
    """Attach an object to the function of a ``mapInArrow`` DataFrame, until no plan has the function any more."""
    bridge = Bridge(df.sparkSession)
    plan = analyzed_plan(bridge, df)
    _ATTACHED.keep(bridge, function_id(plan), plan._handle.productElement(0).resultId(), attachment)


def attached_to_function(function: int) -> object | None:
    """Return the object that is attached to a function, by `function_id`; None if there is none."""
    return _ATTACHED.get(function)


def has_attachments() -> bool:
    """Whether an object is attached to a function of any plan in use."""
    return len(_ATTACHED) > 0


def function_id(plan: LogicalPlan) -> int:
    """Return the result id of a plan's function (``MapInArrow``); 0 if it has no function."""
    function = plan._handle.productElement(0)
    return int(function.resultId().id()) if class_name(function) == "PythonUDF" else 0


def is_boundary(plan: LogicalPlan) -> bool:
    """Whether a ``RepartitionByExpression`` was added before or after a barrier stage, see `BARRIER_COLUMN`."""
    keys = plan._handle.partitionExpressions()
    return keys.size() == 1 and str(keys.apply(0).toString()).startswith(f"{BARRIER_COLUMN}#")


def with_output(plan: LogicalPlan, output: Attributes) -> LogicalPlan:
    """Return the plan with its columns renamed to the names and ids of `output`, whose columns have the same types."""
    bridge = plan._bridge
    pairs = zip(items(plan._handle.output()), items(output._handle), strict=True)
    named = [alias(bridge, column, target.name(), target.exprId()) for column, target in pairs]
    return plan.projected(Attributes(bridge, bridge.seq(named)))


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """The number of a barrier stage's current attempt, and whether it runs all tasks and none has completed yet."""

    number: int
    runs_all_tasks: bool


def running_attempt(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
    """Return the attempt of a stage that a running task belongs to; None if Spark has abandoned that attempt.

    When a task of a barrier stage fails, Spark discards the results of the other tasks and soon reruns all tasks. If
    another task ends in between, Spark accepts the result of that task, and reruns only the other tasks.

    `task_attempt` is the id of the running task in the application, and `index` its partition. Raises `RebalanceError`
    if there is no active Spark context or no such stage; `Py4JError` if this Spark release lacks the methods.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise RebalanceError("no Spark context is active")
    scheduler: Any = context._jsc.sc().dagScheduler()
    stage_option: Any = scheduler.stageIdToStage().get(stage)
    if stage_option.isEmpty():
        raise RebalanceError(f"Spark knows no stage {stage}")
    attempt_number = int(stage_option.get().latestInfo().attemptNumber())
    tasks: Any = scheduler.taskScheduler().taskSetManagerForAttempt(stage, attempt_number)
    if tasks.isEmpty() or tasks.get().isZombie():
        return None
    partitions = int(stage_option.get().numPartitions())
    runs_all_tasks = partitions == int(tasks.get().numTasks()) == int(stage_option.get().findMissingPartitions().size())
    if runs_all_tasks and all(info.taskId() != task_attempt for info in items(tasks.get().taskAttempts()[index])):
        return None  # the task belongs to an earlier attempt
    return StageAttempt(attempt_number, runs_all_tasks)
