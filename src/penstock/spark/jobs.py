"""Runs Spark jobs in their own groups, cancels them, and reads their metrics."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from penstock.config import parse_size
from penstock.spark.handles import LocalProperties
from penstock.spark.jvm import items
from penstock.spark.settings import is_true, read_settings, thread_properties
from penstock.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

T = TypeVar("T")
log = logging.getLogger("penstock.spark")

_POLL_SECONDS = 0.05
_MEMORY = "spark.executor.memory"
_RETAINED_TASKS = 100_000
"""Tasks per stage that Spark's status store retains (``spark.ui.retainedTasks``)."""


def user_properties(bridge: Bridge) -> LocalProperties:
    """Return a copy of this thread's local properties (``SparkContext.getLocalProperties``).

    They include job tags, the scheduler pool, and the values that Python functions read with
    ``TaskContext.getLocalProperty``.
    """
    return LocalProperties(bridge, bridge.spark.sparkContext._jsc.sc().getLocalProperties().clone())


@contextmanager
def vertex_thread(session: Session, properties: LocalProperties, group: str, description: str) -> Iterator[None]:
    """Make a session the active session of this thread, and name the Spark jobs that are started in the block.

    Uses ``SparkSession.setActiveSession`` and local properties, which belong to a JVM thread; PySpark pins each Python
    thread to a JVM thread. The previous values are restored at the end.

    Parameters
    ----------
    session
        The session. Its settings also apply to tasks, for instance to parsers of dates.
    """
    scala = session._bridge.spark.sparkContext._jsc.sc()
    before = scala.getLocalProperties()
    scala.setLocalProperties(thread_properties(session, properties, group, description))
    try:
        with _artifacts(session._bridge), active_session(session):
            yield
    finally:
        scala.setLocalProperties(before)


@contextmanager
def _artifacts(bridge: Bridge) -> Iterator[None]:
    """Give the Spark jobs of this thread the artifacts of the user's session, such as Python modules.

    Uses ``ArtifactManager.withResources``, ``JobArtifactSet`` (Spark 4.0 to 4.3).
    """
    before = bridge.helper("Artifacts").bind(bridge.session)
    try:
        yield
    finally:
        bridge.helper("Artifacts").restore(before)


@contextmanager
def active_session(session: Session) -> Iterator[None]:
    """Make a session the active session of this thread: physical plans belong to the session that is active."""
    sessions = session._bridge.find("org.apache.spark.sql.classic.SparkSession")
    active = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def activate(bridge: Bridge) -> None:
    """Make the user's session the active session of a background thread.

    Without an active session, Spark resolves names, plans and computes with default settings.
    """
    bridge.find("org.apache.spark.sql.classic.SparkSession").setActiveSession(bridge.session)


class SparkThreads(DaemonPool):
    """A pool of threads in which the user's session is active."""

    def __init__(self, limit: int, name: str, bridge: Bridge) -> None:
        super().__init__(limit, name)
        self._bridge = bridge

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Run a function on a thread of the pool; return a future of its result."""

        def in_session() -> T:
            activate(self._bridge)
            return fn(*args, **kwargs)

        return super().submit(in_session)


def cancel_group(bridge: Bridge, group: str, reason: str) -> None:
    """Cancel the Spark jobs of a job group of Penstock's, including future jobs (``cancelJobGroupAndFutureJobs``).

    If the user has set a job group, the jobs belong to that, and only running jobs are cancelled, by Penstock's tag.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    context.cancelJobGroupAndFutureJobs(group, reason)
    context.cancelJobsWithTag(group, reason)


def cancel_tag(bridge: Bridge, tag: str, reason: str) -> None:
    """Cancel the Spark jobs with a tag."""
    bridge.spark.sparkContext._jsc.sc().cancelJobsWithTag(tag, reason)


def cancel_all_jobs() -> None:
    """Cancel all Spark jobs of this process, if it has a context."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.cancelAllJobs()


def wait_for_tasks(bridge: Bridge, seconds: float) -> None:
    """Wait until no task is running, or for a time in seconds: after a job has failed, its other tasks continue.

    Uses ``TaskSchedulerImpl.runningTasksByExecutors``, as the status store is updated seconds later.
    """
    scheduler = bridge.spark.sparkContext._jsc.sc().taskScheduler()
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(items(scheduler.runningTasksByExecutors().values().toSeq())):
        time.sleep(_POLL_SECONDS)


def cluster_cores(bridge: Bridge) -> int:
    """Return the number of tasks that the cluster can run at a time now."""
    return int(bridge.spark.sparkContext.defaultParallelism)


def max_cores(bridge: Bridge) -> int:
    """Return the number of tasks that the cluster can run at a time with all executors of dynamic allocation."""
    return max(max_dynamic_slots(read_settings(bridge.session, "spark.")) or 0, cluster_cores(bridge))


def max_dynamic_slots(conf: Mapping[str, str]) -> int | None:
    """Return the slots of all executors that dynamic allocation may request, None if settings do not limit them."""
    executors, cores = conf.get("spark.dynamicAllocation.maxExecutors"), conf.get("spark.executor.cores")
    is_dynamic = is_true(conf.get("spark.dynamicAllocation.enabled"))
    if not is_dynamic or cores is None or executors is None or not executors.isdecimal():  # it may be "infinity"
        return None
    return int(executors) * (int(cores) // int(conf.get("spark.task.cpus", "1")))


@dataclass(frozen=True, slots=True)
class Application:
    """A Spark application, and the address of its UI while it runs, None if there is none."""

    id: str
    page: str | None


def application(bridge: Bridge) -> Application:
    """Return the application of a session."""
    context = bridge.spark.sparkContext
    return Application(str(context.applicationId), context.uiWebUrl)


def is_local(bridge: Bridge) -> bool:
    """Whether tasks run in the driver process."""
    master = str(bridge.spark.sparkContext.master)
    return master.startswith("local") and "cluster" not in master


def heap_bytes(bridge: Bridge) -> tuple[int, int]:
    """Return the maximum heap size of the driver and of an executor, in bytes."""
    driver = int(bridge.find("java.lang.Runtime").getRuntime().maxMemory())
    if is_local(bridge):
        return driver, driver
    return driver, parse_size(read_settings(bridge.session, _MEMORY).get(_MEMORY, "1g"))


def executor_count(bridge: Bridge) -> int:
    """Return the number of executors that can run tasks now."""
    return max(len(executors_of(bridge)) - 1, 1)


def executors_of(bridge: Bridge) -> set[str]:
    """Return the addresses of the live executors, and of the driver."""
    return set(str(bridge.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split())


@dataclass(frozen=True, slots=True)
class StageRun:
    """A finished, running or skipped Spark stage, with its planned and completed tasks."""

    id: int
    tasks: int
    completed: int


def stages_of(bridge: Bridge, group: str) -> list[StageRun]:
    """Return the stages that ran in a job group, from Spark's status tracker."""
    tracker = bridge.spark.sparkContext.statusTracker()
    tagged = bridge.spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(group)
    stages: dict[int, StageRun] = {}
    for job_id in sorted(tagged):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None and (stage.numCompletedTasks or stage.numFailedTasks):
                stages[stage_id] = StageRun(stage_id, stage.numTasks, stage.numCompletedTasks)
    return [stages[stage_id] for stage_id in sorted(stages)]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task that has ended.

    Parameters
    ----------
    stage, attempt, index
        Spark's stage id, the attempt of the stage, and the task's index in the stage.
    started
        Start time, seconds since the epoch.
    bytes_in, bytes_out
        Bytes read from sources and shuffles, and written to shuffles and sinks.
    rows_in, rows_out
        The same in rows.
    """

    stage: int
    attempt: int
    index: int
    state: str
    host: str
    started: float
    seconds: float
    bytes_in: int
    bytes_out: int
    rows_in: int
    rows_out: int


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Metrics of all tasks of a stage attempt together.

    Parameters
    ----------
    bytes_in, bytes_out, rows_in, rows_out
        As in `TaskRun`.
    spilled
        Bytes that were spilled to disk.
    returned
        Bytes that the tasks returned to the driver.
    """

    id: int
    attempt: int
    tasks: int
    bytes_in: int
    bytes_out: int
    rows_in: int
    rows_out: int
    spilled: int
    seconds: float
    returned: int


def stage_figures(bridge: Bridge, stages: Sequence[StageRun]) -> list[StageFigures]:
    """Return the metrics of the last attempt of stages (``AppStatusStore.lastStageAttempt``)."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    return [_figures(store.lastStageAttempt(stage.id)) for stage in stages]


def running_stages(bridge: Bridge, group: str) -> list[tuple[StageRun, StageFigures]]:
    """Return the running stages of a job group or tag that have completed a task; empty if Spark cannot tell.

    Their metrics help to decide while a job runs, so errors are only logged.
    """
    try:
        running = [stage for stage in stages_of(bridge, group) if 0 < stage.completed < stage.tasks]
        return list(zip(running, stage_figures(bridge, running), strict=True))
    except Exception:  # not always a Py4JError after Spark was stopped
        log.info("the stages of %s cannot be read", group, exc_info=True)
        return []


def _figures(stage: Any) -> StageFigures:
    return StageFigures(
        int(stage.stageId()),
        int(stage.attemptId()),
        int(stage.numCompleteTasks()),
        int(stage.inputBytes() + stage.shuffleReadBytes()),
        int(stage.outputBytes() + stage.shuffleWriteBytes()),
        int(stage.inputRecords() + stage.shuffleReadRecords()),
        int(stage.outputRecords() + stage.shuffleWriteRecords()),
        int(stage.diskBytesSpilled()),
        stage.executorRunTime() / 1000,
        int(stage.resultSize()),
    )


def tasks_of(bridge: Bridge, stages: Sequence[StageRun], at_most: int) -> list[TaskRun]:
    """Return the tasks that ran in stages, at most a number of them; a call for each stage attempt.

    A stage is repeated if an executor that has its output is lost.
    """
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    mapper = bridge.find("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.registerModule(bridge.find("com.fasterxml.jackson.module.scala.DefaultScalaModule")())
    runs: list[TaskRun] = []
    for stage in stages:
        for attempt in range(store.lastStageAttempt(stage.id).attemptId() + 1):
            if len(runs) >= at_most:
                return runs
            text = mapper.writeValueAsString(store.taskList(stage.id, attempt, at_most - len(runs)))
            runs += [_task_run(stage.id, attempt, task) for task in json.loads(str(text))]
    return runs


def has_repeated_tasks(bridge: Bridge) -> bool:
    """Return whether a successful task of this thread's job group was repeated because its output was lost.

    Also True if Spark has dropped the stage (``spark.ui.retainedStages``), as it may have happened then.
    """
    group = bridge.spark.sparkContext.getLocalProperty("penstock.inside") or ""
    try:
        done = [
            (task.stage, task.index)
            for task in tasks_of(bridge, stages_of(bridge, group), _RETAINED_TASKS)
            if task.state == "SUCCESS"
        ]
    except Py4JJavaError:
        log.info("the tasks of %s are no longer available", group, exc_info=True)
        return True
    return len(done) > len(set(done))


def _task_run(stage: int, attempt: int, task: dict[str, Any]) -> TaskRun:
    metrics = task.get("taskMetrics") or {}
    read, written = metrics.get("inputMetrics") or {}, metrics.get("outputMetrics") or {}
    fetched, shuffled = metrics.get("shuffleReadMetrics") or {}, metrics.get("shuffleWriteMetrics") or {}
    return TaskRun(
        stage,
        attempt,
        task["index"],
        task["status"],
        task["host"],
        task["launchTime"] / 1000,
        (task["duration"] or 0) / 1000,
        read.get("bytesRead", 0) + fetched.get("remoteBytesRead", 0) + fetched.get("localBytesRead", 0),
        written.get("bytesWritten", 0) + shuffled.get("bytesWritten", 0),
        read.get("recordsRead", 0) + fetched.get("recordsRead", 0),
        written.get("recordsWritten", 0) + shuffled.get("recordsWritten", 0),
    )
