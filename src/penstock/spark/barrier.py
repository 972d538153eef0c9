"""Barrier stages: whether one can run in a session, plans that make one, and whether Spark runs one as a whole."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.errors import NoBarrierError, RebalanceError
from penstock.spark.catalyst import analyzed_plan
from penstock.spark.expressions import Attributes
from penstock.spark.jobs import active_session
from penstock.spark.jvm import Bridge, children, class_name, items
from penstock.spark.lifetimes import KeptByPlans
from penstock.spark.settings import is_true, read_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.logical_plan import LogicalPlan

_NARROW = frozenset(
    {
        "ProjectExec",
        "FilterExec",
        "FileSourceScanExec",
        "RangeExec",
        "LocalTableScanExec",
        "RDDScanExec",
        "BatchScanExec",
        "ColumnarToRowExec",
        "ExternalRDDScanExec",
        "GenerateExec",
        "MapInArrowExec",
        "MapInPandasExec",
        "ExpandExec",
    }
)
BOUNDARY = "__penstock_partition"
"""The column by which rows are put behind a shuffle right after a barrier stage."""
_SECONDS_TO_COME_UP = 10.0
_FIRST_ASKED: dict[str, float] = {}
"""When the slots of an application were asked for first, by its id."""
_CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_FUNCTIONS: KeptByPlans[object] = KeptByPlans()
_ENCRYPTED = (
    "spark.network.crypto.enabled",
    "spark.io.encryption.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.rpc.enabled",
)
"""Settings with which Spark encrypts rows on the network or on disks.

TLS for RPC does not follow ``spark.ssl.enabled``: Spark wants it set by itself.
"""


def task_slots(bridge: Bridge, wanted: int = 1) -> int:
    """Return how many tasks of one stage can run at the same time (``SparkContext.maxNumConcurrentTasks``).

    Where there are fewer than `wanted`, executors get a moment to come up, once in an application.

    Raises
    ------
    NoBarrierError
        If the session's settings do not let a barrier stage run.
    """
    settings = read_settings(bridge.session, "spark.")
    for key in _ENCRYPTED:
        if is_true(settings.get(key)):
            raise NoBarrierError(f"{key} is on, and a barrier stage would send rows unencrypted")
    if is_true(settings.get("spark.dynamicAllocation.enabled")):
        raise NoBarrierError("spark.dynamicAllocation.enabled is on, and Spark runs no barrier stage with it")
    _check_lost_blocks(bridge.spark)
    context = bridge.spark.sparkContext._jsc.sc()
    profiles = context.resourceProfileManager()
    deadline = 0.0 if _is_local(bridge.spark) else _all_up_by(str(bridge.spark.sparkContext.applicationId))
    while True:
        slots = int(context.maxNumConcurrentTasks(profiles.defaultResourceProfile()))
        if slots >= wanted or time.monotonic() > deadline:
            return slots
        time.sleep(0.2)


def _all_up_by(application: str) -> float:
    """Return until when it is worth waiting for executors: a moment from the first time that somebody asks."""
    return _FIRST_ASKED.setdefault(application, time.monotonic()) + _SECONDS_TO_COME_UP


def _check_lost_blocks(spark: SparkSession) -> None:
    """Raise where Spark would not notice that an exchange run again gives rows to other consumers than before.

    If an executor is lost afterwards, the tasks behind the exchange that are over by then have read what they read.
    """
    if _is_local(spark):
        return
    for key in _CHECKSUMS:
        if not _is_on(spark, key):
            raise NoBarrierError(
                f"{key} is off or unknown to Spark {spark.version}: after an executor is lost, rows could come twice"
            )


def _is_local(spark: SparkSession) -> bool:
    return (spark.sparkContext.master or "").split("[")[0] == "local"


def _is_on(spark: SparkSession, key: str) -> bool:
    try:
        return is_true(spark.conf.get(key))  # a default given here would hide Spark's own
    except PySparkException:
        return False


def narrow_partitions(df: DataFrame) -> int | None:
    """Return how many tasks a DataFrame has, None where only running a part of it would tell."""
    if df.isStreaming:
        return None
    bridge = Bridge(df.sparkSession)
    with active_session(bridge.session):
        plan: Any = df._jdf.queryExecution().sparkPlan()
        todo = [plan]
        while todo:
            node = todo.pop()
            if class_name(node) not in _NARROW:
                return None
            todo += children(node)
        return int(plan.execute().getNumPartitions())


def keep_with_function(df: DataFrame, what: object) -> None:
    """Keep something as long as a plan has the function of a ``DataFrame.mapInArrow`` that was just called."""
    bridge = Bridge(df.sparkSession)
    plan = analyzed_plan(bridge, df)
    _FUNCTIONS.keep(bridge, function_id(plan), plan._handle.productElement(0).resultId(), what)


def kept_with_function(number: int) -> object | None:
    """Return what is kept with a function, by its id; None if there is nothing."""
    return _FUNCTIONS.get(number)


def keeps_any() -> bool:
    """Whether anything is kept with a function of a plan that still lives."""
    return len(_FUNCTIONS) > 0


def function_id(plan: LogicalPlan) -> int:
    """Return the id of the result of a plan's function (``MapInArrow``); 0 of one without."""
    function = plan._handle.productElement(0)
    return int(function.resultId().id()) if class_name(function) == "PythonUDF" else 0


def is_boundary(plan: LogicalPlan) -> bool:
    """Whether a ``RepartitionByExpression`` only puts a barrier stage's rows behind a shuffle."""
    keys = plan._handle.partitionExpressions()
    return keys.size() == 1 and str(keys.apply(0).toString()).startswith(f"{BOUNDARY}#")


def with_output(plan: LogicalPlan, output: Attributes) -> LogicalPlan:
    """Return a plan whose columns go by the ids of others of the same names and types."""
    bridge = plan._bridge
    alias = bridge.find("org.apache.spark.sql.catalyst.expressions.Alias")
    empty = bridge.seq([])
    pairs = zip(items(plan._handle.output()), items(output._handle), strict=True)
    named = [alias(old, new.name(), new.exprId(), empty, bridge.none, empty) for old, new in pairs]
    return plan.projected(Attributes(bridge, bridge.seq(named)))


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """The attempt of a barrier stage that runs now.

    Parameters
    ----------
    number
        Which attempt, from 0.
    is_whole
        Whether it runs all tasks of the stage, and no result of an earlier attempt counts.
    """

    number: int
    is_whole: bool


def running_attempt(stage: int, task_attempt: int, index: int) -> StageAttempt | None:
    """Return the attempt of a stage that a running task belongs to; None if Spark has given that attempt up.

    When a task of a barrier stage fails, Spark forgets what the others gave, and runs all again a moment later. A task
    that ends well within that moment still counts, and then only the others run again. This tells.

    Uses ``DAGScheduler.stageIdToStage``, ``Stage.findMissingPartitions`` and ``TaskSetManager.taskAttempts``.

    Parameters
    ----------
    stage
        Its number.
    task_attempt, index
        The task's number in the application, and its partition.

    Raises
    ------
    RebalanceError
        If no Spark context runs, or it knows no such stage.
    Py4JError
        If Spark has no such methods.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise RebalanceError("no Spark context runs")
    scheduler: Any = context._jsc.sc().dagScheduler()
    found: Any = scheduler.stageIdToStage().get(stage)
    if found.isEmpty():
        raise RebalanceError(f"Spark knows no stage {stage}")
    number = int(found.get().latestInfo().attemptNumber())
    tasks: Any = scheduler.taskScheduler().taskSetManagerForAttempt(stage, number)
    if tasks.isEmpty() or tasks.get().isZombie():
        return None
    partitions = int(found.get().numPartitions())
    is_whole = partitions == int(tasks.get().numTasks()) == int(found.get().findMissingPartitions().size())
    if is_whole and all(info.taskId() != task_attempt for info in items(tasks.get().taskAttempts()[index])):
        return None
    return StageAttempt(number, is_whole)
