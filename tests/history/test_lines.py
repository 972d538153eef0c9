"""Typed events are converted to log lines in a stable format, and log lines to records."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from penstock.decisions.log import Choice, DecisionKind, DecisionLog, NodeRef
from penstock.events import (
    ChangeRefused,
    ErrorOccurred,
    ExecutionState,
    GraphChanged,
    GraphPlanned,
    JobEventBus,
    JobStateChanged,
    OutputCompared,
    VertexChanged,
    VertexSnapshot,
    VerticesCreated,
)
from penstock.graph import GraphChange, JobEdge, JobVertex, RefusedChange
from penstock.graph.partitioner import BROADCAST
from penstock.history.lines import EventLines
from penstock.history.record import JobRecord
from penstock.testing import stream_graph
from penstock.web import pages, views
from penstock.web.listing import JobPageQuery

GRAPH = stream_graph("1 #> 2\n2 -> 3")
READ = JobVertex("v1", "n1", (1,), (), None, None)
JOIN = JobVertex("v2", "n2 -> n3", (2, 3), (JobEdge(GRAPH.edge("1-2"), "v1", "v2"),), None, 8)
LOG = DecisionLog()
SMALL = LOG.record(Choice(DecisionKind.BROADCAST, NodeRef(2, "n2"), "right", "it is small", {"bytes": 7}))
CHANGED = GRAPH.replace(edges=[type(GRAPH.edge("1-2"))("1-2", 1, 2, BROADCAST)])
CHANGE = GraphChange((), ((GRAPH.edge("1-2"), CHANGED.edge("1-2")),), decision=SMALL)
RUN = VertexSnapshot(
    READ, ExecutionState.FINISHED, 2, "as measured", 2, 1000, 500, 50, [10, 490], {ExecutionState.RUNNING: 11.0}
)


def lines(*events: Any) -> Any:
    converter = EventLines()
    return [line for event in events for line in converter.lines_of(event)]


def test_planned_graph() -> None:
    nodes, edges = lines(GraphPlanned(GRAPH, at=1.0))
    assert (nodes["type"], nodes["at"], [node["id"] for node in nodes["nodes"]]) == ("nodes", 1.0, ["1", "2", "3"])
    assert set(nodes["nodes"][0]) == {
        "id",
        "kind",
        "name",
        "description",
        "parallelism",
        "max_parallelism",
        "location",
        "label",
        "tables",
        "keys",
    }
    assert edges["edges"][0] == {
        "id": "1-2",
        "source": "1",
        "target": "2",
        "input": 1,
        "partitioner": "HASH(k)",
        "words": "shuffled by k",
        "exchange": "BLOCKING",
    }


def test_changed_graph_names_its_decision() -> None:
    *_, edges, change = lines(GraphPlanned(GRAPH), GraphChanged(CHANGE, at=2.0))
    assert edges["edges"][0]["partitioner"] == "BROADCAST"
    assert change == {
        "type": "change",
        "at": 2.0,
        "what": "edge from n1 to n2",
        "before": "HASH(k)",
        "after": "BROADCAST",
        "node": "2",
        "decision": 0,
        "sentence": "n2: right, as it is small",
        "shown": True,
    }


def test_vertices_and_their_counts() -> None:
    created = VerticesCreated((VertexSnapshot(READ), VertexSnapshot(JOIN)), 1)
    log_lines = lines(
        JobStateChanged(ExecutionState.RUNNING, 3),
        created,
        VertexChanged(RUN, at=12.0),
        JobStateChanged(ExecutionState.FINISHED, 1, at=13.0),
    )
    assert [line["type"] for line in log_lines] == ["state", "vertex", "vertex", "state", "vertex", "state"]
    assert {key: log_lines[2][key] for key in ("id", "name", "nodes", "max_parallelism", "inputs", "state")} == {
        "id": "v2",
        "name": "n2 -> n3",
        "nodes": ["2", "3"],
        "max_parallelism": 8,
        "inputs": [{"vertex": "v1", "edge": "1-2"}],
        "state": "CREATED",
    }
    assert log_lines[4] == {
        "type": "vertex",
        "at": 12.0,
        "id": "v1",
        "state": "FINISHED",
        "parallelism": 2,
        "reason": "as measured",
        "tasks": 2,
        "bytes_in": 1000,
        "bytes_out": 500,
        "rows_out": 50,
        "timestamps": {"RUNNING": 11.0},
        "subpartitions": [10, 490],
        "subpartition_count": 2,
    }
    assert [(line["state"], line["pending"]) for line in log_lines if line["type"] == "state"] == [
        ("RUNNING", 3),
        ("RUNNING", 1),
        ("FINISHED", 1),
    ]
    none = {"SCHEDULED": 0, "RUNNING": 0, "FAILED": 0, "CANCELED": 0}
    assert log_lines[3]["counts"] == none | {"CREATED": 2, "FINISHED": 0, "pending-operators": 1}
    assert log_lines[5]["counts"] == none | {"CREATED": 1, "FINISHED": 1, "pending-operators": 1}


def test_unknown_figures_and_many_subpartitions() -> None:
    unknown = VertexSnapshot(READ, subpartitions=range(1000))
    _, line, *_ = lines(JobStateChanged(ExecutionState.RUNNING), VerticesCreated((unknown,), 0))
    assert [line[key] for key in ("parallelism", "tasks", "bytes_in", "bytes_out", "rows_out")] == [-1] * 5
    assert line["subpartition_count"] == 1000
    assert line["subpartitions"][:3] == [2, 5, 8]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n" * 300, "n" * 300),
        ("n" * 301, "n" * 299 + "…"),
        ("join customer " * 30, ("join customer " * 30)[:299].rstrip() + "…"),
    ],
)
def test_long_names_are_cut_with_an_ellipsis(name: str, expected: str) -> None:
    snapshot = VertexSnapshot(JobVertex("v1", name, (1,), (), None, None))
    _, line, *_ = lines(JobStateChanged(ExecutionState.RUNNING), VerticesCreated((snapshot,), 0))
    assert line["name"] == expected


def test_decision_and_its_outcome() -> None:
    account = JobEventBus()
    log = DecisionLog(account)
    for subject in (NodeRef(1, "n1"), NodeRef(2, "n2")):
        log.record(Choice(DecisionKind.SKEW, subject, "left", "for jdbc:x://me:hunter2@db"))
    log.settle(1, tasks=4)
    log_lines = lines(*account.events)
    assert [(line["index"], line["subject"], line["nodes"], line["outcome"]) for line in log_lines] == [
        (0, "1 n1", ["1"], {}),
        (1, "2 n2", ["2"], {}),
        (1, "2 n2", ["2"], {"tasks": 4}),
    ]
    assert len({line["at"] for line in log_lines[1:]}) == 1  # the time of the decision
    assert "hunter2" not in json.dumps(log_lines)


def test_error_names_its_vertex() -> None:
    try:
        raise ValueError("jdbc:x://me:hunter2@db is away")
    except ValueError as error:
        trace = "Traceback\n" + "x" * 100_000 + f"ValueError: {error}"
        (line,) = lines(ErrorOccurred(error, trace, "v2", at=3.0))
    assert (line["type"], line["at"], line["vertex"]) == ("exception", 3.0, "v2")
    assert line["trace"].endswith("@db is away")
    assert len(line["trace"]) < 100_000
    assert "hunter2" not in json.dumps(line)


def test_a_secret_after_a_long_secret_is_masked() -> None:
    """The mask is shorter than the secret, so text moves into the logged part."""
    long_secret, short_secret = f"token={'x' * 7000} ", "jdbc:x://me:hunter2@db"
    for gap in range(940, 1010):
        error, trace = ValueError(long_secret + "a" * gap + " " + short_secret), f"{short_secret} {long_secret}"
        (line,) = lines(ErrorOccurred(error, trace + "a" * (gap - 20), "v2", at=3.0))
        assert not re.search("hun|nter2", json.dumps(line))


def test_comparison_with_plain_spark() -> None:
    job = JobRecord()
    job.apply_all(lines(OutputCompared("out", "equal", 2.0, 3.0), OutputCompared("other", "equal", 2.0, 4.0)))
    assert (job.seconds_without_comparison(9.0), job.spark_seconds) == (2.0, 7.0)
    job.apply_all(lines(OutputCompared("third", "computed by Spark", 2.0, None)))
    assert job.spark_seconds is None


@pytest.fixture
def record() -> Any:
    refused = RefusedChange(
        (),
        "the step has started already",
        Choice(DecisionKind.SKEW, NodeRef(1, "n1"), "split", "it is large"),
        "n1 is frozen",
    )
    job = JobRecord()
    job.apply_all(
        json.loads(
            json.dumps(
                lines(
                    JobStateChanged(ExecutionState.RUNNING, 3),
                    GraphPlanned(GRAPH),
                    GraphChanged(CHANGE),
                    ChangeRefused(refused),
                    VerticesCreated((VertexSnapshot(READ),), 2),
                    VertexChanged(RUN),
                )
            )
        )
    )
    log = DecisionLog(account := JobEventBus())
    log.record(SMALL)
    log.settle(0, instead="shuffled", because="no room")
    job.apply_all(lines(*account.events))
    return job


def test_record_has_changes_and_rejected_changes(record: Any) -> None:
    answer = views.job_decisions(record)
    assert [change["decision"] for change in answer["changes"]] == [0]
    assert answer["decisions"][0]["outcome"] == {"instead": "shuffled", "because": "no room"}
    assert [(change["what"], change["because"]) for change in answer["refused"]] == [
        ("n1: split, as it is large", "the step has started already")
    ]
    assert record.status_counts() == {
        "CREATED": 0,
        "SCHEDULED": 0,
        "RUNNING": 0,
        "FINISHED": 1,
        "FAILED": 0,
        "CANCELED": 0,
        "pending-operators": 2,
    }
    page = pages.job(record, 20.0, JobPageQuery(pending=True))
    assert "Instead: shuffled, because no room" in page
    assert "1 rejected change" in page
    assert "n1: split, as it is large. Not done because the step has started already" in page


def test_changes_in_logs_of_older_releases_have_no_decision(record: Any) -> None:
    old = {"type": "change", "at": 1.0, "what": "x", "before": "a", "after": "b", "reasons": ["r"], "node": "2"}
    record.apply(old)
    assert (record.changes[-1].decision, record.changes[-1].sentence) == (None, "r")
    assert "n1: split" in pages.job(record, 20.0, JobPageQuery(pending=True))
