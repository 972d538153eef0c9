"""Reads the events of a log into an `Application`: small records per task, and no event is retained."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.base.masking import mask
from penstock.doctor.records import Application, PlanNode, Query, Stage, TaskRow
from penstock.errors import DoctorError

if TYPE_CHECKING:
    from penstock.doctor.log_files import Event, LogFiles

_MAX_TEXT = 2000
"""The most characters of the text of a plan node that are retained."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b.*:")
"""The line of a Python traceback that has the error."""
_EXECUTION_ID = "spark.sql.execution.id"
_METADATA = ("Location", "PushedFilters", "PartitionFilters", "Format")


class LogReader:
    """Applies events to an `Application`."""

    def __init__(self) -> None:
        self.application = Application()
        self._stages: dict[tuple[int, int], Stage] = {}
        self._query_of_stage: dict[int, int] = {}
        self._stages_of_metric: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
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
            for node in query.nodes:
                keys = {key for metric in node.metrics.values() for key in self._stages_of_metric.get(metric, ())}
                for key in sorted(keys):
                    self._stages[key].nodes.append(node)
        for stage in self._stages.values():
            stage.file_bytes = sum(application.value(node, "size of files read") for node in stage.nodes)
            stage.query = self._query_of_stage.get(stage.id)
        application.stages = sorted(self._stages.values(), key=lambda stage: (stage.id, stage.attempt))
        return application

    def _log_start(self, event: Event) -> None:
        self.application.spark_version = str(event.get("Spark Version", ""))

    def _application_start(self, event: Event) -> None:
        self.application.name = mask(str(event.get("App Name", "")))
        self.application.id = str(event.get("App ID", ""))
        self.application.started = self._time(event["Timestamp"])

    def _application_end(self, event: Event) -> None:
        self.application.ended = self._time(event["Timestamp"])

    def _environment(self, event: Event) -> None:
        properties = event.get("Spark Properties", {})
        pairs = properties.items() if isinstance(properties, dict) else properties
        self.application.settings = {str(key): str(value) for key, value in pairs}

    def _executor_added(self, event: Event) -> None:
        cores = int(event["Executor Info"]["Total Cores"])
        task_cpus = int(self.application.settings.get("spark.task.cpus", "1"))
        slots = max(cores // max(task_cpus, 1), 1)
        self._executor_cores[event["Executor ID"]] = slots
        self.application.cores.append((self._time(event["Timestamp"]), slots))

    def _executor_removed(self, event: Event) -> None:
        slots = self._executor_cores.pop(event["Executor ID"], 0)
        self.application.cores.append((self._time(event["Timestamp"]), -slots))

    def _job_start(self, event: Event) -> None:
        self._time(event["Submission Time"])
        execution = (event.get("Properties") or {}).get(_EXECUTION_ID)
        if execution is not None:
            for stage_id in event.get("Stage IDs", []):
                self._query_of_stage.setdefault(int(stage_id), int(execution))

    def _stage(self, event: Event) -> None:
        info = event["Stage Info"]
        stage = self._stage_record(int(info["Stage ID"]), int(info["Stage Attempt ID"]))
        stage.name = str(info.get("Stage Name", ""))
        stage.task_count = int(info.get("Number of Tasks", 0))
        stage.started = self._time(info.get("Submission Time", 0)) or stage.started
        stage.ended = self._time(info.get("Completion Time", 0)) or stage.ended
        stage.failure = _error_line(info.get("Failure Reason", ""))

    def _stage_record(self, stage_id: int, attempt: int) -> Stage:
        return self._stages.setdefault((stage_id, attempt), Stage(stage_id, attempt, ""))

    def _task_end(self, event: Event) -> None:
        key = int(event["Stage ID"]), int(event["Stage Attempt ID"])
        stage = self._stage_record(*key)
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        reason = event.get("Task End Reason") or {}
        failed = bool(info.get("Failed")) or bool(info.get("Killed"))
        if info.get("Failed") and not stage.failed_reason:
            stage.failed_reason = _error_line(reason.get("Description") or reason.get("Reason") or "")
        read, shuffle = metrics.get("Input Metrics") or {}, metrics.get("Shuffle Read Metrics") or {}
        stage.tasks.add(
            TaskRow(
                launch=self._time(info["Launch Time"]),
                finish=self._time(info["Finish Time"]),
                run=metrics.get("Executor Run Time", 0) / 1000,
                gc=metrics.get("JVM GC Time", 0) / 1000,
                input_bytes=read.get("Bytes Read", 0),
                shuffle_bytes=shuffle.get("Remote Bytes Read", 0) + shuffle.get("Local Bytes Read", 0),
                rows=read.get("Records Read", 0) + shuffle.get("Total Records Read", 0),
                spilled=metrics.get("Disk Bytes Spilled", 0),
                spilled_memory=metrics.get("Memory Bytes Spilled", 0),
                result_bytes=metrics.get("Result Size", 0),
                failed=failed,
            )
        )
        if failed:
            return
        values = self.application.values
        for update in info.get("Accumulables", ()):
            if update.get("Metadata") == "sql":
                metric = int(update["ID"])
                self._stages_of_metric[metric].add(key)
                # A metric without a value is -1 or 0.
                values[metric] = values.get(metric, 0.0) + max(float(update.get("Update") or 0), 0.0)

    def _query_start(self, event: Event) -> None:
        query_id, root = int(event["executionId"]), event.get("rootExecutionId")
        self.application.queries[query_id] = Query(
            query_id,
            description=mask(str(event.get("description", ""))),
            started=self._time(event["time"]),
            plan=_plan(event["sparkPlanInfo"]),
            root=None if root is None else int(root),
        )

    def _plan_update(self, event: Event) -> None:
        query = self.application.queries.get(int(event["executionId"]))
        if query is not None:
            query.plan = _plan(event["sparkPlanInfo"])

    def _query_end(self, event: Event) -> None:
        query = self.application.queries.get(int(event["executionId"]))
        if query is not None:
            query.ended = self._time(event["time"])
            query.error = _error_line(event.get("errorMessage") or "")

    def _driver_values(self, event: Event) -> None:
        for metric, value in event.get("accumUpdates", ()):
            self.application.values[int(metric)] = self.application.values.get(int(metric), 0.0) + max(
                float(value), 0.0
            )

    def _time(self, milliseconds: Any) -> float:
        """Convert milliseconds to seconds, and record the time as that of the latest event."""
        seconds = float(milliseconds or 0) / 1000
        self.application.last_event = max(self.application.last_event, seconds)
        return seconds


def _plan(info: dict[str, Any]) -> PlanNode:
    """Convert the ``sparkPlanInfo`` of an event, without recursion: generated plans may be deep."""
    root = _plan_node(info)
    stack = [(root, info)]
    while stack:
        node, node_info = stack.pop()
        for child_info in node_info.get("children", ()):
            child = _plan_node(child_info)
            node.children.append(child)
            stack.append((child, child_info))
    return root


def _plan_node(info: dict[str, Any]) -> PlanNode:
    metadata = info.get("metadata") or {}
    return PlanNode(
        str(info["nodeName"]),
        mask(str(info.get("simpleString", ""))[:_MAX_TEXT]),
        metrics={str(metric["name"]): int(metric["accumulatorId"]) for metric in info.get("metrics", ())},
        metadata={key: mask(str(metadata[key])[:_MAX_TEXT]) for key in _METADATA if key in metadata},
    )


def _error_line(text: object) -> str:
    """Return the line of an error message or traceback that says most: the last with an error, else the first."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    error = next((line for line in reversed(lines) if _ERROR.match(line)), lines[0] if lines else "")
    return mask(error[:300])


def read_application(files: LogFiles, progress: Callable[[int], None] | None = None) -> Application:
    """Read a log; raise `DoctorError` if it is not an event log, or no task has ended."""
    reader = LogReader()
    for event in files.events(reader.event_names, progress):
        try:
            reader.apply(event)
        except (KeyError, TypeError, ValueError, AttributeError):  # a damaged line, or an event of another system
            files.damaged_lines += 1
    application = reader.finish()
    if not any(len(stage.tasks) for stage in application.stages):
        raise DoctorError.no_tasks(str(files.path), application.name)
    if not application.started:
        application.started = min(
            float(stage.tasks.column("launch").min()) for stage in application.stages if len(stage.tasks)
        )
    return application
