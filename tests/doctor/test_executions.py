"""Executions of the same plan have metrics and stages of their own, and damaged or hostile events are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.diagnosis import diagnose
from penstock.doctor.log_files import LogFiles
from penstock.doctor.reader import read_application
from penstock.doctor.records import PlanNode, Query
from penstock.doctor.timeline import Timeline
from tests.doctor.applications import node
from tests.doctor.test_reader import EVENTS, SQL, application, log, plan, stage_completed, task_end


def execution(number: int, sql_plan: dict[str, Any], *stages: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of the start of a query that runs some stages."""
    properties = {"spark.sql.execution.id": str(number)}
    start = {"Event": f"{SQL}SparkListenerSQLExecutionStart", "executionId": number, "time": 1000 * number}
    return [
        {**start, "description": f"count at job.py:{number}", "sparkPlanInfo": sql_plan, **fields},
        {
            "Event": "SparkListenerJobStart",
            "Submission Time": 1000 * number,
            "Stage IDs": list(stages),
            "Properties": properties,
        },
    ]


def query_end(number: int, time: int) -> dict[str, Any]:
    return {"Event": f"{SQL}SparkListenerSQLExecutionEnd", "executionId": number, "time": time}


def driver_values(number: int, *values: Any) -> dict[str, Any]:
    return {"Event": f"{SQL}SparkListenerDriverAccumUpdates", "executionId": number, "accumUpdates": list(values)}


SCAN = plan("Scan parquet", 5, Location="file:/data")
TWICE = [
    *execution(1, SCAN, 0),
    driver_values(1, [7, 100]),
    task_end(0, 1000, 2000, (5, 40)),
    query_end(1, 2500),
    *execution(3, SCAN, 1),
    task_end(1, 3000, 4000, (5, 2)),
    query_end(3, 4500),
]


def test_two_executions_of_a_plan_share_no_values_and_stages(tmp_path: Path) -> None:
    app = application(tmp_path, TWICE)
    assert app.values == {1: {7: 100.0, 5: 40.0}, 3: {5: 2.0}}
    for number, stage_id, rows in ((1, 0, 40.0), (3, 1, 2.0)):
        (scan,) = app.queries[number].nodes
        assert app.value(scan, "number of output rows") == rows
        assert [stage.id for stage in app.stages_of([scan])] == [stage_id]


def test_plans_of_the_longest_queries_are_retained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.doctor.reader._MAX_PLANS", 1)
    app = application(tmp_path, [*TWICE, *execution(5, SCAN, 2), task_end(2, 5000, 9000, (5, 1)), query_end(5, 9000)])
    assert {number: bool(query.nodes) for number, query in app.queries.items()} == {1: False, 3: False, 5: True}
    assert app.values == {5: {5: 1.0}}
    assert app.dropped_plans == 2


def test_settings_and_the_command_of_a_query(tmp_path: Path) -> None:
    command = execution(1, SCAN, modifiedConfigs={"spark.sql.shuffle.partitions": "7"})
    app = application(tmp_path, [*command, *execution(2, SCAN, 0, rootExecutionId=1), task_end(0, 2000, 3000)])
    assert app.queries[1].settings == {"spark.sql.shuffle.partitions": "7"}
    assert app.root(2) is app.queries[1]
    assert app.where(2) == "count at job.py:1"


WALKS = [
    # plan, names of executed nodes, names without those of caches
    (node("ReusedExchange", node("Exchange", rows=1)), ["ReusedExchange"], ["ReusedExchange"]),
    (
        node("Union", *[node("InMemoryTableScan", node("Scan", rows=1), rows=metric) for metric in (2, 3)]),
        ["Union", "InMemoryTableScan", "Scan", "InMemoryTableScan"],
        ["Union", "InMemoryTableScan", "InMemoryTableScan"],
    ),
    (
        node("Union", *[node("Exchange", node("Scan", rows=1), rows=2) for _ in range(2)]),
        ["Union", "Exchange", "Scan"],
        ["Union", "Exchange", "Scan"],
    ),
    (node("Union", node("Range"), node("Range")), ["Union", "Range", "Range"], ["Union", "Range", "Range"]),
]


@pytest.mark.parametrize(("top", "names", "without_caches"), WALKS)
def test_executed_nodes(top: PlanNode, names: list[str], without_caches: list[str]) -> None:
    assert [part.name for part in Query(0, plan=top).nodes] == names
    assert [part.name for part in top.walk(caches=False)] == without_caches


def test_bytes_of_a_file_are_counted_once(tmp_path: Path) -> None:
    metrics = [
        {"name": "size of files read", "accumulatorId": 7},
        {"name": "number of output rows", "accumulatorId": 5},
    ]
    scan = plan("Scan parquet", 5) | {"metrics": metrics}
    app = application(
        tmp_path,
        [
            *execution(1, plan("Union", 9, scan, scan), 0),
            driver_values(1, [7, 4096]),
            task_end(0, 1000, 2000, (5, 1)),
        ],
    )
    assert app.stages[0].file_bytes == 4096


def task_start(stage: int, task: int, launch: int) -> dict[str, Any]:
    info = {"Task ID": task, "Launch Time": launch}
    return {"Event": "SparkListenerTaskStart", "Stage ID": stage, "Stage Attempt ID": 0, "Task Info": info}


@pytest.mark.parametrize(("name", "is_noted"), [("Penstock", True), ("Scan parquet", False)])
def test_queries_that_penstock_ran_are_noted(tmp_path: Path, name: str, *, is_noted: bool) -> None:
    events = [*execution(1, plan(name, 9), 0), task_end(0, 1000, 2000, (5, 1)), query_end(1, 9000)]
    notes = " ".join(diagnose(log(tmp_path, events)).facts.notes)
    assert ("Penstock ran queries of this application." in notes) is is_noted


STARTS = [*execution(1, SCAN, 0), task_start(0, 1, 1000), task_start(0, 2, 2000)]
ENDS = [task_end(0, 1000, 3000, **{"Task ID": 1}), query_end(1, 9000)]


@pytest.mark.parametrize(
    ("events", "running", "gaps"),
    [
        ([*STARTS, *ENDS], [2.0], []),
        ([*STARTS, *ENDS, stage_completed(0, **{"Completion Time": 3000})], [], [(3.0, 9.0)]),  # its event is lost
        ([*STARTS, *ENDS, {"Event": "SparkListenerApplicationEnd", "Timestamp": 9000}], [], [(3.0, 9.0)]),
    ],
)
def test_tasks_without_an_end(tmp_path: Path, events: Any, running: Any, gaps: Any) -> None:
    app = application(tmp_path, events)
    assert [stage.running for stage in app.stages] == [running]
    assert Timeline.of(app).gaps(1.0, 9.0) == gaps
    notes = " ".join(diagnose(log(tmp_path, events)).facts.notes)
    assert ("The log has no end of 1 task, up to 7.0 s after the start." in notes) is bool(running)


@pytest.mark.parametrize(
    ("info", "reason", "column"),
    [
        ({"Failed": True}, "ExceptionFailure", "failed"),
        ({"Killed": True}, "TaskKilled", "killed"),
        ({"Failed": True}, "TaskKilled", "killed"),
        ({"Failed": True}, "TaskCommitDenied", "killed"),
    ],
)
def test_killed_tasks_have_not_failed(tmp_path: Path, info: Any, reason: str, column: str) -> None:
    (stage,) = application(tmp_path, [task_end(0, 0, 1000, reason={"Reason": reason}, **info)]).stages
    assert {name for name in ("failed", "killed") if stage.tasks.column(name).any()} == {column}
    assert not stage.tasks.succeeded.any()


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("FetchFailed: no answer", "FetchFailed: no answer"),
        ("Job 3 cancelled part of cancelled job group 7", ""),
        (None, ""),
    ],
)
def test_cancelled_stages_have_not_failed(tmp_path: Path, failure: Any, expected: str) -> None:
    app = application(tmp_path, [task_end(0, 0, 1000), stage_completed(0, **{"Failure Reason": failure})])
    assert app.stages[0].failure == expected


def test_attempts_whose_result_was_lost_are_read_once(tmp_path: Path) -> None:
    events = [task_end(0, 0, 1000), task_end(0, 0, 1000, reason={"Reason": "Resubmitted"}), task_end(0, 1000, 2000)]
    assert len(application(tmp_path, events).stages[0].tasks) == 2


NULL_METRICS: dict[str, Any] = {
    "Input Metrics": {"Bytes Read": None, "Records Read": None},
    "Shuffle Read Metrics": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {"Task Metrics": NULL_METRICS},
        {"Task Metrics": {"Disk Bytes Spilled": "x", "Input Metrics": {"Bytes Read": 5}}},
        {"Task Metrics": {"Disk Bytes Spilled": [1]}},
        {"Stage ID": float("inf")},
        {"Stage ID": float("nan")},
        {"Task Info": {"Launch Time": float("inf"), "Finish Time": 1}},
        {"Task Info": {"Launch Time": 0, "Finish Time": 1, "Accumulables": None}},
        {"Task Info": None},
    ],
)
def test_damaged_events_leave_the_others_unchanged(tmp_path: Path, change: Any) -> None:
    good = task_end(0, 2000, 4000)
    app = application(tmp_path, [good, task_end(0, 1000, 4000) | change, good])
    assert app.last_event == 4.0
    durations = app.stages[0].tasks.seconds.tolist()
    assert (durations[0], durations[-1]) == (2.0, 2.0)
    assert app.stages[0].tasks.bytes.tolist()[-1] == 124.0


def test_a_field_that_is_too_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    events = [{"Event": "SparkListenerLogStart", "Spark Version": deep}, *EVENTS]
    monkeypatch.setattr(LogFiles, "events", lambda *_: iter(events))
    files = LogFiles(log(tmp_path))
    assert (len(read_application(files).stages), files.damaged_lines) == (2, 1)


ESCAPE = "a\x1b[31m\x9bb\ud800\nc"


def test_texts_have_no_control_characters_and_secrets(tmp_path: Path) -> None:
    sql_plan = plan(f"Scan password=hunter2 {ESCAPE}", 5, Location=ESCAPE) | {
        "simpleString": "x" * 1980 + " jdbc://u:hunter2-of-orders@host"
    }
    events = [
        {"Event": "SparkListenerLogStart", "Spark Version": ESCAPE},
        {"Event": "SparkListenerApplicationStart", "App Name": ESCAPE, "App ID": ESCAPE, "Timestamp": 1},
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.x": ESCAPE}},
        *execution(1, sql_plan, 0, description=ESCAPE),
        task_end(0, 1000, 2000, Failed=True, reason={"Reason": ESCAPE}),
        stage_completed(0, **{"Stage Name": f"password=hunter2 {ESCAPE}"}),
    ]
    app = application(tmp_path, events)
    (scan,) = app.queries[1].nodes
    texts = [app.name, app.id, app.spark_version, app.settings["spark.x"], app.queries[1].description]
    texts += [scan.name, scan.text, scan.metadata["Location"], app.stages[0].name, app.stages[0].failed_reason]
    for text in texts:
        assert text.isprintable()
        assert "hunter2" not in text
        assert "abc" not in text


@pytest.mark.parametrize(
    ("task_cpus", "cores"),
    [
        ("2", [(0.9, 4), (0.9, 1), (5.0, -4)]),
        ("1", [(0.9, 8), (0.9, 1), (5.0, -8)]),
        ("x", [(0.9, 8), (0.9, 1), (5.0, -8)]),
    ],
)
def test_cores_per_task(tmp_path: Path, task_cpus: str, cores: Any) -> None:
    """The settings may follow the first executor."""
    added = "SparkListenerExecutorAdded"
    events = [
        {"Event": added, "Timestamp": 900, "Executor ID": "1", "Executor Info": {"Total Cores": 8}},
        {"Event": added, "Timestamp": 900, "Executor ID": "2", "Executor Info": {"Total Cores": 1}},
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.task.cpus": task_cpus}},
        {"Event": "SparkListenerExecutorRemoved", "Timestamp": 5000, "Executor ID": "1"},
        task_end(0, 0, 1000),
    ]
    assert application(tmp_path, events).cores == cores


def test_gaps_of_adjacent_intervals(tmp_path: Path) -> None:
    """An executor that is added while no task runs does not divide a gap."""
    added = {
        "Event": "SparkListenerExecutorAdded",
        "Timestamp": 2500,
        "Executor ID": "1",
        "Executor Info": {"Total Cores": 8},
    }
    timeline = Timeline.of(application(tmp_path, [task_end(0, 1000, 2000), added, task_end(0, 3000, 4000)]))
    assert timeline.gaps(0.0, 9.0) == [(0.0, 1.0), (2.0, 3.0), (4.0, 9.0)]
    assert timeline.gaps(2.2, 2.4) == [(2.2, 2.4)]
    assert timeline.gaps(1.0, 2.0) == []
    assert timeline.gaps(3.5, 3.5) == []
