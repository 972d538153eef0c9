"""Running Spark jobs under a name of their own, cancelling them, and asking what ran."""

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

_LOOK_AGAIN = 0.05
_MEMORY = "spark.executor.memory"
_RETAINED = 100_000
"""Tasks that Spark's status store keeps of a stage (``spark.ui.retainedTasks``)."""


def user_properties(bridge: Bridge) -> LocalProperties:
    """Return what this thread's Spark jobs are told besides their plans (``SparkContext.getLocalProperties``), copied.

    Tags, the scheduler's pool and what Python functions read by ``TaskContext.getLocalProperty`` are among it.
    """
    return LocalProperties(bridge, bridge.spark.sparkContext._jsc.sc().getLocalProperties().clone())


@contextmanager
def vertex_thread(session: Session, properties: LocalProperties, group: str, description: str) -> Iterator[None]:
    """Make a session the active one of this thread, and name the Spark jobs that are started in the block.

    Uses ``SparkSession.setActiveSession`` and local properties: both belong to a JVM thread, and PySpark ties each
    Python thread to one of its own. What the thread had before is put back.

    Parameters
    ----------
    session
        Its settings are those of the tasks, too: parsers of dates, for instance, read them there.
    properties
        What the user's thread tells its jobs, see `user_properties`.
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
    """Give the Spark jobs of this thread what was added to the user's session alone, such as Python modules.

    Uses ``ArtifactManager.withResources``, ``JobArtifactSet`` (Spark 4.0 to 4.3).
    """
    before = bridge.helper("Artifacts").bind(bridge.session)
    try:
        yield
    finally:
        bridge.helper("Artifacts").restore(before)


@contextmanager
def active_session(session: Session) -> Iterator[None]:
    """Make a session the active one of this thread: physical plans belong to the one in which they were made."""
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
    """Make the user's session the active one of a thread of ours.

    Where none is active, Spark resolves names, plans and computes by its defaults, not by the session's settings.
    """
    bridge.find("org.apache.spark.sql.classic.SparkSession").setActiveSession(bridge.session)


class SparkThreads(DaemonPool):
    """A pool of threads in which the user's session is the active one."""

    def __init__(self, limit: int, name: str, bridge: Bridge) -> None:
        super().__init__(limit, name)
        self._bridge = bridge

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Run a function on a thread of the pool; its result is in the future that is returned."""

        def in_session() -> T:
            activate(self._bridge)
            return fn(*args, **kwargs)

        return super().submit(in_session)


def cancel_group(bridge: Bridge, group: str, reason: str) -> None:
    """Cancel the Spark jobs of a group of ours, and those it would still start (``cancelJobGroupAndFutureJobs``).

    To Spark they may be in a job group of the user's, where only those that run are cancelled, by our tag.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    context.cancelJobGroupAndFutureJobs(group, reason)
    context.cancelJobsWithTag(group, reason)


def cancel_tag(bridge: Bridge, tag: str, reason: str) -> None:
    """Cancel the Spark jobs that have a tag."""
    bridge.spark.sparkContext._jsc.sc().cancelJobsWithTag(tag, reason)


def cancel_all_jobs() -> None:
    """Cancel every Spark job of this process, if it has a context."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.cancelAllJobs()


def wait_for_tasks(bridge: Bridge, seconds: float) -> None:
    """Wait until no task runs any more, at most so long: when a job fails, its other tasks go on for a while.

    Uses ``TaskSchedulerImpl.runningTasksByExecutors``; the status store learns of tasks seconds later.
    """
    scheduler = bridge.spark.sparkContext._jsc.sc().taskScheduler()
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(items(scheduler.runningTasksByExecutors().values().toSeq())):
        time.sleep(_LOOK_AGAIN)


def cluster_cores(bridge: Bridge) -> int:
    """Return how many tasks the cluster runs at a time now."""
    return int(bridge.spark.sparkContext.defaultParallelism)


def most_cores(bridge: Bridge) -> int:
    """Return how many tasks the cluster runs at a time with all executors that dynamic allocation may ask for."""
    return max(slots_to_come(read_settings(bridge.session, "spark.")) or 0, cluster_cores(bridge))


def slots_to_come(conf: Mapping[str, str]) -> int | None:
    """Return the slots of all executors that dynamic allocation may ask for, None where settings do not say.

    Parameters
    ----------
    conf
        The settings of the application.
    """
    most, cores = conf.get("spark.dynamicAllocation.maxExecutors"), conf.get("spark.executor.cores")
    is_dynamic = is_true(conf.get("spark.dynamicAllocation.enabled"))
    if not is_dynamic or cores is None or most is None or not most.isdecimal():  # it may be "infinity"
        return None
    return int(most) * (int(cores) // int(conf.get("spark.task.cpus", "1")))


@dataclass(frozen=True, slots=True)
class Application:
    """The Spark application that a job runs in.

    Parameters
    ----------
    id
        Its id, by which Spark's history server knows it.
    page
        The address of its pages while it runs, None where it has none.
    """

    id: str
    page: str | None


def application(bridge: Bridge) -> Application:
    """Return the application of a session."""
    context = bridge.spark.sparkContext
    return Application(str(context.applicationId), context.uiWebUrl)


def is_local(bridge: Bridge) -> bool:
    """Whether tasks run in the driver's process."""
    master = str(bridge.spark.sparkContext.master)
    return master.startswith("local") and "cluster" not in master


def heap_bytes(bridge: Bridge) -> tuple[int, int]:
    """Return the largest heap of the driver and of an executor."""
    driver = int(bridge.find("java.lang.Runtime").getRuntime().maxMemory())
    if is_local(bridge):
        return driver, driver
    return driver, parse_size(read_settings(bridge.session, _MEMORY).get(_MEMORY, "1g"))


def executor_count(bridge: Bridge) -> int:
    """Return how many executors run tasks now."""
    return max(len(executors_of(bridge)) - 1, 1)


def executors_of(bridge: Bridge) -> set[str]:
    """Return the addresses of the executors that live now, and of the driver."""
    return set(str(bridge.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split())


@dataclass(frozen=True, slots=True)
class StageRun:
    """A finished, running or skipped stage of Spark.

    Parameters
    ----------
    id
        Spark's stage id.
    tasks, completed
        Tasks planned and completed.
    """

    id: int
    tasks: int
    completed: int


def stages_of(bridge: Bridge, group: str) -> list[StageRun]:
    """Return the stages that ran in a job group, as Spark's status tracker tells."""
    tracker = bridge.spark.sparkContext.statusTracker()
    tagged = bridge.spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(group)
    found: dict[int, StageRun] = {}
    for job_id in sorted(tagged):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None and (stage.numCompletedTasks or stage.numFailedTasks):
                found[stage_id] = StageRun(stage_id, stage.numTasks, stage.numCompletedTasks)
    return [found[stage_id] for stage_id in sorted(found)]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task that has ended.

    Parameters
    ----------
    stage, attempt, index
        Spark's stage id, which run of the stage it was part of, and the task's place in the stage.
    state
        What became of it, such as ``SUCCESS``.
    host
        Where it ran.
    started
        Seconds since the epoch.
    seconds
        How long it took.
    bytes_in, bytes_out
        What it read from sources and shuffles, and wrote to shuffles and sinks.
    rows_in, rows_out
        The same as rows.
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
    """What all tasks of a stage did together, in its last run.

    Parameters
    ----------
    id
        Spark's stage id.
    attempt
        Which run of the stage it was, from 0.
    tasks
        The tasks that ended well.
    bytes_in, bytes_out, rows_in, rows_out
        As in `TaskRun`.
    spilled
        Bytes that did not fit into memory, as they were written to disk.
    seconds
        How long its tasks ran, added up.
    returned
        Bytes that its tasks gave to the driver.
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


def figures_of(bridge: Bridge, stages: Sequence[StageRun]) -> list[StageFigures]:
    """Return what stages did, as Spark's status store tells (``AppStatusStore.lastStageAttempt``)."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    return [_figures(store.lastStageAttempt(stage.id)) for stage in stages]


def running_stages(bridge: Bridge, group: str) -> list[tuple[StageRun, StageFigures]]:
    """Return the stages of a job group, or of a tag, that run and of which a task has ended; none if Spark cannot tell.

    What a job does while it runs helps to decide; no job should fail for want of it.
    """
    try:
        running = [one for one in stages_of(bridge, group) if 0 < one.completed < one.tasks]
        return list(zip(running, figures_of(bridge, running), strict=True))
    except Exception:  # no Py4JError where Spark has been stopped meanwhile
        log.info("the stages of %s cannot be looked at", group, exc_info=True)
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
    """Return the tasks that ran in stages, as Spark's status store tells; one call for each run of a stage.

    A stage runs again if an executor is lost with what the stage had written.
    """
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    mapper = bridge.find("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.registerModule(bridge.find("com.fasterxml.jackson.module.scala.DefaultScalaModule")())
    found: list[TaskRun] = []
    for stage in stages:
        for attempt in range(store.lastStageAttempt(stage.id).attemptId() + 1):
            if len(found) >= at_most:
                return found
            text = mapper.writeValueAsString(store.taskList(stage.id, attempt, at_most - len(found)))
            found += [_task_run(stage.id, attempt, task) for task in json.loads(str(text))]
    return found


def has_repeated_tasks(bridge: Bridge) -> bool:
    """Return whether a task of this thread's job group ran again after it had succeeded: what it wrote was lost.

    True also where Spark does not know a stage any more (``spark.ui.retainedStages``): then it may have.
    """
    group = bridge.spark.sparkContext.getLocalProperty("penstock.inside") or ""
    try:
        done = [
            (task.stage, task.index)
            for task in tasks_of(bridge, stages_of(bridge, group), _RETAINED)
            if task.state == "SUCCESS"
        ]
    except Py4JJavaError:
        log.info("the tasks of %s are not known any more", group, exc_info=True)
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
