"""Reads the events of a log into an `Application`: small records per task, and no event is retained."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.doctor.fields import error_line, number, settings, text
from penstock.doctor.records import Application, PlanNode, Query, Stage, TaskRow
from penstock.errors import DoctorError

if TYPE_CHECKING:
    from penstock.doctor.log_files import Event, LogFiles

_MAX_PLANS = 5000
"""The most finished queries whose plans are retained: those that took longest. A stream may run for weeks."""
_CANCELLED = re.compile("cancell?ed", re.IGNORECASE)
_NO_FAILURE = {"TaskKilled", "TaskCommitDenied"}
"""Reasons of tasks that end because another attempt was faster, or nobody needs them."""
_EXECUTION_ID = "spark.sql.execution.id"
_DAMAGES = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors of a damaged line, or of an event of another system."""
_METADATA = ("Location", "PushedFilters", "PartitionFilters", "Format")


class LogReader:
    """Applies events to an `Application`."""

    def __init__(self) -> None:
        self.application = Application()
        self._stages: dict[tuple[int, int], Stage] = {}
        self._query_of_stage: dict[int, int] = {}
        self._stages_of_metric: defaultdict[int, defaultdict[int, set[tuple[int, int]]]] = defaultdict(
            lambda: defaultdict(set)
        )
        self._finished: list[tuple[float, int]] = []  # a heap of queries with plans, the shortest first
        self._running: dict[int, tuple[tuple[int, int], float]] = {}
        self._executor_cores: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Event], None]] = {
            "SparkListenerLogStart": self._log_start,
            "SparkListenerApplicationStart": self._application_start,
            "SparkListenerApplicationEnd": self._application_end,
            "SparkListenerEnvironmentUpdate": self._environment,
            "SparkListenerExecutorAdded": self._executor_added,
            "SparkListenerExecutorRemoved": self._executor_removed,
            "SparkListenerJobStart": self._job_start,
            "SparkListenerStageSubmitted": self._stage,
            "SparkListenerStageCompleted": self._stage,
            "SparkListenerTaskStart": self._task_start,
            "SparkListenerTaskEnd": self._task_end,
            "SparkListenerSQLExecutionStart": self._query_start,
            "SparkListenerSQLAdaptiveExecutionUpdate": self._plan_update,
            "SparkListenerSQLExecutionEnd": self._query_end,
            "SparkListenerDriverAccumUpdates": self._driver_values,
        }

    @property
    def event_names(self) -> set[bytes]:
        """The names of the events that are read."""
        return {name.encode() for name in self._handlers}

    def apply(self, event: Event) -> None:
        """Apply an event; a field of an unexpected type raises an exception."""
        self._handlers[event["Event"].rpartition(".")[2]](event)

    def finish(self) -> Application:
        """Connect stages with the nodes that ran in them, and return the application."""
        application = self.application
        for query in application.queries.values():
            stages = self._stages_of_metric[query.id]
            for node in query.nodes:
                keys = {key for metric in node.metrics.values() for key in stages.get(metric, ())}
                for key in sorted(keys):
                    self._stages[key].nodes.append(node)
        if application.ended is None:
            for key, launch in self._running.values():
                if not self._stages[key].ended:
                    self._stages[key].running.append(launch)
        task_cpus = application.settings.get("spark.task.cpus", "1")
        cpus = max(int(task_cpus), 1) if task_cpus.isdecimal() else 1
        application.cores = [
            (time, max(cores // cpus, 1) if cores > 0 else -max(-cores // cpus, 1)) for time, cores in application.cores
        ]
        for stage in self._stages.values():
            stage.file_bytes = sum(application.value(node, "size of files read") for node in stage.nodes)
            stage.query = self._query_of_stage.get(stage.id)
        application.stages = sorted(self._stages.values(), key=lambda stage: (stage.id, stage.attempt))
        return application

    def _log_start(self, event: Event) -> None:
        self.application.spark_version = text(event.get("Spark Version", ""))

    def _application_start(self, event: Event) -> None:
        self.application.name = text(event.get("App Name", ""))
        self.application.id = text(event.get("App ID", ""))
        self.application.started = self._time(event["Timestamp"])

    def _application_end(self, event: Event) -> None:
        self.application.ended = self._time(event["Timestamp"])

    def _environment(self, event: Event) -> None:
        properties = event.get("Spark Properties", {})
        self.application.settings = settings(properties.items() if isinstance(properties, dict) else properties)

    def _executor_added(self, event: Event) -> None:
        cores = max(int(number(event["Executor Info"]["Total Cores"])), 1)
        self.application.cores.append((self._time(event["Timestamp"]), cores))
        self._executor_cores[event["Executor ID"]] = cores

    def _executor_removed(self, event: Event) -> None:
        time = self._time(event["Timestamp"])
        cores = self._executor_cores.pop(event["Executor ID"], 0)
        if cores:
            self.application.cores.append((time, -cores))

    def _job_start(self, event: Event) -> None:
        self._time(event["Submission Time"])
        execution = (event.get("Properties") or {}).get(_EXECUTION_ID)
        if execution is not None:
            for stage_id in event.get("Stage IDs") or ():
                self._query_of_stage.setdefault(int(stage_id), int(execution))

    def _stage(self, event: Event) -> None:
        info = event["Stage Info"]
        stage = self._stage_record(int(info["Stage ID"]), int(info["Stage Attempt ID"]))
        stage.name = text(info.get("Stage Name", ""))
        stage.task_count = int(info.get("Number of Tasks", 0))
        stage.started = self._time(info.get("Submission Time", 0)) or stage.started
        stage.ended = self._time(info.get("Completion Time", 0)) or stage.ended
        failure = error_line(info.get("Failure Reason") or "")
        stage.failure = "" if _CANCELLED.search(failure) else failure

    def _stage_record(self, stage_id: int, attempt: int) -> Stage:
        return self._stages.setdefault((stage_id, attempt), Stage(stage_id, attempt, ""))

    def _task_start(self, event: Event) -> None:
        key = int(event["Stage ID"]), int(event["Stage Attempt ID"])
        info = event["Task Info"]
        self._stage_record(*key)
        self._running[int(info["Task ID"])] = key, self._time(info["Launch Time"])

    def _task_end(self, event: Event) -> None:
        key = int(event["Stage ID"]), int(event["Stage Attempt ID"])
        stage = self._stage_record(*key)
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        self._running.pop(int(info.get("Task ID", -1)), None)
        reason = event.get("Task End Reason") or {}
        if reason.get("Reason") == "Resubmitted":
            return  # the successful attempt has been read; its partition runs again
        killed = bool(info.get("Killed")) or reason.get("Reason") in _NO_FAILURE
        failed = bool(info.get("Failed")) and not killed
        if failed and not stage.failed_reason:
            stage.failed_reason = error_line(reason.get("Description") or reason.get("Reason") or "")
        read, shuffle = metrics.get("Input Metrics") or {}, metrics.get("Shuffle Read Metrics") or {}
        stage.tasks.add(
            TaskRow(
                launch=self._time(info["Launch Time"]),
                finish=self._time(info["Finish Time"]),
                run=number(metrics.get("Executor Run Time")) / 1000,
                gc=number(metrics.get("JVM GC Time")) / 1000,
                input_bytes=number(read.get("Bytes Read")),
                shuffle_bytes=number(shuffle.get("Remote Bytes Read")) + number(shuffle.get("Local Bytes Read")),
                rows=number(read.get("Records Read")) + number(shuffle.get("Total Records Read")),
                spilled=number(metrics.get("Disk Bytes Spilled")),
                spilled_memory=number(metrics.get("Memory Bytes Spilled")),
                result_bytes=number(metrics.get("Result Size")),
                failed=failed,
                killed=killed,
                partition=number(info.get("Partition ID", info.get("Index"))),
            )
        )
        query = self._query_of_stage.get(key[0])
        if failed or killed or query is None:
            return
        for update in info.get("Accumulables") or ():
            if update.get("Metadata") == "sql":
                metric = int(update["ID"])
                self._stages_of_metric[query][metric].add(key)
                self._add_value(query, metric, update.get("Update"))

    def _query_start(self, event: Event) -> None:
        query_id, root = int(event["executionId"]), event.get("rootExecutionId")
        self.application.queries[query_id] = Query(
            query_id,
            description=text(event.get("description", "")),
            started=self._time(event["time"]),
            plan=_plan(event["sparkPlanInfo"], query_id),
            root=None if root is None else int(root),
            settings=settings((event.get("modifiedConfigs") or {}).items()),
        )

    def _plan_update(self, event: Event) -> None:
        query = self.application.queries.get(int(event["executionId"]))
        if query is not None:
            query.plan = _plan(event["sparkPlanInfo"], query.id)

    def _query_end(self, event: Event) -> None:
        query = self.application.queries.get(int(event["executionId"]))
        if query is not None:
            query.ended = self._time(event["time"])
            query.error = error_line(event.get("errorMessage") or "")
            heapq.heappush(self._finished, (query.ended - query.started, query.id))
            if len(self._finished) > _MAX_PLANS:
                self._drop_plan(heapq.heappop(self._finished)[1])

    def _drop_plan(self, query_id: int) -> None:
        query = self.application.queries[query_id]
        query.plan, query.settings = None, {}
        self.application.values.pop(query_id, None)
        self._stages_of_metric.pop(query_id, None)
        self.application.dropped_plans += 1

    def _driver_values(self, event: Event) -> None:
        for metric, value in event.get("accumUpdates") or ():
            self._add_value(int(event["executionId"]), int(metric), value)

    def _add_value(self, query: int, metric: int, value: object) -> None:
        """Add to an SQL metric of a query; a metric without a value is -1 or 0."""
        values = self.application.values.setdefault(query, {})
        values[metric] = values.get(metric, 0.0) + max(number(value), 0.0)

    def _time(self, milliseconds: Any) -> float:
        """Convert milliseconds to seconds, and record the time as that of the latest event."""
        seconds = number(milliseconds) / 1000
        self.application.last_event = max(self.application.last_event, seconds)
        return seconds


def _plan(info: dict[str, Any], query: int) -> PlanNode:
    """Convert the ``sparkPlanInfo`` of an event, without recursion: generated plans may be deep."""
    root = _plan_node(info, query)
    stack = [(root, info)]
    while stack:
        node, node_info = stack.pop()
        for child_info in node_info.get("children") or ():
            child = _plan_node(child_info, query)
            node.children.append(child)
            stack.append((child, child_info))
    return root


def _plan_node(info: dict[str, Any], query: int) -> PlanNode:
    metadata = info.get("metadata") or {}
    return PlanNode(
        text(info["nodeName"]),
        text(info.get("simpleString", "")),
        metrics={text(metric["name"]): int(metric["accumulatorId"]) for metric in info.get("metrics") or ()},
        metadata={key: text(metadata[key]) for key in _METADATA if key in metadata},
        query=query,
    )


def read_application(files: LogFiles, progress: Callable[[int], None] | None = None) -> Application:
    """Read a log; raise `DoctorError` if it is not an event log, or no task has ended."""
    reader = LogReader()
    for event in files.events(reader.event_names, progress):
        try:
            reader.apply(event)
        except _DAMAGES:
            files.damaged_lines += 1
    application = reader.finish()
    if not any(len(stage.tasks) for stage in application.stages):
        raise DoctorError.no_tasks(str(files.path), application.name)
    if not application.started:
        application.started = min(
            float(stage.tasks.column("launch").min()) for stage in application.stages if len(stage.tasks)
        )
    return application
