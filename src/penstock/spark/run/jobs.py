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

from penstock.base.threads import DaemonPool
from penstock.config import parse_size
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import LocalProperties, Session
from penstock.spark.bridge.jvm import Bridge, items, option
from penstock.spark.bridge.settings import is_true, read_settings, thread_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future


T = TypeVar("T")
log = logging.getLogger("penstock.spark")

_MEMORY = "spark.executor.memory"
_RETAINED_TASKS = 100_000
"""Tasks per stage that Spark's status store retains (``spark.ui.retainedTasks``)."""


def user_properties(bridge: Bridge) -> LocalProperties:
    """Return a copy of this thread's local properties: job tags, scheduler pool, values for Python functions."""
    return LocalProperties(bridge, bridge.spark.sparkContext._jsc.sc().getLocalProperties().clone())


@contextmanager
def vertex_thread(session: Session, properties: LocalProperties, group: str, description: str) -> Iterator[None]:
    """Make a session the active session of this thread, and name the Spark jobs that are started in the block.

    The active session and local properties belong to a JVM thread; PySpark pins each Python thread to a JVM thread. The
    jobs get the artifacts of the user's session, such as Python modules. The settings of the session also apply to
    tasks, for instance to parsers of dates.
    """
    bridge = session._bridge
    scala = bridge.spark.sparkContext._jsc.sc()
    before = scala.getLocalProperties()
    scala.setLocalProperties(thread_properties(session, properties, group, description))
    try:
        artifacts = bridge.helper("Artifacts").bind(bridge.session)
        try:
            with active_session(session):
                yield
        finally:
            bridge.helper("Artifacts").restore(artifacts)
    finally:
        scala.setLocalProperties(before)


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
    """Make the user's session active in a background thread, where Spark would compute with default settings."""
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
    """Wait until no task is running, or for a time in seconds: after a job has failed, its other tasks continue."""
    scheduler = bridge.spark.sparkContext._jsc.sc().taskScheduler()  # the status store is updated seconds later
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(items(scheduler.runningTasksByExecutors().values().toSeq())):
        time.sleep(0.05)


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
    return Application(bridge.application, bridge.spark.sparkContext.uiWebUrl)


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
    jobs = [job for job_id in tagged if (job := tracker.getJobInfo(job_id))]
    stages = []
    for stage_id in sorted({stage_id for job in jobs for stage_id in job.stageIds}):
        stage = tracker.getStageInfo(stage_id)
        if stage is not None and (stage.numCompletedTasks or stage.numFailedTasks):
            stages.append(StageRun(stage_id, stage.numTasks, stage.numCompletedTasks))
    return stages


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task that has ended."""

    stage: int
    attempt: int
    index: int
    """Spark's stage id, the attempt of the stage, and the task's index in the stage."""
    state: str
    host: str
    started: float
    """Start time, seconds since the epoch."""
    seconds: float
    bytes_in: int
    bytes_out: int
    """Bytes read from sources and shuffles, and written to shuffles and sinks."""
    rows_in: int
    rows_out: int
    """The same in rows."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Metrics of all tasks of a stage attempt together."""

    id: int
    attempt: int
    tasks: int
    bytes_in: int
    bytes_out: int
    rows_in: int
    rows_out: int
    """As in `TaskRun`."""
    spilled: int
    """Bytes that were spilled to disk."""
    seconds: float
    returned: int
    """Bytes that the tasks returned to the driver."""


def stage_figures(bridge: Bridge, stages: Sequence[StageRun]) -> list[StageFigures]:
    """Return the metrics of the last attempt of stages (``AppStatusStore.lastStageAttempt``)."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    return [_figures(store.lastStageAttempt(stage.id)) for stage in stages]


def running_stages(bridge: Bridge, group: str) -> list[tuple[StageRun, StageFigures]]:
    """Return the running stages of a job group or tag that have completed a task; empty if Spark cannot tell."""
    try:
        running = [stage for stage in stages_of(bridge, group) if 0 < stage.completed < stage.tasks]
        return list(zip(running, stage_figures(bridge, running), strict=True))
    except Exception:  # the job does not need them; not always a Py4JError after Spark was stopped
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
    """Return the tasks that ran in stages, at most a number of them; a call for each attempt after a lost executor."""
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
        tasks = tasks_of(bridge, stages_of(bridge, group), _RETAINED_TASKS)
    except Py4JJavaError:
        log.info("the tasks of %s are no longer available", group, exc_info=True)
        return True
    done = [(task.stage, task.index) for task in tasks if task.state == "SUCCESS"]
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


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The progress of the stages of a job group: ended tasks, and all tasks of the stages that have begun."""

    done: int
    total: int
    bytes_read: int
    rows_read: int


def task_counts(bridge: Bridge, groups: Sequence[str]) -> dict[str, TaskCounts]:
    """Return the progress of job groups in a single call; groups that have not begun are left out."""
    context = bridge.spark.sparkContext._jsc.sc()
    progress = answers.facts(bridge.helper("TaskCounts").of(context, list(groups)))
    return {group: TaskCounts(*figures) for group, figures in progress.items()}


def stop_spark_progress_bar(bridge: Bridge) -> None:
    """Stop Spark's own progress bar, as two programs cannot draw on the same lines of a terminal."""
    bar = option(bridge.spark.sparkContext._jsc.sc().progressBar())
    if bar is not None:
        bar.stop()
