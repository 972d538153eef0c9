"""Runs Spark jobs in separate job groups, cancels jobs, and reads their metrics."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from penstock.base.threads import DaemonPool, start_thread
from penstock.config import parse_size
from penstock.errors import JobCancelledError
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import LocalProperties, Session
from penstock.spark.bridge.jvm import Bridge, items, option
from penstock.spark.bridge.settings import is_true, read_settings, thread_properties

T = TypeVar("T")
log = logging.getLogger("penstock.spark")

_CANCELLABLE: dict[str, list[Callable[[], None]]] = {}
"""The functions that cancel work outside of Spark, by the tag of its vertex."""
_CANCELLED: deque[str] = deque(maxlen=1000)
"""The tags of the vertices that were cancelled last: a vertex may start such work afterwards."""
_CANCELLABLE_LOCK = threading.Lock()
_MEMORY = "spark.executor.memory"
_RETAINED_TASKS = 100_000
"""Number of tasks of a stage that Spark's status store retains by default (``spark.ui.retainedTasks``)."""


def user_properties(bridge: Bridge) -> LocalProperties:
    """Return a copy of this thread's local properties, such as job tags, scheduler pool, and user-defined ones."""
    return LocalProperties(bridge, bridge.spark.sparkContext._jsc.sc().getLocalProperties().clone())


@contextmanager
def vertex_thread(session: Session, properties: LocalProperties, group: str, description: str) -> Iterator[None]:
    """Make a session the active session of this thread, and set the group and tag of the Spark jobs of the block.

    `properties` are those of the user's thread; if they have a job group, it stays, and `group` is only the tag. The
    active session and local properties belong to a JVM thread; PySpark pins each Python thread to a JVM thread. The
    jobs get the artifacts of the user's session, such as Python modules. The settings of the session also apply to
    tasks, for instance to parsers of dates.
    """
    bridge = session._bridge
    context = bridge.spark.sparkContext._jsc.sc()
    previous_properties = context.getLocalProperties()
    context.setLocalProperties(thread_properties(session, properties, group, description))
    try:
        previous_artifacts = bridge.helper("Artifacts").bind(bridge.session)
        try:
            with active_session(session):
                yield
        finally:
            bridge.helper("Artifacts").restore(previous_artifacts)
    finally:
        context.setLocalProperties(previous_properties)


@contextmanager
def active_session(session: Session) -> Iterator[None]:
    """Make a session the active session of this thread in the block, as Spark plans queries with the active session."""
    sessions = session._bridge.find("org.apache.spark.sql.classic.SparkSession")
    previous = sessions.getActiveSession()
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        if previous.isDefined():
            sessions.setActiveSession(previous.get())
        else:
            sessions.clearActiveSession()


def activate(bridge: Bridge) -> None:
    """Make the user's session active in a background thread; without an active session, Spark uses default settings."""
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
    """Cancel the Spark jobs of a vertex, including future jobs (``cancelJobGroupAndFutureJobs``), and its other work.

    `group` is their tag, and their job group unless the user has set another; then only running jobs are cancelled.
    """
    with _CANCELLABLE_LOCK:
        _CANCELLED.append(group)
        for cancel in _CANCELLABLE.get(group, ()):
            cancel()
    context = bridge.spark.sparkContext._jsc.sc()
    context.cancelJobGroupAndFutureJobs(group, reason)
    context.cancelJobsWithTag(group, reason)


@contextmanager
def cancellable(bridge: Bridge, cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` if the vertex of this thread is cancelled during the block, which then raises.

    For work that is not a Spark job. Raise `JobCancelledError` if the vertex was cancelled, before or during the block.
    """
    tag = _vertex_tag(bridge)
    with _CANCELLABLE_LOCK:
        _raise_if_cancelled(tag)
        _CANCELLABLE.setdefault(tag, []).append(cancel)
    try:
        yield
    except Exception:
        _raise_if_cancelled(tag)
        raise
    finally:
        with _CANCELLABLE_LOCK:
            _CANCELLABLE[tag].remove(cancel)
            if not _CANCELLABLE[tag]:
                del _CANCELLABLE[tag]


def _raise_if_cancelled(tag: str) -> None:
    if tag and tag in _CANCELLED:
        raise JobCancelledError("the step was cancelled") from None


def _vertex_tag(bridge: Bridge) -> str:
    """Return the tag of this thread's Spark jobs, empty outside of a vertex."""
    return bridge.spark.sparkContext.getLocalProperty("penstock.inside") or ""  # see `SessionSettings.java`


def cancel_tag(bridge: Bridge, tag: str, reason: str) -> None:
    """Cancel the Spark jobs with a tag."""
    bridge.spark.sparkContext._jsc.sc().cancelJobsWithTag(tag, reason)


def cancel_all_jobs() -> None:
    """Cancel all Spark jobs of this process, if it has a context."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.cancelAllJobs()


def set_log_level(level: str) -> str | None:
    """Set the level of Spark's log in the driver of this process; return the level before, None without a context."""
    context = SparkContext._active_spark_context
    if context is None:
        return None
    before = str(context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString())  # type: ignore[union-attr]
    context.setLogLevel(level)
    return before


def wait_for_tasks(bridge: Bridge, seconds: float) -> None:
    """Wait at most `seconds` until no task is running, as other tasks of a failed job may still run."""
    scheduler = bridge.spark.sparkContext._jsc.sc().taskScheduler()  # the status store is updated seconds later
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(items(scheduler.runningTasksByExecutors().values().toSeq())):
        time.sleep(0.05)


def cluster_cores(bridge: Bridge) -> int:
    """Return Spark's default parallelism: the current total of cores, unless ``spark.default.parallelism`` is set."""
    return int(bridge.spark.sparkContext.defaultParallelism)


def max_cores(bridge: Bridge) -> int:
    """Return the task slots of all executors that dynamic allocation may request; at least the default parallelism."""
    return max(max_dynamic_slots(read_settings(bridge.session, "spark.")) or 0, cluster_cores(bridge))


def max_dynamic_slots(conf: Mapping[str, str]) -> int | None:
    """Return the task slots of all executors that dynamic allocation may request; None if off, unlimited or unknown."""
    executors, cores = conf.get("spark.dynamicAllocation.maxExecutors"), conf.get("spark.executor.cores")
    is_dynamic = is_true(conf.get("spark.dynamicAllocation.enabled"))
    if not is_dynamic or cores is None or executors is None or not executors.isdecimal():  # may be "infinity"
        return None
    return int(executors) * (int(cores) // int(conf.get("spark.task.cpus", "1")))


@dataclass(frozen=True, slots=True)
class Application:
    """A Spark application, and the address of its UI; None without UI."""

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
    """Return the current number of executors, at least 1; 1 if tasks run in the driver."""
    return 1 if is_local(bridge) else max(len(executor_addresses(bridge)) - 1, 1)


def executor_addresses(bridge: Bridge) -> set[str]:
    """Return the addresses of the running executors, and of the driver."""
    return set(str(bridge.spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keySet().mkString(" ")).split())


@dataclass(frozen=True, slots=True)
class StageRun:
    """A Spark stage in which a task has ended, with its numbers of tasks and of completed tasks."""

    id: int
    tasks: int
    completed: int


def stages_of(bridge: Bridge, tag: str) -> list[StageRun]:
    """Return the stages of the jobs with a tag in which at least a task has ended (``SparkStatusTracker``)."""
    tracker = bridge.spark.sparkContext.statusTracker()
    tagged = bridge.spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(tag)
    jobs = [job for job_id in tagged if (job := tracker.getJobInfo(job_id))]
    stages = []
    for stage_id in sorted({stage_id for job in jobs for stage_id in job.stageIds}):
        stage = tracker.getStageInfo(stage_id)
        if stage is not None and (stage.numCompletedTasks or stage.numFailedTasks):
            stages.append(StageRun(stage_id, stage.numTasks, stage.numCompletedTasks))
    return stages


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task attempt that has ended, or that runs."""

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
    """Bytes read from sources and shuffles, and bytes written to shuffles and sinks."""
    rows_in: int
    rows_out: int
    """Rows read and written."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Metrics of a stage attempt, summed over its tasks; `tasks` is the number of completed tasks."""

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
    """Run time of the tasks, and bytes that they returned to the driver."""
    cpu_seconds: float = 0.0
    gc_seconds: float = 0.0
    fetch_seconds: float = 0.0
    """CPU time of the tasks' threads, garbage collection in their JVMs meanwhile, and waits for shuffled data."""


def stage_figures(bridge: Bridge, stages: Sequence[StageRun]) -> list[StageFigures]:
    """Return the metrics of the last attempt of stages (``AppStatusStore.lastStageAttempt``)."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    return [_figures(store.lastStageAttempt(stage.id)) for stage in stages]


def running_stages(bridge: Bridge, tag: str) -> list[tuple[StageRun, StageFigures]]:
    """Return the running stages of a tag's jobs that have completed a task, and their metrics; empty if unreadable."""
    try:
        running = [stage for stage in stages_of(bridge, tag) if 0 < stage.completed < stage.tasks]
        return list(zip(running, stage_figures(bridge, running), strict=True))
    except Exception:  # the figures are optional; after Spark was stopped, the error may be of any class
        log.info("the stages of %s cannot be read", tag, exc_info=True)
        return []


_WATCH_SECONDS = 1.0
"""Seconds between two checks of a `JobWatch`; a short job ends before the first check."""


class JobWatch:
    """Monitors the Spark jobs with a tag, and cancels them if one of their stages is too large.

    `is_too_large` gets a running stage and its metrics. `has_cancelled` says whether the jobs were cancelled.
    """

    def __init__(self, bridge: Bridge, is_too_large: Callable[[StageRun, StageFigures], bool]) -> None:
        self.has_cancelled = False
        self._bridge = bridge
        self._is_too_large = is_too_large

    @contextmanager
    def monitor_jobs(self, tag: str) -> Iterator[None]:
        """Monitor the jobs with a tag while the block runs."""
        ended = threading.Event()

        def check_stages() -> None:
            try:
                while not self.has_cancelled and not ended.wait(_WATCH_SECONDS):
                    if any(self._is_too_large(*stage) for stage in running_stages(self._bridge, tag)):
                        cancel_tag(self._bridge, tag, "it has grown too large")
                        self.has_cancelled = True
            except Exception:  # the job continues unmonitored
                log.info("the jobs of %s cannot be monitored", tag, exc_info=True)

        thread = start_thread(f"{threading.current_thread().name}-watch", check_stages)
        try:
            yield
        finally:
            ended.set()
            thread.join()


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
        stage.executorCpuTime() / 1e9,
        stage.jvmGcTime() / 1000,
        stage.shuffleFetchWaitTime() / 1000,
    )


def tasks_of(bridge: Bridge, stages: Sequence[StageRun], max_tasks: int) -> list[TaskRun]:
    """Return the tasks of all attempts of stages, at most `max_tasks`."""
    store = bridge.spark.sparkContext._jsc.sc().statusStore()
    mapper = bridge.find("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.registerModule(bridge.find("com.fasterxml.jackson.module.scala.DefaultScalaModule")())
    runs: list[TaskRun] = []
    for stage in stages:
        for attempt in range(store.lastStageAttempt(stage.id).attemptId() + 1):
            if len(runs) >= max_tasks:
                return runs
            text = mapper.writeValueAsString(store.taskList(stage.id, attempt, max_tasks - len(runs)))
            runs += [_task_run(stage.id, attempt, task) for task in json.loads(str(text))]
    return runs


def has_rerun_tasks(bridge: Bridge) -> bool:
    """Whether Spark has rerun a successful task of this thread's jobs, because its output was lost.

    Also True if Spark drops a stage (``spark.ui.retainedStages``) while this function runs; earlier drops are missed.
    """
    tag = _vertex_tag(bridge)
    try:
        tasks = tasks_of(bridge, stages_of(bridge, tag), _RETAINED_TASKS)
    except Py4JJavaError:
        log.info("the tasks of %s are no longer available", tag, exc_info=True)
        return True
    successful = [(task.stage, task.index) for task in tasks if task.state == "SUCCESS"]
    return len(successful) > len(set(successful))


def _task_run(stage: int, attempt: int, task: dict[str, Any]) -> TaskRun:
    metrics = task.get("taskMetrics") or {}
    source, sink = metrics.get("inputMetrics") or {}, metrics.get("outputMetrics") or {}
    shuffle_read, shuffle_write = metrics.get("shuffleReadMetrics") or {}, metrics.get("shuffleWriteMetrics") or {}
    return TaskRun(
        stage,
        attempt,
        task["index"],
        task["status"],
        task["host"],
        task["launchTime"] / 1000,
        (task["duration"] or 0) / 1000,
        source.get("bytesRead", 0) + shuffle_read.get("remoteBytesRead", 0) + shuffle_read.get("localBytesRead", 0),
        sink.get("bytesWritten", 0) + shuffle_write.get("bytesWritten", 0),
        source.get("recordsRead", 0) + shuffle_read.get("recordsRead", 0),
        sink.get("recordsWritten", 0) + shuffle_write.get("recordsWritten", 0),
    )


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The progress of the jobs with a tag: completed tasks, and all tasks of the stages that have started."""

    done: int
    total: int
    bytes_read: int
    rows_read: int


def task_counts(bridge: Bridge, tags: Sequence[str]) -> dict[str, TaskCounts]:
    """Return the progress by tag, in a single call; a tag whose jobs have not started is missing."""
    context = bridge.spark.sparkContext._jsc.sc()
    progress = answers.facts(bridge.helper("TaskCounts").of(context, list(tags)))
    return {tag: TaskCounts(*figures) for tag, figures in progress.items()}


def stop_spark_progress_bar(bridge: Bridge) -> None:
    """Stop Spark's own progress bar, which would overwrite Penstock's lines in the terminal."""
    bar = option(bridge.spark.sparkContext._jsc.sc().progressBar())
    if bar is not None:
        bar.stop()
