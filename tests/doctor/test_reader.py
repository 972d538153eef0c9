"""Events of a log become records: tasks, stages, plans and metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.diagnosis import diagnose
from penstock.doctor.log_files import LogFiles
from penstock.doctor.reader import read_application
from penstock.doctor.records import Application
from penstock.doctor.timeline import Timeline
from penstock.errors import DoctorError

SQL = "org.apache.spark.sql.execution.ui."


def task_end(stage: int, launch: int, finish: int, *updates: Any, **info: Any) -> dict[str, Any]:
    accumulables = [{"ID": number, "Update": update, "Metadata": "sql"} for number, update in updates]
    accumulables.append({"ID": 99, "Update": ["a list"], "Internal": True})
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Stage Attempt ID": 0,
        "Task End Reason": info.pop("reason", {"Reason": "Success"}),
        "Task Info": {"Launch Time": launch, "Finish Time": finish, "Accumulables": accumulables, **info},
        "Task Metrics": {
            "Executor Run Time": finish - launch,
            "JVM GC Time": 7,
            "Disk Bytes Spilled": 3,
            "Input Metrics": {"Bytes Read": 100, "Records Read": 10},
            "Shuffle Read Metrics": {"Remote Bytes Read": 20, "Local Bytes Read": 4, "Total Records Read": 5},
        },
    }


def plan(name: str, metric: int, *children: Any, **metadata: str) -> dict[str, Any]:
    metrics = [{"name": "number of output rows", "accumulatorId": metric, "metricType": "sum"}]
    return {
        "nodeName": name,
        "simpleString": f"{name} password=secret1",
        "children": list(children),
        "metrics": metrics,
        "metadata": metadata,
    }


def stage_completed(stage: int, **info: Any) -> dict[str, Any]:
    values = {"Stage ID": stage, "Stage Attempt ID": 0, "Stage Name": "count at a/b/job.py:7", "Number of Tasks": 1}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": values | info}


EVENTS: list[dict[str, Any]] = [
    {"Event": "SparkListenerLogStart", "Spark Version": "3.5.1"},
    {"Event": "SparkListenerExecutorAdded", "Timestamp": 900, "Executor ID": "1", "Executor Info": {"Total Cores": 2}},
    {"Event": "SparkListenerExecutorAdded", "Timestamp": 900, "Executor ID": "2", "Executor Info": {"Total Cores": 2}},
    {"Event": "SparkListenerApplicationStart", "App Name": "orders", "App ID": "app-1", "Timestamp": 1000},
    {
        "Event": f"{SQL}SparkListenerSQLExecutionStart",
        "executionId": 3,
        "description": "count at a/b/job.py:7",
        "time": 1100,
        "sparkPlanInfo": plan("AdaptiveSparkPlan", 1),
    },
    {
        "Event": "SparkListenerJobStart",
        "Job ID": 0,
        "Submission Time": 1200,
        "Stage IDs": [0, 1],
        "Properties": {"spark.sql.execution.id": "3"},
    },
    task_end(0, 2000, 4000, (5, "40"), (6, "-1")),
    task_end(0, 2000, 3000, (5, "2")),
    task_end(
        0,
        2000,
        3000,
        (5, "100"),
        Failed=True,
        reason={"Reason": "ExceptionFailure", "Description": "first\nOSError: full\n"},
    ),
    stage_completed(0),
    {
        "Event": f"{SQL}SparkListenerSQLAdaptiveExecutionUpdate",
        "executionId": 3,
        "sparkPlanInfo": plan("HashAggregate", 6, plan("Scan parquet", 5, Location="file:/data")),
    },
    {"Event": f"{SQL}SparkListenerDriverAccumUpdates", "executionId": 3, "accumUpdates": [[8, 12]]},
    {"Event": "SparkListenerExecutorRemoved", "Timestamp": 5000, "Executor ID": "2"},
    task_end(1, 5000, 6000, (6, 1)),
    stage_completed(1),
    {"Event": f"{SQL}SparkListenerSQLExecutionEnd", "executionId": 3, "time": 7000},
    {"Event": "SparkListenerApplicationEnd", "Timestamp": 8000},
]


def log(folder: Path, events: Any = EVENTS) -> Path:
    path = folder / "app-1"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return path


def application(folder: Path, events: Any = EVENTS) -> Application:
    return read_application(LogFiles(log(folder, events)))


def test_records(tmp_path: Path) -> None:
    app = application(tmp_path)
    assert (app.name, app.id, app.spark_version, app.seconds) == ("orders", "app-1", "3.5.1", 7.0)
    first, second = app.stages
    assert (first.name, first.query, second.query) == ("count at a/b/job.py:7", 3, 3)
    assert first.tasks.seconds.tolist() == [2.0, 1.0]
    assert first.tasks.bytes.tolist() == [124.0, 124.0]
    assert (first.bytes_in, second.tasks.ok("rows").tolist()) == (248, [15.0])
    assert first.failed_reason == "OSError: full"
    assert app.values == {3: {5: 42.0, 6: 1.0, 8: 12.0}}
    assert [node.name for node in first.nodes] == ["HashAggregate", "Scan parquet"]
    assert [node.name for node in second.nodes] == ["HashAggregate"]
    assert app.where(3) == "count at job.py:7"
    plan_of_query = app.queries[3].plan
    assert plan_of_query is not None
    assert plan_of_query.children[0].metadata == {"Location": "file:/data"}
    assert "secret1" not in plan_of_query.text


def test_timeline(tmp_path: Path) -> None:
    timeline = Timeline.of(application(tmp_path))
    assert (timeline.cores, timeline.first_task, timeline.task_seconds()) == (4, 2.0, 3.0)
    assert timeline.idle_seconds(2.0, 3.0) == 0.25  # three of four cores are busy
    assert timeline.idle_seconds(3.0, 4.0) == 0.75
    assert timeline.idle_seconds(5.0, 6.0) == 0.5  # an executor with two cores was removed
    assert timeline.gaps(2.0, 7.0) == [(4.0, 5.0), (6.0, 7.0)]
    assert timeline.gaps(0.0, 2.5) == [(0.0, 2.0)]


@pytest.mark.parametrize(
    ("description", "name", "expected"),
    [
        ("collect at /jobs/orders.py:12", "", "collect at orders.py:12"),
        ("collect at C:\\jobs\\orders.py:12", "", "collect at orders.py:12"),
        ("save at NativeMethodAccessorImpl.java:0", "save at NativeMethodAccessorImpl.java:0", "query 3 (save)"),
        ("count at NativeMethodAccessorImpl.java:0", "count at orders.py:9", "count at orders.py:9"),
        ("load of the night", "", "load of the night"),
    ],
)
def test_the_line_of_the_user(tmp_path: Path, description: str, name: str, expected: str) -> None:
    app = application(tmp_path)
    app.queries[3].description = description
    assert app.where(3, name) == expected


def test_a_running_application(tmp_path: Path) -> None:
    path = log(tmp_path, EVENTS[:7])
    path.write_text(path.read_text() + '{"Event":"SparkListenerTaskEnd","Stage')
    facts = diagnose(path).facts
    assert (facts.seconds, facts.tasks) == (3.0, 1)
    assert [note.partition(":")[0] for note in facts.notes] == ["The log has no end"]


def test_unexpected_fields_are_counted(tmp_path: Path) -> None:
    broken = {"Event": "SparkListenerTaskEnd", "Stage ID": "x", "Stage Attempt ID": 0}
    facts = diagnose(log(tmp_path, [*EVENTS, broken, broken])).facts
    assert (facts.tasks, facts.notes) == (4, ("2 lines of the log could not be read.",))


def test_a_log_without_tasks(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="no task of the application 'orders' has ended"):
        application(tmp_path, EVENTS[:5])


def test_failed_queries_are_noted(tmp_path: Path) -> None:
    events = [event | ({"errorMessage": "no\nOSError: full"} if "time" in event else {}) for event in EVENTS]
    assert diagnose(log(tmp_path, events)).facts.notes == (
        "1 query failed, the first in count at job.py:7: OSError: full",
    )
